"""The files of a save folder: written whole or not at all, verified before they are read, and used by one run only."""

import fcntl
import glob
import logging
import os
import shutil
import socket
import zipfile

import torch
from fairseq.file_io import PathManager

from .errors import UsageError
from .files import atomic_write
from .versions import load_checkpoint

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


def newest_good(folder, except_for=None):
    """The checkpoint with the most updates that is whole and has finite weights.

    Args:
        folder: that fairseq saved checkpoints in
        except_for: a file that does not count
    Returns:
        path and number of updates; (None, 0) if there is none
    """
    best = None, 0
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "checkpoint*.pt"))):
        if path == except_for or damage(path):
            continue
        try:
            state = load_checkpoint(path)
            updates = state["optimizer_history"][-1]["num_updates"]
        except Exception:  # not a checkpoint of fairseq's: the type depends on what it contains
            continue
        if updates > best[1] and "last_optimizer_state" in state and are_finite(state["model"].values()):
            best = path, updates
    return best


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


def repair_last(save_dir):
    """Puts the newest good checkpoint in the place of a damaged last one; for the process that holds the lock.

    Raises:
        ValueError: the last checkpoint is damaged, and there is no other
    """
    last = os.path.join(save_dir, LAST)
    found = os.path.isfile(last) and damage(last)
    if not found:
        return
    path, updates = newest_good(save_dir, except_for=last)
    if path is None:
        raise UsageError(
            f"{last}: damaged: {found}, and {save_dir} has no other checkpoint to resume from; "
            "copy one there from a backup, or remove the file to train from the start"
        )
    aside = last + ".damaged"
    AtomicPathManager.copy(last, aside)
    AtomicPathManager.copy(path, last)  # atomic: other processes of this run look for the file
    logger.warning(
        f"{last} is damaged ({found}) and now called {aside}; resuming from {path}, the newest good one, "
        f"at update {updates:,}"
    )


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
