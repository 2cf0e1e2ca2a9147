"""The command line of an evaluation."""

import os
import re
import shlex
from pathlib import Path

from ..base.command_line import Parser, check_different_names, number_in_range
from ..base.errors import MissingFileError, UsageError
from ..finetuning.labelled_files import find_file
from ..finetuning.sentence_files import SENTENCE_FILES
from .few_shot import REPEATS
from .model_record import PAIRS_FEATURE
from .pair_files import read_pairs
from .probe_baselines import BASELINES
from .probe_tasks import PRIMARY_TASKS, SECONDARY_TASKS
from .report import models_of_arm


def parse_args(arguments, command, description):
    """Parses and checks the arguments of `program.main`.

    The help text begins with `description`. The command as the user gave it is `command_line`.
    """
    parser = Parser(os.path.basename(command), description=description)
    add_options(parser.add_argument)
    args = parser.parse_args(arguments)
    args.command_line = shlex.join([command, *arguments])
    args.names = names_of_models(args)
    tasks = args.tasks
    if tasks is None:
        tasks = default_tasks(args)
    args.tasks = list(dict.fromkeys(plain_name("--tasks", name) for name in tasks))
    args.pairs = [read_pairs(path) for path in args.pairs]
    names = [*args.tasks, *(plain_name("--pairs", pairs.name) for pairs in args.pairs)]
    if len(set(names)) < len(names):
        raise UsageError(
            f"--pairs: {', '.join(names)}: expected files and tasks of different names"
        )
    unknown = [name for name in args.regression if name not in args.tasks]
    if unknown:
        raise UsageError(
            f"--regression {' '.join(unknown)}: expected some of --tasks, {' '.join(args.tasks)}"
        )
    args.compare = list(dict.fromkeys(map(tuple, args.compare)))
    for arms in args.compare:
        check_arms(arms, args.names)
    if args.bf16_autocast and not args.pairs:
        raise UsageError("--bf16-autocast is for --pairs: give some, or leave it out")
    if args.side_by_side and not args.tasks:
        raise UsageError("--side-by-side is for tasks: give some with --tasks, or leave it out")
    return args


def add_options(add):
    """Adds the options of the program by `add`, a parser's `add_argument`."""
    tasks = f"default: all in --labelled, or {' '.join(PRIMARY_TASKS)}; there are also "
    tasks += " ".join(SECONDARY_TASKS)
    add(
        "--checkpoint",
        action="extend",
        nargs="+",
        required=True,
        metavar="FILE",
        help="pretrained models",
    )
    add(
        "--names",
        action="extend",
        nargs="+",
        metavar="NAME",
        help="their names, ARM-SEED to compare arms (default: those of the files, or "
        "of the folders of files such as checkpoint_best.pt)",
    )
    add(
        "--data",
        required=True,
        metavar="DIR",
        help="folder with their vocabulary, from data-prep/prepare.sh",
    )
    add("--dest", required=True, metavar="DIR", help="folder to write to")
    add("--tasks", action="extend", nargs="+", metavar="NAME", help=tasks)
    add(
        "--pairs",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        help="minimal pairs: FILE.tsv with the columns good, bad and optionally group, FILE.jsonl "
        "of BLiMP, or a folder of such files; without --tasks or --labelled, nothing else",
    )
    add(
        "--bf16-autocast",
        action="store_true",
        help="score minimal pairs in bfloat16, on GPUs and on CPUs that are fast at it",
    )
    add(
        "--labelled",
        metavar="DIR",
        help="folder with TASK/train.tsv, dev.tsv and optionally test.tsv, as for fine-tuning "
        "(default: DEST/labelled, to which data-prep/fetch_labelled.py fetches its tasks)",
    )
    add(
        "--regression",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME",
        help="tasks whose labels are numbers, though called label",
    )
    add(
        "--few-shot-repeats",
        type=number_in_range(0),
        default=REPEATS,
        metavar="N",
        help="repetitions of the few-shot probes, with other training examples "
        f"(default: {REPEATS}); 0 for none",
    )
    add(
        "--side-by-side",
        action="store_true",
        help="also probe the means of layers 1 to L side by side",
    )
    add(
        "--compare",
        nargs=2,
        action="append",
        default=[],
        metavar="ARM",
        help="report the first arm minus the second, paired by seed: models called ARM-SEED; "
        "may be repeated",
    )


def names_of_models(args):
    """The names of the models: a different one for each checkpoint."""
    names = args.names
    if not names:
        names = [default_name(path) for path in args.checkpoint]
    check_different_names(names, len(args.checkpoint))
    for name in names:
        plain_name("--names", name)
    for name in names:
        if name in [*BASELINES, PAIRS_FEATURE]:
            raise UsageError(
                f"--names {name}: the name is reserved, for a baseline or a column of a table; "
                "choose another"
            )
    return names


def default_name(checkpoint):
    """The name of a model: its file's; or its folder's, where the file has one of fairseq's."""
    path = Path(os.path.abspath(checkpoint))
    if path.suffix != ".pt":
        return path.name
    return path.parent.name if path.stem.startswith("checkpoint") else path.stem


def default_tasks(args):
    """The names of the tasks without --tasks."""
    if args.labelled:
        return tasks_in(args.labelled)
    return [] if args.pairs else PRIMARY_TASKS


def check_arms(arms, names):
    """Refuses to compare two arms that have no seed in common, by the names of the models."""
    if len(set(arms)) < 2:
        raise UsageError(f"--compare {' '.join(arms)}: expected two different arms")
    first, second = (models_of_arm(names, arm) for arm in arms)
    if not first.keys() & second.keys():
        expected = " and ".join(f"{arm}-SEED" for arm in arms)
        raise UsageError(
            f"--compare {' '.join(arms)}: expected --names {expected} with one seed, such as "
            f"{arms[0]}-1 and {arms[1]}-1, found {', '.join(names)}"
        )


def tasks_in(folder):
    """The names of the tasks in a folder."""
    if not os.path.isdir(folder):
        found = "a file" if os.path.lexists(folder) else "nothing"
        raise MissingFileError(
            f"--labelled {folder}: found {found}, expected a folder with TASK/train.tsv for each "
            "task; check the path"
        )
    names = sorted(os.listdir(folder))
    tasks = []
    for name in names:
        if find_file(os.path.join(folder, name), "train", SENTENCE_FILES, required=False):
            tasks.append(name)
    if not tasks:
        raise UsageError(
            f"--labelled {folder}: found no TASK/train.tsv; give the folder that has one for each "
            "task"
        )
    return tasks


def plain_name(option, name):
    """A name that fits a file and a cell of a table, which has a column `mean`."""
    plain = re.fullmatch(r"(?!mean$|[. ])[^/|]+(?<! )", name)
    if not plain or not name.isprintable() or len(name.encode()) > 200:
        expected = (
            "at most 200 bytes, without / and |, spaces around it or a dot in front, and not mean"
        )
        raise UsageError(f"{option} {name!r}: expected a name of {expected}")
    return name
