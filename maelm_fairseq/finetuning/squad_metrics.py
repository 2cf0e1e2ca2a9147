"""How answers to questions are scored: by the rules of SQuAD's official program."""

import re
import string
from collections import Counter

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
