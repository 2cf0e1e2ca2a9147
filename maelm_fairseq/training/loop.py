"""fairseq's loop over the updates of an epoch, and what is added before, within and after it."""

import logging
import re
import sys
from typing import NamedTuple, Optional

from ..base.checkpoint_names import LAST_CHECKPOINT
from ..base.errors import UsageError, is_out_of_memory, one_line
from ..base.option_fields import option_name
from ..data.epochs import ResumableIterator
from ..fairseq_api import checkpoint_utils
from ..model import MaeLmModel
from ..task import MaeLmTask
from . import resume_checks, resuming, stopping
from .memory import RETURN_INTERVAL, return_freed_memory
from .run_state import current_run, patience
from .saving import not_finite

logger = logging.getLogger(__name__)


class MissedValidation(NamedTuple):
    """The outcome of `make_missed_validation`."""

    loss: Optional[float]  # None if there was no validation to make
    run_is_over: bool


def train(original, cfg, trainer, task, epoch_itr):
    """Trains for an epoch, or what is left of a resumed one, after what must come before.

    fairseq expects a list of the losses of the last validation, and whether the run is over.
    """
    if not isinstance(trainer.get_model(), MaeLmModel):
        return original(cfg, trainer, task, epoch_itr)
    stopping.share_stop_requests(task)
    update = trainer.get_num_updates()
    resume_checks.check_same_update(update, cfg.checkpoint.save_dir)
    if current_run.lock:
        resuming.set_aside_unused(cfg.checkpoint, trainer.checkpoint_suffix, update)
    if has_no_patience_left(cfg.checkpoint):
        return [None], True
    program = sys.modules[original.__module__]
    validation = make_missed_validation(program, cfg, trainer, task, epoch_itr)
    is_resumable = isinstance(epoch_itr, ResumableIterator)
    epoch_is_over = is_resumable and epoch_itr.end_epoch_after_missed_validation()
    if validation.loss is not None:
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, validation.loss)
    if validation.run_is_over or epoch_is_over:
        return [validation.loss], validation.run_is_over
    if not current_run.was_trained and isinstance(task, MaeLmTask):
        task.check_before_training(cfg, trainer.criterion)
    if is_resumable:
        frequencies = cfg.optimization.update_freq
        epoch = min(epoch_itr.next_epoch_idx, len(frequencies))
        epoch_itr.align(frequencies[epoch - 1])
    try:
        return original(cfg, trainer, task, epoch_itr)
    except FloatingPointError as error:
        if re.search(r"\b(nan|inf)\b|loss scale", str(error), re.IGNORECASE):
            update = trainer.get_num_updates()
            raise not_finite("gradients", update, cfg.checkpoint) from None
        raise


def has_no_patience_left(cfg):
    """Whether --patience had run out already; `cfg` has fairseq's checkpoint options."""
    is_over = 0 < cfg.patience <= patience.saved().get("num_runs", 0)
    if is_over:
        logger.info(
            f"nothing to train: the last {cfg.patience} validations were no better (--patience)"
        )
    return is_over


def make_missed_validation(program, cfg, trainer, task, epoch_itr):
    """Validates if an earlier run was stopped before it could, or never validated its last update.

    Args:
        program: fairseq's module of the command
    Returns: `MissedValidation`
    """
    update = trainer.get_num_updates()
    max_update = cfg.optimization.max_update
    is_last = 0 < max_update <= update
    is_due = getattr(epoch_itr, "validation_due", False)
    if is_last:
        logger.info(
            f"nothing to train: the checkpoint is of update {update:,}, and --max-update is "
            f"{max_update:,}; a larger one, or larger --updates of a recipe, trains further"
        )
        is_due = is_due or not current_run.resumed_checkpoint_was_validated
    if not is_due or cfg.dataset.disable_validation:
        return MissedValidation(None, is_last)
    current_run.validated_at = update
    subsets = cfg.dataset.valid_subset.split(",")
    try:
        losses = program.validate(cfg, trainer, task, epoch_itr, subsets)
    except stopping.StopRequested:
        stop_with_checkpoint(cfg.checkpoint, update)
    stops_early = program.should_stop_early(cfg, losses[0])
    return MissedValidation(losses[0], is_last or stops_early)


def train_step(original, trainer, samples, raise_oom=False):
    """Leaves empty batches out; ends a run that does not fit into memory; gives signs of life."""
    if not isinstance(trainer.get_model(), MaeLmModel):
        return original(trainer, samples, raise_oom)
    # At the end of an epoch, some processes have empty batches. fairseq computes another batch in
    # place of an empty one, without effect, and counts its tokens, or none of the whole update. If
    # all batches are empty, it needs one of them.
    samples = [sample for sample in samples if sample] or samples[:1]
    try:
        output = original(trainer, samples, raise_oom=True)  # else the batch would be left out
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise UsageError(one_line(error)) from None
    if isinstance(trainer.task, MaeLmTask) and trainer.is_data_parallel_master:
        max_update = trainer.cfg.optimization.max_update
        current_run.first_updates.report(trainer.get_num_updates(), max_update)
    return output


def validate_and_save(original, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    """Makes fairseq validate and save at most once per update.

    Saves and ends the process if that was requested, and returns freed memory from time to time.
    """
    current_run.was_trained = True
    update = trainer.get_num_updates()
    if current_run.keeps_freed_memory and update % RETURN_INTERVAL == 0:
        return_freed_memory()
    losses_and_end = [None], False  # the losses of a validation, and whether the run is to end
    has_new_update = current_run.validated_at != update  # fp16 skips some
    if has_new_update or end_of_epoch:
        current_run.validated_at = update
        try:
            losses_and_end = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        except stopping.StopRequested:
            epoch_itr.validation_due = True
    if stopping.stop_state.agreed:
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        stop_with_checkpoint(cfg.checkpoint, update)
    return losses_and_end


def stop_with_checkpoint(cfg, update):
    """Ends this process, after a request and a checkpoint.

    `cfg` has fairseq's checkpoint options.
    """
    names = ["reset_optimizer", "reset_dataloader", "reset_meters", "reset_lr_scheduler"]
    restarting_options = [option_name(name) for name in names if cfg[name]]
    if cfg.restore_file != LAST_CHECKPOINT:
        restarting_options.insert(0, "--restore-file")
    saves = not (cfg.no_save or cfg.no_last_checkpoints)
    stopping.stop(update, cfg.save_dir if saves else None, restarting_options)
