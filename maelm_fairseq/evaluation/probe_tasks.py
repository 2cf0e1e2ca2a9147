"""Labelled tasks: all examples of a task in one order, and the folds that every model shares.

Letters in shapes: N examples.
"""

import hashlib
import os
import sys
from dataclasses import dataclass
from typing import List, Tuple

import numpy as np
from scipy import stats
from tqdm import tqdm

from ..base.errors import UsageError
from ..finetuning.sentence_files import numeric_labels_warning, read_labelled_folder

PROBE_FOLDS = 5
PROBED_SPLITS = ["train", "valid", "valid1", "test"]  # whose examples are one task
# Every inner training set then has an example of the class.
MIN_CLASS_SIZE = 2 * PROBE_FOLDS
# Models are compared by the mean over these tasks, of all that data-prep/fetch_labelled.py fetches.
PRIMARY_TASKS = [
    "trec",
    "trec_fine",
    "rotten_tomatoes",
    "tweets",
    "nyt_editorials",
    "amazon_reviews",
    "bigram_shift",
    "replaced_word",
]
# Reported, but in no mean: as imdb has only 527 reviews, its error would be the largest part of the
# error of a mean; the others came later, to test what had been decided by the mean.
SECONDARY_TASKS = ["imdb", "sms_spam", "agreement"]


@dataclass
class ProbeTask:
    """All labelled examples of a task."""

    name: str  # of its folder
    texts: List[Tuple[str, ...]]  # of N examples, one or two for each, all different
    labels: list  # names of the classes in order; None for regression
    targets: np.ndarray  # (N,), indices of classes, or values as float64, of mean 0 and variance 1
    group_hashes: np.ndarray  # (N,) uint64, of the texts; the two sentences of a pair have the same
    folds: np.ndarray  # (N,) int64, the fold in which an example is a test example
    dropped: int  # examples left out: repeated, of too small a class, or without a usable label

    @property
    def metric(self):
        return "100 x Pearson" if self.labels is None else "accuracy"

    def compute_sha256(self):
        """A SHA-256 of everything in the task."""
        # Records of earlier versions have it of single texts as they are, not in tuples.
        texts = [text[0] if len(text) == 1 else text for text in self.texts]
        digest = hashlib.sha256(repr((texts, self.labels)).encode("utf-8"))
        for array in [self.targets, self.folds]:
            digest.update(np.ascontiguousarray(array, "<f8").tobytes())
        return digest.hexdigest()


def normalize_texts(texts):
    """The texts of an example as one, without differences in case and spaces."""
    return "\t".join(" ".join(text.casefold().split()) for text in texts)


def hash_of_texts(texts):
    """A hash of the texts of an example, the same on every machine: 64 bits."""
    digest = hashlib.sha256(normalize_texts(texts).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "little")


def assign_folds(targets, group_hashes):
    """Deals examples to folds: every class, or tenth of the values, evenly.

    Within these, examples are dealt in the order of their hashes. Examples with the same hash, a
    pair, are dealt as one, the first.

    Args:
        targets: (N,) integers for classes, floats for values
        group_hashes: (N,) uint64
    Returns: int64 (N,)
    """
    # In the order of the hashes.
    _, first, group_of_each = np.unique(group_hashes, return_index=True, return_inverse=True)
    strata = targets[first]
    if targets.dtype.kind == "f":
        ranks = np.argsort(np.argsort(strata, kind="stable"))
        strata = ranks * 10 // max(len(first), 1)
    dealt = np.empty(len(first), np.int64)
    dealt[np.argsort(strata, kind="stable")] = np.arange(len(first)) % PROBE_FOLDS
    return dealt[group_of_each]


def read_probe_task(folder, regression=False):
    """Reads a task: all its labelled files together; see `maelm_fairseq.finetuning.sentence_files`.

    Raises:
        UsageError: a file cannot be read, or too few examples are left
    """
    tables = tables_with_labels(folder, regression)
    examples = unique_examples(tables)
    labels = None
    if tables[0].schema.is_regression:
        targets = np.array([float(label) for _, label, _ in examples])
    else:
        labels = large_classes(examples, folder)
        examples = [example for example in examples if example[1] in labels]
        targets = np.array([labels.index(label) for _, label, _ in examples], np.int64)
    rows = 0
    for table in tables:
        rows += len(table.examples) + sum(map(len, table.skipped.values()))
    groups = {group for _, _, group in examples}
    if labels is None:
        expected = f"{MIN_CLASS_SIZE} or more, with different values"
    else:
        expected = (
            f"two classes of {MIN_CLASS_SIZE} or more (for numbers to predict, name the task in "
            "--regression)"
        )
    if len(groups) < MIN_CLASS_SIZE or len(np.unique(targets)) < 2:
        raise UsageError(
            f"{folder}: {len(examples)} usable examples of {rows}, expected {expected}; examples "
            "with the same value in a column `pair` count as one; add examples"
        )
    if labels is None:
        # Predictions are float32: in other units, there may seem to be no correlation.
        targets = stats.zscore(targets / np.abs(targets).max())
    texts = [texts_of_example for texts_of_example, _, _ in examples]
    group_hashes = np.array([hash_of_texts(group) for _, _, group in examples], np.uint64)
    name = os.path.basename(os.path.normpath(folder))
    folds = assign_folds(targets, group_hashes)
    return ProbeTask(name, texts, labels, targets, group_hashes, folds, rows - len(examples))


def tables_with_labels(folder, regression):
    """The `sentence_files.Table` of each file of a task that has labels."""
    tables = []
    for table in read_labelled_folder(folder, regression, PROBED_SPLITS).values():
        if all(example.label is None for example in table.examples):
            message = f"{table.path}: no labels, or the same everywhere: left out"
            tqdm.write(message, file=sys.stderr)
            continue
        tqdm.write(str(table), file=sys.stderr)
        tables.append(table)
    return tables


def unique_examples(tables):
    """The labelled examples of tables, of those with the same text only the first.

    Returns: list of (texts, label, texts that it has in common with others of its group)
    """
    different = {}
    for table in tables:
        for example in table.examples:
            if example.label is None:
                continue
            group = (example.group,) if example.group else example.texts
            row = (example.texts, example.label, group)
            different.setdefault(normalize_texts(example.texts), row)
    return list(different.values())


def large_classes(examples, folder):
    """The names of the classes that are large enough, in order; a group counts as one example."""
    labelled_groups = {(label, group) for _, label, group in examples}
    names, counts = np.unique([label for label, _ in labelled_groups], return_counts=True)
    warning = numeric_labels_warning(folder, names)
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    return [str(label) for label in names[counts >= MIN_CLASS_SIZE]]
