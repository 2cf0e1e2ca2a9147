"""fairseq's options that a run cannot have, refused before it begins."""

import math
import os
import re

import torch
from omegaconf import ListConfig

from ..base.errors import UsageError
from ..base.option_fields import as_dict, check_ranges, option_name
from ..base.ranges import MAX_FLOAT, Range
from ..checkpoints.sections import component_name, is_fairseq_builtin
from ..fairseq_api import MODEL_DATACLASS_REGISTRY, OPTIMIZER_DATACLASS_REGISTRY, criterions
from ..optimizer import parse_betas

# The smallest allowed values of options that fairseq does not check.
MIN_OF_OPTION = {
    "patience": -1,
    "keep_interval_updates": -1,
    "keep_last_epochs": -1,
    "keep_best_checkpoints": -1,
    "seed": 0,
    "num_workers": 0,
    "data_buffer_size": 0,
    "curriculum": 0,
    "warmup_updates": 0,
    "max_update": 0,
    "max_epoch": 0,
    "clip_norm": 0,
    "weight_decay": 0,
    "adam_eps": 0,
    "power": 0,
    "end_learning_rate": 0,
    "stop_time_hours": 0,
    "validate_interval_updates": 0,
    "validate_after_updates": 0,
    "save_interval_updates": 0,
    "log_interval": 1,
    "required_batch_size_multiple": 1,
    "total_num_update": 1,
    "update_freq": 1,
    "num_shards": 1,
    "fp16_init_scale": 1,
    "batch_size": 1,
    "batch_size_valid": 1,
    "max_tokens": 1,
    "max_tokens_valid": 1,
    "max_valid_steps": 1,
    "validate_interval": 1,
    "save_interval": 1,
}
# The components whose ranges are checked here; a task checks its own when it is built.
DATACLASS_REGISTRIES = {
    "optimizer": OPTIMIZER_DATACLASS_REGISTRY,
    "criterion": criterions.CRITERION_DATACLASS_REGISTRY,
    "model": MODEL_DATACLASS_REGISTRY,
}


def trains_on_cpu(cfg):
    """Whether a run with this configuration of fairseq trains on the CPU."""
    return cfg.common.cpu or not torch.cuda.is_available()


def check_run_options(cfg):
    """Refuses options of fairseq with which training cannot work here."""
    for part in ["task", "criterion"]:
        name = component_name(cfg[part])
        if is_fairseq_builtin(part, name):
            raise UsageError(
                f"--{part} {name} is fairseq's own and cannot train this model: use one of this "
                "plugin"
            )
    if cfg.ema.store_ema:
        raise UsageError("--store-ema has no use here, as nothing reads the averages: leave it out")
    if cfg.checkpoint.write_checkpoints_asynchronously:
        raise UsageError(
            "--write-checkpoints-asynchronously leaves incomplete files under their final names: "
            "remove the option"
        )
    schedule = as_dict(cfg.lr_scheduler)
    optimizer = as_dict(cfg.optimizer)
    sections = [cfg.common, cfg.dataset, schedule, cfg.optimization, cfg.checkpoint, optimizer]
    for section in sections:
        for name, given in section.items():
            check_range(name, given)
    parse_betas(optimizer.get("adam_betas", (0.9, 0.98)))
    for section, dataclasses in DATACLASS_REGISTRIES.items():
        config_class = dataclasses.get(component_name(cfg[section]))
        if config_class:
            check_ranges(cfg[section], config_class)
    check_rates(cfg.optimization, schedule)
    if trains_on_cpu(cfg) and cfg.common.fp16 and not cfg.common.memory_efficient_fp16:
        raise UsageError(
            "--fp16 needs a GPU: leave it out, or use --bf16-autocast where the CPU is fast at it"
        )


def check_range(name, given):
    """Refuses the value of an option if it is a number, or a list with one, out of range."""
    values = given if isinstance(given, (list, ListConfig)) else [given]
    for value in values:
        if isinstance(value, float):
            Range(MIN_OF_OPTION.get(name, -MAX_FLOAT), MAX_FLOAT).check(value, option_name(name))
        elif isinstance(value, int):
            Range(MIN_OF_OPTION.get(name, -(2**31))).check(value, option_name(name))


def check_rates(optimization, schedule):
    """Refuses learning rates with which nothing would be trained; of two sections of options."""
    rates = optimization.lr
    lowest = max(0, optimization.stop_min_lr)
    if rates and min(rates) <= lowest:
        raise UsageError(
            f"--lr {min(rates)} must be over --stop-min-lr, {lowest}: nothing would be trained"
        )
    if lowest and schedule.get("warmup_updates"):
        raise UsageError(
            f"--stop-min-lr {lowest}: the warm-up begins below it, and nothing would be trained"
        )
    max_update = optimization.max_update
    total = schedule.get("total_num_update") or math.inf
    if max_update > total and not schedule.get("end_learning_rate"):
        raise UsageError(
            f"--max-update {max_update} is beyond --total-num-update {total:.0f}: the learning "
            "rate would be 0 from there on; make them equal"
        )


def check_no_interpolation(args):
    """Refuses values of options that would mean something else in fairseq's configuration."""
    for name, value in vars(args).items():
        if isinstance(value, str) and re.search(r"\$\{|\\", value):
            raise UsageError(
                f"{option_name(name)} {value}: in fairseq, ${{...}} and \\ have a meaning of their "
                "own; rename it"
            )


def check_processes(distributed):
    """Refuses more processes than devices.

    fairseq would start none of them and report success, or each would train alone.
    """
    devices = torch.cuda.device_count()
    local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # that torchrun has started
    processes = max(local_processes, distributed.distributed_world_size)
    if devices:
        is_too_many = local_processes > devices
    else:
        # Processes that the user starts on CPUs are all right.
        is_by_hand = distributed.distributed_no_spawn and distributed.distributed_backend == "gloo"
        is_too_many = processes > 1 and not is_by_hand
    if is_too_many:
        raise UsageError(
            f"{processes} processes were requested (--distributed-world-size, torchrun or SLURM), "
            f"but PyTorch sees {devices or 'no'} GPUs: train in one process "
            "(--distributed-world-size 1, and --update-freq for the batch); for several machines "
            "without GPUs, see docs/pretraining.md"
        )
