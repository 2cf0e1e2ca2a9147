"""The save folder of a run: used by one run only, and what the run goes on from."""

import fcntl
import filecmp
import itertools
import logging
import os
import re
import socket

from ..base.errors import UsageError
from ..base.files import remove_abandoned
from ..checkpoints import writing
from ..checkpoints.reading import damage
from ..engine import PathManager, checkpoint_utils

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"
INTERVAL = re.compile(r"checkpoint_\d+_(\d+)\.pt")  # what fairseq calls the one of --save-interval-updates


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
            "starts from; choose another --save-dir, or leave --finetune-from-model out to go on with that run"
        )


def interval_checkpoints(save_dir):
    """The paths of the checkpoints of intervals in a folder, by the updates in their names, newest first."""
    return checkpoint_utils.checkpoint_paths(save_dir, INTERVAL.pattern) if os.path.isdir(save_dir) else []


def renew_last(save_dir, starts_elsewhere):
    """Makes sure that there is a whole last checkpoint, from which fairseq resumes; for the holder of the lock.

    If it is whole, nothing else is looked at. If it is damaged, or missing and the run does not start elsewhere, from
    --finetune-from-model, the newest whole checkpoint of an interval takes its place.

    Raises ValueError: there are checkpoints, and none of them is whole
    """
    last, damaged = os.path.join(save_dir, LAST), []
    exists = os.path.lexists(last)
    if starts_elsewhere and not exists:
        return
    for path in filter(os.path.lexists, [last, *interval_checkpoints(save_dir)]):
        reason = damage(path)
        if reason is None:
            break
        damaged.append(f"{path}: {reason}")
    else:
        others = sorted(name for name in os.listdir(save_dir) if re.fullmatch(r"checkpoint.*\.pt", name))
        others = [name for name in others if name != LAST and not INTERVAL.fullmatch(name)]
        if damaged or others:
            what = f"damaged: {'; '.join(damaged)}" if damaged else f"{save_dir}: no {LAST}"
            fix = f"only {', '.join(others)}: copy a whole one over {last} to go on from it, or " * bool(others)
            raise UsageError(
                f"{what}; there is no other checkpoint of an interval to resume from; {fix}choose another --save-dir"
            )
        return
    if path == last:
        return
    for reason in damaged:
        logger.warning(f"damaged: {reason}")
    if exists:
        logger.warning(f"renamed {last} to {set_aside(last, '.damaged')}")
    writing.copy(path, last)
    logger.warning(f"resuming from {path}, the newest whole checkpoint")


def restore_best(last):
    """Copies the last checkpoint to the best one, which it is: a kill may have come between the two."""
    best = os.path.join(os.path.dirname(last), "checkpoint_best.pt")
    if not os.path.isfile(best) or not filecmp.cmp(last, best, shallow=False):
        writing.copy(last, best)


def set_aside_later(save_dir, update):
    """Renames the checkpoints of intervals behind the update that a run goes on from: it has left that branch.

    Otherwise they would count as the newest: fairseq would remove the run's own in their favour, and a run that finds
    its last checkpoint damaged would go on there.
    """
    for path in interval_checkpoints(save_dir):
        if int(INTERVAL.fullmatch(os.path.basename(path))[1]) > update:
            kept = set_aside(path, ".left")
            logger.warning(f"resuming from update {update:,}; renamed the later {path} to {kept}")


def set_aside(path, ending):
    """Renames a file to its name with this ending, and with a number where that is taken; returns the new path."""
    names = (f"{path}{ending}{number or ''}" for number in itertools.chain([0], itertools.count(2)))
    kept = next(name for name in names if not os.path.lexists(name))
    os.rename(path, kept)
    return kept


def where_to_go_on(save_dir):
    """Which checkpoint the same command goes on from, as the end of an error message."""
    last = os.path.join(save_dir, LAST)
    paths = [last] if os.path.isfile(last) else interval_checkpoints(save_dir)
    return f"the same command goes on from {paths[0]}" if paths else f"{save_dir} has no checkpoint yet"


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
