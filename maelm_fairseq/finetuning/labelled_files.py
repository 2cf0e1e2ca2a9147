"""Labelled files as people have them: GLUE's and others like them, and where to find them."""

import collections
import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from ..base.errors import MissingFileError, UsageError
from ..base.utf8 import read_lines

MAXIMUM_SKIPPED = 0.01  # of the lines of a file
NO_LABEL, NO_AGREEMENT = "-", "its annotators do not agree"  # of SNLI, whose authors advise to leave such out


def is_test(split):
    """Whether a split is for the finished model: it is predicted and, where it has labels, scored once."""
    return split.startswith("test")


def find_file(folder, split, names, required=True):
    """The path of a split's file in a folder, plain or `.gz`; None if there is none and it is not required.

    `names` are {split: possible names of its file}.

    Raises:
        FileNotFoundError: there is none, and it is required
        ValueError: there are several, or it is not a file
    """
    known = names.get(split, [split])
    there = [name + end for name in known for end in ("", ".gz") if os.path.lexists(os.path.join(folder, name + end))]
    if len(there) > 1:
        raise UsageError(f"--labelled {folder}: found {' and '.join(there)}, expected one of them; move others away")
    if there:
        path = os.path.join(folder, there[0])
        if not os.path.isfile(path):
            raise UsageError(f"{path}: found something else, expected a file; remove it, or put a file there")
        return path
    if not required:
        return None
    there = ", ".join(sorted(os.listdir(folder))) if os.path.isdir(folder) else "no such folder"
    raise MissingFileError(f"--labelled {folder}: expected {' or '.join(known)}, found: {there or 'nothing'}")


# Sentences and pairs -----------------------------------------------------------------------------------------------

# MNLI has two dev sets, two test sets, and GLUE's diagnostic set, which its models predict.
SENTENCE_FILES = {
    "train": ["train.tsv"],
    "valid": ["dev.tsv", "dev_matched.tsv"],
    "valid1": ["dev_mismatched.tsv"],
    "test": ["test.tsv", "test_matched.tsv"],
    "test1": ["test_mismatched.tsv"],
    "test2": ["diagnostic.tsv"],
}


class Form(NamedTuple):
    """A kind of file, which its header shows."""

    name: str
    texts: List[str]  # columns
    label: str  # column
    metrics: List[str] = ["accuracy"]

    @property
    def is_regression(self):
        return self.metrics == CORRELATIONS

    def metrics_of(self, classes):
        """The metrics of a task with these classes: F1 is for two."""
        return [metric for metric in self.metrics if metric != "f1" or len(classes) == 2]

    def described(self):
        """Texts and labels, in words."""
        return f"read as {self.name}, {' and '.join(self.texts)} with {'numbers' if self.is_regression else 'classes'}"


CORRELATIONS = ["pearson", "spearman"]
PAIR = ["sentence1", "sentence2"]
FORMS = [
    Form("MNLI or SNLI", PAIR, "gold_label"),
    Form("QQP", ["question1", "question2"], "is_duplicate", ["accuracy", "f1"]),
    Form("MRPC", ["#1 String", "#2 String"], "Quality", ["accuracy", "f1"]),
    Form("QNLI", ["question", "sentence"], "label"),
    Form("pairs", PAIR, "label"),
    Form("STS-B", PAIR, "score", CORRELATIONS),
    Form("sentences", ["sentence"], "label"),
    Form("sentences with scores", ["sentence"], "score", CORRELATIONS),
]
COLA = Form("CoLA", ["sentence"], "label", ["matthews"])
COLA_COLUMNS = ["source", "label", "original label", "sentence"]  # its files for training and validation have no header
NUMBERS = ["index", "id"]  # columns with the GLUE server's numbers of test examples


class Example(NamedTuple):
    texts: Tuple[str, ...]  # one or two
    label: Optional[str]  # None where a test file has none
    number: str  # the GLUE server's, or counted from 0
    line: int
    group: Optional[str]  # of a column `pair`: examples that belong together


class Table(NamedTuple):
    path: str
    form: Form
    examples: List[Example]
    skipped: Dict[str, List[int]]  # {reason: lines}

    def __str__(self):
        skipped = [f"; {len(lines):,} skipped, from line {lines[0]}: {why}" for why, lines in self.skipped.items()]
        return f"{self.path}: {len(self.examples):,} examples, read as {self.form.name}{''.join(skipped)}"


def form_of(columns, is_test, path):
    """The form of a file with these columns."""
    for form in FORMS:
        if {*form.texts} <= {*columns} and (is_test or form.label in columns):
            return form
    raise UsageError(
        f"{path}: found the columns {', '.join(columns)[:200]}; expected those of GLUE's files, or a header with label "
        "and sentence, or label, sentence1 and sentence2, separated by tabs, in the first line; score, not label, if "
        "labels are numbers to predict"
    )


def read_sentences(path, is_test=False, regression=False, like=None):
    """Reads a table of sentences or pairs: fields are separated by tabs, and quotation marks are ordinary text.

    Lines with another number of fields or without a usable label are skipped and counted. In a test file, every line
    is an example, with its label if it has one. Where all labels are the same, they are secret: GLUE writes -1.

    Args:
        path: of the file, whose header says which form it has; without one it is CoLA's
        is_test: whether examples may have no labels
        regression: whether labels are numbers, whatever the form
        like: the form of the training file, if this is another one of the same task
    Returns: `Table`
    Raises:
        ValueError: it has no such columns or no examples, over 1% of its lines are skipped, or one of a test file, or
            it has other labels or texts than the training file
    """
    rows = [(number, text.split("\t")) for number, text in read_lines(path)]
    if not rows:
        raise UsageError(f"{path}: it is empty; expected a header, and an example per line")
    columns = rows[0][1]
    if not is_test and len(columns) == 4 and columns[1] in ("0", "1"):
        form, columns = COLA, COLA_COLUMNS
    else:
        form = like if is_test and like and {*like.texts} <= {*columns} else form_of(columns, is_test, path)
        rows = rows[1:]
        for name in [*form.texts, form.label, *(NUMBERS if is_test else [])]:
            if columns.count(name) > 1:
                raise UsageError(f"{path}: {columns.count(name)} columns are called {name}; rename all but one")
    if regression:
        form = form._replace(metrics=CORRELATIONS)
    if like and (len(form.texts), is_test or form.is_regression) != (len(like.texts), is_test or like.is_regression):
        raise UsageError(f"{path}: {form.described()}; the training file is {like.described()}; use files of one form")
    table = Table(path, form, [], {})
    while rows and rows[-1][1] == [""]:
        rows.pop()
    for line, fields in rows:
        if fields == [""] and not is_test:
            continue
        values = dict(zip(columns, fields))
        label = values.get(form.label, "").strip()
        if fields == [""]:
            problem = "it is blank"
        elif len(fields) != len(columns):
            problem = f"{len(fields)} fields where there are {len(columns)} columns"
        else:
            problem = problem_of_label(label, form)
            if problem and is_test:
                label, problem = None, None
        if problem is None:
            number = next((values[name] for name in NUMBERS if name in values), str(len(table.examples)))
            texts = tuple(values[name] for name in form.texts)
            table.examples.append(Example(texts, label, number, line, values.get("pair")))
            continue
        if is_test:
            raise UsageError(f"{path}: line {line}: {problem}; every line of a test file is predicted; correct it")
        table.skipped.setdefault(problem, []).append(line)
    skipped = sum(len(lines) for problem, lines in table.skipped.items() if problem != NO_AGREEMENT)
    if skipped > MAXIMUM_SKIPPED * len(rows):
        problem, lines = next(iter(table.skipped.items()))
        raise UsageError(
            f"{path}: {skipped:,} of {len(rows):,} lines cannot be used, as line {lines[0]}: {problem}; expected at "
            f"most {MAXIMUM_SKIPPED:.0%}; correct the file"
        )
    if not table.examples:
        raise UsageError(f"{path}: no examples; expected one per line after the header")
    if is_test and len({example.label for example in table.examples}) == 1:
        secret = [example._replace(label=None) for example in table.examples]
        table = table._replace(examples=secret)
    number, times = collections.Counter(example.number for example in table.examples).most_common(1)[0]
    if is_test and times > 1:
        raise UsageError(f"{path}: duplicate index {number!r}, {times} times; indices must be unique")
    return table


def problem_of_label(label, form):
    """Why the label of an example cannot be used, in words; None if it can."""
    if label == NO_LABEL and form.label == "gold_label":
        return NO_AGREEMENT
    if form.is_regression and not is_number(label):
        return f"the label is {label!r}, expected a number under 1e30"
    if not label:
        return "the label is ''"
    return None


def are_values(labels):
    """Whether classes look like numbers to predict."""
    return all(map(is_number, labels)) and any("." in label for label in labels)


def is_number(text):
    """Whether a text is a number that a head can predict in float32; no underscores, no digits of other scripts."""
    return bool(re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", text, re.A | re.I)) and abs(float(text)) < 1e30
