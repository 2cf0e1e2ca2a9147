"""An encoder that predicts together with a bag of words, or with a conditional random field.

Letters in shapes: n examples, K numbers predicted for each: one for each class, or one value.
"""

import numpy as np

ENSEMBLE = "encoder and bag of words together"
TAG_ENSEMBLE = "encoder and CRF together"
ENSEMBLES = [ENSEMBLE, TAG_ENSEMBLE]


def average_predictions(encoder, bag_of_words, encoder_dev, bag_of_words_dev):
    """The mean of both predictions, (n, K), with the same weight for both.

    Logits and margins are in different units: each is divided by its `prediction_scale` on the dev
    file. Values are in the same unit.

    Args:
        encoder, bag_of_words: (n, K)
        encoder_dev, bag_of_words_dev: the predictions for the dev file, (examples, K)
    """
    scaled_encoder = encoder / prediction_scale(encoder_dev)
    scaled_bag_of_words = bag_of_words / prediction_scale(bag_of_words_dev)
    return (scaled_encoder + scaled_bag_of_words) / 2


def average_probabilities(encoder, crf):
    """The mean of both probabilities of tags, (words, tags)."""
    return (encoder + crf) / 2


def prediction_scale(predictions):
    """How much predictions (n, K) differ: the standard deviation around the mean of each example.

    For values, it is 1.
    """
    if predictions.shape[1] == 1:
        return 1.0
    deviations = predictions - predictions.mean(axis=1, keepdims=True)
    return float(deviations.std()) or 1.0


def one_hot(classes, count):
    """The predictions (n, K) of classes, (n,), of which there are `count`.

    K is at least 2, as a single number is a value.
    """
    return np.eye(max(2, count))[classes]
