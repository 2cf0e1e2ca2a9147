"""Exact match and F1 of SQuAD (Rajpurkar et al., 2016 and 2018), and the best threshold for giving no answer."""

import re
import string
from collections import Counter

import numpy as np

PUNCTUATION = frozenset(string.punctuation)


def normalized_words(text):
    """The words to compare: lower case, without punctuation and articles, split at white space."""
    text = "".join(c for c in text.lower() if c not in PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def gold_words(texts):
    """The words of each correct answer; if there is none with words, the empty answer is correct."""
    return [words for words in map(normalized_words, texts) if words] or [[]]


def exact_match(prediction, answers):
    """1 if a prediction is one of the correct answers, else 0.

    Args:
        prediction: a string, "" for no answer
        answers: list of strings, empty for an unanswerable question
    """
    return float(normalized_words(prediction) in gold_words(answers))


def f1(prediction, answers):
    """The largest overlap in words with a correct answer, from 0 to 1; see :func:`exact_match`."""
    return max(overlap(normalized_words(prediction), gold) for gold in gold_words(answers))


def overlap(predicted, gold):
    """F1 of two lists of words; two empty ones agree."""
    if not predicted or not gold:
        return float(predicted == gold)
    common = sum((Counter(predicted) & Counter(gold)).values())
    return 2 * common / (len(predicted) + len(gold))


def evaluate(predictions, questions):
    """Scores predictions as the official program does.

    Args:
        predictions: dict, id -> text
        questions: :class:`~maelm_fairseq.finetuning.squad.questions.Question`, at least one, each with a prediction
    Returns:
        dict: `exact` and `f1` in percent, and `total`; if some questions have no answer, the same for answerable
        (`HasAns_exact`, ...) and unanswerable questions (`NoAns_exact`, ...)
    """
    scores = np.array([[metric(predictions[q.id], texts(q)) for metric in (exact_match, f1)] for q in questions])
    answerable = np.array([bool(q.answers) for q in questions])
    groups = {"": np.ones_like(answerable)}
    if not answerable.all():
        groups.update(HasAns_=answerable, NoAns_=~answerable)
    result = {}
    for prefix, group in groups.items():
        if group.any():
            exact, overlapping = (100 * scores[group].mean(axis=0)).tolist()
            result.update({f"{prefix}exact": exact, f"{prefix}f1": overlapping, f"{prefix}total": int(group.sum())})
    return result


def texts(question):
    return [answer.text for answer in question.answers]


def best_threshold(predictions, differences, questions):
    """The threshold with the highest F1: questions with a difference above it get no answer.

    Args:
        predictions: dict, id -> best non-empty text
        differences: dict, id -> score of no answer minus score of that text
        questions: as for :func:`evaluate`
    Returns:
        float; of several equally good ones, the one that gives most answers
    """
    gains = Counter()  # {difference: F1 won by answering the questions that have it}
    for q in questions:
        gains[differences[q.id]] += f1(predictions[q.id], texts(q)) - f1("", texts(q))
    cuts = [min(gains) - 1.0, *sorted(gains)]
    total = np.cumsum([0.0, *(gains[cut] for cut in cuts[1:])])
    return float(cuts[len(cuts) - 1 - int(np.argmax(total[::-1]))])
