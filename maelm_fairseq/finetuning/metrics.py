"""Scores of answers, from 0 to 1, or -1 to 1 for correlations; nan where one is not defined.

GLUE's with scikit-learn and SciPy, those of tagged entities with seqeval; SQuAD's by the rules of its official program.
"""

import importlib
import itertools
import math
import re
import string
import warnings
from collections import Counter

import numpy as np

from ..base.errors import InstallationError


def library(name):
    """A module of the extra `finetune`, imported when it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InstallationError(f"{error}: pip install -c constraints.txt '.[finetune]'") from None


def accuracy(targets, predicted):
    return float(np.mean(np.equal(targets, predicted)))


def f1(targets, predicted):
    return float(library("sklearn.metrics").f1_score(targets, predicted, zero_division=0))


def matthews(targets, predicted):
    return float(library("sklearn.metrics").matthews_corrcoef(targets, predicted))


def correlation(name):
    """A correlation of SciPy's as a function of (targets, predicted)."""

    def compute(targets, predicted):
        function = getattr(library("scipy.stats"), name)
        if len(targets) < 2:
            return math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constants, for which it is nan
            return float(function(targets, predicted)[0])

    return compute


METRICS = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": correlation("pearsonr"),
    "spearman": correlation("spearmanr"),
}


def entities(targets, predicted):
    """F1, precision and recall of whole entities, of lists of BIO tags for each sentence."""
    seqeval, names = library("seqeval.metrics"), ["f1", "precision", "recall"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of words without entities
        return {k: float(getattr(seqeval, f"{k}_score")(targets, predicted, zero_division=0)) for k in names}


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


# SQuAD (Rajpurkar et al., 2016 and 2018)

PUNCTUATION = frozenset(string.punctuation)


def normalized_words(text):
    """The words to compare: lower case, without punctuation and articles, split at white space."""
    text = "".join(c for c in text.lower() if c not in PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def overlap(predicted, correct):
    """F1 of two lists of words; two empty ones agree."""
    if not predicted or not correct:
        return float(predicted == correct)
    common = sum((Counter(predicted) & Counter(correct)).values())
    return 2 * common / (len(predicted) + len(correct))


def exact_and_f1(prediction, answers):
    """Whether a prediction is one of the correct answers, and its largest overlap with one.

    Args:
        prediction: a text, "" for no answer
        answers: list of texts, empty for an unanswerable question
    """
    # If no answer has words, the empty one is correct.
    correct = [words for words in map(normalized_words, answers) if words] or [[]]
    predicted = normalized_words(prediction)
    return float(predicted in correct), max(overlap(predicted, words) for words in correct)
