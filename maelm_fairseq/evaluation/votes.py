"""What an encoder and a bag of words say of the same examples, alone and together.

Letters in shapes: n examples, K outputs: one for each class, or one for a value.
"""

from dataclasses import dataclass
from typing import Dict, List

import numpy as np

BAG_OF_WORDS, MOST_FREQUENT = "bag of words", "most frequent class"
TOGETHER = "encoder and bag of words together"


@dataclass
class Score:
    """A score of something that needs no encoder, with its standard error over examples, both in percent."""

    predictor: str
    file: str
    metric: str
    value: float
    error: float


@dataclass
class Yardsticks:
    """What bag_of_words.py writes."""

    scores: List[Score]
    # Of the bag of words, for each example of a file that has a label: a value, or a vote for each class, by name.
    outputs: Dict[str, List[List[float]]]


def answer(outputs):
    """The numbers of the classes, or the values, (n,), of outputs (n, K)."""
    return outputs[:, 0] if outputs.shape[1] == 1 else outputs.argmax(axis=1)


def spread(outputs):
    """How much outputs (n, K) differ: the standard deviation around the mean of an example; 1 of values."""
    if outputs.shape[1] == 1:
        return 1.0
    return float((outputs - outputs.mean(axis=1, keepdims=True)).std()) or 1.0


def together(encoder, bag_of_words, spreads):
    """The mean of both outputs, (n, K), with the same weight for both.

    Args:
        encoder, bag_of_words: (n, K)
        spreads: of both, on the dev file: logits and margins are in different units, values are in the same
    """
    return (encoder / spreads[0] + bag_of_words / spreads[1]) / 2


def one_hot(classes, count):
    """The outputs (n, K) that answer with classes, (n,) of `count`; K is 2 or more, as a single one is for a value."""
    return np.eye(max(2, count))[classes]
