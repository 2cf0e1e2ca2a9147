"""An encoder and a bag of words together."""

import numpy as np
import pytest

from maelm_fairseq.evaluation.votes import answer, one_hot, spread, together


def test_both_vote_with_the_same_weight_whatever_their_units():
    encoder, margins = np.array([[9.0, 0, 0], [0, 9.0, 0]]), np.array([[1.0, 0, 0], [0, 0, 1.0]])
    assert spread(encoder) == pytest.approx(9 * spread(margins))
    assert spread(encoder + [[5.0], [-7.0]]) == pytest.approx(spread(encoder))  # softmax ignores what all share
    both = together(encoder, margins, [spread(encoder), spread(margins)])
    assert answer(both)[0] == 0
    assert both[1, 1] == pytest.approx(both[1, 2])


def test_values_are_in_the_same_unit():
    values, others = np.array([[1.0], [2.0]]), np.array([[3.0], [30.0]])
    assert answer(together(values, others, [spread(values), spread(others)])).tolist() == [2, 16]


def test_classes_as_outputs_answer_with_themselves():
    assert answer(one_hot(np.array([2, 0, 1]), 3)).tolist() == [2, 0, 1]
    assert answer(one_hot(np.array([0, 0]), 1)).tolist() == [0, 0]
    assert spread(np.ones((4, 3))) == 1  # that always answers the same
