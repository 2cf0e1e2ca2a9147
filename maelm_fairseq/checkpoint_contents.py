"""Checks of what is in a checkpoint, before anything is built from it: damaged and hostile files end in one line."""

import torch

from .arguments import SURROGATE
from .errors import UsageError

NEEDED = ["model", "task"]  # sections of fairseq's configuration that must be there
SECTIONS = [*NEEDED, "checkpoint", "dataset", "lr_scheduler", "optimization", "optimizer"]  # that this package reads
DEPTH = 4  # of lists and dicts in a section: a pickle can contain itself


def check_contents(state, checkpoint_file):
    """Refuses a checkpoint whose parts are not of the types that fairseq-train writes.

    Args:
        state: dict with the dicts `cfg` and `model`, the latter with a `dictionary_fingerprint`
        checkpoint_file: for the message
    """
    problem = next(problems(state), None)
    if problem:
        raise UsageError(f"{checkpoint_file}: damaged: {problem}; use another checkpoint")


def problems(state):
    """What is wrong with a checkpoint, as parts of a message."""
    cfg, history, extra = state["cfg"], state.get("optimizer_history"), state.get("extra_state")
    for name in SECTIONS:
        section = cfg.get(name)
        if section is None and name not in NEEDED:
            continue
        if not isinstance(section, dict) or not is_plain(section):
            yield f"section {name!r} of 'cfg' is {found(section)}, expected an object of numbers and strings"
        elif not isinstance(section.get("_name", ""), (str, type(None))):
            yield f"'_name' in section {name!r} of 'cfg' is {found(section['_name'])}, expected a string"
    if history is not None and not (isinstance(history, list) and all(map(is_record_of_updates, history))):
        yield f"'optimizer_history' is {found(history)}, expected a list of objects with 'num_updates'"
    if extra is not None and not isinstance(extra, dict):
        yield f"'extra_state' is {found(extra)}, expected an object"
    elif extra and not is_plain(extra.get("val_loss")):
        yield f"'val_loss' of 'extra_state' is {found(extra['val_loss'])}, expected a number"
    for name, weight in state["model"].items():
        if not isinstance(name, str) or not isinstance(weight, torch.Tensor):
            yield f"weight {ascii(name)} is {found(weight)}, expected a tensor"
        elif not is_dense(weight):
            yield f"weight {name!r} is {found(weight)}, expected a dense one of real numbers"
        elif (name.endswith(".description") or name == "dictionary_fingerprint") and weight.dtype != torch.int64:
            yield f"{name!r} is {found(weight)}, expected int64"
    if state["model"]["dictionary_fingerprint"].dim():
        yield f"'dictionary_fingerprint' is {found(state['model']['dictionary_fingerprint'])}, expected one number"


def is_plain(value, depth=DEPTH):
    """Whether a value is made of None, numbers, strings, lists, and dicts whose keys are strings."""
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(k, str) and is_plain(v, depth - 1) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return depth > 0 and all(is_plain(v, depth - 1) for v in value)
    return value is None or isinstance(value, (int, float)) or isinstance(value, str) and not SURROGATE.search(value)


def is_record_of_updates(value):
    """Whether a value is an entry of fairseq's `optimizer_history`."""
    return isinstance(value, dict) and type(value.get("num_updates", 0)) is int


def is_dense(weight):
    """Whether a tensor has a number of its own in memory for each of its elements, and no complex ones."""
    return (
        weight.layout == torch.strided
        and weight.device.type == "cpu"
        and not weight.is_quantized
        and not weight.is_complex()
        and weight.is_contiguous()
    )


def found(value):
    """A value in a message."""
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).replace('torch.', '')} tensor {tuple(value.shape)}"
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
