"""fairseq's own settings that make no sense in training, and that it takes without a word."""

import logging
import math

from .errors import UsageError

logger = logging.getLogger(__name__)

# Sections of fairseq's configuration, and the smallest value of their settings; None stands for 'not given'.
MINIMA = {
    "common": {"seed": 0, "log_interval": 1},
    "dataset": {
        "batch_size": 1,
        "batch_size_valid": 1,
        "max_tokens": 1,
        "max_tokens_valid": 1,
        "num_workers": 0,
        "validate_interval": 1,
        "validate_interval_updates": 0,
    },
    "optimization": {"lr": 0, "update_freq": 1, "max_update": 0, "max_epoch": 0, "clip_norm": 0, "stop_time_hours": 0},
    "checkpoint": {"save_interval": 1, "save_interval_updates": 0},
    "lr_scheduler": {"warmup_updates": 0, "total_num_update": 1, "end_learning_rate": 0},
    "optimizer": {"adam_eps": 0, "weight_decay": 0},
}


def check_settings(cfg):
    """Refuses settings out of range.

    Args:
        cfg: fairseq's configuration of a training
    Raises:
        ValueError: a setting is out of range, or no number
    """
    for section, minima in MINIMA.items():
        for name, least in minima.items():
            given = getattr(getattr(cfg, section, None), name, None)
            values = given if isinstance(given, (list, tuple)) or hasattr(given, "append") else [given]
            for value in values:
                if value is not None and not (math.isfinite(number(value)) and number(value) >= least):
                    raise UsageError(f"--{name.replace('_', '-')} {value} must be at least {least}")
    updates, scheduler = cfg.optimization.max_update, cfg.lr_scheduler
    warmup = number(getattr(scheduler, "warmup_updates", 0) or 0)
    total = number(getattr(scheduler, "total_num_update", math.inf) or math.inf)
    if warmup >= total:
        raise UsageError(
            f"--warmup-updates {warmup:.0f} must be less than --total-num-update {total:.0f}, when the learning rate "
            "has fallen to its end"
        )
    if 0 < updates < warmup:
        logger.warning(
            "--warmup-updates %d is more than --max-update %d: the learning rate never reaches --lr", warmup, updates
        )


def number(value):
    """A number, also one that fairseq keeps as text; NaN for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
