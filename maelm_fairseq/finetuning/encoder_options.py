"""The options of the encoder that fine-tuning takes from the checkpoint from which it starts."""

from ..checkpoints.compatibility import ENCODER_OPTIONS, check_configuration
from ..fairseq_api import models
from ..state_dicts import HEAD_PREFIX

# Options of the model that are copied from the checkpoint; only effective_rank needs the last two.
OPTIONS_OF_CHECKPOINT = [*ENCODER_OPTIONS, "share_decoder_layers", "decoder_layers"]


def copy_encoder_options(path, checkpoint, cfg):
    """Copies the options of the encoder from a checkpoint, in place, unless they are set already.

    Args:
        path: path of the checkpoint, for messages
        checkpoint: from `building.read_checkpoint`
        cfg: the options of the model
    Raises:
        UsageError: an option is set to something else than in the checkpoint
    """
    saved = checkpoint["cfg"]["model"]
    unset = names_of_defaults(cfg)
    set_by_user = [name for name in OPTIONS_OF_CHECKPOINT if name not in unset]
    check_configuration(saved, cfg, set_by_user, path)
    names = list(OPTIONS_OF_CHECKPOINT)
    if any(name.startswith(HEAD_PREFIX) for name in checkpoint["model"]):
        names.append("classification_pooling")
    for name in names:
        if name in unset:
            cfg[name] = saved[name]


def names_of_defaults(cfg):
    """The names of the options of a model that have their default."""
    default = models.MODEL_DATACLASS_REGISTRY[cfg._name]()
    names = [*OPTIONS_OF_CHECKPOINT, "classification_pooling"]
    return {name for name in names if str(cfg[name]) == str(getattr(default, name))}
