"""Locks of the operating system, which end with the process that has them."""

import contextlib
import fcntl
import os


@contextlib.contextmanager
def one_at_a_time(path):
    """Lets one process of this machine into the block at a time, if the file system can; all can read `path`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
