"""How a run resumes: from the first checkpoint of its folder that it can use.

All that this checkpoint says is restored.
"""

from ..base.checkpoint_names import (
    LAST_CHECKPOINT,
    best_checkpoint_path,
    first_accepted,
    interval_checkpoint_paths,
    last_checkpoint_path,
)
from ..base.errors import UsageError
from ..checkpoints import writing
from ..checkpoints.sections import read_for_fairseq
from ..fairseq_api import checkpoint_utils
from ..model import MaeLmModel
from . import resume_checks, save_folder
from .loading import already_read, fairseq_errors_as_usage_error
from .run_state import current_run, patience

CANNOT_RESUME = "the run cannot resume from it"


def load_checkpoint(original, cfg, trainer, **kwargs):
    """Tries the checkpoints from which a run may resume, one after the other, until it can use one.

    fairseq's function reads a checkpoint, restores the trainer from it, and goes to its place in
    the data: each of these may refuse it.
    """
    suffix = trainer.checkpoint_suffix
    if not isinstance(trainer.get_model(), MaeLmModel):
        return original(cfg, trainer, **kwargs)
    paths = save_folder.resumable_paths(cfg, suffix)
    if not paths:
        return original(cfg, trainer, **kwargs)

    def load(path):
        current_run.candidate_path = path
        # Forgets the best loss of a checkpoint that was refused.
        vars(checkpoint_utils.save_checkpoint).clear()
        with fairseq_errors_as_usage_error(path, CANNOT_RESUME):
            return original(cfg, trainer, **kwargs)

    finetune_from_model = cfg.finetune_from_model
    cfg.finetune_from_model = None  # this run already has checkpoints
    last_path = last_checkpoint_path(cfg.save_dir, suffix)
    try:
        resumed_from, loaded, refused = first_accepted(paths, load)
    except UsageError as error:
        raise UsageError(f"{error}{save_folder.advice_on_others(cfg.save_dir, suffix)}") from None
    finally:
        current_run.candidate_path = None
        cfg.finetune_from_model = finetune_from_model
    current_run.resumed_from = resumed_from
    current_run.refused = refused
    extra_state, _ = loaded
    has_best_loss = extra_state.get("val_loss") == extra_state.get("best")
    is_best = current_run.resumed_checkpoint_was_validated and has_best_loss
    if current_run.lock and is_best and current_run.resumed_from == last_path:
        best_path = best_checkpoint_path(cfg.save_dir, suffix)
        save_folder.restore_best(last_path, best_path, trainer.get_num_updates())
    return loaded


def load_trainer_checkpoint(original, trainer, filename, reset_optimizer=False, *args, **kwargs):
    """Compares a checkpoint with the run, and restores all of it, also what patience has seen.

    The place in the data is restored later.
    """
    path = current_run.candidate_path or filename
    cfg = trainer.cfg.checkpoint
    last_path = last_checkpoint_path(cfg.save_dir, trainer.checkpoint_suffix)
    is_default = cfg.restore_file == LAST_CHECKPOINT and path == last_path
    is_new_run = is_default and current_run.candidate_path is None
    if is_new_run or not isinstance(trainer.get_model(), MaeLmModel):
        return original(trainer, filename, reset_optimizer, *args, **kwargs)
    with fairseq_errors_as_usage_error(path, CANNOT_RESUME):
        checkpoint = read_for_fairseq(path)
        resume_checks.check_origin(checkpoint, path)
        if reset_optimizer:
            resume_checks.drop_unusable_parts(checkpoint, trainer)
        resume_checks.check_run(checkpoint, trainer, path, starts_anew=reset_optimizer)
        if current_run.candidate_path:
            updates = interval_checkpoint_paths(cfg.save_dir, trainer.checkpoint_suffix)
            resume_checks.check_update(checkpoint, updates.get(path), path)
        with already_read({path: checkpoint}):
            extra_state = original(trainer, path, reset_optimizer, *args, **kwargs)
        update = trainer.get_num_updates()
        if update:  # before the first update, there are no moments
            is_own = type(trainer.get_model()).__module__ == MaeLmModel.__module__
            resume_checks.check_moments(trainer.optimizer.optimizer, update, is_own, path)
    current_run.resumed_from = path
    if current_run.candidate_path and not reset_optimizer:
        max_update = trainer.cfg.optimization.max_update
        current_run.extends_finished_run = resume_checks.is_extension(
            checkpoint["max_update"], update, max_update
        )
    has_loss = extra_state.get("val_loss") is not None
    current_run.resumed_checkpoint_was_validated = has_loss and not reset_optimizer
    patience.restore(None if reset_optimizer else extra_state.get("early_stopping"))
    extra_state["train_iterator"]["path"] = path  # for errors about the position
    return extra_state


def set_aside_unused(cfg, suffix, update):
    """Renames checkpoints in the folder of a run that it does not resume from.

    A best checkpoint that the run may lose is kept under another name. To be called when all
    processes have read the one that they resume from.
    """
    if current_run.resumed_from is None:
        return
    save_folder.set_aside_refused(current_run.refused, current_run.resumed_from)
    is_interval = current_run.resumed_from in interval_checkpoint_paths(cfg.save_dir, suffix)
    if cfg.restore_file == LAST_CHECKPOINT and is_interval and not cfg.no_last_checkpoints:
        last_path = last_checkpoint_path(cfg.save_dir, suffix)
        # There must be a last checkpoint even if the run ends before its next update.
        writing.copy(current_run.resumed_from, last_path)
    save_folder.set_aside_newer(cfg.save_dir, suffix, update)
    if cfg.restore_file == LAST_CHECKPOINT:
        save_folder.keep_best(cfg.save_dir, suffix, update, current_run.extends_finished_run)
    current_run.resumed_from = None
