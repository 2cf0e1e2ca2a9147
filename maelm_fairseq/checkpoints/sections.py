"""What fairseq's functions get of a checkpoint: known keys, and of the configuration our own sections alone.

fairseq evaluates strings of some configurations. So it gets no section of a model, task or criterion that is not this
plugin's, or derived from it, and of these only options that their dataclasses have.
"""

from dataclasses import asdict, fields

from omegaconf import DictConfig

from ..base.errors import UsageError
from ..base.typed_values import typed
from ..engine import criterions, models, tasks
from ..model import MaeLmModel
from .building import as_checkpoint

# What fairseq saves, without the `args` of old releases, which it would prefer to `cfg`.
KEYS = ["cfg", "model", "criterion", "optimizer_history", "task_state", "extra_state", "last_optimizer_state"]
REGISTRIES = {
    "model": (models.MODEL_REGISTRY, models.MODEL_DATACLASS_REGISTRY),
    "task": (tasks.TASK_REGISTRY, tasks.TASK_DATACLASS_REGISTRY),
    "criterion": (criterions.CRITERION_REGISTRY, criterions.CRITERION_DATACLASS_REGISTRY),
}
COMPONENTS = ["criterion", "optimizer", "lr_scheduler"]  # of a run, whose names are kept beside
HARMLESS = ["sentence_prediction"]  # fairseq's own for fine-tuning: it reads only numbers, names and paths


def for_fairseq(state, path):
    """What fairseq's functions get of what `reading.read_file` returned.

    Raises ValueError: it is not a checkpoint of fairseq's, or an option has a value of another type
    """
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UsageError(f"{path}: it has no weights of a model; expected a file of fairseq-train")
    cfg = state["cfg"] if isinstance(state.get("cfg"), dict) else {}
    if is_of_our_model(cfg):
        state = as_checkpoint(state, path)
        cfg = state["cfg"]
    sections = {part: our_options(part, cfg.get(part), path) for part in REGISTRIES}
    known = {key: state[key] for key in KEYS if key in state}
    known["cfg"] = {part: options for part, options in sections.items() if options is not None}
    return {**known, "components": {part: name_in(cfg.get(part)) for part in COMPONENTS}}


def is_of_our_model(cfg):
    """Whether a configuration, a dict or fairseq's, is for this plugin's model, or one derived from it."""
    registered = models.MODEL_REGISTRY.get(name_in(cfg.get("model")))
    return registered is not None and issubclass(registered, MaeLmModel)


def name_in(section):
    """What a section of a configuration configures: its `_name`; None if it has none."""
    name = section.get("_name") if isinstance(section, (dict, DictConfig)) else getattr(section, "_name", None)
    return name if isinstance(name, str) else None


def is_fairseqs(part, name):
    """Whether a model, task or criterion of this name is fairseq's own: neither our models nor checkpoints have it."""
    known = REGISTRIES[part][0].get(name)
    return known is not None and known.__module__.startswith("fairseq.") and name not in HARMLESS


def our_options(part, section, path):
    """The options in a section of a checkpoint's configuration, of a part of this plugin or of one derived from it.

    Returns:
        dict of the options that its dataclass has; None for any other model, task or criterion, or without a dataclass
    """
    registry, dataclasses = REGISTRIES[part]
    name = name_in(section)
    known, kind = registry.get(name), dataclasses.get(name)
    if kind is None or is_fairseqs(part, name):
        return None
    options = {field.name: section[field.name] for field in fields(kind) if field.name in section}
    if not known.__module__.startswith("fairseq."):
        checked = asdict(typed(kind, options, f"{path}: {part}"))
        options = {option: checked[option] for option in options}
    return {**options, "_name": name}
