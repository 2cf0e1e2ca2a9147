"""What a training by fairseq-train leaves behind: how far it came, and its model."""

import os

import torch

from maelm_fairseq.checkpoint import read_checkpoint
from maelm_fairseq.errors import UsageError
from maelm_fairseq.files import atomic_write


def updates_of(checkpoint):
    """The number of updates of a fairseq checkpoint; 0 if the file does not exist."""
    if not os.path.exists(checkpoint):
        return 0
    history = read_checkpoint(checkpoint).get("optimizer_history")
    try:
        return int(history[-1]["num_updates"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise UsageError(
            f"{checkpoint}: 'optimizer_history' is {ascii(history)[:60]}, expected the number of updates: it is "
            "damaged; remove it"
        ) from None


def keep_weights(checkpoint, model_file):
    """Copies a checkpoint without the optimizer state."""
    state = read_checkpoint(checkpoint)
    state.pop("last_optimizer_state", None)
    with atomic_write(model_file, "wb") as stream:
        torch.save(state, stream)


def keep_model(folder, model_file):
    """Keeps the model of a finished run, without the optimizer state, and removes its checkpoints."""
    keep_weights(os.path.join(folder, "checkpoint_last.pt"), model_file)
    for name in os.listdir(folder):
        if name.startswith("checkpoint_"):
            os.remove(os.path.join(folder, name))
