"""An encoder and a bag of words that predict together.

Letters in shapes: n examples, K numbers predicted for each: one for each class, or one value.
"""

import numpy as np

ENSEMBLE = "encoder and bag of words together"


def prediction_scale(predictions):
    """How much predictions (n, K) differ: the standard deviation around the mean of each example.

    For values, it is 1.
    """
    if predictions.shape[1] == 1:
        return 1.0
    deviations = predictions - predictions.mean(axis=1, keepdims=True)
    return float(deviations.std()) or 1.0


def average_predictions(encoder, bag_of_words, scales):
    """The mean of both predictions, (n, K), with the same weight for both.

    Args:
        encoder, bag_of_words: (n, K)
        scales: of both, on the dev file: logits and margins are in different units, values are in
            the same unit
    """
    return (encoder / scales[0] + bag_of_words / scales[1]) / 2


def one_hot(classes, count):
    """The predictions (n, K) of classes, (n,), of which there are `count`.

    K is at least 2, as a single number is a value.
    """
    return np.eye(max(2, count))[classes]
