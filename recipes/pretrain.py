"""Becomes the fairseq-train of a recipe, so that signals reach the training itself.

`lib.sh` starts it:

    python recipes/pretrain.py .../pretrain_NAME.sh OPTION...

The settings are those of hydra/pretrain_base.yaml with the overrides in hydra/NAME.txt.
"""

import argparse
import copy
import itertools
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

from omegaconf import OmegaConf

from maelm_fairseq import __path__ as plugin
from maelm_fairseq.base.command_line import Parser, script_and_options, within
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.settings import CLUSTER, option
from maelm_fairseq.base.signals import SIGNALS, STOPPED
from maelm_fairseq.base.utf8 import half_character
from maelm_fairseq.runs import show_progress
from maelm_fairseq.runs.gpu_memory import BATCH_SIZE_PLACEHOLDER
from maelm_fairseq.training.reporting import reporter

EPILOG = (
    "All other options go to fairseq-train and override the settings of the recipe; "
    "--no-NAME takes back a switch\n"
    "that it sets, such as --no-share-decoder-layers.\n"
    "SIGTERM, SIGUSR1, SIGHUP and Ctrl-C stop training with a checkpoint after the current update, "
    "with exit status 75; the\n"
    "same command resumes."
)
RECIPES = Path(__file__).resolve().parent
SECONDS_TO_JOIN = 900  # seconds that a machine waits for the others to be started


def folder(text):
    if half_character(text) is not None:
        raise argparse.ArgumentTypeError(f"{text}: TensorBoard needs names in UTF-8; rename it")
    if text.startswith("-"):  # fairseq would take it for an option
        return "./" + text
    return text


def parse(recipe, words):
    """The recipe's own options, and those for fairseq-train.

    All options that come after `--` are for fairseq-train.
    """
    usage = "%(prog)s --data DATA[:DATA...] --save-dir RUN [options]"
    parser = Parser(os.path.basename(recipe), usage, description_of(recipe), EPILOG)
    if "-h" in words or "--help" in words:
        parser.epilog += "\n\nfairseq-train's options of this plugin:\n" + plugin_options()
    add = parser.add_argument
    add(
        "--data",
        type=folder,
        required=True,
        metavar="DATA[:DATA...]",
        help="data from data-prep/prepare.sh; several folders are shards of one corpus",
    )
    add(
        "--save-dir",
        type=folder,
        required=True,
        metavar="RUN",
        help="checkpoints, TensorBoard files and train.log",
    )
    add(
        "--updates",
        type=within(1),
        metavar="N",
        help="train for N updates instead of the recipe's, "
        "with warm-up, schedule and fading masks in proportion",
    )
    add(
        "--gpus",
        type=within(0),
        metavar="N",
        help="GPUs per machine (default: all); 0 trains on the CPU, for experiments, "
        "with a process per machine",
    )
    add(
        "--nodes",
        type=within(1),
        default=1,
        metavar="N",
        help="machines (default: 1); run the same command on each, "
        "with MASTER_ADDR set to one of them, whose port MASTER_PORT (default: 29500) "
        "and the next the others can reach",
    )
    add(
        "--batch-size",
        type=within(1),
        metavar="N",
        help="sequences per GPU at a time (default: a power of two that fits its memory); "
        "the effective batch stays the same",
    )
    add("--dry-run", action="store_true", help="print the fairseq-train command and stop")
    args, fairseq_args = parser.parse_known_args(words)
    return args, [word for word in fairseq_args if word != "--"]


def description_of(recipe):
    """The comment at the beginning of a recipe, after its first line."""
    with open(recipe, encoding="utf-8") as lines:
        next(lines, None)
        header = itertools.takewhile(lambda line: line.startswith("#"), lines)
        return "".join(line[2:] or "\n" for line in header)


def plugin_options():
    """The options of model and task with their help, as text."""
    from maelm_fairseq.config import MaeLmConfig
    from maelm_fairseq.task import MaeLmTaskConfig

    helps = {}
    for field in [*fields(MaeLmTaskConfig), *fields(MaeLmConfig)]:
        helps[option(field.name)] = field.metadata.get("help")
    width = max(map(len, helps))
    return "\n".join(f"  {name:{width}}  {text}" for name, text in helps.items() if text)


def settings(name):
    """A recipe's settings as fairseq groups them: {group: {name: value}}."""
    hydra = RECIPES / "hydra"
    base = OmegaConf.load(hydra / "pretrain_base.yaml")
    overrides = []
    if name != "base":
        overrides = (hydra / f"{name}.txt").read_text().split()
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
                name = "arch" if group == "model" else group
            if value is not False:
                yield option(name)
            if isinstance(value, list):
                yield ",".join(map(str, value))
            elif not isinstance(value, bool):
                yield str(value)


def given(fairseq_args):
    """The user's options for fairseq-train, {name: value}.

    The value of a switch is what comes after it.
    """
    values = {}
    for word, following in zip(fairseq_args, [*fairseq_args[1:], ""]):
        name, _, value = word.partition("=")
        if name.startswith("--"):
            values[name] = value or following
    return values


def drop_replaced_groups(cfg, fairseq_args):
    """Drops settings, in place, that the options of the user replace or take back.

    These are settings of a kind of optimizer, schedule or criterion of which the user chooses
    another, and switches.

    Returns:
        the user's options, without those that take back a switch of the recipe, such as
        --no-share-decoder-layers
    """
    for name, value in given(fairseq_args).items():
        group = cfg.get(name.removeprefix("--").replace("-", "_"), {})
        if group.get("_name", value) != value:
            group.clear()
    switches = {}
    for group in cfg.values():
        for name, value in group.items():
            if value is True:
                switches["--no-" + name.replace("_", "-")] = (group, name)
    for word in switches.keys() & {*fairseq_args}:
        group, name = switches[word]
        group[name] = False
    return [word for word in fairseq_args if word not in switches]


def fit_to_devices(cfg, args, fairseq_args):
    """Fits settings to folders and devices, with the same effective batch.

    Returns: what an update consists of, in words
    """
    common = cfg["common"]
    dataset = cfg["dataset"]
    distributed = cfg["distributed_training"]
    optimization = cfg["optimization"]
    at_a_time = distributed["distributed_world_size"] * dataset["batch_size"]
    sequences = at_a_time * optimization["update_freq"][0]
    processes = max(args.gpus, 1) * args.nodes
    batch = args.batch_size
    if batch is None:
        batch = (
            fitting_batch(cfg, args, fairseq_args, sequences // processes) or dataset["batch_size"]
        )
    at_a_time = processes * batch
    if sequences % at_a_time:
        found = f"{processes} process(es) (--gpus times --nodes) with --batch-size {batch}"
        raise UsageError(
            f"{found}: their product must divide the effective batch of {sequences} sequences"
        )
    distributed["distributed_world_size"] = processes
    dataset["batch_size"] = batch
    optimization["update_freq"] = [sequences // at_a_time]
    cfg["checkpoint"]["save_dir"] = args.save_dir
    if args.updates:
        scale_schedule(cfg, args.updates)
    cpu = args.gpus == 0
    bf16 = cfg["task"].get("bf16_autocast") or "--bf16-autocast" in fairseq_args
    common["user_dir"] = plugin[0]
    common["tensorboard_logdir"] = os.path.join(args.save_dir, "tensorboard")
    common["cpu"] = cpu
    common["fp16"] = common["fp16"] and not cpu and not bf16
    every = sequences // at_a_time
    update_freq = given(fairseq_args).get("--update-freq", "")
    if update_freq.isdecimal():
        every = int(update_freq)
    return (
        f"{processes} process(es) x {batch} sequences x {every} = "
        f"{at_a_time * every} sequences per update"
    )


def fitting_batch(cfg, args, fairseq_args, sequences):
    """The largest batch that fits the GPU and divides so many sequences; None if it is not known.

    Another process finds it, since this one becomes fairseq-train, with a GPU that nothing has used
    yet.
    """
    if not args.gpus or args.nodes > 1 or not sequences:  # machines may differ
        return None
    if not count_gpus():
        print(
            "no GPU here: with one, as many sequences at a time are used as fit its memory",
            file=sys.stderr,
        )
        return None
    asked = copy.deepcopy(cfg)
    del asked["common"]["user_dir"], asked["common"]["tensorboard_logdir"]  # not known yet
    asked["dataset"]["batch_size"] = BATCH_SIZE_PLACEHOLDER
    asked["optimization"]["update_freq"] = [BATCH_SIZE_PLACEHOLDER]
    program = [sys.executable, "-m", "maelm_fairseq.runs.gpu_memory"]
    words = [str(sequences), args.data, *fairseq_options(asked), *fairseq_args]
    done = subprocess.run([*program, *words], capture_output=True, text=True)
    if done.returncode or not done.stdout:  # fairseq-train will say what is wrong with the options
        return None
    batch, memory = done.stdout.split(" ", 1)
    about = f"about {memory.strip()} of a GPU, by a formula; --batch-size N sets another number"
    print(f"{batch} sequences at a time, {about}", file=sys.stderr)
    return int(batch)


def scale_schedule(cfg, updates):
    """Fits a recipe's settings, in place, to another number of updates.

    There are four validations or more.
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
    task["encoder_mask_fade_updates"] = round(share * task.get("encoder_mask_fade_updates", 0))
    every = checkpoint.get("save_interval_updates") or updates
    checkpoint["save_interval_updates"] = min(every, -(-updates // 4))


def rendezvous(args):
    """The settings by which the processes of several machines find each other."""
    try:
        port = within(1, 65534)(os.environ.get("MASTER_PORT", "29500"))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"MASTER_PORT: {error}") from None
    if "SLURM_STEP_ID" in os.environ:  # srun has started a task on each machine
        node_list = os.environ["SLURM_STEP_NODELIST"]
        names = subprocess.check_output(["scontrol", "show", "hostnames", node_list], text=True)
        address = names.split()[0]
        number = int(os.environ["SLURM_PROCID"])
    else:
        address = os.environ.get("MASTER_ADDR")
        if not address:
            raise UsageError(
                f"--nodes {args.nodes} needs MASTER_ADDR, the name of one of the machines"
            )
        number = 0 if args.dry_run else machine_number(address, port, args.nodes)
        # Training has a port of its own: on that of `machine_number`, an early machine would still
        # find the store there, and then lose it.
        port += 1
    network = dict(
        distributed_init_method=f"tcp://{address}:{port}",
        distributed_rank=number * max(args.gpus, 1),
    )
    if not args.gpus:
        network.update(
            distributed_backend="gloo", ddp_backend="legacy_ddp", distributed_no_spawn=True
        )
    return network


def machine_number(address, port, machines):
    """This machine's number: 0 at `address`; the others are numbered in the order they come.

    The processes of all machines look for each other at `address`.
    """
    from torch.distributed import DistNetworkError, TCPStore

    try:
        family, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(
            f"MASTER_ADDR={address}: {error.strerror}; set it to one of the machines"
        ) from None
    deadline = time.monotonic() + SECONDS_TO_JOIN

    def wait(missing):
        """Waits here, not in the store, which would keep signals from this process."""
        if time.monotonic() > deadline:
            raise UsageError(
                f"--nodes {machines}: {missing} in {SECONDS_TO_JOIN} s; "
                "run the same command on each machine"
            )
        time.sleep(0.5)

    try:
        # This fails where it is not an address of this machine.
        socket.create_server(place[:2], family=family).close()
        store = TCPStore(address, port, is_master=True, wait_for_workers=False)
    except (OSError, DistNetworkError):  # the port is taken if all machines are one, for a test
        while socket.socket(family).connect_ex((address, port)):
            wait(f"nothing answered at {address}, port {port},")
        store = TCPStore(address, port, is_master=False)
        number = store.add("others", 1)
        # The first machine may then continue, and close the store: this needs no answer from it.
        store.set(str(number), "")
        return number
    others = [str(number) for number in range(1, machines)]
    while not store.check(others):
        wait("not all have joined")
    return 0


def check_gpus_and_data(args):
    """Refuses GPUs and data that do not exist."""
    if args.gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(args.gpus))))
        # Without a GPU, fairseq trains on the CPU; on several machines, it uses all GPUs.
        if args.gpus != count_gpus():
            origin = "" if visible is None else f" of CUDA_VISIBLE_DEVICES={visible}"
            raise UsageError(
                f"--gpus {args.gpus}: PyTorch sees {count_gpus()} here{origin}; "
                "--gpus 0 trains on the CPU"
            )
    for shard in args.data.split(":"):
        if not os.path.isfile(os.path.join(shard, "dict.txt")):
            expected = "expected a folder that data-prep/prepare.sh wrote"
            raise UsageError(f"--data {args.data}: found no dict.txt in {shard!r}, {expected}")


def count_gpus():
    import torch

    return torch.cuda.device_count()


def main():
    scripts = [*sorted(RECIPES.glob("pretrain_*.sh")), RECIPES / "adapt.sh"]
    recipe, words = script_and_options({str(path): path.name for path in scripts})
    args, fairseq_args = parse(recipe, words)
    if ":" in args.data and os.path.exists(os.path.join(args.data, "dict.txt")):
        raise UsageError(
            f"--data {args.data}: fairseq-train separates folders by colons; "
            "give a path without one"
        )
    if args.gpus is None:
        args.gpus = count_gpus()
    name = os.path.basename(recipe).removeprefix("pretrain_").removesuffix(".sh")
    cfg = settings(name)
    fairseq_args = drop_replaced_groups(cfg, fairseq_args)
    update = fit_to_devices(cfg, args, fairseq_args)
    if not args.dry_run:
        check_gpus_and_data(args)
        os.makedirs(args.save_dir, exist_ok=True)
        if not args.gpus:
            print("training on the CPU: good enough for experiments, not for full-size pretraining")
        print(f"{update}; the full log is in {args.save_dir}/train.log", flush=True)
    if args.nodes > 1:
        cfg["distributed_training"].update(rendezvous(args))
    for name in CLUSTER:
        os.environ.pop(name, None)
    sys.argv = ["fairseq-train", args.data, *fairseq_options(cfg), *fairseq_args]
    if args.dry_run:
        print(shlex.join(sys.argv))
        return
    train = load_fairseq_train()
    try:
        train.cli_main()
    except Exception:
        logging.exception("training failed")  # for the log; the reporter tells the user
        raise


def load_fairseq_train():
    """Imports fairseq-train, and then the plugin, which extends it; both log to train.log."""
    save_dir = sys.argv[sys.argv.index("--save-dir") + 1]
    show_progress.log_to(os.path.join(save_dir, "train.log"))
    from fairseq_cli import train

    import maelm_fairseq.plugin  # noqa: F401

    return train


if __name__ in ("__main__", "__mp_main__"):
    for request in SIGNALS:
        if signal.getsignal(request) != signal.SIG_IGN:
            # Until training has begun, there is nothing to save; it then handles signals itself.
            signal.signal(request, lambda *_: os._exit(STOPPED))
    reporter.install()
    if __name__ == "__main__":
        main()
    else:  # a process that fairseq-train starts for a GPU
        load_fairseq_train()
