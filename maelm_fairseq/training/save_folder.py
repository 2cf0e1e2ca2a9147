"""The save folder of a run: used by one run only, and what the run resumes from."""

import fcntl
import filecmp
import itertools
import logging
import os
import socket

from ..base.checkpoint_names import (
    LAST,
    interval_checkpoints,
    last_checkpoint,
    other_checkpoints,
    resumable_checkpoints,
)
from ..base.errors import UsageError
from ..base.files import remove_abandoned
from ..checkpoints import writing
from ..engine import PathManager

logger = logging.getLogger(__name__)


def check_start(option, path):
    """Refuses a starting point that is not a file; fairseq would train from scratch."""
    if not PathManager.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "is not a file" if os.path.lexists(path) else "does not exist"
        raise UsageError(f"{option} {path} {what}; give the path of a checkpoint, such as DIR/checkpoint_best.pt")


def check_outside(finetune_from_model, save_dir):
    """Refuses to fine-tune from a file that the run would overwrite."""
    folders = os.path.dirname(os.path.realpath(finetune_from_model)), os.path.dirname(finetune_from_model) or "."
    if os.path.realpath(save_dir) in map(os.path.realpath, folders):
        raise UsageError(
            f"--finetune-from-model {finetune_from_model} is in --save-dir {save_dir}: the run would overwrite what it "
            "starts from; choose another --save-dir, or leave --finetune-from-model out to resume that run"
        )


def candidates(cfg, suffix):
    """The paths of the checkpoints that a run may resume from, in the order in which it tries them.

    Args:
        cfg: fairseq's options of checkpoints
        suffix: of `--checkpoint-suffix`
    Returns: the paths, none for a new run and one that starts from another file; names of checkpoints beside them,
        from which it resumes only where they are copied
    Raises ValueError: the folder has checkpoints, and none of them is one that a run resumes from by itself
    """
    last = last_checkpoint(cfg.save_dir, suffix)
    if cfg.restore_file != LAST:
        return [], []
    paths, others = resumable_checkpoints(cfg.save_dir, suffix), other_checkpoints(cfg.save_dir, suffix)
    if cfg.no_last_checkpoints and last in paths:  # nothing renews it
        paths = [*paths[1:], last]
    begins_elsewhere = cfg.finetune_from_model or getattr(cfg, "continue_once", None)
    if others and not (paths or cfg.no_save or begins_elsewhere):
        fix = f"only {', '.join(others)}: copy a whole one to {last} to resume from it"
        raise UsageError(
            f"{cfg.save_dir}: no {os.path.basename(last)}, and no other checkpoint of an interval to resume from; "
            f"{fix}, or choose another --save-dir"
        )
    return paths, others


def restore_best(last, best):
    """Copies the last checkpoint to the best one, which it is: a kill may have come between the two.

    What has that name is renamed: it may be of another run.
    """
    if os.path.isfile(best) and filecmp.cmp(last, best, shallow=False):
        return
    if os.path.lexists(best):
        logger.warning(f"{last} is the best checkpoint; renamed {best} to {set_aside(best, '.left')}")
    writing.copy(last, best)


def set_aside_refused(refused, resumed):
    """Renames checkpoints, {path: error}, that a run has passed over; otherwise, it would overwrite them."""
    for path, error in refused.items():
        kept = set_aside(path, ".unusable")
        logger.warning(f"resumed from {resumed}, as a newer checkpoint cannot be used: {error}; renamed to {kept}")


def set_aside_later(save_dir, suffix, update):
    """Renames the checkpoints of intervals after the update that a run resumes from: they are of an abandoned branch.

    Otherwise they would count as the newest: fairseq would remove the run's own in their favour, and a run that finds
    its last checkpoint damaged would resume there.
    """
    for path, its_update in interval_checkpoints(save_dir, suffix).items():
        if its_update > update:
            logger.warning(f"resuming from update {update:,}; renamed the later {path} to {set_aside(path, '.left')}")


def set_aside(path, ending):
    """Renames a file to its name with this ending, and with a number where that is taken; returns the new path."""
    names = (f"{path}{ending}{number or ''}" for number in itertools.chain([0], itertools.count(2)))
    kept = next(name for name in names if not os.path.lexists(name))
    os.rename(path, kept)
    return kept


def where_to_go_on(cfg):
    """Which checkpoint the same command resumes from, as the end of an error message; `cfg` as in `candidates`."""
    paths = resumable_checkpoints(cfg.save_dir, cfg.checkpoint_suffix)
    return f"the same command resumes from {paths[0]}" if paths else f"{cfg.save_dir} has no checkpoint yet"


def lock(save_dir):
    """Keeps other runs out of a save folder until the stream that it returns is closed, or this process ends.

    A lock of the operating system: it ends with the process, holds on other machines too where the folder is on NFS,
    and is not inherited by loader workers.

    Whoever takes it creates the folder, and removes what a killed run left half-written.

    Raises ValueError: another process holds the lock, or the folder cannot be written
    """
    path = os.path.join(save_dir, ".lock")
    try:
        os.makedirs(save_dir, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)  # never the file of a link
        stream = open(descriptor, "r+", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--save-dir {save_dir}: cannot be written ({error.strerror}); choose another") from None
    try:
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        with stream:
            holder = stream.read().strip() or "another process"
        raise UsageError(
            f"--save-dir {save_dir}: in use by another run, {holder}; wait for it or stop it, or choose another"
        ) from None
    except OSError as error:  # a file system without locks
        logger.warning(f"{path}: no lock ({error.strerror}); make sure that no other run uses this folder")
    stream.truncate()
    stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    stream.flush()
    remove_abandoned(save_dir, "checkpoint*")
    return stream
