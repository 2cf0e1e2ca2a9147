"""Memory of the C library, for training on the CPU."""

import ctypes
import os

# Constants of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
# Variables by which users set the same.
MALLOC_VARIABLES = [
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "GLIBC_TUNABLES",
]
# How many updates pass before kept memory is returned, which takes less than a tenth of a second.
RETURN_INTERVAL = 500

# For how many shapes of bfloat16 matrix products something is kept; the default is 1024.
CACHE_LIMITS = {
    # PyTorch's descriptions, a quarter of a MiB each, made in microseconds.
    "LRU_CACHE_CAPACITY": "16",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",  # oneDNN's kernels
}


def keep_freed_memory():
    """Stops glibc from returning the memory of freed tensors to the system between updates.

    Otherwise glibc returns large blocks to the system, which hands them out again page by page. On
    the CPU that takes up to a fifth of the time of an update (`benchmarks/RESULTS.md`). Nothing
    changes with another C library, or where the environment sets a threshold.

    Returns: whether freed memory is kept
    """
    if any(name in os.environ for name in MALLOC_VARIABLES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))


def limit_caches():
    """Lets PyTorch and oneDNN keep less for matrix products in bfloat16 on the CPU.

    To be called before the first of them. Blocks of many lengths make hundreds of shapes. Nothing
    changes where the environment sets a number.
    """
    for name, number in CACHE_LIMITS.items():
        os.environ.setdefault(name, number)


def return_freed_memory():
    """Returns to the system the memory that `keep_freed_memory` has kept.

    The next update gets what it needs anew. Without this, the kept memory would grow for thousands
    of updates, to several times what an update needs: what lives long, such as oneDNN's kernels for
    a new shape, is put between freed blocks, which are then too small for the next tensors.
    """
    ctypes.CDLL(None).malloc_trim(0)
