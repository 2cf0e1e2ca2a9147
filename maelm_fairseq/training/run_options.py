"""fairseq's options that a run cannot have, refused before it begins."""

import itertools
import math
import os
import re

import torch
from omegaconf import ListConfig

from ..base.errors import UsageError
from ..base.ranges import Range
from ..base.settings import as_dict, option
from ..checkpoints.sections import is_fairseqs, name_in
from ..optimizer import betas

AT_LEAST = {  # of options that fairseq takes as they are
    -1: "patience keep_interval_updates keep_last_epochs keep_best_checkpoints",
    0: "seed num_workers data_buffer_size curriculum warmup_updates max_update max_epoch clip_norm weight_decay "
    "adam_eps power end_learning_rate stop_time_hours validate_interval_updates validate_after_updates "
    "save_interval_updates",
    1: "log_interval required_batch_size_multiple total_num_update update_freq num_shards fp16_init_scale batch_size "
    "batch_size_valid max_tokens max_tokens_valid max_valid_steps validate_interval save_interval",
}
LEAST = {name: least for least, names in AT_LEAST.items() for name in names.split()}
LARGEST = 1e300  # of numbers that need not be whole


def check(cfg, on_cpu):
    """Refuses options by which nothing would be trained, or not on a CPU; of fairseq's configuration."""
    for part in ["task", "criterion"]:
        name = name_in(cfg[part])
        if is_fairseqs(part, name):
            raise UsageError(f"--{part} {name}: fairseq's, which cannot train this model; expected one of this plugin")
    if cfg.ema.store_ema:
        raise UsageError("--store-ema: nothing here reads the averages, which hardly move in fp16: leave it out")
    schedule, optimizer = as_dict(cfg.lr_scheduler), as_dict(cfg.optimizer)
    sections = [cfg.common, cfg.dataset, schedule, cfg.optimization, cfg.checkpoint, optimizer]
    for name, given in itertools.chain.from_iterable(section.items() for section in sections):
        for value in given if isinstance(given, (list, ListConfig)) else [given]:
            if isinstance(value, float):
                Range(LEAST.get(name, -LARGEST), LARGEST).check(value, option(name))
            elif isinstance(value, int):
                Range(LEAST.get(name, -(2**31))).check(value, option(name))
    betas(optimizer.get("adam_betas", (0.9, 0.98)))
    rates, lowest = cfg.optimization.lr, max(0, cfg.optimization.stop_min_lr)
    if rates and min(rates) <= lowest:
        raise UsageError(f"--lr {min(rates)} must be over --stop-min-lr, {lowest}: nothing would be trained")
    if lowest and schedule.get("warmup_updates"):
        raise UsageError(f"--stop-min-lr {lowest}: the warm-up begins below it, and nothing would be trained")
    last, total = cfg.optimization.max_update, schedule.get("total_num_update") or math.inf
    if last > total and not schedule.get("end_learning_rate"):
        raise UsageError(
            f"--max-update {last} is beyond --total-num-update {total:.0f}: the learning rate would be 0 from there "
            "on; make them equal"
        )
    if on_cpu and cfg.common.fp16 and not cfg.common.memory_efficient_fp16:
        raise UsageError("--fp16 needs a GPU: leave it out, or use --bf16-autocast where the CPU is fast at it")


def check_texts(args):
    """Refuses texts in fairseq's parsed options that its configuration would read as something else."""
    for name, value in vars(args).items():
        if isinstance(value, str) and re.search(r"\$\{|\\", value):
            raise UsageError(f"{option(name)} {value}: fairseq reads ${{...}} and \\ as something else; rename it")


def check_processes(distributed):
    """Refuses more processes than devices: fairseq would start none and report success, or each would train alone."""
    devices, here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # started by torchrun
    by_hand = distributed.distributed_no_spawn and distributed.distributed_backend == "gloo"  # on CPUs
    processes = max(here, distributed.distributed_world_size)
    if here > devices > 0 or (processes > 1 and not devices and not by_hand):
        raise UsageError(
            f"{processes} processes are asked for (--distributed-world-size, torchrun or SLURM), but PyTorch sees "
            f"{devices or 'no'} GPUs: train in one process (--distributed-world-size 1, and --update-freq for the "
            "batch); docs/pretraining.md has what several machines without GPUs need"
        )
