"""Fields of dataclasses that are options of fairseq, and what fairseq takes from its environment."""

from argparse import Namespace
from dataclasses import field, fields

from .ranges import MOST, Range

TINY = 1e-9  # the least of what must be over 0, and the distance from 1 of what must be under it

# Variables by which fairseq takes a process for one of several, whatever its options say.
CLUSTER = ["WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"]


def setting(default, help, least=None, most=MOST):
    """A field with a default, with the text that --help shows of its option and, of a number, its range."""
    metadata = {"help": help}
    if least is not None:
        metadata["range"] = Range(least, most)
    return field(default=default, metadata=metadata)


def option(name):
    """The option of a field: --max-positions for max_positions."""
    return "--" + name.replace("_", "-")


def as_dict(section):
    """A section of fairseq's configuration, {name: value}; fairseq has a Namespace for what has no dataclass.

    The `get` of others refuses unknown names in older versions of omegaconf.
    """
    return vars(section) if isinstance(section, Namespace) else dict(section)


def validate(values, kind):
    """Refuses values of the fields of a dataclass, `kind`, that are out of the range of their `setting`.

    Raises ValueError: the first of them
    """
    for each in fields(kind):
        if "range" in each.metadata:
            each.metadata["range"].check(getattr(values, each.name), option(each.name))
