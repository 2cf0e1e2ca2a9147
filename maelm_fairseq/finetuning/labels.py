"""The classes of labelled files: which there are, how often, and the index of each."""

import logging
from collections import Counter

from ..base.errors import UsageError
from ..base.typed_values import short_repr

logger = logging.getLogger(__name__)

RARE_LABEL_COUNT = 10  # examples of a label that the log points out


def classes_of_training(path, labels):
    """The classes of a training file, in order; the log says how often each occurs.

    Args:
        path: of the file
        labels: one for each example
    Raises:
        UsageError: there is only one class
    """
    logger.info(f"{path}: {counted(labels)}")
    counts = Counter(labels)
    classes = sorted(counts)
    rare = [label for label in classes if counts[label] < RARE_LABEL_COUNT]
    if rare:
        names = ", ".join(label[:50] for label in rare[:20])
        if len(rare) > 20:
            names += ", ..."
        logger.warning(
            f"{path}: found labels with fewer than {RARE_LABEL_COUNT} examples: {names}; if "
            "these are not labels, correct the file"
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


def counted(labels):
    """How often each label occurs, in words."""
    counts = sorted(Counter(labels).items())
    listed = ", ".join(f"{label[:50]} {count:,}" for label, count in counts[:100])
    return f"{len(counts)} labels: {listed}"
