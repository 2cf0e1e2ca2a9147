"""What fine-tuning says of how the score on the dev file changed."""

import numpy as np

import finetune
from maelm_fairseq.runs import finetune_results
from maelm_fairseq.runs.learning_curve import LearningCurve


def test_a_score_that_still_rises_is_pointed_out():
    """By the median over seeds, over the last quarter, if it is more than the standard error."""
    flat = [1, 50, 70, 70, 70, 71, 70, 70]
    rising = [1, 20, 30, 40, 50, 60, 70, 80]
    assert LearningCurve([rising, rising, flat], standard_error=2.0).late_rise() == 20
    assert LearningCurve([rising, flat, flat], standard_error=2.0).late_rise() is None
    assert LearningCurve([rising], standard_error=25.0).late_rise() is None
    assert LearningCurve([[1, 90]], standard_error=1.0).late_rise() is None


def test_what_too_few_validations_do_not_show_is_said(capsys):
    result = finetune_results.Result("own", "dev.tsv", "accuracy", [90.0], 1.0, start="scratch")
    finetune.report_curves([[1, 90]], result, epochs=2, default_epochs=2)
    assert "too few validations, under 4, to tell" in capsys.readouterr().out
    finetune.report_curves([[1, 30, 60, 90]], result, epochs=4, default_epochs=4)
    assert capsys.readouterr().out.startswith("still improving: accuracy on dev.tsv rose by 30.00")
    finetune.report_curves([[80, 90, 90, 90]], result, epochs=4, default_epochs=12)
    printed = capsys.readouterr().out
    assert printed.startswith("level at the end: accuracy on dev.tsv stayed within")
    assert "after 50% of training; the rate falls to 0 there" in printed
    assert printed.endswith("default for this encoder is --epochs 12\n")
    finetune.report_curves([[60, 60, 60, 60, 60, 62, 50, 62]], result, epochs=8, default_epochs=8)
    assert capsys.readouterr().out.startswith("not settled: accuracy on dev.tsv still changed by")
    assert LearningCurve([[80, 90, 90, 90]], 1.0).level_since() == 0.5
    assert LearningCurve([[90, 90, 80, 90]], 1.0).level_since() == 1
    assert LearningCurve([[90, 90, 90, 90]], 1.0).level_since() == 0.25
    assert LearningCurve([[90, 90, 90, np.nan]], 1.0).level_since() is None
    # A curve that lacks validations does not count.
    assert LearningCurve([[80, 90, 90, 90], [80, 90, 20]], 1.0).level_since() == 0.5


def test_a_score_that_has_fallen_is_pointed_out(capsys):
    """By the median over seeds, if it is more than the standard error."""
    falling = [70, 80, 76, 77, 76, 76]
    assert LearningCurve([falling, falling, [60] * 6], 3.0).fall_from_peak() == (4, 2 / 6)
    assert LearningCurve([falling], 4.0).fall_from_peak() is None
    for curve in [[np.nan, 70, 70, 70], [70, 70, 70, np.nan], [90, 10], []]:
        assert LearningCurve([curve], 1.0).fall_from_peak() is None
    result = finetune_results.Result("own", "dev.tsv", "accuracy", [90.0], 1.0, start="scratch")
    finetune.report_curves([falling], result, epochs=6, default_epochs=6)
    printed = capsys.readouterr().out
    expected = "accuracy on dev.tsv fell by 4.00 after 33% of training; try fewer --epochs than 6"
    assert printed == f"trained too long: {expected}\n"
