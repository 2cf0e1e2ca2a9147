"""What the functions that replace fairseq's know of the run that this process makes."""

from dataclasses import dataclass, field
from typing import Dict, Optional, TextIO


@dataclass
class Run:
    """A run of training; a sweep of Hydra makes several in one process, one after the other."""

    lock: Optional[TextIO] = None  # of the save folder, in the process that saves
    patience: Dict = field(default_factory=dict)  # what --patience has seen: attributes of `should_stop_early`
    keeps_freed_memory: bool = False
    resumed_from: Optional[str] = None  # the path of a checkpoint, as long as its folder is as the run found it
    refused: Dict[str, Exception] = field(default_factory=dict)  # by the paths of newer checkpoints
    was_validated: bool = False  # whether the checkpoint that it resumes from was
    validated_at: Optional[int] = None  # the last update at which fairseq was asked to validate and save


current = Run()


def begin():
    """Forgets the earlier run of this process, and opens its save folder to others."""
    if current.lock:
        current.lock.close()
    patience = current.patience  # which fairseq's function shares
    patience.clear()
    vars(current).update(vars(Run(patience=patience)))
