"""Reads the files of GLUE's tasks, and of your own tasks in the same form."""

import math
import os
from collections import namedtuple
from itertools import islice

from command_line import InputError, Progress, say
from raw_text import check_files, read_lines
from write_dict import FAIRSEQ_SPECIALS

REPORTED = 5  # malformed lines that are reported for each file
MAXIMUM_MALFORMED = 0.01

Task = namedtuple("Task", "name sentences label labels index files published header")
Task.__doc__ = """How to read the files of a task.

    name: of its folder
    sentences: names of the columns with its sentences: one, or two for pairs
    label: name of the column with the labels
    labels: the labels, in order; None for numbers; [] to take them from the training set
    index: name of the column with the test examples' numbers; None to count them from 0
    files: file of each split
    published: published number of examples of each split; {} for your own tasks
    header: names of the columns if train and dev have no header, otherwise None
"""

FILES = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
MNLI_FILES = {
    "train": "train.tsv",
    "valid": "dev_matched.tsv",
    "valid1": "dev_mismatched.tsv",
    "test": "test_matched.tsv",
    "test1": "test_mismatched.tsv",
}


def official(name, sentences, label, labels, *published, index="index", files=FILES, header=None):
    return Task(name, sentences, label, labels, index, files, dict(zip(files, published)), header)


ENTAILMENT = ["not_entailment", "entailment"]
COLA_COLUMNS = ["source", "label", "original label", "sentence"]
GLUE = {
    task.name: task
    for task in [
        official("CoLA", ["sentence"], "label", ["0", "1"], 8551, 1043, 1063, header=COLA_COLUMNS),
        official("SST-2", ["sentence"], "label", ["0", "1"], 67349, 872, 1821),
        official("MRPC", ["#1 String", "#2 String"], "Quality", ["0", "1"], 3668, 408, 1725),
        official(
            "QQP", ["question1", "question2"], "is_duplicate", ["0", "1"], 363846, 40430, 390965, index="id"
        ),
        official("STS-B", ["sentence1", "sentence2"], "score", None, 5749, 1500, 1379),
        official(
            "MNLI", ["sentence1", "sentence2"], "gold_label", ["contradiction", "neutral", "entailment"],
            392702, 9815, 9832, 9796, 9847, files=MNLI_FILES,
        ),
        official("QNLI", ["question", "sentence"], "label", ENTAILMENT, 104743, 5463, 5463),
        official("RTE", ["sentence1", "sentence2"], "label", ENTAILMENT, 2490, 277, 3000),
    ]
}  # fmt: skip


def own_task(name, path, regression):
    """The Task for files that are not GLUE's, from the header of their training file, `path`."""
    header = read_header(path)
    pair = "sentence1" in header and "sentence2" in header
    if not pair and "sentence" not in header:
        raise InputError(
            f"{path}: found the columns {', '.join(header)}; expected a header with label, and sentence (or"
            " sentence1 and sentence2 for pairs); add it as the first line, separated by tabs"
        )
    sentences = ["sentence1", "sentence2"] if pair else ["sentence"]
    return Task(name, sentences, "label", None if regression else [], None, FILES, {}, None)


def is_test(split):
    return split.startswith("test")


def read_header(path):
    """The column names in the first line of a file."""
    try:
        return next(read_lines([path])).decode("utf-8").split("\t")
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: line 1 is not UTF-8; expected the names of the columns; convert the file to UTF-8"
        ) from None


class Table:
    """The examples of a file: iterates over (sentences, label), or over (sentences, index) in a test file.

    Malformed lines are skipped and counted, and the first ones reported.

    Args:
        path: of the file
        task: Task
        split: train, valid, valid1, test or test1
        labels: the labels that may occur; None for numbers, [] for any
    Attributes (final after the iteration):
        lines: number of lines, not counting the header
        malformed: number of malformed lines
        progress: a Progress, which the caller closes
    Raises:
        InputError: a column is missing, a label is unknown, a line of a test file is malformed, or too many lines are
    """

    def __init__(self, path, task, split, labels):
        self.path, self.test, self.labels = path, is_test(split), labels
        self.lines = self.malformed = 0
        self.progress = Progress(path, os.path.getsize(path))
        self.first = None
        self.has_header = self.test or task.header is None
        self.columns = read_header(path) if self.has_header else task.header
        names = list(task.sentences)
        if not self.test:
            names.append(task.label)
        elif task.index:
            names.append(task.index)
        missing = [name for name in names if name not in self.columns]
        if missing:
            kind = "sentence pairs" if len(task.sentences) == 2 else "single sentences"
            raise InputError(
                f"{path}: no column {', '.join(missing)} among {', '.join(self.columns)}; {task.name} is a task of"
                f" {kind}, with the columns {', '.join(names)}; give a file of that form, with a header"
            )
        self.places = [self.columns.index(name) for name in names]
        self.counted = self.test and not task.index

    def __iter__(self):
        lines = enumerate(read_lines([self.path], self.progress), 1)
        for number, line in islice(lines, int(self.has_header), None):
            self.lines += 1
            example = self.parse(number, line)
            if example:
                yield example
        if self.malformed > MAXIMUM_MALFORMED * self.lines:
            raise InputError(
                f"{self.path}: {self.malformed:,} of {self.lines:,} lines are malformed (the first: {self.first});"
                f" expected at most {MAXIMUM_MALFORMED:.0%}; fix the file, or download it again"
            )
        if not self.lines:
            raise InputError(
                f"{self.path} contains no examples; expected one per line after the header; download the file again"
            )

    def parse(self, number, line):
        """An example, or None if the line is malformed."""
        try:
            fields = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            return self.skip(number, "not UTF-8")
        if len(fields) != len(self.columns):
            return self.skip(number, f"{len(fields)} columns, expected {len(self.columns)}")
        values = [fields[place] for place in self.places]
        if self.counted:
            return values, str(self.lines - 1)
        answer = values.pop().strip()
        if not answer:
            return self.skip(number, "no index" if self.test else "no label")
        if not self.test and self.labels is None and not is_number(answer):
            return self.skip(number, f"the label {answer!r} is not a number")
        if not self.test and self.labels and answer not in self.labels:
            raise InputError(
                f"{self.path}: line {number}: the label {answer!r} is not one of the task's, {', '.join(self.labels)};"
                " fix the line, or add the label to the training set, or give --regression if labels are numbers"
            )
        if not answer.isprintable() or answer in FAIRSEQ_SPECIALS:
            return self.skip(number, f"{answer!r} cannot be a label in fairseq's dictionary")
        return values, answer

    def skip(self, number, why):
        """Counts a malformed line; an error in a test file."""
        problem = f"line {number}: {why}"
        if self.test:
            raise InputError(
                f"{self.path}: {problem}; every test example needs an answer; fix the line, or download the file again"
            )
        self.malformed += 1
        self.first = self.first or problem
        if self.malformed <= REPORTED:
            say(f"{self.path}: {problem}; skipped")


def is_number(text):
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def files_of(task, source):
    """The file of each split, leaving out test files that do not exist."""
    return {
        split: file
        for split, file in task.files.items()
        if not is_test(split) or os.path.exists(os.path.join(source, file))
    }


def find_tasks(names, source, regression):
    """The Task of each name; without names, all of GLUE's tasks in the folder `source`.

    Raises:
        FileNotFoundError: a folder or file is missing
        InputError: no tasks, an unknown name, or --regression with a classification task of GLUE's
    """
    if not os.path.isdir(source):
        raise FileNotFoundError(f"--input: {source} is not a folder; expected one that contains CoLA, SST-2 and so on")
    if not names:
        names = [name for name in GLUE if os.path.isdir(os.path.join(source, name))]
        absent = [name for name in GLUE if name not in names]
        if not names:
            found = sorted(name for name in os.listdir(source) if os.path.isdir(os.path.join(source, name)))
            raise InputError(
                f"--input: {source} has none of the folders {', '.join(GLUE)}; found"
                f" {', '.join(found) or 'no folders'}; name your own tasks with --task"
            )
        if absent:
            say(f"not in {source}: {', '.join(absent)}")
    tasks = []
    for name in dict.fromkeys(names):
        folder = os.path.join(source, name)
        if os.path.basename(name) != name or name.startswith(".") or not os.path.isdir(folder):
            raise InputError(
                f"--task {name}: {source} has no folder of that name; expected one of {', '.join(GLUE)}, or a task of"
                " your own"
            )
        files = GLUE[name].files if name in GLUE else FILES
        check_files([os.path.join(folder, file) for split, file in files.items() if not is_test(split)], "--input")
        tasks.append(GLUE.get(name) or own_task(name, os.path.join(folder, FILES["train"]), regression))
        there = files_of(tasks[-1], folder)
        check_files([os.path.join(folder, file) for file in there.values()], "--input")
        absent = [file for split, file in files.items() if split not in there]
        if absent:
            say(f"{folder} has no {' and no '.join(absent)}: no predictions will be possible")
    wrong = [task.name for task in tasks if task.name in GLUE and task.labels]
    if regression and wrong:
        raise InputError(f"--regression: the labels of {', '.join(wrong)} are classes; use it only for your own tasks")
    return tasks
