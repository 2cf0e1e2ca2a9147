"""bfloat16 by torch.autocast: the option of tasks and criterions, and what it contradicts."""

from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from .errors import UsageError


@dataclass
class PrecisionConfig(FairseqDataclass):
    bf16_autocast: bool = field(
        default=False, metadata={"help": "bfloat16 where it is safe, with torch.autocast, on CPU and GPU"}
    )
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    amp: bool = II("common.amp")


def check_precision(cfg):
    """Refuses options of :class:`PrecisionConfig` that contradict each other."""
    if cfg.bf16:
        raise UsageError("fairseq's --bf16 implies --tpu: use --bf16-autocast, on GPU and CPU")
    if cfg.bf16_autocast and (cfg.fp16 or cfg.amp):
        raise UsageError(f"--bf16-autocast contradicts {'--fp16' if cfg.fp16 else '--amp'}: choose one")


def autocast(cfg, device):
    """The context in which a :class:`PrecisionConfig` wants the model and its loss computed.

    For criterions rather than a task's train_step, where fairseq sets autocast itself (off, or to --amp).
    """
    return torch.autocast(device.type, torch.bfloat16) if cfg.bf16_autocast else nullcontext()
