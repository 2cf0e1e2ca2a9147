"""Files of labelled sentences and pairs: GLUE's, and others like them."""

import collections
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from ..base.errors import UsageError
from ..base.utf8 import read_lines
from ..metrics import METRICS
from .labelled_files import find_file, is_test_split

MAX_SKIPPED = 0.01  # of the lines of a file
# The label of examples of SNLI that its authors advise to leave out, and why.
NO_LABEL = "-"
NO_AGREEMENT = "its annotators do not agree"
# MNLI has two dev sets, two test sets, and GLUE's diagnostic set, which its models predict.
SENTENCE_FILES = {
    "train": ["train.tsv"],
    "valid": ["dev.tsv", "dev_matched.tsv"],
    "valid1": ["dev_mismatched.tsv"],
    "test": ["test.tsv", "test_matched.tsv"],
    "test1": ["test_mismatched.tsv"],
    "test2": ["diagnostic.tsv"],
}


class TableSchema(NamedTuple):
    """The columns of a kind of table, which its header shows, and how its labels are scored."""

    name: str
    texts: List[str]  # the columns of the texts, one or two
    label: str  # the column of the label
    metrics: List[str] = ["accuracy"]

    @property
    def is_regression(self):
        return METRICS[self.metrics[0]].is_regression

    def metrics_of(self, classes):
        """The metrics of a task with these classes, in order."""
        are_binary = list(classes) == ["0", "1"]
        return [name for name in self.metrics if are_binary or not METRICS[name].is_of_class_1]

    def described(self):
        """Texts and labels, in words."""
        labels = "numbers" if self.is_regression else "classes"
        return f"read as {self.name}, {' and '.join(self.texts)} with {labels}"


CORRELATIONS = ["pearson", "spearman"]
PAIR = ["sentence1", "sentence2"]
SCHEMAS = [
    TableSchema("MNLI or SNLI", PAIR, "gold_label"),
    TableSchema("QQP", ["question1", "question2"], "is_duplicate", ["accuracy", "f1"]),
    TableSchema("MRPC", ["#1 String", "#2 String"], "Quality", ["accuracy", "f1"]),
    TableSchema("QNLI", ["question", "sentence"], "label"),
    TableSchema("pairs", PAIR, "label"),
    TableSchema("STS-B", PAIR, "score", CORRELATIONS),
    TableSchema("sentences", ["sentence"], "label"),
    TableSchema("sentences with scores", ["sentence"], "score", CORRELATIONS),
]
COLA = TableSchema("CoLA", ["sentence"], "label", ["matthews"])
# CoLA's files for training and validation have no header.
COLA_COLUMNS = ["source", "label", "original label", "sentence"]
ID_COLUMNS = ["index", "id"]  # of the ids by which GLUE's server knows test examples


class Example(NamedTuple):
    texts: Tuple[str, ...]  # one or two
    label: Optional[str]  # None where a test file has none
    id: str  # the GLUE server's, or counted from 0
    line: int
    group: Optional[str]  # of a column `pair`: examples that belong together


class Table(NamedTuple):
    path: str
    schema: TableSchema
    examples: List[Example]
    skipped: Dict[str, List[int]]  # {reason: lines}

    def __str__(self):
        text = f"{self.path}: {len(self.examples):,} examples, read as {self.schema.name}"
        for reason, lines in self.skipped.items():
            text += f"; {len(lines):,} skipped, from line {lines[0]}: {reason}"
        return text


def find_schema(columns, is_test, path):
    """The schema of a file with these columns; a test file may have no labels."""
    with_texts = [schema for schema in SCHEMAS if {*schema.texts} <= {*columns}]
    with_label = [schema for schema in with_texts if schema.label in columns]
    fitting = with_label or (with_texts if is_test else [])
    if fitting:
        return fitting[0]
    raise UsageError(
        f"{path}: found the columns {', '.join(columns)[:200]}; expected those of GLUE's files, or "
        "a header with label and sentence, or label, sentence1 and sentence2, separated by tabs, "
        "in the first line; score, not label, if labels are numbers to predict"
    )


def read_sentences(path, is_test=False, regression=False, training_schema=None):
    """Reads a table of sentences or pairs: fields are separated by tabs, quotes are ordinary text.

    Lines with another number of fields or without a usable label are skipped and counted. In a test
    file, every line is an example, with its label if it has one. Where all labels of a test file
    are the same, they are withheld: GLUE writes -1.

    Args:
        path: path of the file, whose header says which schema it has; without one it is CoLA's
        is_test: whether examples may have no labels
        regression: whether labels are numbers, whatever the schema
        training_schema: the schema of the training file, if this is another file of the same task
    Returns: `Table`
    Raises:
        UsageError: it has no such columns or no examples, over 1% of its lines are skipped, or one
            of a test file, or it has other labels or texts than the training file
    """
    rows = [(number, text.split("\t")) for number, text in read_lines(path)]
    if not rows:
        raise UsageError(f"{path}: it is empty; expected a header, and an example per line")
    columns = rows[0][1]
    if not is_test and len(columns) == 4 and columns[1] in ("0", "1"):
        schema = COLA
        columns = COLA_COLUMNS
    else:
        schema = schema_of_header(columns, is_test, path, training_schema)
        rows = rows[1:]
    if regression:
        schema = schema._replace(metrics=CORRELATIONS)
    if training_schema:
        check_schema(schema, training_schema, is_test, path)
        schema = schema._replace(metrics=training_schema.metrics)
    while rows and rows[-1][1] == [""]:
        rows.pop()
    table = Table(path, schema, [], {})
    for line, fields in rows:
        if fields != [""] or is_test:
            add_row(table, columns, line, fields, is_test)
    check_usable(table, len(rows))
    if is_test:
        table = without_withheld_labels(table)
        check_ids(table)
    return table


def read_labelled_folder(folder, regression=False, splits=tuple(SENTENCE_FILES)):
    """Reads the files of a task; the others must be like the training file.

    Args:
        folder: with a file for training, one for "valid", and perhaps others
        regression: whether labels are numbers, whatever the schema
        splits: those to read, of SENTENCE_FILES
    Returns: {split: `Table`}, "train" first
    Raises:
        UsageError: a file is missing, or `read_sentences` refuses it
    """
    train = read_sentences(find_file(folder, "train", SENTENCE_FILES), regression=regression)
    schema = train.schema
    tables = {"train": train}
    for split in splits:
        path = find_file(folder, split, SENTENCE_FILES, required=split == "valid")
        if path and split not in tables:
            tables[split] = read_sentences(path, is_test_split(split), schema.is_regression, schema)
    return tables


def schema_of_header(columns, is_test, path, training_schema):
    """The schema of a file with a header: for a test file, that of the training file if it fits."""
    if is_test and training_schema and {*training_schema.texts} <= {*columns}:
        schema = training_schema
        others = [other.label for other in SCHEMAS if {*other.texts} == {*schema.texts}]
        found = [label for label in others if label in columns]
        if schema.label not in columns and found:
            raise UsageError(
                f"{path}: found the column {found[0]}, expected {schema.label}, as in the training "
                "file; rename it, or remove it if it has no labels"
            )
    else:
        schema = find_schema(columns, is_test, path)
    names = [*schema.texts, schema.label]
    if is_test:
        names += ID_COLUMNS
    for name in names:
        if columns.count(name) > 1:
            raise UsageError(
                f"{path}: {columns.count(name)} columns are called {name}; rename all but one"
            )
    return schema


def check_schema(schema, training_schema, is_test, path):
    """Refuses a file with texts or labels of another kind than the training file has."""
    same_texts = len(schema.texts) == len(training_schema.texts)
    same_labels = is_test or schema.is_regression == training_schema.is_regression
    if not same_texts or not same_labels:
        raise UsageError(
            f"{path}: {schema.described()}; the training file is {training_schema.described()}; "
            "use files of one form"
        )


def add_row(table, columns, line, fields, is_test):
    """Adds the fields of a line to the examples of a table, or to what is skipped of it."""
    if fields == [""]:
        problem = "it is blank"
    elif len(fields) != len(columns):
        problem = f"{len(fields)} fields where there are {len(columns)} columns"
    else:
        values = dict(zip(columns, fields))
        label = values.get(table.schema.label, "").strip()
        problem = problem_of_label(label, table.schema)
        if problem is None or is_test:
            usable_label = label if problem is None else None
            table.examples.append(make_example(table, values, usable_label, line))
            return
    if is_test:
        raise UsageError(
            f"{table.path}: line {line}: {problem}; every line of a test file is predicted; "
            "correct it"
        )
    table.skipped.setdefault(problem, []).append(line)


def make_example(table, values, label, line):
    """The `Example` of a line; its id is the GLUE server's, or else its number among the others.

    Args:
        values: {column: text}
        label: None where a test file has none
    """
    ids = [values[name] for name in ID_COLUMNS if name in values]
    identifier = ids[0] if ids else str(len(table.examples))
    texts = tuple(values[name] for name in table.schema.texts)
    return Example(texts, label, identifier, line, values.get("pair"))


def check_usable(table, lines):
    """Refuses a table that has no examples, or of whose `lines` too many were skipped."""
    faults = {
        problem: lines_with_it
        for problem, lines_with_it in table.skipped.items()
        if problem != NO_AGREEMENT
    }
    skipped = sum(map(len, faults.values()))
    if skipped > MAX_SKIPPED * lines:
        problem, lines_with_it = next(iter(faults.items()))
        raise UsageError(
            f"{table.path}: {skipped:,} of {lines:,} lines cannot be used, as line "
            f"{lines_with_it[0]}: {problem}; expected at most {MAX_SKIPPED:.0%}; "
            "correct the file"
        )
    if not table.examples:
        raise UsageError(f"{table.path}: no examples; expected one per line after the header")


def without_withheld_labels(table):
    """A table of a test file, without its labels if all of them are the same."""
    if len({example.label for example in table.examples}) > 1:
        return table
    return table._replace(examples=[example._replace(label=None) for example in table.examples])


def check_ids(table):
    """Refuses a test file in which two examples have the same id."""
    ids = collections.Counter(example.id for example in table.examples)
    identifier, times = ids.most_common(1)[0]
    if times > 1:
        raise UsageError(
            f"{table.path}: duplicate index {identifier!r}, {times} times; indices must be unique"
        )


def problem_of_label(label, schema):
    """Why the label of an example cannot be used, in words; None if it can."""
    if label == NO_LABEL and schema.label == "gold_label":
        return NO_AGREEMENT
    if schema.is_regression and not is_number(label):
        return f"the label is {label!r}, expected a number under 1e30"
    if not label:
        return "the label is empty"
    return None


def numeric_labels_warning(path, classes):
    """A warning if the classes of a file look like numbers to predict, else None."""
    if all(map(is_number, classes)) and any("." in label for label in classes):
        return (
            f"{path}: all labels are numbers: to predict values instead of classes, "
            "add --regression"
        )
    return None


def is_number(text):
    """Whether a text is a number that a head can predict in float32.

    Underscores and digits of other scripts, which Python reads, do not count.
    """
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", text, re.A | re.I):
        return False
    return abs(float(text)) < 1e30
