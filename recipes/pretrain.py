"""Becomes the fairseq-train of a recipe, so that signals reach the training itself; `lib.sh` starts it.

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
from maelm_fairseq.base.errors import Parser, UsageError, within
from maelm_fairseq.base.settings import CLUSTER, option
from maelm_fairseq.base.signals import SIGNALS, STOPPED
from maelm_fairseq.base.utf8 import half_character
from maelm_fairseq.runs import show_progress
from maelm_fairseq.runs.gpu_memory import UNSET
from maelm_fairseq.training.reporting import reporter

EPILOG = """All other options go to fairseq-train and override the settings of the recipe; --no-NAME takes back a switch
that it sets, such as --no-share-decoder-layers.
SIGTERM, SIGUSR1, SIGHUP and Ctrl-C stop training with a checkpoint after the current update, with exit status 75; the
same command resumes."""
RECIPES = Path(__file__).resolve().parent
PATIENCE = 900  # seconds of a machine that waits for the others to be started


def folder(text):
    if half_character(text) is not None:
        raise argparse.ArgumentTypeError(f"{text}: TensorBoard needs names in UTF-8; rename it")
    return "./" + text if text.startswith("-") else text  # fairseq would take it for an option


def parse(recipe, words):
    """The recipe's own options, and those for fairseq-train, among which all are that come after `--`."""
    with open(recipe, encoding="utf-8") as lines:
        header = itertools.takewhile(lambda line: line.startswith("#"), itertools.islice(lines, 1, None))
        description = "".join(line[2:] or "\n" for line in header)
    usage = "%(prog)s --data DATA[:DATA...] --save-dir RUN [options]"
    parser = Parser(os.path.basename(recipe), usage, description, EPILOG)
    if {"-h", "--help"} & set(words):
        parser.epilog += "\n\nfairseq-train's options of this plugin:\n" + plugin_options()
    add = parser.add_argument
    shards = "data from data-prep/prepare.sh; several folders are shards of one corpus"
    add("--data", type=folder, required=True, metavar="DATA[:DATA...]", help=shards)
    add("--save-dir", type=folder, required=True, metavar="RUN", help="checkpoints, TensorBoard files and train.log")
    updates = "train for N updates instead of the recipe's, with warm-up, schedule and fading masks in proportion"
    add("--updates", type=within(1), metavar="N", help=updates)
    devices = "GPUs per machine (default: all); 0 trains on the CPU, for experiments, with a process per machine"
    add("--gpus", type=within(0), metavar="N", help=devices)
    nodes = "machines (default: 1); run the same command on each, with MASTER_ADDR set to one of them, whose port "
    nodes += "MASTER_PORT (default: 29500) and the next the others can reach"
    add("--nodes", type=within(1), default=1, metavar="N", help=nodes)
    batch = "sequences per GPU at a time (default: a power of two that fits its memory); the effective batch stays the "
    batch += "same"
    add("--batch-size", type=within(1), metavar="N", help=batch)
    add("--dry-run", action="store_true", help="print the fairseq-train command and stop")
    args, extra = parser.parse_known_args(words)
    return args, [word for word in extra if word != "--"]


def plugin_options():
    """The options of model and task with their help, as text."""
    from maelm_fairseq.config import MaeLmConfig
    from maelm_fairseq.task import MaeLmTaskConfig

    lines = {option(f.name): f.metadata.get("help") for kind in (MaeLmTaskConfig, MaeLmConfig) for f in fields(kind)}
    width = max(map(len, lines))
    return "\n".join(f"  {name:{width}}  {text}" for name, text in lines.items() if text)


def settings(name):
    """A recipe's settings as fairseq groups them: {group: {name: value}}."""
    hydra = RECIPES / "hydra"
    overrides = (hydra / f"{name}.txt").read_text().split() if name != "base" else []
    overrides = OmegaConf.from_dotlist([override.lstrip("+") for override in overrides])
    cfg = OmegaConf.to_container(OmegaConf.merge(OmegaConf.load(hydra / "pretrain_base.yaml"), overrides))
    del cfg["hydra"], cfg["task"]["data"]
    return cfg


def options(cfg):
    """Yields settings as options of fairseq-train."""
    for group, values in cfg.items():
        for field, value in values.items():
            name = {"model": "arch"}.get(group, group) if field == "_name" else field
            if value is not False:
                yield option(name)
            if not isinstance(value, bool):
                yield ",".join(map(str, value)) if isinstance(value, list) else str(value)


def given(extra):
    """The user's options for fairseq-train, {name: value}; the value of a switch is what comes after it."""
    pairs = [(word.partition("="), following) for word, following in zip(extra, [*extra[1:], ""])]
    return {name: value or following for (name, _, value), following in pairs if name.startswith("--")}


def drop_replaced_groups(cfg, extra):
    """Drops settings, in place, of a kind of optimizer, schedule or criterion of which the user chooses another.

    Returns:
        the user's options, without the switches of the recipe that they take back, such as --no-share-decoder-layers
    """
    for name, value in given(extra).items():
        group = cfg.get(name.removeprefix("--").replace("-", "_"), {})
        if group.get("_name", value) != value:
            group.clear()
    switches = [(group, name) for group in cfg.values() for name, value in group.items() if value is True]
    words = {"--no-" + name.replace("_", "-"): (group, name) for group, name in switches}
    for word in words.keys() & {*extra}:
        group, name = words[word]
        group[name] = False
    return [word for word in extra if word not in words]


def fit_to_devices(cfg, args, extra):
    """Fits settings to folders and devices, with the same effective batch; returns what an update consists of."""
    distributed, dataset, optimization = cfg["distributed_training"], cfg["dataset"], cfg["optimization"]
    sequences = distributed["distributed_world_size"] * dataset["batch_size"] * optimization["update_freq"][0]
    processes = max(args.gpus, 1) * args.nodes
    batch = args.batch_size or fitting_batch(cfg, args, extra, sequences // processes) or dataset["batch_size"]
    if sequences % (processes * batch):
        found = f"{processes} process(es) (--gpus times --nodes) with --batch-size {batch}"
        raise UsageError(f"{found}: their product must divide the effective batch of {sequences} sequences")
    distributed["distributed_world_size"], dataset["batch_size"] = processes, batch
    optimization["update_freq"] = [sequences // (processes * batch)]
    cfg["checkpoint"]["save_dir"] = args.save_dir
    if args.updates:
        scale_schedule(cfg, args.updates)
    cpu, bf16 = args.gpus == 0, cfg["task"].get("bf16_autocast") or "--bf16-autocast" in extra
    tensorboard = os.path.join(args.save_dir, "tensorboard")
    fp16 = cfg["common"]["fp16"] and not cpu and not bf16
    cfg["common"].update(user_dir=plugin[0], tensorboard_logdir=tensorboard, cpu=cpu, fp16=fp16)
    update_freq = given(extra).get("--update-freq", "")
    every = int(update_freq) if update_freq.isdecimal() else sequences // (processes * batch)
    return f"{processes} process(es) x {batch} sequences x {every} = {processes * batch * every} sequences per update"


def fitting_batch(cfg, args, extra, sequences):
    """The largest batch that fits the GPU and divides so many sequences; None where it is not known.

    Another process finds it: this one is to become fairseq-train, with a GPU that nothing has used yet.
    """
    if not args.gpus or args.nodes > 1 or not sequences:  # machines may differ
        return None
    if not count_gpus():
        print("no GPU here: with one, as many sequences at a time are used as fit its memory", file=sys.stderr)
        return None
    asked = copy.deepcopy(cfg)
    del asked["common"]["user_dir"], asked["common"]["tensorboard_logdir"]  # which are not known yet
    asked["dataset"]["batch_size"], asked["optimization"]["update_freq"] = UNSET, [UNSET]
    words = [str(sequences), args.data, *options(asked), *extra]
    done = subprocess.run(
        [sys.executable, "-m", "maelm_fairseq.runs.gpu_memory", *words], capture_output=True, text=True
    )
    if done.returncode or not done.stdout:  # fairseq-train says what is wrong with the options
        return None
    batch, memory = done.stdout.split(" ", 1)
    about = f"about {memory.strip()} of a GPU, by a formula; --batch-size N sets another number"
    print(f"{batch} sequences at a time, {about}", file=sys.stderr)
    return int(batch)


def scale_schedule(cfg, updates):
    """Fits a recipe's settings, in place, to another number of updates, with four validations or more."""
    optimization, schedule, task = cfg["optimization"], cfg["lr_scheduler"], cfg["task"]
    share = updates / optimization["max_update"]
    optimization["max_update"] = schedule["total_num_update"] = updates
    schedule["warmup_updates"] = round(share * schedule["warmup_updates"])
    task["encoder_mask_fade_updates"] = round(share * task.get("encoder_mask_fade_updates", 0))
    every = cfg["checkpoint"].get("save_interval_updates") or updates
    cfg["checkpoint"]["save_interval_updates"] = min(every, -(-updates // 4))


def rendezvous(args):
    """The settings by which the processes of several machines find each other."""
    try:
        port = within(1, 65534)(os.environ.get("MASTER_PORT", "29500"))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"MASTER_PORT: {error}") from None
    if "SLURM_STEP_ID" in os.environ:  # srun has started a task on each machine
        names = subprocess.check_output(["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]], text=True)
        address, number = names.split()[0], int(os.environ["SLURM_PROCID"])
    else:
        address = os.environ.get("MASTER_ADDR")
        if not address:
            raise UsageError(f"--nodes {args.nodes} needs MASTER_ADDR, the name of one of the machines")
        number = 0 if args.dry_run else machine_number(address, port, args.nodes)
        port += 1  # who is early would find the store by which they agreed, and lose it
    cpu = dict(distributed_backend="gloo", ddp_backend="legacy_ddp", distributed_no_spawn=True)
    rank = number * max(args.gpus, 1)
    return dict(distributed_init_method=f"tcp://{address}:{port}", distributed_rank=rank, **({} if args.gpus else cpu))


def machine_number(address, port, machines):
    """This machine's number: 0 at `address`, where the processes of all others look for it; others as they come."""
    from torch.distributed import DistNetworkError, TCPStore

    try:
        family, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(f"MASTER_ADDR={address}: {error.strerror}; set it to one of the machines") from None
    deadline = time.monotonic() + PATIENCE

    def wait(others):  # here, not in the store, which would keep signals from this process
        if time.monotonic() > deadline:
            raise UsageError(f"--nodes {machines}: {others} in {PATIENCE} s; run the same command on each machine")
        time.sleep(0.5)

    try:
        socket.create_server(place[:2], family=family).close()  # only where that is an address of this machine
        store = TCPStore(address, port, is_master=True, wait_for_workers=False)
    except (OSError, DistNetworkError):  # the port is taken if all machines are one, for a test
        while socket.socket(family).connect_ex((address, port)):
            wait(f"nothing answered at {address}, port {port},")
        store = TCPStore(address, port, is_master=False)
        number = store.add("others", 1)
        store.set(str(number), "")  # the first may continue, and close the store: this needs no answer
        return number
    while not store.check(list(map(str, range(1, machines)))):
        wait("not all came")
    return 0


def check(args):
    """Refuses GPUs and data that are not there."""
    if args.gpus:
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(args.gpus))))
        if args.gpus != count_gpus():  # fairseq trains on the CPU without one, and uses all on several machines
            of = "" if given is None else f" of CUDA_VISIBLE_DEVICES={given}"
            raise UsageError(f"--gpus {args.gpus}: PyTorch sees {count_gpus()} here{of}; --gpus 0 trains on the CPU")
    for shard in args.data.split(":"):
        if not os.path.isfile(os.path.join(shard, "dict.txt")):
            expected = "expected a folder that data-prep/prepare.sh wrote"
            raise UsageError(f"--data {args.data}: found no dict.txt in {shard!r}, {expected}")


def count_gpus():
    import torch

    return torch.cuda.device_count()


def main():
    recipe, *words = sys.argv[1:]
    args, extra = parse(recipe, words)
    if ":" in args.data and os.path.exists(os.path.join(args.data, "dict.txt")):
        raise UsageError(f"--data {args.data}: fairseq-train separates folders by colons; give a path without one")
    args.gpus = count_gpus() if args.gpus is None else args.gpus
    cfg = settings(os.path.basename(recipe).removeprefix("pretrain_").removesuffix(".sh"))
    extra = drop_replaced_groups(cfg, extra)
    update = fit_to_devices(cfg, args, extra)
    if not args.dry_run:
        check(args)
        os.makedirs(args.save_dir, exist_ok=True)
        cpu = "" if args.gpus else "training on the CPU: good enough for experiments, not for full-size pretraining\n"
        print(f"{cpu}{update}; the full log is in {args.save_dir}/train.log", flush=True)
    if args.nodes > 1:
        cfg["distributed_training"].update(rendezvous(args))
    for name in CLUSTER:
        os.environ.pop(name, None)
    sys.argv = ["fairseq-train", args.data, *options(cfg), *extra]
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
    """Imports fairseq-train, and then the plugin, which extends it, both with their log in train.log."""
    show_progress.log_to(os.path.join(sys.argv[sys.argv.index("--save-dir") + 1], "train.log"))
    from fairseq_cli import train

    import maelm_fairseq.plugin  # noqa: F401

    return train


if __name__ in ("__main__", "__mp_main__"):
    for request in SIGNALS:
        if signal.getsignal(request) != signal.SIG_IGN:
            signal.signal(request, lambda *_: os._exit(STOPPED))  # until the training, which saves, handles it
    reporter.install()
    if __name__ == "__main__":
        main()
    else:  # a process that fairseq-train starts for a GPU
        load_fairseq_train()
