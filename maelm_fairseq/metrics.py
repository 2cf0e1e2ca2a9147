"""Scores of predictions, and reports by class.

`compute_scores` and `compute_tag_scores` multiply them by 100; one that is not defined is nan.
GLUE's are computed with scikit-learn and SciPy, those of tagged entities with seqeval, all of them
packages of the extra `finetune`.
"""

import itertools
import math
import re
import warnings
from typing import Callable, NamedTuple

import numpy as np


def accuracy(targets, predicted):
    """The share of predictions that are right; arguments are lists or arrays, (n,), as below."""
    return float(np.mean(np.equal(targets, predicted)))


def f1(targets, predicted):
    """The F1 of class 1, as GLUE's."""
    from sklearn.metrics import f1_score

    return float(f1_score(targets, predicted, labels=[1], average="macro", zero_division=0))


def matthews(targets, predicted):
    """The Matthews correlation of the indices of classes."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(targets, predicted))


def correlation(name):
    """A correlation of SciPy's as a function of (targets, predicted)."""

    def compute(targets, predicted):
        from scipy import stats

        if len(targets) < 2:
            return math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about constants, for which it is nan
            value, _ = getattr(stats, name)(targets, predicted)
            return float(value)

    return compute


class Metric(NamedTuple):
    compute: Callable  # of (targets, predicted), (n,) each: indices of classes, or values
    unit: str = ""
    is_regression: bool = False  # not of classes
    is_of_class_1: bool = False  # for classes 0 and 1


METRICS = {
    "accuracy": Metric(accuracy, "%"),
    "f1": Metric(f1, "%", is_of_class_1=True),
    "matthews": Metric(matthews),
    "pearson": Metric(correlation("pearsonr"), is_regression=True),
    "spearman": Metric(correlation("spearmanr"), is_regression=True),
}


def argmax_or_value(predictions):
    """The indices of the predicted classes, or the values, (n,), of predictions (n, K)."""
    if predictions.shape[1] == 1:
        return predictions[:, 0]
    return predictions.argmax(axis=1)


def compute_scores(names, targets, predicted):
    """Some of METRICS of n predictions, times 100: {name: score}; nan if n is 0."""
    if not len(targets):
        return dict.fromkeys(names, math.nan)
    return {name: 100 * METRICS[name].compute(targets, predicted) for name in names}


ENTITY_TAG = re.compile("([BIESLU])-(.+)")
BILOU = {"L": "E", "U": "S"}  # prefixes that have another name in seqeval


def seqeval_tags(sentences):
    """Lists of tags for each sentence, in the names that seqeval knows."""
    return [list(map(seqeval_tag, tags)) for tags in sentences]


def seqeval_tag(tag):
    """A tag as seqeval knows it; it would take any other that begins with O for O."""
    if tag == "O":
        return tag
    match = ENTITY_TAG.fullmatch(tag)
    if match is None:  # of a test file, and unknown: an entity that nobody predicts
        return f"S-{tag}"
    return f"{BILOU.get(match[1], match[1])}-{match[2]}"


def entity_scores(targets, predicted):
    """F1, precision and recall of whole entities; nan if there is no entity to find.

    Args:
        targets, predicted: lists of BIO, BIOES or BILOU tags for each sentence
    """
    from seqeval import metrics

    targets = seqeval_tags(targets)
    predicted = seqeval_tags(predicted)
    if set(flatten(targets)) <= {"O"}:
        return dict.fromkeys(["f1", "precision", "recall"], math.nan)
    values = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about words without entities
        for name in ["f1", "precision", "recall"]:
            compute = getattr(metrics, f"{name}_score")
            values[name] = float(compute(targets, predicted, zero_division=0))
    return values


def has_entities(labels):
    """Whether tags mark entities: apart from O, all are like B-PER and I-PER."""
    entity_labels = [label for label in labels if label != "O"]
    return bool(entity_labels) and all(re.match("[BIESLU]-[^-]", label) for label in entity_labels)


LIKE_ENTITY_TAG = re.compile("[BIESLUM]([-_].+)?|.+[-_][BIESLUM]", re.IGNORECASE)


def tag_of_no_entity(labels):
    """The first tag because of which tags do not mark entities, although most look like it.

    None if few do.
    """
    labels = [label for label in labels if label != "O"]
    if 2 * sum(bool(LIKE_ENTITY_TAG.fullmatch(label)) for label in labels) <= len(labels):
        return None
    return next(label for label in labels if not has_entities([label]))


def metrics_of_tags(labels):
    """The names of the scores of words with tags, the main one first.

    Args:
        labels: all tags
    """
    if has_entities(labels):
        return ["f1", "precision", "recall", "accuracy"]
    return ["accuracy"]


def compute_tag_scores(names, targets, predicted):
    """Those of `metrics_of_tags` with some names: {name: percent}; nan without sentences.

    Args:
        targets, predicted: lists of tags for each sentence
    """
    if not targets:
        return dict.fromkeys(names, math.nan)
    values = {"accuracy": accuracy(flatten(targets), flatten(predicted))}
    if "f1" in names:
        values.update(entity_scores(targets, predicted))
    return {name: 100 * values[name] for name in names}


def report_of_tags(targets, predicted, labels):
    """Precision, recall and F1 of each type of entity, or of each tag.

    Args:
        targets, predicted: lists of tags for each sentence
        labels: all tags
    """
    if has_entities(labels):
        return report_of_entities(targets, predicted)
    return report_of_classes(flatten(targets), flatten(predicted))


def report_of_entities(targets, predicted):
    """seqeval's table of precision, recall and F1 by type; arguments as for `entity_scores`."""
    from seqeval.metrics import classification_report

    if set(flatten([*targets, *predicted])) <= {"O"}:
        return "no entities\n"
    targets = seqeval_tags(targets)
    predicted = seqeval_tags(predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classification_report(targets, predicted, digits=4, zero_division=0)


def report_of_classes(targets, predicted):
    """scikit-learn's table of precision, recall and F1 by class."""
    from sklearn.metrics import classification_report

    return classification_report(targets, predicted, digits=4, zero_division=0)


def flatten(lists):
    return list(itertools.chain.from_iterable(lists))
