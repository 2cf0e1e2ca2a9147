"""What a training by fairseq-train leaves behind: how far it came, and its model."""

import os

import torch

from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.checkpoints.building import read_checkpoint


def updates_of(checkpoint):
    """The number of updates of a fairseq checkpoint; 0 if the file does not exist."""
    if not os.path.exists(checkpoint):
        return 0
    return read_checkpoint(checkpoint)["optimizer_history"][-1]["num_updates"]


def keep_model(folder, model_file):
    """Keeps the model of a finished run, without the optimizer state, and removes its checkpoints."""
    state = read_checkpoint(os.path.join(folder, "checkpoint_last.pt"))
    state.pop("last_optimizer_state", None)
    with atomic_write(model_file, "wb") as stream:
        torch.save(state, stream)
    for name in os.listdir(folder):
        if name.startswith("checkpoint_"):
            os.remove(os.path.join(folder, name))
