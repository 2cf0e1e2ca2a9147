"""Scores of predictions, their standard errors, and reports by class."""

import numpy as np
import pytest

from maelm_fairseq import metrics
from maelm_fairseq.finetuning import jackknife


def test_standard_errors_are_those_of_the_formula_and_of_a_bootstrap():
    rng = np.random.default_rng(1)
    right = rng.random(2000) < 0.8

    def accuracy(rows):
        return {"accuracy": right[rows].mean()}

    share = right.mean()
    expected = np.sqrt(share * (1 - share) / len(right))
    for groups, tolerance in [(100, 0.25), (2000, 1e-3)]:
        errors = jackknife.standard_errors(accuracy, range(len(right)), groups)
        assert errors["accuracy"] == pytest.approx(expected, rel=tolerance)
    targets = rng.normal(size=500)
    predicted = targets + rng.normal(size=500)

    def pearson(rows):
        return {"pearson": metrics.METRICS["pearson"].compute(targets[rows], predicted[rows])}

    drawn = [pearson(rng.integers(500, size=500))["pearson"] for _ in range(500)]
    error = jackknife.standard_errors(pearson, range(500))["pearson"]
    assert error == pytest.approx(np.std(drawn), rel=0.35)
    errors = jackknife.standard_errors(lambda rows: {"pearson": np.nan}, range(9))
    assert np.isnan(errors["pearson"])


@pytest.mark.parametrize(
    "examples, groups", [(50, 50), (4000, 2000), (40_000, 250), (200_000, 100)]
)
def test_of_many_examples_there_are_fewer_groups(examples, groups):
    """Scores of all groups together would otherwise take minutes."""
    scores = jackknife.leave_groups_out(lambda rows: {}, range(examples), 2000)
    assert len(scores) == groups


def test_f1_of_two_classes_with_a_label_that_training_does_not_have():
    assert metrics.f1([1, 1, 0, -1], [1, 0, 0, 1]) == pytest.approx(0.5)


def test_reports_have_a_row_for_each_class_and_each_type_of_entity():
    rows = rows_of_report(metrics.report_of_classes(["a", "a", "b"], ["a", "b", "b"]))
    assert rows["a"] == ["1.0000", "0.5000", "0.6667", "2"]
    rows = rows_of_report(metrics.report_of_entities([["U-X", "O", "B-Y"]], [["U-X", "O", "O"]]))
    assert rows["X"] == ["1.0000", "1.0000", "1.0000", "1"]
    assert rows["Y"][1] == "0.0000"


def test_a_tag_that_training_does_not_have_is_an_entity_that_is_missed():
    for unknown in ["OTHER", "FOO", "B-Z"]:
        scores = metrics.entity_scores([["B-X", unknown]], [["B-X", "O"]])
        assert (scores["precision"], scores["recall"]) == (1, 0.5)


def rows_of_report(report):
    """{name: values}."""
    rows = {}
    for line in report.splitlines():
        if line.strip():
            name, *values = line.split()
            rows[name] = values
    return rows


def test_scores_of_little_are_undefined_and_no_error():
    scores = metrics.compute_tag_scores(["f1", "accuracy"], [["O", "O"]], [["O", "B-X"]])
    assert np.isnan(scores["f1"])
    assert scores["accuracy"] == 50
    assert np.isnan(metrics.compute_scores(["accuracy", "f1", "pearson"], [], [])["pearson"])
    errors = jackknife.standard_errors(lambda rows: {"accuracy": 100.0}, [7])
    assert np.isnan(errors["accuracy"])
    assert metrics.report_of_entities([["O", "O"]], [["O", "O"]]) == "no entities\n"
