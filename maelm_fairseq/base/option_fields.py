"""Fields of dataclasses that are options of fairseq."""

from argparse import Namespace
from dataclasses import field, fields

from .ranges import INT32_MAX, Range


def setting(default, help, minimum=None, maximum=None, excluded=()):
    """A field with a default, the help text of its option and, for a number, its range.

    With only one of `minimum` and `maximum`, the other is -INT32_MAX or INT32_MAX. See
    `ranges.Range`.
    """
    metadata = {"help": help}
    if minimum is not None or maximum is not None:
        minimum = -INT32_MAX if minimum is None else minimum
        maximum = INT32_MAX if maximum is None else maximum
        metadata["range"] = Range(minimum, maximum, excluded)
    return field(default=default, metadata=metadata)


def option_name(name):
    """The option of a field: --max-positions for max_positions."""
    return "--" + name.replace("_", "-")


def as_dict(section):
    """A section of fairseq's configuration, {name: value}.

    fairseq has a Namespace for what has no dataclass. Other sections are not used as they are, as
    their `get` refuses unknown names in older versions of omegaconf.
    """
    return vars(section) if isinstance(section, Namespace) else dict(section)


def check_ranges(cfg, config_class):
    """Refuses a configuration with a value out of the range of its `setting`.

    Args:
        cfg: an object with the attributes of the dataclass
        config_class: the dataclass
    Raises UsageError: names the first of them
    """
    for definition in fields(config_class):
        if "range" in definition.metadata:
            value = getattr(cfg, definition.name)
            definition.metadata["range"].check(value, option_name(definition.name))
