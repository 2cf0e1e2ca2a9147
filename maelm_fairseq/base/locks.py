"""Locks of the operating system, which end with the process that has them."""

import contextlib
import fcntl
import logging
import os
import socket

logger = logging.getLogger(__name__)


class HeldError(Exception):
    """Another process holds a lock; the message says which."""


@contextlib.contextmanager
def one_at_a_time(path):
    """Holds a lock: one process of this machine at a time runs the block.

    A process that has to wait says so. Where the file system has no locks, nothing is held.

    Args:
        path: file or folder that all of them can read
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.warning(f"{path}: waiting for another process that is at work in it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def hold(path):
    """Creates a file, or opens it, and keeps others out until the stream that it returns is closed.

    The file says who holds it. The lock also keeps out other machines if the file is on NFS, and is
    not inherited by loader workers.

    Raises:
        OSError: the file cannot be written
        HeldError: another process holds it
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW  # never the target of a link
    descriptor = os.open(path, flags, 0o666)
    stream = open(descriptor, "r+", encoding="utf-8")
    try:
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        with stream:
            raise HeldError(stream.read().strip() or "another process") from None
    except OSError as error:  # a file system without locks
        logger.warning(
            f"{path}: no lock ({error.strerror}); make sure that no other run uses this folder"
        )
    stream.truncate()
    stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    stream.flush()
    return stream
