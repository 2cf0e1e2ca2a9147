"""The classes of labelled files: which there are, how often, and the index of each."""

import logging
from collections import Counter

from ..base.errors import UsageError
from ..base.typed_values import short_repr
from .labelled_files import is_test_split

logger = logging.getLogger(__name__)

# The index of a label of a test file that the training file does not have: no prediction is right.
UNKNOWN_LABEL = -1
RARE_LABEL_COUNT = 10  # examples of a label that the log points out


def classes_of_training(path, labels):
    """The classes of a training file, in order; the log says how often each occurs.

    Args:
        path: path of the file
        labels: one for each example
    Raises:
        UsageError: there is only one class
    """
    logger.info(f"{path}: {describe_label_counts(labels)}")
    counts = Counter(labels)
    classes = sorted(counts)
    rare = [label for label in classes if counts[label] < RARE_LABEL_COUNT]
    if rare:
        names = ", ".join(label[:50] for label in rare[:20])
        if len(rare) > 20:
            names += ", ..."
        logger.warning(
            f"{path}: labels with fewer than {RARE_LABEL_COUNT} examples: {names}; "
            "correct the file if one is a mistake"
        )
    if len(classes) < 2:
        raise UsageError(
            f"{path}: every label is {short_repr(classes[0])}; expected two labels or more"
        )
    return classes


def index_of_label(label, classes, path, line):
    """The index of a label among classes; refuses one that is not there, with its file and line."""
    if label in classes:
        return classes.index(label)
    names = ", ".join(classes)[:200]
    raise UsageError(
        f"{path}: line {line}: the label {short_repr(label)} is not one of the training set's, "
        f"{names}; correct it"
    )


def label_to_target(example, classes, path, split):
    """What an example's label stands for: a value, or the index of a class; 0 without a label.

    Args:
        example: `sentence_files.Example`
        classes: classes of the training file; None if labels are values
        path, split: of the example's file
    Raises UsageError: the training file does not have the label, and it is not of a test file
    """
    if classes is None:
        return float(example.label or 0)
    if example.label is None:
        return 0
    if is_test_split(split) and example.label not in classes:
        return UNKNOWN_LABEL
    return index_of_label(example.label, classes, path, example.line)


def describe_labels(labels, classes, split):
    """Summarises the labels of a file for the log; `labels` omits unlabelled examples.

    Args:
        labels: texts
        classes: classes of the training file; None if labels are values
        split: split of the file
    """
    if not is_test_split(split):
        if classes and split.startswith("valid"):
            return f"; {describe_label_counts(labels)}"
        return ""
    if not labels:
        return "; no labels"
    text = f"; {len(labels):,} have labels"
    unknown = ", ".join(sorted(set(labels) - set(classes or [])))
    if classes and unknown:
        text += f"; labels absent from the training file count as errors: {unknown[:200]}"
    return text


def describe_label_counts(labels):
    """How often each label occurs, in words."""
    counts = sorted(Counter(labels).items())
    listed = ", ".join(f"{label[:50]} ({count:,})" for label, count in counts[:100])
    return f"{len(counts)} {'label' if len(counts) == 1 else 'labels'}: {listed}"
