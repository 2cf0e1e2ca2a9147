"""What predictors score on labelled files, and what an encoder and a bag of words predict together.

Letters in shapes: n examples, K numbers predicted for each: one for each class, or one value.
"""

from dataclasses import dataclass
from typing import Dict, List

import numpy as np

from ..finetuning.jackknife import standard_errors

BAG_OF_WORDS = "bag of words"
MOST_FREQUENT = "most frequent class"
CRF = "CRF"
MOST_FREQUENT_TAG = "most frequent tag of each word"
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
    """What bag_of_words.py and crf.py write."""

    scores: List[Score]
    # What the bag of words or the CRF predicts, by the name of a file, for each of its examples
    # that has a label: K numbers, or the index of each word's tag. The field's name is that of the
    # entry in the file.
    outputs: Dict[str, List[List[float]]]


def scores_with_errors(predictor, file, values, count, groups):
    """A `Score` for each metric, if there is an example.

    Args:
        predictor, file: their names
        values: a function from a list of indices of examples to {metric: percent}
        count: of the examples
        groups: of the jackknife; see `jackknife.standard_errors`
    """
    if not count:
        return []
    rows = list(range(count))
    errors = standard_errors(values, rows, groups)
    scores = []
    for name, value in values(rows).items():
        scores.append(Score(predictor, file, name, value, errors[name]))
    return scores


def show_scores(scores):
    """Prints a line for each `Score`."""
    print("± is the standard error over examples")
    for score in scores:
        where = f"{score.metric} on {score.file}"
        print(f"{score.predictor}, {where}: {score.value:.2f} ± {score.error:.2f}")


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
