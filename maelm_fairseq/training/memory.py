"""Memory of the C library, for training on the CPU."""

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
ENVIRONMENT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
RETURN_INTERVAL = 500  # updates after which kept memory is returned, which takes less than a tenth of a second

# For how many shapes of bfloat16 matrix products something is kept, by default 1024.
CACHES = {
    "LRU_CACHE_CAPACITY": "16",  # PyTorch's descriptions, a quarter of a MiB each, made in microseconds
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",  # oneDNN's kernels
}


def keep_freed_memory():
    """Lets this process keep the memory that tensors free, for those of the next update.

    glibc returns large blocks to the system, which hands them out again page by page: up to a fifth of the time of an
    update on the CPU (`benchmarks/RESULTS.md`). Not with another C library, or if the environment sets a threshold.

    Returns: whether freed memory is kept
    """
    if any(name in os.environ for name in ENVIRONMENT):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))


def limit_caches():
    """Lets PyTorch and oneDNN keep less of matrix products; only before this process's first in bfloat16 on the CPU.

    Blocks of many lengths make hundreds of shapes. Nothing changes where the environment sets a number.
    """
    for name, number in CACHES.items():
        os.environ.setdefault(name, number)


def return_freed_memory():
    """Returns to the system what `keep_freed_memory` has kept; the next update gets what it needs anew.

    What lives long, such as oneDNN's kernels for a new shape, lies between freed blocks, so that the next tensors need
    others: what is kept would grow for thousands of updates, to several times what an update needs.
    """
    ctypes.CDLL(None).malloc_trim(0)
