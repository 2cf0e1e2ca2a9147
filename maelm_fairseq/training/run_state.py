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
    candidate_path: Optional[str] = None  # of the checkpoint from which it is trying to resume
    # The path of the checkpoint that was resumed from; None again after `set_aside_unused`.
    resumed_from: Optional[str] = None
    refused: Dict[str, Exception] = field(default_factory=dict)  # by the paths of newer checkpoints
    resumed_checkpoint_was_validated: bool = False
    # Whether the run that saved the checkpoint was finished, and this one continues it.
    extends_finished_run: bool = False
    # The last update at which fairseq was asked to validate and save.
    validated_at: Optional[int] = None
    last_checkpoint_being_saved: Optional[str] = None  # its path
    first_updates: FirstUpdates = field(default_factory=FirstUpdates)

    def reset(self):
        """Forgets the earlier run of this process, and opens its save folder to others."""
        if self.lock:
            self.lock.close()
        vars(self).update(vars(RunState()))


class Patience:
    """What --patience has seen of the current run.

    fairseq keeps it in attributes of its function `should_stop_early`, and saves it nowhere.
    """

    def __init__(self):
        self._seen = {}

    def attach(self, should_stop_early):
        """Makes `saved` and `restore` read and write the attributes of fairseq's function."""
        self._seen = vars(should_stop_early)

    def saved(self):
        """What a checkpoint keeps: the fields of `schema.EarlyStopping`, or nothing yet."""
        return dict(self._seen)

    def restore(self, saved):
        """Takes up what `saved` returned in an earlier process; None begins anew."""
        self._seen.clear()
        self._seen.update(saved or {})


current_run = RunState()
patience = Patience()
save_folders = set()  # of all runs of this process
