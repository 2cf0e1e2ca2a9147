"""What fine-tuning says of how the score on the dev file changed."""

import numpy as np
import pytest

from maelm_fairseq.runs.finetune_results import Result
from maelm_fairseq.runs.learning_curve import LearningCurve
from maelm_fairseq.runs.training_length import describe_training_length


def curve_of(scores):
    """The curve of one seed, with its validations after equal steps of training."""
    return [(10 * number, score) for number, score in enumerate(scores, 1)]


def learning_curve(curves, standard_error):
    return LearningCurve(list(map(curve_of, curves)), standard_error)


def test_a_score_that_still_rises_is_pointed_out():
    """By the median over seeds, over the last quarter, if it is more than the standard error."""
    flat = [1, 50, 70, 70, 70, 71, 70, 70]
    rising = [1, 20, 30, 40, 50, 60, 70, 80]
    assert learning_curve([rising, rising, flat], standard_error=2.0).late_rise() == 20
    assert learning_curve([rising, flat, flat], standard_error=2.0).late_rise() is None
    assert learning_curve([rising], standard_error=25.0).late_rise() is None
    assert learning_curve([[1, 90]], standard_error=1.0).late_rise() is None


def described(curve, epochs, default_epochs, updates=1000):
    """What is said of a curve of accuracies with a standard error of a point."""
    result = Result("own", "dev.tsv", "accuracy", [90.0], 1.0, start="scratch")
    return describe_training_length(
        learning_curve([curve], 1.0), result, epochs, default_epochs, updates
    )


@pytest.mark.parametrize("curve, epochs, beginning, advice", [
    ([1, 90], 2, "fewer than 4 validations, too few to tell", ["try more --epochs than 2"]),
    ([1, 30, 60, 90], 4, "still improving: accuracy on dev.tsv rose by 30.00",
     ["try more --epochs than 4"]),
    ([80, 90, 90, 90], 4, "level: after 50% of training, accuracy on dev.tsv changed by no", []),
    ([60, 60, 60, 60, 60, 62, 50, 62], 8, "not settled: accuracy on dev.tsv still changed by", []),
    ([70, 80, 76, 77, 76, 76], 6, "trained too long: accuracy on dev.tsv fell by 4.00 after 33%",
     ["try fewer --epochs than 6"]),
])  # fmt: skip
def test_how_the_score_changed_is_said(curve, epochs, beginning, advice):
    line, *further = described(curve, epochs, default_epochs=epochs)
    assert line.startswith(beginning)
    assert further == advice


@pytest.mark.parametrize("curve, epochs, default_epochs, updates, advice", [
    ([1, 90], 3, 12, 57, "try --epochs 12: the recipe's default for this encoder"),
    ([1, 90], 3, 5, 57, "try --epochs 11: 3 epochs are only 57 updates, of 200 or more"),
    ([90, 90, 90, 90], 12, 12, 120,
     "try --epochs 20: 12 epochs are only 120 updates, of 200 or more"),
    ([90, 90, 90, 90], 1, 1, 12, "try --epochs 17: 1 epoch is only 12 updates, of 200 or more"),
])  # fmt: skip
def test_one_line_says_how_many_epochs_to_try(curve, epochs, default_epochs, updates, advice):
    lines = described(curve, epochs, default_epochs, updates)
    assert lines[1:] == [advice]


def test_since_when_a_score_is_level():
    assert learning_curve([[80, 90, 90, 90]], 1.0).level_since() == 0.5
    assert learning_curve([[90, 90, 80, 90]], 1.0).level_since() == 1
    assert learning_curve([[90, 90, 90, 90]], 1.0).level_since() == 0.25
    assert learning_curve([[90, 90, 90, np.nan]], 1.0).level_since() is None
    # A curve that lacks validations does not count.
    assert learning_curve([[80, 90, 90, 90], [80, 90, 20]], 1.0).level_since() == 0.5


def test_a_score_that_has_fallen_is_pointed_out():
    """By the median over seeds, if it is more than the standard error."""
    falling = [70, 80, 76, 77, 76, 76]
    assert learning_curve([falling, falling, [60] * 6], 3.0).fall_from_peak() == (4, 2 / 6)
    assert learning_curve([falling], 4.0).fall_from_peak() is None
    for curve in [[np.nan, 70, 70, 70], [70, 70, 70, np.nan], [90, 10], []]:
        assert learning_curve([curve], 1.0).fall_from_peak() is None


def test_validations_may_come_at_any_update():
    """As they do where checkpoints are also saved within an epoch."""
    uneven = [(50, 80.0), (76, 85.0), (90, 90.0), (100, 90.0)]
    curve = LearningCurve([uneven], 1.0)
    assert curve.late_rise() == 10  # the last quarter begins after update 75
    assert curve.level_since() == 0.9
    falling = [(50, 80.0), (60, 70.0), (70, 70.0), (100, 70.0)]
    assert LearningCurve([falling], 1.0).fall_from_peak() == (10, 0.5)
