"""Scores of answers, from 0 to 1, or -1 to 1 for correlations; nan where one is not defined.

GLUE's with scikit-learn and SciPy, those of tagged entities with seqeval, packages of the extra `finetune`; SQuAD's by
the rules of its official program.
"""

import itertools
import math
import re
import string
import warnings
from collections import Counter

import numpy as np


def accuracy(targets, predicted):
    return float(np.mean(np.equal(targets, predicted)))


def f1(targets, predicted):
    from sklearn.metrics import f1_score

    return float(f1_score(targets, predicted, zero_division=0))


def matthews(targets, predicted):
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(targets, predicted))


def correlation(name):
    """A correlation of SciPy's as a function of (targets, predicted)."""

    def compute(targets, predicted):
        from scipy import stats

        if len(targets) < 2:
            return math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constants, for which it is nan
            return float(getattr(stats, name)(targets, predicted)[0])

    return compute


METRICS = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": correlation("pearsonr"),
    "spearman": correlation("spearmanr"),
}


BILOU = {"L-": "E-", "U-": "S-"}  # what seqeval calls these


def entities(targets, predicted):
    """F1, precision and recall of whole entities, of lists of BIO, BIOES or BILOU tags for each sentence."""
    from seqeval import metrics

    targets, predicted = (
        [[BILOU.get(tag[:2], tag[:2]) + tag[2:] for tag in tags] for tags in lists] for lists in (targets, predicted)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of words without entities
        names = ["f1", "precision", "recall"]
        return {k: float(getattr(metrics, f"{k}_score")(targets, predicted, zero_division=0)) for k in names}


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
    """Whether a prediction, "" for no answer, is one of the correct answers, and its largest overlap with one.

    Answers are a list of texts, empty for an unanswerable question.
    """
    # If no answer has words, the empty one is correct.
    correct = [words for words in map(normalized_words, answers) if words] or [[]]
    predicted = normalized_words(prediction)
    return float(predicted in correct), max(overlap(predicted, words) for words in correct)
