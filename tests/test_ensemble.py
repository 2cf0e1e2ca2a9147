"""An encoder and a bag of words together."""

import numpy as np
import pytest

from maelm_fairseq.baselines.ensemble import average_predictions, one_hot, prediction_scale
from maelm_fairseq.metrics import argmax_or_value


def test_both_vote_with_the_same_weight_whatever_their_units():
    encoder = np.array([[9.0, 0, 0], [0, 9.0, 0]])
    margins = np.array([[1.0, 0, 0], [0, 0, 1.0]])
    assert prediction_scale(encoder) == pytest.approx(9 * prediction_scale(margins))
    # What is added to all classes makes no difference after softmax.
    assert prediction_scale(encoder + [[5.0], [-7.0]]) == pytest.approx(prediction_scale(encoder))
    sums = average_predictions(encoder, margins, encoder, margins)
    assert argmax_or_value(sums)[0] == 0
    assert sums[1, 1] == pytest.approx(sums[1, 2])


def test_values_are_in_the_same_unit():
    values = np.array([[1.0], [2.0]])
    others = np.array([[3.0], [30.0]])
    means = average_predictions(values, others, values, others)
    assert argmax_or_value(means).tolist() == [2, 16]


def test_classes_as_outputs_answer_with_themselves():
    assert argmax_or_value(one_hot(np.array([2, 0, 1]), 3)).tolist() == [2, 0, 1]
    assert argmax_or_value(one_hot(np.array([0, 0]), 1)).tolist() == [0, 0]
    assert prediction_scale(np.ones((4, 3))) == 1  # of outputs that are always the same
