"""The files of a save folder: written whole or not at all, verified before they are read, and used by one run only."""

import contextlib
import fcntl
import glob
import logging
import os
import shutil
import socket
import zipfile

import torch

from ..base.errors import UsageError
from ..base.files import atomic_write
from ..engine import PathManager
from .reading import load_checkpoint

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"
_whole = set()  # files that were verified: path, size and time of change


class AtomicPathManager(PathManager):
    """fairseq's, but a copy gets its name when it is complete."""

    @staticmethod
    def copy(src_path, dst_path, overwrite=False):
        with open(src_path, "rb") as source, atomic_write(dst_path, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 24)
        return True


def save(state, path):
    """Writes a checkpoint, which gets its name when it is complete; fairseq's own function tries again in mid-file."""
    with atomic_write(path, "wb") as stream:
        torch.save(state, stream)


def damage(path):
    """What is wrong with a checkpoint file as a file, or None: its end is missing, or a checksum does not match.

    Reads the whole file once. PyTorch stores a CRC-32 of each tensor but does not look at it when it loads them.
    """
    status = os.stat(path)
    version = (os.path.abspath(path), status.st_size, status.st_mtime_ns)
    if version in _whole:
        return None
    with open(path, "rb") as stream:
        start = stream.read(2)
    if not start:
        return "it is empty"
    if start == b"PK":  # else torch.load says what is wrong
        try:
            with zipfile.ZipFile(path) as archive:
                wrong = archive.testzip()
        except Exception:  # the type depends on what is damaged
            return "its end is missing or overwritten"
        if wrong:
            return f"the checksum of {wrong} in it does not match"
    _whole.add(version)
    return None


def why_unusable(path, needs_optimizer=True):
    """Why a run cannot go on from a checkpoint: a reason, or None if it can.

    Args:
        needs_optimizer: whether the state of the optimizer is used
    """
    if not os.path.isfile(path):
        return "it is not a file"
    found = damage(path)
    if found:
        return found
    try:
        state = load_checkpoint(path, mmap=True)
        if needs_optimizer and not isinstance(state.get("last_optimizer_state"), dict):
            return "it has no state of the optimizer"
        count_updates(state)
        state["extra_state"]["train_iterator"]["epoch"]  # noqa: B018  fairseq goes on there
        return None if are_finite(state["model"].values()) else "it has weights that are NaN or infinite"
    except Exception:  # the type depends on what the file contains
        return "it is no checkpoint of a run of fairseq-train"


def count_updates(state):
    """The number of updates of a checkpoint's contents; errors of many types for other contents."""
    return 0 + state["optimizer_history"][-1]["num_updates"]


def newest_good(folder, **needs):
    """The checkpoint with the most updates from which a run can go on.

    Args:
        folder: that fairseq saved checkpoints in
        needs: of :func:`why_unusable`
    Returns:
        path and number of updates; (None, 0) if there is none
    """
    found = []
    for path in glob.glob(os.path.join(glob.escape(folder), "checkpoint*.pt")):
        with contextlib.suppress(Exception):  # not a checkpoint: why_unusable says more
            updates = count_updates(load_checkpoint(path, mmap=True))
            found.append((updates, os.path.basename(path) == LAST, path))
    for updates, _, path in sorted(found, reverse=True):
        if why_unusable(path, **needs) is None:
            return path, updates
    return None, 0


def are_finite(tensors):
    """Whether there is no NaN or infinity among the numbers of tensors."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def describe_newest_good(folder):
    """Which checkpoint to go on from, as the end of an error message."""
    path, updates = newest_good(folder)
    return f"the newest good checkpoint is {path} (update {updates:,})" if path else f"{folder} has no good checkpoint"


def check_whole(path):
    """Refuses a damaged checkpoint file.

    Raises:
        ValueError: it is damaged; the message names the newest file in its folder that is not
    """
    found = damage(path)
    if found:
        raise UsageError(f"{path}: damaged: {found}; {describe_newest_good(os.path.dirname(path) or '.')}")


def check_exists(option, path):
    """Refuses a starting point that is not a file; fairseq would train from scratch."""
    if not PathManager.isfile(path):
        found = "is a folder" if os.path.isdir(path) else "does not exist"
        raise UsageError(f"{option} {path} {found}; give the path of a checkpoint, such as DIR/checkpoint_best.pt")


def remove_partial(save_dir):
    """Removes what a killed process left half written; for the process that holds the lock of the folder."""
    for pattern in (".checkpoint*.pt.*.partial", "checkpoint*.pt.tmp"):
        for path in glob.glob(os.path.join(glob.escape(save_dir), pattern)):
            os.remove(path)


def renew_last(save_dir, **needs):
    """Makes the last checkpoint, from which fairseq resumes, the newest good one; for the process that holds the lock.

    Saving may have ended between a checkpoint and its copy, for example because the disk was full.

    Args:
        needs: of :func:`why_unusable`
    Raises:
        ValueError: there is a last checkpoint, and none from which the run can go on
    """
    last = os.path.join(save_dir, LAST)
    path, updates = newest_good(save_dir, **needs)
    if path == last:
        return
    reason = why_unusable(last, **needs) if os.path.lexists(last) else None
    if path is None:
        if reason:
            raise UsageError(
                f"{last}: damaged: {reason}, and {save_dir} has no other checkpoint to resume from; "
                "copy one there from a backup, or remove the file to train from the start"
            )
        return
    if reason:
        os.replace(last, last + ".damaged")
        logger.warning(f"{last} is damaged ({reason}) and now called {last}.damaged")
    AtomicPathManager.copy(path, last)
    logger.warning(f"resuming from {path}, the newest good checkpoint, at update {updates:,}")


class Lock:
    """Keeps other runs out of a save folder until this process ends.

    A lock of the operating system: it ends with the process, holds on other machines too where the folder is on NFS,
    and is not inherited by loader workers.

    Args:
        save_dir: the folder, which is created
    Raises:
        ValueError: another process holds the lock, or the folder cannot be written
    """

    def __init__(self, save_dir):
        path = os.path.join(save_dir, ".lock")
        try:
            os.makedirs(save_dir, exist_ok=True)
            self._stream = open(path, "a+", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--save-dir {save_dir}: cannot be written ({error.strerror}); choose another") from None
        try:
            fcntl.lockf(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            self._stream.seek(0)
            holder = self._stream.read().strip() or "another process"
            self._stream.close()
            raise UsageError(
                f"--save-dir {save_dir}: in use by another run, {holder}; wait for it or stop it, or choose another"
            ) from None
        except OSError as error:  # a file system without locks
            logger.warning(f"{path}: no lock ({error.strerror}); make sure that no other run uses this folder")
        self._stream.truncate(0)
        self._stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        self._stream.flush()
