"""Scores of answers, from 0 to 1, or -1 to 1 for correlations; nan where one is not defined. And their standard errors.

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


def scores_of(names, targets, predicted):
    """Some of METRICS of n predictions: {name: percent}, nan if there are none."""
    return {name: 100 * METRICS[name](targets, predicted) if len(targets) else math.nan for name in names}


BILOU = {"L-": "E-", "U-": "S-"}  # what seqeval calls these


def without_bilou(sentences):
    """Lists of tags for each sentence, in the names that seqeval knows."""
    return [[BILOU.get(tag[:2], tag[:2]) + tag[2:] for tag in tags] for tags in sentences]


def entities(targets, predicted):
    """F1, precision and recall of whole entities, of lists of BIO, BIOES or BILOU tags for each sentence."""
    from seqeval import metrics

    targets, predicted = without_bilou(targets), without_bilou(predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of words without entities
        names = ["f1", "precision", "recall"]
        return {k: float(getattr(metrics, f"{k}_score")(targets, predicted, zero_division=0)) for k in names}


def report_of_entities(targets, predicted):
    """seqeval's table of precision, recall and F1 by type; arguments as for `entities`."""
    from seqeval.metrics import classification_report

    if all(tag == "O" for tags in [*targets, *predicted] for tag in tags):
        return "no entities\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classification_report(without_bilou(targets), without_bilou(predicted), digits=4, zero_division=0)


def report_of_classes(targets, predicted):
    """scikit-learn's table of precision, recall and F1 by class."""
    from sklearn.metrics import classification_report

    return classification_report(targets, predicted, digits=4, zero_division=0)


# Of a jackknife: with 100, its error is within a fourteenth, by and large.
GROUPS, MOST_GROUPS = 100, 2000


def standard_errors(scores, numbers, groups=GROUPS):
    """The standard errors of scores over examples, by a jackknife: each group of examples is left out once.

    Args:
        scores: a function from a list of numbers of examples to {metric: score}
        numbers: of all examples
        groups: how many there are at most; with one for each example, the error of an accuracy is that of the formula
    Returns: {metric: standard error}, in the unit of the scores; nan of one example, and where a score is not defined
    """
    if len(numbers) < 2:
        return dict.fromkeys(scores(list(numbers)), math.nan)
    order = np.random.default_rng(0).permutation(sorted(numbers))
    groups = [set(order[start::groups].tolist()) for start in range(min(groups, len(order)))]
    without = [scores([i for i in numbers if i not in group]) for group in groups]
    errors = {}
    for metric in without[0]:
        values = np.array([each[metric] for each in without])
        errors[metric] = float(np.sqrt((len(groups) - 1) * values.var()))
    return errors


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
