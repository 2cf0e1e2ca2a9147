"""What a training by fairseq-train leaves behind: how far it came, and its model."""

import os

from maelm_fairseq.checkpoints.building import read_checkpoint
from maelm_fairseq.checkpoints.writing import save


def updates_of(checkpoint):
    """The number of updates of a fairseq checkpoint; 0 if the file does not exist."""
    if not os.path.exists(checkpoint):
        return 0
    return read_checkpoint(checkpoint)["optimizer_history"][-1]["num_updates"]


def keep_model(folder, model_file):
    """Keeps the model of a finished run, without the optimizer state, and removes its checkpoints."""
    state = read_checkpoint(os.path.join(folder, "checkpoint_last.pt"))
    state.pop("last_optimizer_state", None)
    save(state, model_file)
    for name in os.listdir(folder):
        if name.startswith("checkpoint_"):
            os.remove(os.path.join(folder, name))
