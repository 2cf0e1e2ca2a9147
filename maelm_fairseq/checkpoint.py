"""Checkpoints of this plugin: found, read without executing anything, made into models."""

import os

from .compat import load_checkpoint
from .errors import MissingFileError, UsageError
from .model import MaeLmConfig, MaeLmModel, fingerprint


def load_model(checkpoint_file, dictionary):
    """Loads the model of a checkpoint: its sizes, its heads, its decoder if it has one; on the CPU.

    Args:
        checkpoint_file: path of a `.pt` file
        dictionary: fairseq's, with `<mask>`, that it was trained with
    Returns:
        :class:`~maelm_fairseq.model.MaeLmModel`, in evaluation mode
    Raises:
        FileNotFoundError: no such file
        ValueError: not a checkpoint of this model, or one of another dictionary
    """
    checkpoint_file = os.fspath(checkpoint_file)
    return build_model(read_checkpoint(checkpoint_file), dictionary, checkpoint_file)


def find_checkpoint(path):
    """The checkpoint that a path means: the file itself, or a folder's best, or else last."""
    if not os.path.isdir(path):
        return path
    names = ["checkpoint_best.pt", "checkpoint_last.pt"]
    for name in names:
        if os.path.isfile(os.path.join(path, name)):
            return os.path.join(path, name)
    there = ", ".join(sorted(os.listdir(path))) or "nothing"
    raise MissingFileError(f"{path}: found neither {' nor '.join(names)}, it has: {there}; name the checkpoint's file")


def read_checkpoint(checkpoint_file):
    """What fairseq wrote into a checkpoint of this plugin; nothing in it is executed."""
    if not os.path.isfile(checkpoint_file):
        raise MissingFileError(f"{checkpoint_file}: not found, expected a checkpoint (a .pt file)")
    try:
        state = load_checkpoint(checkpoint_file)
    except Exception as error:  # the type depends on the file's contents
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"{checkpoint_file}: cannot be read as a checkpoint ({reason}); expected a whole .pt file of fairseq-train"
        ) from None
    weights = state.get("model") if isinstance(state, dict) else None
    if not isinstance(weights, dict) or "dictionary_fingerprint" not in weights or not state.get("cfg"):
        raise UsageError(
            f"{checkpoint_file}: not a checkpoint of MAE-LM, expected one that fairseq-train wrote with --arch mae_lm_..."
        )
    return state


def build_model(state, dictionary, checkpoint_file):
    """The model of what :func:`read_checkpoint` gave; see :func:`load_model`."""
    weights, cfg = state["model"], state["cfg"]["model"]
    if weights["dictionary_fingerprint"] != fingerprint(dictionary):
        raise UsageError(
            f"{checkpoint_file}: trained with another dict.txt, of {len(weights['embed_tokens.weight']):,} symbols "
            f"where this one has {len(dictionary):,} (specials and <mask> counted); use the one that it was trained with"
        )
    cfg = MaeLmConfig(**{name: cfg[name] for name in MaeLmConfig.__dataclass_fields__ if name in cfg})
    model = MaeLmModel(cfg, dictionary, pretraining=any(key.startswith("lm_head.") for key in weights))
    for name in dict.fromkeys(key.split(".")[1] for key in weights if key.startswith("classification_heads.")):
        head = f"classification_heads.{name}."
        if head + "dense.weight" in weights:
            classes, inner = len(weights[head + "out_proj.weight"]), len(weights[head + "dense.weight"])
            model.register_classification_head(name, num_classes=classes, inner_dim=inner)
        else:
            model.register_span_head(name)
    model.load_state_dict(weights, strict=True)
    return model.eval()
