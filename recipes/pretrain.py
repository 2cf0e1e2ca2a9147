"""Becomes the fairseq-train of a recipe, so that signals reach the training itself.

`lib.sh` starts it:

    python recipes/pretrain.py .../pretrain_NAME.sh OPTION...

The settings come from hydra/pretrain_base.yaml, with the overrides in hydra/NAME.txt.
"""

import itertools
import logging
import os
import shlex
import sys
from dataclasses import fields
from pathlib import Path

from maelm_fairseq.base.command_line import Parser, folder_name, number_in_range, script_and_options
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.option_fields import option_name
from maelm_fairseq.base.signals import EXIT_STOPPED, handle_unless_ignored
from maelm_fairseq.runs import log_report
from maelm_fairseq.runs.machines import DISTRIBUTED_VARIABLES, count_gpus, rendezvous, take_gpus
from maelm_fairseq.runs.pretrain_settings import (
    apply_run_options,
    drop_replaced_groups,
    fairseq_options,
    read_settings,
    turn_off_switches,
)
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


def parse_args(recipe, argv):
    """The recipe's own options, and those for fairseq-train.

    All options that come after `--` are for fairseq-train.
    """
    usage = "%(prog)s --data DATA[:DATA...] --save-dir RUN [options]"
    parser = Parser(os.path.basename(recipe), usage, description_of(recipe), EPILOG)
    if "-h" in argv or "--help" in argv:
        parser.epilog += "\n\noptions that this plugin adds to fairseq-train:\n" + plugin_options()
    add = parser.add_argument
    add(
        "--data",
        type=folder_name,
        required=True,
        metavar="DATA[:DATA...]",
        help="data from data-prep/prepare.sh; several folders are shards of one corpus",
    )
    add(
        "--save-dir",
        type=folder_name,
        required=True,
        metavar="RUN",
        help="checkpoints, TensorBoard files and train.log",
    )
    add(
        "--updates",
        type=number_in_range(1),
        metavar="N",
        help="train for N updates instead of the recipe's, "
        "with warm-up, schedule and fading masks in proportion",
    )
    add(
        "--gpus",
        type=number_in_range(0),
        metavar="N",
        help="GPUs per machine (default: all); 0 trains on the CPU, to try things out, "
        "in one process per machine",
    )
    add(
        "--nodes",
        type=number_in_range(1),
        default=1,
        metavar="N",
        help="machines (default: 1); run the same command on each, "
        "with MASTER_ADDR set to one of them; the others must be able to reach its ports "
        "MASTER_PORT (default: 29500) and MASTER_PORT + 1",
    )
    add(
        "--batch-size",
        type=number_in_range(1),
        metavar="N",
        help="sequences per GPU at a time (default: on one machine, a power of two that fits its "
        "memory); the effective batch stays the same",
    )
    add("--dry-run", action="store_true", help="print the fairseq-train command and stop")
    args, fairseq_args = parser.parse_known_args(argv)
    if ":" in args.data and os.path.exists(os.path.join(args.data, "dict.txt")):
        raise UsageError(
            f"--data {args.data}: fairseq-train separates folders by colons; "
            "give a path without one"
        )
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
        helps[option_name(field.name)] = field.metadata.get("help")
    width = max(map(len, helps))
    return "\n".join(f"  {name:{width}}  {text}" for name, text in helps.items() if text)


def check_data(args):
    """Refuses data that do not exist."""
    for shard in args.data.split(":"):
        if not os.path.isfile(os.path.join(shard, "dict.txt")):
            found = "a file" if os.path.isfile(shard) else "no dict.txt in it"
            raise UsageError(
                f"--data {shard}: found {found}, expected a folder that data-prep/prepare.sh wrote"
            )


def main():
    scripts = [*sorted(RECIPES.glob("pretrain_*.sh")), RECIPES / "adapt.sh"]
    recipe, argv = script_and_options({str(path): path.name for path in scripts})
    args, fairseq_args = parse_args(recipe, argv)
    if args.gpus is None:
        args.gpus = count_gpus()
    name = os.path.basename(recipe).removeprefix("pretrain_").removesuffix(".sh")
    cfg = read_settings(RECIPES / "hydra", name)
    fairseq_args = turn_off_switches(cfg, fairseq_args)
    drop_replaced_groups(cfg, fairseq_args)
    batch = apply_run_options(cfg, args, fairseq_args)
    if not args.dry_run:
        if args.gpus:
            take_gpus(args.gpus)
        check_data(args)
        os.makedirs(args.save_dir, exist_ok=True)
        if not args.gpus and name not in ("small", "adapt"):
            print("training on the CPU: fine for trying things out, too slow for a full-size run")
        print(f"{batch}; the full log is in {args.save_dir}/train.log", flush=True)
    if args.nodes > 1:
        cfg["distributed_training"].update(rendezvous(args))
    for variable in DISTRIBUTED_VARIABLES:
        os.environ.pop(variable, None)
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
    if name != "adapt":
        print("next: fine-tune it, export it, or use it from Python (README.md, What you can do)")


def load_fairseq_train():
    """Imports fairseq-train, and then the plugin, which extends it; both log to train.log."""
    save_dir = sys.argv[sys.argv.index("--save-dir") + 1]
    log_report.log_to(os.path.join(save_dir, "train.log"))
    from fairseq_cli import train

    import maelm_fairseq.plugin  # noqa: F401

    return train


if __name__ in ("__main__", "__mp_main__"):
    # Until training has begun, there is nothing to save; it then handles signals itself.
    handle_unless_ignored(lambda *_: os._exit(EXIT_STOPPED))
    reporter.install()
    if __name__ == "__main__":
        main()
    else:  # a process that fairseq-train starts for a GPU
        load_fairseq_train()
