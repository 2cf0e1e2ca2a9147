"""What an encoder and a bag of words predict for the same examples, alone and together.

Letters in shapes: n examples, K numbers predicted for each: one for each class, or one value.
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
    # What the bag of words predicts, by the name of a file, for each of its examples that has a
    # label: K numbers. The field's name is that of the entry in the file.
    outputs: Dict[str, List[List[float]]]


def spread(predictions):
    """How much predictions (n, K) differ: the standard deviation around the mean of each example.

    For values, it is 1.
    """
    if predictions.shape[1] == 1:
        return 1.0
    deviations = predictions - predictions.mean(axis=1, keepdims=True)
    return float(deviations.std()) or 1.0


def together(encoder, bag_of_words, spreads):
    """The mean of both predictions, (n, K), with the same weight for both.

    Args:
        encoder, bag_of_words: (n, K)
        spreads: of both, on the dev file: logits and margins are in different units, values are in
            the same unit
    """
    return (encoder / spreads[0] + bag_of_words / spreads[1]) / 2


def one_hot(classes, count):
    """The predictions (n, K) of classes, (n,), of which there are `count`.

    K is at least 2, as a single number is a value.
    """
    return np.eye(max(2, count))[classes]
