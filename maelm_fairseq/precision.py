"""bfloat16 by torch.autocast: the option of tasks and criterions, and what it contradicts."""

import functools
import logging
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from omegaconf import II

from .base.errors import UsageError
from .base.option_fields import setting
from .fairseq_api import FairseqDataclass

logger = logging.getLogger(__name__)


@dataclass
class PrecisionConfig(FairseqDataclass):
    bf16_autocast: bool = setting(
        False,
        "bfloat16 where it is safe, with torch.autocast, on GPUs and on CPUs that are fast at it",
    )
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    amp: bool = II("common.amp")


def check_precision(cfg):
    """Refuses options of `PrecisionConfig` that contradict each other."""
    if cfg.bf16:
        raise UsageError("fairseq's --bf16 implies --tpu: use --bf16-autocast, on GPU and CPU")
    if cfg.amp:  # it skips updates without telling the optimizer
        raise UsageError(
            "fairseq's --amp cannot train with torch_adamw: use --fp16 or --bf16-autocast"
        )
    if cfg.bf16_autocast and cfg.fp16:
        raise UsageError("--bf16-autocast contradicts --fp16: choose one")


def autocast(cfg, device):
    """The context in which a `PrecisionConfig` wants the model and its loss computed.

    Criterions call it, rather than a task's train_step, where fairseq sets autocast itself.
    """
    if computes_in_bfloat16(cfg, device):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def computes_in_bfloat16(cfg, device):
    """Whether `autocast` uses bfloat16: it is asked for, and it pays on the device."""
    return cfg.bf16_autocast and is_fast_in_bfloat16(device.type)


@functools.lru_cache(maxsize=None)
def is_fast_in_bfloat16(device_type):
    """Whether bfloat16 pays on the devices of a type, "cpu" or "cuda".

    If it does not, the first call says so in the log. On a CPU without AVX-512, a matrix product in
    bfloat16 takes eight times as long as in float32. GPUs before Ampere emulate it.
    """
    if device_type == "cpu":
        has_mkldnn = torch.backends.mkldnn.is_available()
        fast = has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        slow = "this CPU, which lacks AVX-512"
    else:
        fast = device_type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
        slow = "this GPU, which lacks units for it (--fp16 is fast there)"
    if not fast:
        logger.warning(f"bfloat16 would be slow on {slow}: computing in float32")
    return fast


def matmul_dtype(x):
    """The dtype in which matrix products with `x` are computed: autocast's, or `x.dtype`."""
    device_type = x.device.type
    if device_type == "meta":  # it has no autocast
        return x.dtype
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return x.dtype
