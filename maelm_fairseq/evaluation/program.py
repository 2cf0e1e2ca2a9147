"""Evaluates pretrained encoders with linear probes of their frozen features, and with minimal
pairs.

For each model and task: the features of every layer, averaged over tokens and of `<s>`; a ridge
classifier or ridge regression with 5-fold cross-validation over all labelled examples, with the
same folds for every model. Features are standardised, and the regularisation and the layer
selected, inside the training folds. The score is the accuracy in percent or 100 x Pearson's
correlation. Few-shot probes train on 8, 32 and 128 examples per class. Every table of scores has a
row for a bag of words, which needs no encoder, and one for the most frequent class.

Minimal pairs (--pairs) need no training: of two sentences, the model should find the good one more
probable, by the pseudo-log-likelihood of hub.score; the score is the share of pairs in percent,
ties as half.

Writes DEST/MODEL.npz, with the outcome of each example; DEST/scores.csv, one row for each score of
all models in DEST; and DEST/evaluation.md, for the models and tasks of the command. The same
command resumes.
"""

import datetime
import itertools
import os
import platform
import re
import shlex
import subprocess
import sys
from importlib.metadata import version

import numpy as np
from tqdm import tqdm

from ..base.command_line import Parser, within
from ..base.destinations import check_folder
from ..base.errors import MissingFileError, UsageError
from ..base.files import atomic_write, check_absent
from ..base.locks import one_at_a_time
from ..base.opening import opened
from ..base.provenance import sha256
from ..base.typed_values import short_repr
from ..checkpoints.building import find_checkpoint
from ..finetuning.labelled_files import find_file
from ..finetuning.sentence_files import SENTENCE_FILES
from .baselines import BASELINES, record_baselines
from .features import Encoder, compute
from .few_shot import REPEATS, SHOTS, has_few_shot, most_shots, score_few_shot_probes
from .minimal_pairs import decide
from .outcomes import (
    GROUPS_KEY,
    PAIRS_FEATURE,
    SCORE_COLUMNS,
    TEXT_FEATURE,
    Records,
    all_scores,
    record_files,
)
from .pair_files import read_pairs
from .probe_tasks import PRIMARY_TASKS, SECONDARY, read_probe_task
from .probes import RIDGE_STRENGTHS, probe, score_of_answers
from .report import Report, models_of_arm

SCORES_FILE = "scores.csv"  # of all models in a folder
TABLES_FILE = "evaluation.md"  # of the models and tasks of a command
FIRST_LINES = {SCORES_FILE: ",".join(SCORE_COLUMNS), TABLES_FILE: "# Evaluation"}


def parse(arguments, command, fetch):
    """Parses the arguments; see `main`."""
    parser = Parser(os.path.basename(command), description=__doc__)
    parser.set_defaults(arguments=arguments, command=command, fetch=fetch)
    add_options(parser.add_argument)
    args = parser.parse_args(arguments)
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
    if args.compare and not args.tasks:
        raise UsageError("--compare compares scores of tasks: name some with --tasks")
    for arms in args.compare:
        check_arms(arms, args.names)
    return args


def add_options(add):
    """Adds the options of the program by `add`, a parser's `add_argument`."""
    tasks = f"default: all in --labelled, or {' '.join(PRIMARY_TASKS)}; there are also "
    tasks += " ".join(SECONDARY)
    add("--checkpoint", nargs="+", required=True, metavar="FILE", help="pretrained models")
    add(
        "--names",
        nargs="+",
        metavar="NAME",
        help="their names, ARM-SEED to compare arms (default: the files' names)",
    )
    add(
        "--data",
        required=True,
        metavar="DIR",
        help="folder with their vocabulary, from data-prep/prepare.sh",
    )
    add("--dest", required=True, metavar="DIR", help="folder to write to")
    add("--tasks", nargs="+", metavar="NAME", help=tasks)
    add(
        "--pairs",
        nargs="+",
        default=[],
        metavar="PATH",
        help="minimal pairs: FILE.tsv with the columns good, bad and perhaps group, FILE.jsonl of "
        "BLiMP, or a folder of such files; without --tasks, nothing else",
    )
    add(
        "--labelled",
        metavar="DIR",
        help="folder with TASK/train.tsv, dev.tsv and perhaps test.tsv, as for fine-tuning "
        "(default: DEST/labelled, to which data-prep/fetch_labelled.py fetches its tasks)",
    )
    add(
        "--regression",
        nargs="+",
        default=[],
        metavar="NAME",
        help="tasks whose labels are numbers, though called label",
    )
    add(
        "--few-shot-repeats",
        type=within(0),
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
        files = [os.path.basename(path.rstrip("/")) for path in args.checkpoint]
        names = [os.path.splitext(name)[0] for name in files]
    count = len(args.checkpoint)
    if len(names) != count or len(set(names)) != count:
        raise UsageError(
            f"--names {' '.join(names)}: expected {count} different names, one for each checkpoint"
        )
    for name in names:
        plain_name("--names", name)
    for name in names:
        if name in BASELINES:
            raise UsageError(
                f"--names {name}: every evaluation has a row of that name; choose another"
            )
    return names


def default_tasks(args):
    """The names of the tasks without --tasks."""
    if args.pairs:
        return []
    if args.labelled:
        return tasks_in(args.labelled)
    return PRIMARY_TASKS


def check_arms(arms, names):
    """Refuses to compare two arms that have no seed in common; `names` are those of the models."""
    if len(set(arms)) < 2:
        raise UsageError(f"--compare {' '.join(arms)}: expected two different arms")
    first, second = (models_of_arm(names, arm) for arm in arms)
    if not first.keys() & second.keys():
        expected = " and ".join(f"{arm}-SEED" for arm in arms)
        raise UsageError(
            f"--compare {' '.join(arms)}: expected --names {expected} with one seed, found "
            f"{', '.join(names)}"
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


def plain_name(what, name):
    """A name that fits a file and a cell of a table, which has a column `mean`."""
    plain = re.fullmatch(r"(?!mean$|[. ])[^/|]+(?<! )", name)
    if not plain or not name.isprintable() or len(os.fsencode(name)) > 200:
        expected = (
            "at most 200 bytes, without / and |, spaces around it or a dot in front, and not mean"
        )
        raise UsageError(f"{what} {name!r}: expected a name of {expected}")
    return name


def labelled_folder(args):
    """The folder of the tasks: the user's, or where they are fetched to."""
    return args.labelled or os.path.join(args.dest, "labelled")


def load_tasks(args):
    """The `probe_tasks.Task` of each name, fetched if need be."""
    folder = labelled_folder(args)
    if args.tasks and not args.labelled:
        command = [sys.executable, args.fetch, "--dest", folder, "--data", *args.tasks]
        if subprocess.run(command).returncode:
            fault = "not fetched (see above); give texts of your own by --labelled"
            raise UsageError(f"--tasks {' '.join(args.tasks)}: {fault}")
    tasks = []
    for name in args.tasks:
        tasks.append(
            read_probe_task(os.path.join(folder, name), regression=name in args.regression)
        )
    return tasks


def record_probes(records, encoder, task, repeats, side_by_side):
    """Probes the frozen features of an encoder on a task, unless that is recorded.

    `repeats` are those of few-shot probes.
    """
    origin_of_probes = {"task": task.digest(), "probes": f"ridge {RIDGE_STRENGTHS}"}
    origins = {"mean": origin_of_probes, "first": origin_of_probes}
    if side_by_side:
        origins["side_by_side"] = origin_of_probes
    if repeats and has_few_shot(task):
        origins["few_shot"] = {**origin_of_probes, "repeats": f"{SHOTS} {repeats}"}
    missing = [name for name, origin in origins.items() if not records.has(task.name, name, origin)]
    features = compute(encoder.model, task.texts) if missing else {}
    for name in missing:
        if name == "few_shot":
            arrays = {name: score_few_shot_probes(features["mean"], task, repeats)}
        elif name == "side_by_side":
            side_by_side_layers = np.concatenate(features["mean"][1:], axis=-1)
            arrays = {name: probe(side_by_side_layers[None], task)["answers"]}
        else:
            probed = probe(features[name], task)
            arrays = {name: probed["answers"], f"{name}/layers": probed["layers"]}
        shared = {"targets": task.targets, "folds": task.folds}
        records.write(task.name, name, origins[name], {**shared, **arrays})


def tables_heading(args, tasks, secondary):
    """The command, the machine and the tasks of the tables."""
    # Names of files can be any bytes.
    words = [word.encode("utf-8", "backslashreplace").decode() for word in args.arguments]
    command = shlex.join([args.command, *words])
    versions = f"Python {platform.python_version()}, scikit-learn {version('scikit-learn')}"
    lines = [
        f"Printed on {datetime.date.today()} ({platform.machine()}, {versions}) by",
        f"```\n{command}\n```",
    ]
    for task in tasks:
        line = f"- {task.name}: {len(task.texts):,} examples, {task.dropped} left out "
        line += "(repeated, of a small class, or without a label); "
        line += f"{len(task.labels)} classes" if task.labels else "values"
        line += f"; {task.metric}"
        if args.few_shot_repeats and has_few_shot(task):
            line += f"; few-shot probes have at most {most_shots(task)} of its smallest class"
        if task.name in secondary:
            line += "; in no mean"
        lines.append(line)
    return "\n".join(lines) + "\n"


def evaluate(args):
    """Evaluates and reports; see `parse`."""
    models = {}
    for name, path in zip(args.names, args.checkpoint):
        models[name] = Encoder(find_checkpoint(path), args.data)
        if args.pairs and not models[name].predicts_masks:
            raise UsageError(
                f"--checkpoint {path}: found a fine-tuned model, which predicts no masked tokens; "
                "--pairs needs a pretrained one"
            )
    tasks = load_tasks(args)
    check_not_trained_on(models, args)
    records = {name: Records(record_file(args, name), models[name].digest) for name in models}
    to_probe = [*itertools.product(models, tasks)]
    for name, task in tqdm(to_probe, "probes", unit="task", disable=None):
        record_probes(records[name], models[name], task, args.few_shot_repeats, args.side_by_side)
        layers = layers_in_words(records[name].arrays[f"{task.name}/mean/layers"])
        tqdm.write(f"{score_in_words(records[name], task, 'mean')} (features: {layers})")
    baselines = {}
    if tasks:
        baselines = {name: Records(record_file(args, name), name) for name in BASELINES}
    for task in tqdm(tasks, "baselines", unit="task", disable=None):
        record_baselines(baselines, task, args.few_shot_repeats)
        for record in baselines.values():
            tqdm.write(f"{score_in_words(record, task, TEXT_FEATURE)} (no encoder)")
    for name, pairs in itertools.product(models, args.pairs):
        origin = {"pairs": pairs.digest}
        if not records[name].has(pairs.name, PAIRS_FEATURE, origin):
            arrays = {PAIRS_FEATURE: decide(models[name].model, pairs), GROUPS_KEY: pairs.groups}
            records[name].write(pairs.name, PAIRS_FEATURE, origin, arrays)
    write_tables(args, tasks, list(records.values()), list(baselines.values()))


def check_not_trained_on(models, args):
    """Refuses encoders, {name: `features.Encoder`}, that were fine-tuned on examples of a task.

    Their features know these examples' labels, and would score too high.
    """
    files = {}
    for task in args.tasks:
        path = find_file(os.path.join(labelled_folder(args), task), "train", SENTENCE_FILES)
        files[sha256(path)] = path
    for encoder in models.values():
        path = files.get(encoder.facts.train_file)
        if path:
            raise UsageError(
                f"--checkpoint {encoder.checkpoint}: it was fine-tuned on {path}, which it would "
                "be evaluated on; give a pretrained model, or leave that task out"
            )


def score_in_words(record, task, feature):
    """The score of a recorded predictor, with the names of predictor, task and metric."""
    value = score_of_answers(record.answers(task.name, feature), task.targets)
    return f"{record.model}, {task.name}: {task.metric} {value:.2f}"


def layers_in_words(layers):
    """The layers that training folds select, (F,), in words; layer 0 are the embeddings."""
    names = [f"layer {layer}" if layer else "the embeddings" for layer in np.unique(layers)]
    return " or ".join(names)


def record_file(args, name):
    """The path of the record of a model or baseline."""
    return os.path.join(args.dest, name + ".npz")


def write_tables(args, tasks, records, baselines):
    """Writes SCORES_FILE and TABLES_FILE, and prints the comparisons of arms."""
    secondary = [] if args.labelled else SECONDARY
    names_of_tasks = [task.name for task in tasks]
    names_of_pairs = [pairs.name for pairs in args.pairs]
    report = Report(records, names_of_tasks, names_of_pairs, secondary, baselines)
    with atomic_write(os.path.join(args.dest, SCORES_FILE)) as stream:
        all_scores(args.dest).to_csv(stream, index=False, lineterminator="\n")
    path = os.path.join(args.dest, TABLES_FILE)
    with atomic_write(path) as stream:
        described = tables_heading(args, tasks, secondary)
        stream.write(f"{FIRST_LINES[TABLES_FILE]}\n{described}\n{report.text(args.compare)}")
    for arms in args.compare:
        estimate, low, high, seeds = report.differences(arms).loc["mean"].iloc[:4]
        interval = f"{low:+.2f} to {high:+.2f}"
        over = f"over {seeds:g} seeds" if seeds > 1 else "over examples, for these two models only"
        print(f"{arms[0]} minus {arms[1]}, mean over tasks: {estimate:+.2f} ({interval}, {over})")
    on_embeddings = [task.name for task in tasks if any(chose_embeddings(records, task.name))]
    if on_embeddings:
        print(
            f"{', '.join(on_embeddings)}: a probe read the embeddings, below all layers; tables of "
            "the last layer and of <s> compare what the layers have learned"
        )
    print(f"tables: {path}")


def chose_embeddings(records, task):
    """Whether the training folds chose layer 0 for each encoder: list of bool."""
    return [bool((record.arrays[f"{task}/mean/layers"] == 0).any()) for record in records]


def check_dest(dest):
    """Refuses, before hours of work, a folder where files of another origin would be replaced.

    Files of the names of this program must be those of an evaluation.
    """
    check_folder(dest, FIRST_LINES)
    records = record_files(dest)
    for path in records:
        Records(path).table()
    for name, expected in FIRST_LINES.items():
        path = os.path.join(dest, name)
        if not records:
            check_absent(path)  # one without records is of something else
        elif os.path.lexists(path):
            with opened(path) as stream:
                found = stream.readline(1000).decode("utf-8", "replace").rstrip()
            if found != expected:
                raise UsageError(
                    f"{path}: the first line is {short_repr(found)}, expected {expected!r}, which "
                    "this program writes; move the file away, or choose another --dest"
                )


def main(arguments, command, fetch):
    """Evaluates encoders as a recipe.

    Args:
        arguments: the words of the command line
        command: how the user calls the recipe
        fetch: the path of the program that fetches labelled files
    """
    args = parse(arguments, command, fetch)
    check_dest(args.dest)
    os.makedirs(args.dest, exist_ok=True)
    # Another run waits for this one, and continues with its records.
    with one_at_a_time(args.dest):
        evaluate(args)
