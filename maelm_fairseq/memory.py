"""Memory of the C library, for training on the CPU."""

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
ENVIRONMENT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory():
    """Lets this process keep the memory that tensors free, for those of the next update.

    glibc returns large blocks to the system, which hands them out again page by page: up to a fifth of the time of an
    update on the CPU (`benchmarks/RESULTS.md`). Nothing changes with another C library, or if the environment sets
    one of glibc's thresholds.

    Returns:
        whether freed memory is kept
    """
    if any(name in os.environ for name in ENVIRONMENT):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))
