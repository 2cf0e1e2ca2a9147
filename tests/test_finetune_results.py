"""What fine-tuning says of the scores of predictors, and its table of results."""

import math

import numpy as np
import pytest

from maelm_fairseq.runs import finetune_results

TOGETHER = "encoder and bag of words together"


@pytest.mark.parametrize("encoder, bag, both, expected", [
    ([84.0, 82.0, 10.0], 78.0, 78.5, "highest accuracy on dev.tsv: the encoder"),
    ([81.0, 79.0, 10.0], 78.0, 78.5,
     "highest accuracy on dev.tsv: the encoder, not clearly ahead of the bag of words"),
    ([60.0], 78.0, 77.0, "highest accuracy on dev.tsv: the bag of words"),
    ([77.0], 78.0, 77.0,
     "highest accuracy on dev.tsv: the bag of words, not clearly ahead of the encoder"),
    ([60.0], 78.0, 82.0, f"highest accuracy on dev.tsv: the {TOGETHER}"),
    ([60.0], 78.0, 79.0,
     f"highest accuracy on dev.tsv: the {TOGETHER}, not clearly ahead of the bag of words"),
])  # fmt: skip
def test_the_highest_score_is_named(encoder, bag, both, expected):
    leads = [{"lead": np.median(encoder) - bag}, {"lead": both - bag}]
    for lead in leads:
        lead["baseline"] = "bag of words"
        lead["difference_errors"] = {"bag of words": 1.0}
    results = [
        finetune_results.Result("a", "dev.tsv", "accuracy", encoder, 1.0, **leads[0]),
        finetune_results.Result("a", "dev.tsv", "f1", [99.0], 1.0),
        finetune_results.Result("a", "dev.tsv", "accuracy", [bag], 1.0, "bag of words"),
        finetune_results.Result("a", "dev.tsv", "accuracy", [both], 1.0, TOGETHER, **leads[1]),
    ]
    assert finetune_results.compare_predictors(results).line == expected


@pytest.mark.parametrize("encoder, bag, both, expected", [
    (81.0, 80.0, 81.5, ["bag of words", "encoder", TOGETHER]),
    (81.0, 70.0, 81.5, ["encoder", TOGETHER]),
    (81.0, 80.0, 70.0, ["bag of words", "encoder"]),
    (80.0, 80.5, 81.0, ["bag of words", TOGETHER]),  # the encoder costs more than it gives
    (80.0, 81.0, 80.5, ["bag of words"]),
    (50.0, 81.0, 81.004, ["bag of words"]),
    (90.0, 70.0, 80.0, ["encoder"]),
])  # fmt: skip
def test_the_cheaper_predictors_that_are_as_good_can_label_texts(encoder, bag, both, expected):
    results = []
    for name, value in {"encoder": encoder, "bag of words": bag, TOGETHER: both}.items():
        lead = {}
        if name != "bag of words":
            lead = dict(lead=value - bag, difference_errors={"bag of words": 1.0})
        results.append(
            finetune_results.Result("a", "dev.tsv", "accuracy", [value], 1.0, name, **lead)
        )
    assert finetune_results.compare_predictors(results).worth_using == expected


def test_differences_from_an_ensemble_are_paired():
    results = [
        finetune_results.Result("a", "dev.tsv", "accuracy", [79.0], 1.0),
        finetune_results.Result(
            "a",
            "dev.tsv",
            "accuracy",
            [81.6],
            1.0,
            TOGETHER,
            difference_errors={"encoder": 0.9, "bag of words": 0.9},
        ),
        finetune_results.Result("a", "dev.tsv", "accuracy", [78.9], 1.0, "bag of words"),
    ]
    verdict = finetune_results.compare_predictors(results)
    assert verdict.line == f"highest accuracy on dev.tsv: the {TOGETHER}"
    assert verdict.worth_using == [TOGETHER]


def test_no_predictor_is_offered_beside_a_cheaper_one_that_scores_more():
    results = [
        finetune_results.Result("a", "dev.txt", "f1", [61.5], 2.5),
        finetune_results.Result("a", "dev.txt", "f1", [63.6], 2.5, "CRF"),
        finetune_results.Result(
            "a", "dev.txt", "f1", [66.5], 2.4, "encoder and CRF together",
            difference_errors={"encoder": 3.0, "CRF": 1.3},
        ),
    ]  # fmt: skip
    verdict = finetune_results.compare_predictors(results)
    assert verdict.line.endswith("the encoder and CRF together, not clearly ahead of the encoder")
    assert verdict.worth_using == ["encoder and CRF together"]


def test_new_texts_are_labelled_although_the_most_frequent_class_is_highest():
    results = [
        finetune_results.Result("a", "dev.tsv", "accuracy", [80.0], 1.0),
        finetune_results.Result("a", "dev.tsv", "accuracy", [79.0], 1.0, "bag of words"),
        finetune_results.Result("a", "dev.tsv", "accuracy", [80.0], 1.0, "most frequent class"),
    ]
    verdict = finetune_results.compare_predictors(results)
    assert "the most frequent class, level with the encoder" in verdict.line
    assert verdict.worth_using == ["bag of words", "encoder"]


@pytest.mark.parametrize("encoder, bag, frequent, both, expected", [
    (81.7, 58.3, 81.7, 81.0, "the most frequent class, level with the encoder"),
    (100.0, 100.0, 60.0, 100.0, f"the bag of words, level with the encoder and the {TOGETHER}"),
    (80.0, 79.5, 60.0, 80.0,
     f"the encoder, level with the {TOGETHER}, not clearly ahead of the bag of words"),
    (89.9, 60.0, 50.0, 90.0, f"the {TOGETHER}, not clearly ahead of the encoder"),
    (50.0, 60.0, 90.0, 60.0, "the most frequent class"),
    (np.nan, np.nan, np.nan, np.nan, "none, as it is undefined: "),
])  # fmt: skip
def test_a_tie_is_not_a_lead(encoder, bag, frequent, both, expected):
    scores = {
        finetune_results.ENCODER: encoder,
        "bag of words": bag,
        "most frequent class": frequent,
    }
    results = []
    for name, value in {**scores, TOGETHER: both}.items():
        lead = (
            dict(lead=value - bag, difference_errors={"bag of words": 0.5})
            if name in (finetune_results.ENCODER, TOGETHER)
            else {}
        )
        result = finetune_results.Result("a", "dev.tsv", "accuracy", [value], 1.0, name, **lead)
        results.append(result)
    found = finetune_results.compare_predictors(results).line
    if not np.isnan(encoder):
        assert found == f"highest accuracy on dev.tsv: {expected}"
    else:
        assert found.startswith(f"highest accuracy on dev.tsv: {expected}")


def test_the_table_of_results(tmp_path, capsys):
    path = tmp_path / "results.tsv"
    nan = math.nan
    values = [nan, 50.0, 60.0]
    first = finetune_results.Result(
        "a", "dev.tsv", "pearson", values, 1.5, start="x\ty", settings="s"
    )
    bag_of_words = finetune_results.Result("a", "dev.tsv", "pearson", [55.0], 1.25, "bag of words")
    finetune_results.print_results([first, bag_of_words])
    for _ in range(2):  # no row is repeated
        finetune_results.write_table(tmp_path, [first])
    printed = capsys.readouterr().out
    line = "  encoder       50.00 ± 1.50, median of 3 seeds (nan to 60.00)"
    assert f"a, pearson on dev.tsv:\n{line}; undefined for seed 1" in printed
    assert "\n  bag of words  55.00 ± 1.25\n" in printed
    # A damaged table is kept as it is, and rows are added to it.
    path.write_bytes(path.read_bytes() + b"a row that was \xff cut")
    before = path.read_bytes()
    second = finetune_results.Result(
        "b", "f", "f1", [1.0, nan], 0.5, start="\x85", settings="s", file_sha256="1a2b"
    )
    finetune_results.write_table(tmp_path, [second])
    assert path.read_bytes().startswith(before + b"\n")
    assert path.read_bytes().count(b"\n") == 4
    fields = path.read_text(errors="replace").splitlines()[-1].split("\t")
    assert fields[1:7] == ["b", "f", "1a2b", "f1", "encoder", "nan"]
    assert fields[14:] == ["1.00 nan", "\\x85", "s"]
    # Runs are ranked by the metric that is asked for, or else by the first.
    scores = [dict(f1=nan), dict(f1=1.0), dict(f1=3.0)]
    assert finetune_results.rank_runs(scores, "loss") == [2, 1, 0]
    scores = [dict(accuracy=2.0, f1=1.0), dict(accuracy=1.0, f1=3.0)]
    assert finetune_results.rank_runs(scores, "f1") == [1, 0]
