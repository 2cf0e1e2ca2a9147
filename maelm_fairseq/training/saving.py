"""How a run saves: finite weights only, the last checkpoint first, complete files.

What it removes is logged.
"""

import logging
import os

import torch

from ..base.checkpoint_names import all_checkpoint_paths, last_checkpoint_path
from ..base.errors import UsageError
from ..base.option_fields import option_name
from ..checkpoints import writing
from ..fairseq_api import PathManager
from ..model import MaeLmModel
from . import save_folder
from .run_state import current_run, patience

logger = logging.getLogger(__name__)


def save_checkpoint(original, cfg, trainer, epoch_itr, val_loss):
    """Refuses NaN; says in one line that the disk is full; writes the last checkpoint first.

    Logs which old checkpoints fairseq removes.
    """
    update = trainer.get_num_updates()
    is_ours = isinstance(trainer.get_model(), MaeLmModel)
    if is_ours and not all(torch.isfinite(weight).all() for weight in trainer.model.parameters()):
        raise not_finite("weights", update, cfg)
    if not cfg.no_last_checkpoints:
        current_run.last_checkpoint_being_saved = last_checkpoint_path(
            cfg.save_dir, trainer.checkpoint_suffix
        )
    before = all_checkpoint_paths(cfg.save_dir)
    try:
        saved = original(cfg, trainer, epoch_itr, val_loss)
    except OSError as error:
        raise UsageError(
            f"the checkpoint of update {update:,} cannot be written ({error.strerror}); "
            f"{save_folder.resume_advice(cfg)}: make room, and run it again"
        ) from None
    finally:
        current_run.last_checkpoint_being_saved = None
    if trainer.should_save_checkpoint_on_current_rank:
        log_removed(cfg, before - all_checkpoint_paths(cfg.save_dir))
    return saved


def log_removed(cfg, paths):
    """Logs the paths of removed checkpoints, a set, and the options that say how many are kept."""
    if not paths:
        return
    limits = []
    for name in ["keep_interval_updates", "keep_last_epochs", "keep_best_checkpoints"]:
        if getattr(cfg, name) > 0:
            limits.append(f"{option_name(name)} {getattr(cfg, name)}")
    logger.info(f"removed {', '.join(sorted(paths))}, because of {' and '.join(limits)}")


def torch_persistent_save(original, state, filename, async_write=False):
    """Writes a file whole, with what --patience has seen.

    The last checkpoint is written first, as that is the one from which a run resumes after it was
    killed or found the disk full.
    """
    # Nothing resumes from crash.pt, and if the disk is full, writing it would hide the crash.
    if os.path.basename(filename) == "crash.pt":
        return
    seen = patience.saved()
    if seen:
        state["extra_state"]["early_stopping"] = seen
    written_first = current_run.last_checkpoint_being_saved or filename
    writing.save_state(state, written_first)
    if filename != written_first:
        writing.copy(written_first, filename)


class AtomicPathManager(PathManager):
    """fairseq's, but a copy gets its name only when it is complete."""

    @staticmethod
    def copy(src_path, dst_path, overwrite=False):
        if dst_path != current_run.last_checkpoint_being_saved:  # which was written first
            writing.copy(src_path, dst_path)
        return True


def not_finite(subject, update, cfg):
    """The error of a run whose numbers became NaN or infinite.

    Args:
        subject: "weights" or "gradients"
        update: the last one
        cfg: fairseq's checkpoint options
    """
    return UsageError(
        f"the {subject} are not finite after update {update:,}; {save_folder.resume_advice(cfg)}; "
        "a lower --lr, a longer --warmup-updates or a --clip-norm may help"
    )
