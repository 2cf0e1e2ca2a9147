"""Reads the files of GLUE's tasks, and of your own tasks in the same form."""

import math
import os
from collections import namedtuple

from command_line import say
from maelm_fairseq.base.errors import MissingFileError, UsageError
from raw_text import check_files, expected_utf8, read_lines

REPORTED = 5  # malformed lines that are reported for each file
MAXIMUM_MALFORMED = 0.01

FILES = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
MNLI_FILES = {
    "train": "train.tsv",
    "valid": "dev_matched.tsv",
    "valid1": "dev_mismatched.tsv",
    "test": "test_matched.tsv",
    "test1": "test_mismatched.tsv",
}


Task = namedtuple("Task", "name sentences label labels index files header", defaults=["index", FILES, None])
Task.__doc__ = """How to read the files of a task.

    name: of its folder
    sentences: names of the columns with its sentences: one, or two for pairs
    label: name of the column with the labels
    labels: the labels, in order; None for numbers; [] to take them from the training set
    index: name of the column with the test examples' numbers; None to count them from 0
    files: file of each split
    header: names of the columns if train and dev have no header, otherwise None
"""
PAIR, ENTAILMENT = ["sentence1", "sentence2"], ["not_entailment", "entailment"]
COLA_COLUMNS = ["source", "label", "original label", "sentence"]
GLUE = {
    task.name: task
    for task in [
        Task("CoLA", ["sentence"], "label", ["0", "1"], header=COLA_COLUMNS),
        Task("SST-2", ["sentence"], "label", ["0", "1"]),
        Task("MRPC", ["#1 String", "#2 String"], "Quality", ["0", "1"]),
        Task("QQP", ["question1", "question2"], "is_duplicate", ["0", "1"], index="id"),
        Task("STS-B", PAIR, "score", None),
        Task("MNLI", PAIR, "gold_label", ["contradiction", "neutral", "entailment"], files=MNLI_FILES),
        Task("QNLI", ["question", "sentence"], "label", ENTAILMENT),
        Task("RTE", PAIR, "label", ENTAILMENT),
    ]
}


def own_task(name, path, regression):
    """The Task for files that are not GLUE's, from the header of their training file, `path`."""
    header = next(read_rows(path))
    pair = "sentence1" in header and "sentence2" in header
    if not pair and "sentence" not in header:
        raise UsageError(
            f"{path}: found the columns {', '.join(header)}; expected a header with label, and sentence (or"
            " sentence1 and sentence2 for pairs); add it as the first line, separated by tabs"
        )
    sentences = ["sentence1", "sentence2"] if pair else ["sentence"]
    return Task(name, sentences, "label", None if regression else [], index=None)


def is_test(split):
    return split.startswith("test")


def read_rows(path):
    """Yields the fields of each line of a file."""
    with expected_utf8([path]):
        for line in read_lines(path):
            yield line.decode("utf-8").split("\t")


def read_table(path, task, split, labels):
    """Reads the examples of a file. Malformed lines are skipped, and the first ones reported.

    Args:
        task: Task
        split: train, valid, valid1, test or test1
        labels: the labels that may occur; None for numbers, [] for any
    Returns:
        examples: list of (sentences, label), or of (sentences, index) for a test file
        malformed: number of lines skipped
    Raises:
        UsageError: a column is missing, a label is unknown, a line of a test file is malformed, too many lines are, or
            one is not UTF-8
    """
    test, rows = is_test(split), enumerate(read_rows(path), 1)
    columns = next(rows)[1] if test or task.header is None else task.header
    answer_column = task.index if test else task.label
    names = task.sentences + [answer_column] * bool(answer_column)
    missing = [name for name in names if name not in columns]
    if missing:
        raise UsageError(
            f"{path}: no column {', '.join(missing)} among {', '.join(columns)}; {task.name} has the columns"
            f" {', '.join(names)}; give a file of that form, with a header"
        )
    examples, malformed = [], 0
    for number, fields in rows:
        values = dict(zip(columns, fields))
        answer = values.get(answer_column, "").strip() if answer_column else str(len(examples))
        if len(fields) == len(columns) and answer and (test or labels is not None or is_number(answer)):
            if not test and labels and answer not in labels:
                raise UsageError(
                    f"{path}: line {number}: the label {answer!r} is not one of the task's, {', '.join(labels)}; fix"
                    " the line, or add the label to the training set, or give --regression if labels are numbers"
                )
            examples.append(([values[name] for name in task.sentences], answer))
            continue
        problem = f"{path}: line {number}: {len(fields)} columns, {answer_column} {answer!r}"
        expected = f"expected {len(columns)} columns, and a " + ("number" if labels is None else "value")
        if test:
            raise UsageError(f"{problem}; {expected}; the server counts the lines of a test file; fix it")
        malformed += 1
        if malformed <= REPORTED:
            say(f"{problem}; {expected}; skipped")
    if malformed > MAXIMUM_MALFORMED * (len(examples) + malformed):
        raise UsageError(
            f"{path}: {malformed:,} of {len(examples) + malformed:,} lines are malformed; expected at most"
            f" {MAXIMUM_MALFORMED:.0%}; fix the file, or download it again"
        )
    if not examples:
        raise UsageError(f"{path} contains no examples; expected one per line after the header")
    return examples, malformed


def is_number(text):
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def files_of(files, source):
    """The file of each split in a folder, leaving out test files that do not exist."""
    return {
        split: file for split, file in files.items() if not is_test(split) or os.path.exists(os.path.join(source, file))
    }


def find_tasks(names, source, regression):
    """The Task of each name; without names, all of GLUE's tasks in the folder `source`.

    Raises:
        UsageError: a folder or file is missing, no tasks, an unknown name, or --regression with classes of GLUE's
    """
    if not os.path.isdir(source):
        raise MissingFileError(f"--input: {source} is not a folder; expected one that contains CoLA, SST-2 and so on")
    if not names:
        names = [name for name in GLUE if os.path.isdir(os.path.join(source, name))]
        if not names:
            raise UsageError(
                f"--input: {source} has none of the folders {', '.join(GLUE)}; name your own tasks with --task"
            )
        say(f"not in {source}: {', '.join(name for name in GLUE if name not in names) or 'none'}")
    tasks = []
    for name in dict.fromkeys(names):
        folder = os.path.join(source, name)
        if os.path.basename(name) != name or name.startswith(".") or not os.path.isdir(folder):
            raise UsageError(
                f"--task {name}: {source} has no folder of that name; expected one of {', '.join(GLUE)}, or a task of"
                " your own"
            )
        files = GLUE[name].files if name in GLUE else FILES
        there = files_of(files, folder)
        check_files([os.path.join(folder, file) for file in there.values()], "--input")
        if len(there) < len(files):
            say(f"{folder} lacks {', '.join(set(files.values()) - set(there.values()))}: no predictions for the server")
        tasks.append(GLUE.get(name) or own_task(name, os.path.join(folder, FILES["train"]), regression))
        if regression and name in GLUE and GLUE[name].labels:
            raise UsageError(f"--regression: the labels of {name} are classes; use it only for your own tasks")
    return tasks
