"""What differs between versions of fairseq, torch and Python: the only file that knows."""

import argparse
import collections
import logging
import sys
import typing
import warnings

from .errors import InstallationError

# On being imported, fairseq advises to install what its speech synthesis needs, and makes newer torch warn of its ways.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated")

try:
    import fairseq  # noqa: F401
    import torch
    from fairseq.data.token_block_utils_fast import _get_slice_indices_fast
except Exception as error:  # of many kinds: a mutable default, a missing module, a broken extension
    message = (str(error).splitlines() or [""])[0]
    raise InstallationError(
        "fairseq cannot work on this Python {}.{} ({}: {}): run `make install`, or `pip install -c "
        "constraints.txt .` in a new virtual environment, which takes {}".format(
            *sys.version_info[:2],
            type(error).__name__,
            message,
            "ve-fairseq, the same code for newer Pythons" if sys.version_info >= (3, 11) else "fairseq==0.12.2",
        )
    ) from None


def allow_fairseq_checkpoints():
    """Lets torch >= 2.6 read fairseq's checkpoints with `weights_only`, so that nothing is unpickled freely.

    A checkpoint holds its configuration beside its tensors, and processes send each other both on resuming.
    """
    if not hasattr(torch.serialization, "add_safe_globals"):  # torch < 2.4 does not ask
        return
    from omegaconf import DictConfig, ListConfig, base, nodes

    from fairseq.distributed.utils import _TensorPlaceholder

    value_nodes = [kind for kind in vars(nodes).values() if isinstance(kind, type) and issubclass(kind, base.Node)]
    torch.serialization.add_safe_globals(
        [argparse.Namespace, DictConfig, ListConfig, base.ContainerMetadata, base.Metadata]
        + value_nodes
        + [collections.defaultdict, typing.Any, _TensorPlaceholder]
        + [dict, list, tuple, set, int, float, bool, str, bytes]
    )


allow_fairseq_checkpoints()


def block_spans(sizes, block_size, break_mode):
    """Where fairseq's break modes cut a stream of lines.

    Args:
        sizes (int64 array): tokens of each line, its `</s>` counted
        block_size (int): tokens a block holds at most; in `eos` mode, and for a longer line, more
        break_mode (str): none, complete, complete_doc or eos
    Returns:
        int64 array (blocks, 2): first token of each block, and the one after its last
    """
    return _get_slice_indices_fast(sizes, break_mode, block_size, 1)


def matmul_dtype(x):
    """The dtype in which matrix products with `x` are computed: autocast's where it is on, else `x.dtype`."""
    kind = x.device.type
    try:
        enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    except (TypeError, AttributeError):  # torch < 2.4: one function a device
        cpu = kind == "cpu"
        enabled = torch.is_autocast_cpu_enabled() if cpu else torch.is_autocast_enabled()
        dtype = torch.get_autocast_cpu_dtype() if cpu else torch.get_autocast_gpu_dtype()
    return dtype if enabled else x.dtype


def fused_adamw(params, **options):
    """PyTorch's AdamW, fused where this PyTorch can on the parameters' device."""
    params = list(params)
    try:
        return torch.optim.AdamW(params, fused=True, **options)
    except (TypeError, RuntimeError):  # torch < 2.0 knows no `fused`, torch < 2.4 none for the CPU
        return torch.optim.AdamW(params, **options)
