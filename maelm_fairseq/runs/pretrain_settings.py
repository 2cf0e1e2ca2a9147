"""The settings of a pretraining recipe, and how options and devices change them."""

import copy
import json
import os
import subprocess
import sys
from typing import NamedTuple

from omegaconf import OmegaConf

from .. import PLUGIN_FOLDER
from ..base.command_line import Parser
from ..base.errors import UsageError
from ..base.option_fields import option_name
from .machines import count_gpus


def read_settings(folder, name):
    """A recipe's settings as fairseq groups them: {group: {name: value}}.

    Args:
        folder: folder of the files of settings, such as recipes/hydra
        name: name of the recipe: its overrides are in NAME.txt; `base` has none
    """
    base = OmegaConf.load(folder / "pretrain_base.yaml")
    overrides = []
    if name != "base":
        overrides = (folder / f"{name}.txt").read_text().split()
    overrides = OmegaConf.from_dotlist([override.lstrip("+") for override in overrides])
    cfg = OmegaConf.to_container(OmegaConf.merge(base, overrides))
    del cfg["hydra"], cfg["task"]["data"]
    return cfg


def fairseq_options(cfg):
    """Yields settings as options of fairseq-train."""
    for group, values in cfg.items():
        for field, value in values.items():
            name = field
            if field == "_name":
                name = choice_option(group)
            if value is not False:
                yield option_name(name)
            if isinstance(value, list):
                yield ",".join(map(str, value))
            elif not isinstance(value, bool):
                yield str(value)


def choice_option(group):
    """The name of fairseq-train's option that chooses what a group of settings is for."""
    return "arch" if group == "model" else group


def given_values(fairseq_args, *names):
    """The values that the user gives to some options of fairseq-train: {name: text}.

    Args:
        fairseq_args: all of the user's options for fairseq-train
        names: names of the options, such as update_freq
    """
    parser = Parser(add_help=False)
    for name in names:
        parser.add_argument(option_name(name))
    values, _ = parser.parse_known_args(fairseq_args)
    return {name: value for name, value in vars(values).items() if value is not None}


def drop_replaced_groups(cfg, fairseq_args):
    """Drops, in place, settings of an architecture, optimizer, schedule, ... that is replaced.

    What replaces it is among the user's options.
    """
    groups = {choice_option(name): group for name, group in cfg.items() if "_name" in group}
    for name, value in given_values(fairseq_args, *groups).items():
        if groups[name]["_name"] != value:
            groups[name].clear()


def turn_off_switches(cfg, fairseq_args):
    """Turns off, in place, the recipe's switches that the user's options take back.

    Returns:
        the user's options without those that do, such as --no-share-decoder-layers, which
        fairseq-train does not know
    """
    switches = {}
    for group in cfg.values():
        for name, value in group.items():
            if value is True:
                switches["--no-" + name.replace("_", "-")] = (group, name)
    for word in switches.keys() & {*fairseq_args}:
        group, name = switches[word]
        group[name] = False
    return [word for word in fairseq_args if word not in switches]


class BatchPlan(NamedTuple):
    """What an update consists of."""

    processes: int
    sequences: int  # of a process at a time
    update_freq: str  # how many times; from the user, maybe a number for each epoch

    def __str__(self):
        factors = (
            f"{self.processes} process(es) x {self.sequences} sequences at a time x "
            f"{self.update_freq} times"
        )
        if not self.update_freq.isdecimal():
            return f"sequences per update: {factors}"
        total = self.processes * self.sequences * int(self.update_freq)
        return f"{total:,} sequences per update: {factors}"


def effective_batch(cfg):
    """The sequences of an update of a recipe, on any number of devices."""
    at_a_time = cfg["distributed_training"]["distributed_world_size"] * cfg["dataset"]["batch_size"]
    return at_a_time * cfg["optimization"]["update_freq"][0]


def plan_batch(cfg, args, fairseq_args):
    """The `BatchPlan` on this run's devices, with the effective batch of the recipe.

    With --update-freq among the user's options, the effective batch is what these make it.

    Raises:
        UsageError: devices and --batch-size do not divide the effective batch of the recipe
    """
    total = effective_batch(cfg)
    processes = max(args.gpus, 1) * args.nodes
    update_freq = given_values(fairseq_args, "update_freq").get("update_freq")
    sequences = args.batch_size
    if sequences is None and update_freq is None:
        sequences = fitting_batch(cfg, args, fairseq_args, total // processes)
    if sequences is None:
        sequences = cfg["dataset"]["batch_size"]
    if update_freq is not None:
        return BatchPlan(processes, sequences, update_freq)
    if total % (processes * sequences):
        found = f"{processes} process(es) (--gpus times --nodes) with --batch-size {sequences}"
        raise UsageError(
            f"{found}: their product must divide the effective batch of {total} sequences"
        )
    return BatchPlan(processes, sequences, str(total // (processes * sequences)))


def apply_run_options(cfg, args, fairseq_args):
    """Fits settings, in place, to this run's folders, devices, precision and number of updates.

    Returns: the `BatchPlan`
    Raises UsageError: the number of updates is given twice, or `plan_batch` raises it
    """
    batch = plan_batch(cfg, args, fairseq_args)
    cfg["distributed_training"]["distributed_world_size"] = batch.processes
    cfg["dataset"]["batch_size"] = batch.sequences
    cfg["optimization"]["update_freq"] = batch.update_freq
    cfg["checkpoint"]["save_dir"] = args.save_dir
    if args.updates:
        given = given_values(fairseq_args, "max_update")
        if given:
            raise UsageError(
                f"--updates {args.updates} and --max-update {given['max_update']}: found both, "
                "expected one; --updates also scales the schedule"
            )
        scale_schedule(cfg, args.updates)
    common = cfg["common"]
    common["user_dir"] = PLUGIN_FOLDER
    common["tensorboard_logdir"] = os.path.join(args.save_dir, "tensorboard")
    set_precision(cfg, args, fairseq_args)
    return batch


def set_precision(cfg, args, fairseq_args):
    """Sets the device and its precision, in place: fp16 is for GPUs, and never beside bfloat16."""
    common = cfg["common"]
    common["cpu"] = args.gpus == 0
    is_bf16 = cfg["task"].get("bf16_autocast") or "--bf16-autocast" in fairseq_args
    common["fp16"] = common["fp16"] and not common["cpu"] and not is_bf16


def fitting_batch(cfg, args, fairseq_args, sequences):
    """The largest batch that fits the GPU and divides `sequences`; None if it is not known.

    Another process finds it, since this one becomes fairseq-train, with a GPU that nothing has used
    yet.
    """
    if not args.gpus or args.nodes > 1 or not sequences:  # machines may differ
        return None
    if not count_gpus():
        print(
            "no GPU found; on a GPU, --batch-size is chosen to fit its memory",
            file=sys.stderr,
        )
        return None
    asked = copy.deepcopy(cfg)
    del asked["common"]["user_dir"], asked["common"]["tensorboard_logdir"]  # not known yet
    del asked["dataset"]["batch_size"], asked["optimization"]["update_freq"]  # to be chosen
    program = [sys.executable, "-m", "maelm_fairseq.runs.gpu_memory"]
    argv = [str(sequences), args.data, *fairseq_options(asked), *fairseq_args]
    done = subprocess.run([*program, *argv], capture_output=True, text=True)
    if done.returncode or not done.stdout:  # fairseq-train will say what is wrong with the options
        return None
    chosen = json.loads(done.stdout)
    print(
        f"{chosen['batch_size']} sequences at a time, about {chosen['memory']} of a GPU, by a "
        "formula; --batch-size N sets another number",
        file=sys.stderr,
    )
    return chosen["batch_size"]


def scale_schedule(cfg, updates):
    """Fits a recipe's settings, in place, to another number of updates.

    The interval of saving, and of validation, is at most a quarter of the run.
    """
    checkpoint = cfg["checkpoint"]
    optimization = cfg["optimization"]
    schedule = cfg["lr_scheduler"]
    task = cfg["task"]
    share = updates / optimization["max_update"]
    optimization["max_update"] = updates
    if schedule.get("warmup_updates") is not None:  # else another schedule has replaced it
        schedule["total_num_update"] = updates
        schedule["warmup_updates"] = round(share * schedule["warmup_updates"])
    if "encoder_mask_fade_updates" in task:  # else another task has replaced it
        task["encoder_mask_fade_updates"] = round(share * task["encoder_mask_fade_updates"])
    interval = checkpoint.get("save_interval_updates") or updates
    checkpoint["save_interval_updates"] = min(interval, -(-updates // 4))
