"""The state of the current training run, shared by the functions that replace fairseq's."""

from dataclasses import dataclass, field
from typing import Dict, Optional, TextIO

from .first_updates import FirstUpdates


@dataclass
class RunState:
    """What a run of training knows of itself; a sweep of Hydra makes several in one process."""

    lock: Optional[TextIO] = None  # of the save folder, in the process that saves
    keeps_freed_memory: bool = False
    was_trained: bool = False  # whether it has made an update
    # Checkpoints that were read and checked, and that fairseq is about to read, by their paths.
    states_to_read: Dict[str, dict] = field(default_factory=dict)
    candidate: Optional[str] = None  # the checkpoint from which it is trying to resume: a path
    # The path of a checkpoint, until files in its folder have been renamed or copied.
    resumed_from: Optional[str] = None
    refused: Dict[str, Exception] = field(default_factory=dict)  # by the paths of newer checkpoints
    was_validated: bool = False  # whether the checkpoint that it resumes from was
    # The last update at which fairseq was asked to validate and save.
    validated_at: Optional[int] = None
    saving_last: Optional[str] = None  # the path of the last checkpoint, while it is saved
    first_updates: FirstUpdates = field(default_factory=FirstUpdates)


current_run = RunState()
save_folders = set()  # of all runs of this process


class Patience:
    """What --patience has seen of the current run.

    fairseq keeps it in attributes of its function `should_stop_early`, and saves it nowhere.
    """

    def __init__(self, should_stop_early):
        self._seen = vars(should_stop_early)

    def saved(self):
        """What a checkpoint keeps: the fields of `schema.EarlyStopping`, or nothing yet."""
        return dict(self._seen)

    def restore(self, saved):
        """Takes up what `saved` returned in an earlier process; None begins anew."""
        self._seen.clear()
        self._seen.update(saved or {})


patience = None  # the `Patience`, in a training command


def reset_run():
    """Forgets the earlier run of this process, and opens its save folder to others."""
    global current_run
    if current_run.lock:
        current_run.lock.close()
    current_run = RunState()
    patience.restore(None)
