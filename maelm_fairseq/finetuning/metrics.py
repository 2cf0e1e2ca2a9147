"""Scores of answers, and their standard errors.

Scores are from 0 to 1, or from -1 to 1 for correlations; one that is not defined is nan. GLUE's are
computed with scikit-learn and SciPy, those of tagged entities with seqeval, all of them packages of
the extra `finetune`; SQuAD's follow the rules of its official program.
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

    return float(f1_score(targets, predicted, labels=[1], average="macro", zero_division=0))


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
            warnings.simplefilter("ignore")  # about constants, for which it is nan
            value, _ = getattr(stats, name)(targets, predicted)
            return float(value)

    return compute


METRIC_FUNCTIONS = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": correlation("pearsonr"),
    "spearman": correlation("spearmanr"),
}


def compute_scores(names, targets, predicted):
    """Some of METRIC_FUNCTIONS of n predictions: {name: percent}; nan if n is 0."""
    if not len(targets):
        return dict.fromkeys(names, math.nan)
    return {name: 100 * METRIC_FUNCTIONS[name](targets, predicted) for name in names}


BILOU = {"L-": "E-", "U-": "S-"}  # prefixes that have another name in seqeval


def without_bilou(sentences):
    """Lists of tags for each sentence, in the names that seqeval knows."""
    renamed = []
    for tags in sentences:
        renamed.append([BILOU.get(tag[:2], tag[:2]) + tag[2:] for tag in tags])
    return renamed


def entities(targets, predicted):
    """F1, precision and recall of whole entities.

    Args:
        targets, predicted: lists of BIO, BIOES or BILOU tags for each sentence
    """
    from seqeval import metrics

    targets = without_bilou(targets)
    predicted = without_bilou(predicted)
    values = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about words without entities
        for name in ["f1", "precision", "recall"]:
            compute = getattr(metrics, f"{name}_score")
            values[name] = float(compute(targets, predicted, zero_division=0))
    return values


def report_of_entities(targets, predicted):
    """seqeval's table of precision, recall and F1 by type; arguments as for `entities`."""
    from seqeval.metrics import classification_report

    if set(flat([*targets, *predicted])) <= {"O"}:
        return "no entities\n"
    targets = without_bilou(targets)
    predicted = without_bilou(predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classification_report(targets, predicted, digits=4, zero_division=0)


def report_of_classes(targets, predicted):
    """scikit-learn's table of precision, recall and F1 by class."""
    from sklearn.metrics import classification_report

    return classification_report(targets, predicted, digits=4, zero_division=0)


# The groups of a jackknife. With 100, a standard error is itself off by about a fourteenth.
JACKKNIFE_GROUPS = 100
MOST_JACKKNIFE_GROUPS = 2000  # where scores are computed fast


def standard_errors(scores, indices, groups=JACKKNIFE_GROUPS):
    """The standard errors of scores over examples, by a jackknife.

    Each group of examples is left out once.

    Args:
        scores: a function from a list of indices of examples to {metric: score}
        indices: of all examples
        groups: how many there are at most; with one for each example, the error of an accuracy is
            that of the formula
    Returns: {metric: standard error}, in the unit of the scores; nan if there is only one example,
        and where a score is not defined
    """
    if len(indices) < 2:
        return dict.fromkeys(scores(list(indices)), math.nan)
    order = np.random.default_rng(0).permutation(sorted(indices))
    left_out = [set(order[start::groups].tolist()) for start in range(min(groups, len(order)))]
    without = []
    for group in left_out:
        without.append(scores([index for index in indices if index not in group]))
    errors = {}
    for metric in without[0]:
        values = np.array([of_the_rest[metric] for of_the_rest in without])
        errors[metric] = float(np.sqrt((len(left_out) - 1) * values.var()))
    return errors


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


# SQuAD (Rajpurkar et al., 2016 and 2018)

PUNCTUATION = frozenset(string.punctuation)


def normalized_words(text):
    """The words to compare: lower case, without punctuation and articles, split at white space."""
    text = "".join(character for character in text.lower() if character not in PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def overlap(predicted, correct):
    """F1 of two lists of words; two empty ones agree."""
    if not predicted or not correct:
        return float(predicted == correct)
    common = sum((Counter(predicted) & Counter(correct)).values())
    return 2 * common / (len(predicted) + len(correct))


def exact_and_f1(prediction, answers):
    """Whether a prediction is one of the correct answers, and its largest overlap with one of them.

    Args:
        prediction: a text, "" for no answer
        answers: list of texts, empty for an unanswerable question
    """
    # If no answer has words, the empty one is correct.
    correct = [words for words in map(normalized_words, answers) if words] or [[]]
    predicted = normalized_words(prediction)
    exact = float(predicted in correct)
    f1 = max(overlap(predicted, words) for words in correct)
    return exact, f1
