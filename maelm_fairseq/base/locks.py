"""Locks of the operating system, which end with the process that has them."""

import contextlib
import fcntl
import os


@contextlib.contextmanager
def one_at_a_time(path):
    """Lets one process of this machine into the block at a time, where the file system has locks.

    `path` is of a file that all of them can read.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
