"""What the functions that replace fairseq's know about the run that this process makes."""

from dataclasses import dataclass, field
from typing import Dict, Optional, TextIO

from .reporting import FirstUpdates


@dataclass
class Run:
    """A run of training; a sweep of Hydra makes several in one process, one after the other."""

    lock: Optional[TextIO] = None  # of the save folder, in the process that saves
    # What --patience has seen: the attributes of fairseq's `should_stop_early`.
    patience: Dict = field(default_factory=dict)
    keeps_freed_memory: bool = False
    candidate: Optional[str] = None  # the checkpoint from which it is trying to resume: a path
    # The path of a checkpoint, until files in its folder have been renamed or copied.
    resumed_from: Optional[str] = None
    refused: Dict[str, Exception] = field(default_factory=dict)  # by the paths of newer checkpoints
    was_validated: bool = False  # whether the checkpoint that it resumes from was
    # The last update at which fairseq was asked to validate and save.
    validated_at: Optional[int] = None
    saving_last: Optional[str] = None  # the path of the last checkpoint, while it is saved
    first_updates: FirstUpdates = field(default_factory=FirstUpdates)


current = Run()


def begin():
    """Forgets the earlier run of this process, and opens its save folder to others."""
    if current.lock:
        current.lock.close()
    patience = current.patience  # cleared, not replaced, as fairseq's function shares it
    patience.clear()
    vars(current).update(vars(Run(patience=patience)))
