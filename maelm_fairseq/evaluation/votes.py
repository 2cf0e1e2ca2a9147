"""What an encoder and a bag of words say of the same examples, alone and together.

Letters in shapes: n examples, K outputs: one for each class, or one for a value.
"""

from dataclasses import dataclass
from typing import Dict, List

import numpy as np

BAG_OF_WORDS = "bag of words"
MOST_FREQUENT = "most frequent class"
TOGETHER = "encoder and bag of words together"


@dataclass
class Score:
    """A score of a predictor without an encoder, with its standard error over examples.

    Both are in percent.
    """

    predictor: str
    file: str
    metric: str
    value: float
    error: float


@dataclass
class Baselines:
    """What bag_of_words.py writes."""

    scores: List[Score]
    # What the bag of words says, by the name of a file, for each of its examples that has a label:
    # a value, or a vote for each class.
    outputs: Dict[str, List[List[float]]]


def answer(outputs):
    """The indices of the classes, or the values, (n,), of outputs (n, K)."""
    if outputs.shape[1] == 1:
        return outputs[:, 0]
    return outputs.argmax(axis=1)


def spread(outputs):
    """How much outputs (n, K) differ: the standard deviation around the mean of each example.

    For values, it is 1.
    """
    if outputs.shape[1] == 1:
        return 1.0
    deviations = outputs - outputs.mean(axis=1, keepdims=True)
    return float(deviations.std()) or 1.0


def together(encoder, bag_of_words, spreads):
    """The mean of both outputs, (n, K), with the same weight for both.

    Args:
        encoder, bag_of_words: (n, K)
        spreads: of both, on the dev file: logits and margins are in different units, values are in
            the same unit
    """
    return (encoder / spreads[0] + bag_of_words / spreads[1]) / 2


def one_hot(classes, count):
    """The outputs (n, K) that answer with classes, (n,), of which there are `count`.

    K is at least 2, as a single output is for a value.
    """
    return np.eye(max(2, count))[classes]
