"""Whether a checkpoint names only classes of this plugin: fairseq's commands build whatever its configuration names.

Some of fairseq's own models and criterions evaluate strings of their configuration, so `fairseq-validate --path` would
run code from a hostile file, however safely it is read.
"""

from argparse import Namespace

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from ..errors import UsageError

REGISTRIES = {"model": MODEL_REGISTRY, "task": TASK_REGISTRY, "criterion": CRITERION_REGISTRY}
# Of fairseq itself: what fine-tuning uses, which only reads numbers, names and paths.
HARMLESS = {"task": ["sentence_prediction"], "criterion": ["sentence_prediction"]}


def named_parts(state):
    """The model, task and criterion that the configuration of a checkpoint names: {part: name or None}."""
    cfg, names = state.get("cfg") if isinstance(state, dict) else None, {}
    for part in REGISTRIES:
        section = cfg.get(part) if isinstance(cfg, dict) else None
        section = vars(section) if isinstance(section, Namespace) else section  # of models without a dataclass
        name = section.get("_name") or section.get("arch") if isinstance(section, dict) else None
        names[part] = name if isinstance(name, str) else None
    return names


def is_trusted(part, name):
    """Whether a model, task or criterion is of this plugin, or of another one that the user has loaded."""
    known = REGISTRIES[part].get(name)
    return known is not None and (not known.__module__.startswith("fairseq.") or name in HARMLESS.get(part, []))


def check_origin(checkpoint_file, state):
    """Refuses a checkpoint whose configuration names a model, task or criterion of fairseq's own.

    Args:
        checkpoint_file: for the message
        state: its contents
    """
    for part, name in named_parts(state).items():
        if not is_trusted(part, name):
            raise UsageError(
                f"{checkpoint_file}: its configuration names the {part} {name!r}, expected one of this plugin: fairseq "
                "would build it, and may run code from the file; `python -m maelm_fairseq.checkpoint FILE` says what "
                "is in it"
            )
