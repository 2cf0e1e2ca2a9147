"""What differs between versions of fairseq, torch and Python: the only file that knows."""

import argparse
import collections
import contextlib
import logging
import os
import sys
import typing
import warnings
from pathlib import Path

from .errors import InstallationError


@contextlib.contextmanager
def undisturbed():
    """Imports within the block leave logging and warning filters as they were: fairseq configures both on import."""
    root, disabled = logging.getLogger(), logging.root.manager.disable
    level, handlers = root.level, root.handlers[:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)
            root.setLevel(level)
            root.handlers[:] = handlers


try:
    with undisturbed():
        import fairseq  # noqa: F401
        import numpy as np
        import torch
        from fairseq.data.token_block_utils_fast import _get_slice_indices_fast
except Exception as error:  # a mutable default, a missing module, a broken extension: the type differs
    message = (str(error).splitlines() or [""])[0]
    raise InstallationError(
        "fairseq does not work on this Python {}.{} ({}: {}): run `make install`, or `pip install -c "
        "constraints.txt .` in a new virtual environment, which installs {}".format(
            *sys.version_info[:2],
            type(error).__name__,
            message,
            "ve-fairseq, the same code for newer Pythons" if sys.version_info >= (3, 11) else "fairseq==0.12.2",
        )
    ) from None

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    raise InstallationError(
        f"torch {torch.__version__} executes code from some checkpoints, even when told to read weights only "
        "(CVE-2025-32434); this needs torch 2.6 or newer: pip install -c constraints.txt ."
    )


def is_command():
    """Whether this process runs one of fairseq's commands or a recipe, rather than a program that imports us."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if any(name.partition(".")[0] == "fairseq_cli" for name in [*sys.modules, getattr(main, "name", "")]):
        return True
    programs = [str(Path(__file__).resolve().parents[2] / folder) + os.sep for folder in ["recipes", "experiments"]]
    return os.path.abspath((sys.argv or ["."])[0]).startswith(tuple(programs))


def checkpoint_classes():
    """Classes other than tensors that fairseq's checkpoints contain: containers and numbers, nothing that runs code."""
    from fairseq.distributed.utils import _TensorPlaceholder
    from omegaconf import DictConfig, ListConfig, base, nodes

    value_nodes = [kind for kind in vars(nodes).values() if isinstance(kind, type) and issubclass(kind, base.Node)]
    return (
        [argparse.Namespace, DictConfig, ListConfig, base.ContainerMetadata, base.Metadata]
        + value_nodes
        + [collections.defaultdict, typing.Any, _TensorPlaceholder]
        + [dict, list, tuple, set, int, float, bool, str, bytes]
    )


def allow_fairseq_checkpoints():
    """Lets torch >= 2.6 read fairseq's checkpoints with `weights_only` in this process, without free unpickling.

    A checkpoint contains its configuration beside its tensors, and processes send each other both on resuming.
    """
    torch.serialization.add_safe_globals(checkpoint_classes())


def block_spans(sizes, block_size, break_mode):
    """Where fairseq's break modes cut a stream of lines.

    Args:
        sizes (int64 array): tokens of each line, its `</s>` counted
        block_size (int): tokens a block holds at most; in `eos` mode, and for a longer line, more
        break_mode (str): none, complete, complete_doc or eos
    Returns:
        int64 array (blocks, 2): first token of each block, and the one after its last
    """
    if break_mode == "complete_doc" and (sizes == 1).all():  # fairseq's fails where there is no block
        return np.empty((0, 2), np.int64)
    return _get_slice_indices_fast(sizes, break_mode, block_size, 1)


def matmul_dtype(x):
    """The dtype in which matrix products with `x` are computed: autocast's where it is on, else `x.dtype`."""
    kind = x.device.type
    if kind == "meta":  # it has no autocast
        return x.dtype
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
