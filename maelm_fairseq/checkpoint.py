"""Checkpoints of this plugin: finding them, reading them without executing anything, building their models."""

import os

from .compat import load_checkpoint, use_current_names
from .errors import MissingFileError, UsageError
from .heads import build_head, head_descriptions
from .model import MaeLmConfig, MaeLmModel, drop_modules, modules
from .vocabulary import fingerprint


def load_model(checkpoint_file, dictionary):
    """Builds the model of a checkpoint on the CPU: its encoder, its heads, and its decoder if it has one.

    Args:
        checkpoint_file: path of a `.pt` file
        dictionary: the one it was trained with, with `<mask>`
    Returns:
        :class:`~maelm_fairseq.model.MaeLmModel`, in evaluation mode
    Raises:
        FileNotFoundError: there is no such file
        ValueError: not a checkpoint of MAE-LM, or trained with another dictionary
    """
    checkpoint_file = os.fspath(checkpoint_file)
    return build_model(read_checkpoint(checkpoint_file), dictionary, checkpoint_file)


def find_checkpoint(path):
    """The checkpoint file for a path: the file itself, or a folder's best checkpoint, or else its last."""
    if not os.path.isdir(path):
        return path
    names = ["checkpoint_best.pt", "checkpoint_last.pt"]
    for name in names:
        if os.path.isfile(os.path.join(path, name)):
            return os.path.join(path, name)
    found = ", ".join(sorted(os.listdir(path))) or "nothing"
    raise MissingFileError(f"{path}: expected {' or '.join(names)}, found {found}; give the path of a checkpoint file")


def read_checkpoint(checkpoint_file):
    """Reads a checkpoint of this plugin, as fairseq wrote it; nothing in it is executed.

    Raises:
        FileNotFoundError: there is no such file
        ValueError: it cannot be read, or is not a checkpoint of MAE-LM
    """
    state = read_pickle(checkpoint_file)
    weights = state.get("model") if isinstance(state, dict) else None
    if not isinstance(weights, dict) or "dictionary_fingerprint" not in weights or not state.get("cfg"):
        raise UsageError(
            f"{checkpoint_file}: not a checkpoint of MAE-LM; expected one from fairseq-train --arch mae_lm_..."
        )
    return state


def read_pickle(path, writer="fairseq-train"):
    """Reads what torch.save wrote; nothing in it is executed.

    Args:
        path: of the file
        writer: the program that writes such files, for the error message
    Raises:
        FileNotFoundError: there is no such file
        ValueError: it cannot be read
    """
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: not found, expected a checkpoint (a .pt file)")
    try:
        return load_checkpoint(path)
    except Exception as error:  # the type depends on the file's contents
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"{path}: cannot be read as a checkpoint ({reason}); expected a complete file of {writer}"
        ) from None


def build_model(state, dictionary, checkpoint_file):
    """Builds the model of a checkpoint that :func:`read_checkpoint` returned; see :func:`load_model`."""
    weights, cfg = state["model"], state["cfg"]["model"]
    if weights["dictionary_fingerprint"] != fingerprint(dictionary):
        raise UsageError(
            f"{checkpoint_file}: trained with another dict.txt, of {len(weights['embed_tokens.weight']):,} symbols "
            f"where this one has {len(dictionary):,} (with special symbols and <mask>); use the one it was trained with"
        )
    cfg = MaeLmConfig(**{name: cfg[name] for name in MaeLmConfig.__dataclass_fields__ if name in cfg})
    use_current_names(cfg)
    model = MaeLmModel(cfg, dictionary, pretraining="lm_head.bias" in weights)
    for name, description in head_descriptions(weights).items():
        model.register_head(name, build_head(description, cfg.encoder_embed_dim, cfg.pooler_dropout, name))
    # Objectives beside MAE-LM may have pretrained modules of their own.
    drop_modules(weights, modules(weights) - modules(model.state_dict()))
    try:
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:  # weights are missing, surplus, or of other shapes
        raise UsageError(f"{checkpoint_file}: damaged: {' '.join(str(error).split())}") from None
    return model.eval()
