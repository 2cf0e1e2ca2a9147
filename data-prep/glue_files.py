"""Reads the files of GLUE's tasks, and of your own tasks in the same form."""

import math
import os
from collections import namedtuple
from itertools import islice

from basics import InputError, Progress, say
from raw_text import check_files, not_utf8, read_lines
from write_dict import FAIRSEQ_SPECIALS

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
    header = read_header(path)
    pair = "sentence1" in header and "sentence2" in header
    if not pair and "sentence" not in header:
        raise InputError(
            f"{path}: found the columns {', '.join(header)}; expected a header with label, and sentence (or"
            " sentence1 and sentence2 for pairs); add it as the first line, separated by tabs"
        )
    sentences = ["sentence1", "sentence2"] if pair else ["sentence"]
    return Task(name, sentences, "label", None if regression else [], index=None)


def is_test(split):
    return split.startswith("test")


def read_header(path):
    """The column names in the first line of a file."""
    try:
        return next(read_lines([path])).decode("utf-8").split("\t")
    except UnicodeDecodeError:
        raise not_utf8([path]) from None


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


def files_of(files, source):
    """The file of each split in a folder, leaving out test files that do not exist."""
    return {
        split: file for split, file in files.items() if not is_test(split) or os.path.exists(os.path.join(source, file))
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
        if not names:
            raise InputError(
                f"--input: {source} has none of the folders {', '.join(GLUE)}; name your own tasks with --task"
            )
        say(f"not in {source}: {', '.join(name for name in GLUE if name not in names) or 'none'}")
    tasks = []
    for name in dict.fromkeys(names):
        folder = os.path.join(source, name)
        if os.path.basename(name) != name or name.startswith(".") or not os.path.isdir(folder):
            raise InputError(
                f"--task {name}: {source} has no folder of that name; expected one of {', '.join(GLUE)}, or a task of"
                " your own"
            )
        files = files_of(GLUE[name].files if name in GLUE else FILES, folder).values()
        check_files([os.path.join(folder, file) for file in files], "--input")
        tasks.append(GLUE.get(name) or own_task(name, os.path.join(folder, FILES["train"]), regression))
        absent = [file for file in tasks[-1].files.values() if file not in files]
        if absent:
            say(f"{folder} has no {' and no '.join(absent)}: no predictions will be possible")
    wrong = [task.name for task in tasks if task.name in GLUE and task.labels]
    if regression and wrong:
        raise InputError(f"--regression: the labels of {', '.join(wrong)} are classes; use it only for your own tasks")
    return tasks
