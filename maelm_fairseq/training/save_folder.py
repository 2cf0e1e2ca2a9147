"""The save folder of a run: used by one run only, and what the run resumes from."""

import filecmp
import logging
import os

from ..base.checkpoint_names import (
    LAST_CHECKPOINT,
    best_checkpoint_path,
    interval_checkpoint_paths,
    last_checkpoint_path,
    other_checkpoint_paths,
    resumable_checkpoint_paths,
)
from ..base.errors import UsageError
from ..base.files import remove_abandoned, set_aside
from ..base.locks import HeldError, hold
from ..checkpoints import writing
from ..checkpoints.building import num_updates_of, read_checkpoint
from ..fairseq_api import PathManager

logger = logging.getLogger(__name__)


def check_starting_file(option, path):
    """Refuses a starting point that is not a file; fairseq would train from scratch."""
    if PathManager.isfile(path):
        return
    if os.path.isdir(path):
        fault = "is a folder"
    elif os.path.lexists(path):
        fault = "is not a file"
    else:
        fault = "does not exist"
    raise UsageError(
        f"{option} {path} {fault}; give the path of a checkpoint, such as DIR/checkpoint_best.pt"
    )


def check_outside(finetune_from_model, save_dir):
    """Refuses to fine-tune from a file that the run would overwrite."""
    folder_of_file = os.path.dirname(os.path.realpath(finetune_from_model))
    folder_of_link = os.path.dirname(finetune_from_model) or "."
    folders = [os.path.realpath(folder) for folder in (folder_of_file, folder_of_link)]
    if os.path.realpath(save_dir) in folders:
        raise UsageError(
            f"--finetune-from-model {finetune_from_model} is in --save-dir {save_dir}: the run "
            "would overwrite what it starts from; choose another --save-dir, or leave "
            "--finetune-from-model out to resume that run"
        )


def resumable_paths(cfg, suffix):
    """The paths of the checkpoints that a run may resume from, in the order in which it tries them.

    There are none for a new run, and for one that starts from another file.

    Args:
        cfg: fairseq's checkpoint options
        suffix: of `--checkpoint-suffix`
    Raises UsageError: there are only checkpoints that no run resumes from by itself
    """
    last_path = last_checkpoint_path(cfg.save_dir, suffix)
    if cfg.restore_file != LAST_CHECKPOINT:
        return []
    paths = resumable_checkpoint_paths(cfg.save_dir, suffix)
    if cfg.no_last_checkpoints and last_path in paths:  # the run does not renew it
        paths = [*paths[1:], last_path]
    starts_elsewhere = cfg.finetune_from_model or getattr(cfg, "continue_once", None)
    advice = advice_on_others(cfg.save_dir, suffix)
    if advice and not (paths or cfg.no_save or starts_elsewhere):
        raise UsageError(
            f"{cfg.save_dir}: found no {os.path.basename(last_path)} and no checkpoint of an "
            f"interval to resume from{advice}; or choose another --save-dir"
        )
    return paths


def advice_on_others(save_dir, suffix):
    """How to resume from a checkpoint that no run resumes from by itself, such as the best one.

    It is the end of an error message; empty if there is no such checkpoint.
    """
    names = ", ".join(map(os.path.basename, other_checkpoint_paths(save_dir, suffix)))
    if not names:
        return ""
    last_path = last_checkpoint_path(save_dir, suffix)
    return f"; to resume from another one ({names}), if it is whole, copy it to {last_path}"


def restore_best(last_path, best_path, update):
    """Copies the last checkpoint to the name of the best one, if it is the best.

    The run may have been killed after writing the first and before writing the second. A file that
    has the name of the best one is renamed, as it may be of another run; but one of a later update
    stays, since the run has then gone back: see `keep_best`.

    Args:
        update: of the last checkpoint
    """
    if have_same_content(last_path, best_path):
        return
    best_update = update_of_usable(best_path)
    if best_update is not None and best_update > update:
        return
    if os.path.lexists(best_path):
        renamed = set_aside(best_path, ".superseded")
        logger.warning(f"{last_path} is the best checkpoint; renamed {best_path} to {renamed}")
    writing.copy(last_path, best_path)


def have_same_content(path, other):
    """Whether two files, of which the first exists, have the same content."""
    return os.path.isfile(other) and filecmp.cmp(path, other, shallow=False)


def update_of_usable(path):
    """The update of a checkpoint; None if there is none, or none that anything can use."""
    if not os.path.isfile(path):
        return None
    try:
        return num_updates_of(read_checkpoint(path))
    except UsageError:
        return None


def keep_best(save_dir, suffix, update, extends_run):
    """Gives the best checkpoint a second name, with its update, if this run may lose it.

    That is the case if the run goes back to before it, or extends a finished run, whose result it
    is.

    Args:
        save_dir, suffix: of the run
        update: update that the run resumes from
        extends_run: whether the run extends a finished one
    """
    best_path = best_checkpoint_path(save_dir, suffix)
    best_update = update_of_usable(best_path)
    if best_update is None or not (extends_run or best_update > update):
        return
    kept_path = best_checkpoint_path(save_dir, f"{suffix}_{best_update}")
    if have_same_content(best_path, kept_path):
        return
    if os.path.lexists(kept_path):
        renamed = set_aside(kept_path, ".superseded")
        logger.warning(f"renamed the earlier {kept_path} to {renamed}")
    writing.link_or_copy(best_path, kept_path)
    logger.warning(
        f"{best_path} is also kept as {kept_path}, because this run may replace it with another "
        "best checkpoint"
    )


def set_aside_refused(refused, resumed):
    """Renames checkpoints that a run has passed over; otherwise, it would overwrite them.

    Args:
        refused: {path: error}
        resumed: the path of the one that it resumed from
    """
    for path, error in refused.items():
        renamed = set_aside(path, ".unusable")
        logger.warning(
            f"resumed from {resumed}, as a newer checkpoint cannot be used: {error}; renamed to "
            f"{renamed}"
        )


def set_aside_newer(save_dir, suffix, update):
    """Renames the checkpoints of intervals after the update that a run resumes from.

    They are of an abandoned branch, but would count as the newest: fairseq would keep them and
    remove the run's own, and a run that finds its last checkpoint damaged would resume from them.
    """
    for path, update_of_path in interval_checkpoint_paths(save_dir, suffix).items():
        if update_of_path > update:
            renamed = set_aside(path, ".superseded")
            logger.warning(
                f"resuming from update {update:,}; renamed the later {path} to {renamed}"
            )


def resume_advice(cfg):
    """The end of an error message, which says from which checkpoint the same command resumes.

    `cfg` has fairseq's checkpoint options.
    """
    paths = resumable_checkpoint_paths(cfg.save_dir, cfg.checkpoint_suffix)
    if not paths:
        return f"{cfg.save_dir} has no checkpoint yet"
    return f"the same command resumes from {paths[0]}"


def lock(save_dir):
    """Keeps other runs out of a save folder until the stream that it returns is closed.

    Whoever takes it creates the folder, and removes what a killed run left half-written.

    Raises UsageError: another process holds the lock, or the folder cannot be written
    """
    try:
        os.makedirs(save_dir, exist_ok=True)
        stream = hold(os.path.join(save_dir, ".lock"))
    except OSError as error:
        raise UsageError(
            f"--save-dir {save_dir}: cannot be written ({error.strerror}); choose another"
        ) from None
    except HeldError as holder:
        raise UsageError(
            f"--save-dir {save_dir}: in use by another run, {holder}; wait for it or stop it, or "
            "choose another"
        ) from None
    remove_abandoned(save_dir, "checkpoint*")
    return stream
