"""What fairseq's functions get of a checkpoint: known keys, and sections that are our own.

fairseq evaluates strings in some configurations. So it gets a section of a configuration only if it
is of a model, task or criterion of this plugin, or of one derived from it, and in this section only
options that the dataclass has.
"""

from dataclasses import asdict, fields

from omegaconf import DictConfig

from ..base.errors import UsageError
from ..base.typed_values import as_type
from ..fairseq_api import criterions, models, tasks
from ..model import MaeLmModel
from .building import upgraded_checkpoint
from .reading import read_torch_file

# What fairseq saves, without the `args` of old releases, which it would prefer to `cfg`.
KEPT_KEYS = [
    "cfg",
    "model",
    "criterion",
    "optimizer_history",
    "task_state",
    "extra_state",
    "last_optimizer_state",
]
REGISTRIES = {
    "model": (models.MODEL_REGISTRY, models.MODEL_DATACLASS_REGISTRY),
    "task": (tasks.TASK_REGISTRY, tasks.TASK_DATACLASS_REGISTRY),
    "criterion": (criterions.CRITERION_REGISTRY, criterions.CRITERION_DATACLASS_REGISTRY),
}
COMPONENTS = ["criterion", "optimizer", "lr_scheduler"]  # of a run: only their names are kept
# fairseq's own for fine-tuning: it reads only numbers, names and paths.
SAFE_FAIRSEQ_NAMES = ["sentence_prediction"]


def read_for_fairseq(path):
    """Reads a checkpoint for fairseq's functions; see `sanitized_for_fairseq`."""
    return sanitized_for_fairseq(read_torch_file(path), path)


def sanitized_for_fairseq(checkpoint, path):
    """What fairseq's functions get of a `checkpoint` that `reading.read_torch_file` returned.

    Raises UsageError: it is not a checkpoint of fairseq's, or an option has a value of another type
    """
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        raise UsageError(f"{path}: found no model weights; expected a file of fairseq-train")
    cfg = checkpoint["cfg"] if isinstance(checkpoint.get("cfg"), dict) else {}
    if is_plugin_model(cfg):
        checkpoint = upgraded_checkpoint(checkpoint, path)
        cfg = checkpoint["cfg"]
    sections = {part: checked_section_options(part, cfg.get(part), path) for part in REGISTRIES}
    kept = {key: checkpoint[key] for key in KEPT_KEYS if key in checkpoint}
    kept["cfg"] = {part: options for part, options in sections.items() if options is not None}
    optimization = cfg.get("optimization")
    kept["max_update"] = optimization.get("max_update") if isinstance(optimization, dict) else None
    kept["components"] = {part: component_name(cfg.get(part)) for part in COMPONENTS}
    return kept


def is_plugin_model(cfg):
    """Whether a configuration is for this plugin's model, or one derived from it.

    `cfg` is a dict, or a configuration of fairseq's.
    """
    registered = models.MODEL_REGISTRY.get(component_name(cfg.get("model")))
    return registered is not None and issubclass(registered, MaeLmModel)


def component_name(section):
    """What a section of a configuration configures: its `_name`; None if it has none."""
    if isinstance(section, (dict, DictConfig)):
        name = section.get("_name")
    else:
        name = getattr(section, "_name", None)
    return name if isinstance(name, str) else None


def is_fairseq_builtin(part, name):
    """Whether a model, task or criterion of this name is fairseq's own.

    This plugin's models and checkpoints use none of these, except for SAFE_FAIRSEQ_NAMES.
    """
    registry, _ = REGISTRIES[part]
    registered = registry.get(name)
    if registered is None or name in SAFE_FAIRSEQ_NAMES:
        return False
    return registered.__module__.startswith("fairseq.")


def checked_section_options(part, section, path):
    """The options in a section of a checkpoint's configuration.

    Args:
        part: "model", "task" or "criterion"
        section: what the configuration has for it
        path: path of the checkpoint
    Returns: dict of the options that the dataclass has; None if there is no dataclass, and for a
        part that is neither of this plugin nor derived from one that is
    """
    registry, dataclasses = REGISTRIES[part]
    name = component_name(section)
    config_class = dataclasses.get(name)
    if config_class is None or is_fairseq_builtin(part, name):
        return None
    names = [field.name for field in fields(config_class)]
    options = {option: section[option] for option in names if option in section}
    if not registry.get(name).__module__.startswith("fairseq."):
        checked = asdict(as_type(config_class, options, f"{path}: {part}"))
        options = {option: checked[option] for option in options}
    return {**options, "_name": name}
