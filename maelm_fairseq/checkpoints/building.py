"""Checkpoints of this plugin: finding them, reading them without executing anything, building their models."""

import os

from ..base.errors import MissingFileError, UsageError
from ..config import MaeLmConfig, check_sizes
from ..heads import build_head, head_descriptions
from ..model import MaeLmModel, drop_modules, modules
from ..vocabulary import fingerprint
from .checkpoint_files import check_whole
from .reading import load_checkpoint
from .stored_sizes import stored_sizes


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
    weights, cfg = (state.get(name) if isinstance(state, dict) else None for name in ["model", "cfg"])
    parts = [weights, cfg, *(isinstance(cfg, dict) and cfg.get(name) for name in ["model", "task"])]
    if not all(isinstance(part, dict) for part in parts) or "dictionary_fingerprint" not in weights:
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
    check_whole(path)
    try:
        return load_checkpoint(path)
    except Exception as error:  # the type depends on the file's contents
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"{path}: cannot be read as a checkpoint ({reason}); expected a complete file of {writer}"
        ) from None


def build_model(state, dictionary, checkpoint_file):
    """Builds the model of a checkpoint that :func:`read_checkpoint` returned; see :func:`load_model`."""
    weights = state["model"]
    if weights["dictionary_fingerprint"] != fingerprint(dictionary):
        symbols = stored_sizes(weights)["vocabulary (dict.txt)"]
        raise UsageError(
            f"{checkpoint_file}: trained with another dict.txt, of {symbols:,} symbols where this one has "
            f"{len(dictionary):,} (with special symbols and <mask>); use the one it was trained with"
        )
    try:
        return build_and_load(weights, state["cfg"]["model"], dictionary)
    except UsageError as error:  # sizes, NaN
        raise UsageError(f"{checkpoint_file}: {error}") from None


def build_and_load(weights, cfg, dictionary):
    """The model of weights and of the section of the configuration that belongs to them, in evaluation mode."""
    cfg = MaeLmConfig(**{name: cfg[name] for name in MaeLmConfig.__dataclass_fields__ if name in cfg})
    check_sizes(cfg)
    model = MaeLmModel(cfg, dictionary, pretraining="lm_head.bias" in weights)
    for name, description in head_descriptions(weights).items():
        head = build_head(description, cfg.encoder_embed_dim, cfg.pooler_dropout, name)
        model.register_head(name, head)
    # Objectives beside MAE-LM may have pretrained modules of their own.
    drop_modules(weights, modules(weights) - modules(model.state_dict()))
    try:
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:  # weights are missing, surplus, or of other shapes
        raise UsageError(f"damaged: {' '.join(str(error).split())[:500]}") from None
    return model.eval()
