"""Minimal pairs: their files, how a model decides them, and how decisions are summed up."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import refuses
from maelm_fairseq import hub
from maelm_fairseq.evaluation.minimal_pairs import (
    bootstrap_interval,
    check_pairs_fit,
    decide_pairs,
    pairs_interval,
    percent_right,
)
from maelm_fairseq.evaluation.pair_files import Pairs, read_pairs


def blimp_line(good, bad, term="islands", paradigm="wh", **more):
    """A line of a file of BLiMP."""
    pair = {"sentence_good": good, "sentence_bad": bad, "linguistics_term": term, "UID": paradigm}
    return json.dumps({**pair, "pairID": "0", **more})


def write_lines(path, *lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_file_of_blimp_is_pairs_in_one_group(tmp_path):
    lines = [blimp_line("a b", "b a"), "", blimp_line(" ä ", "c")]
    pairs = read_pairs(write_lines(tmp_path / "wh.jsonl", *lines))
    assert read_pairs(Path(tmp_path, "wh.jsonl")).sha256 == pairs.sha256
    assert pairs.name == "wh"
    assert pairs.good == ["a b", "ä"]
    assert pairs.bad == ["b a", "c"]
    assert pairs.groups.tolist() == ["islands/wh", "islands/wh"]
    assert pairs.locations == [f"{tmp_path}/wh.jsonl: line 1", f"{tmp_path}/wh.jsonl: line 3"]


def test_a_folder_of_blimp_is_one_set_of_pairs(tmp_path):
    write_lines(tmp_path / "made" / "b.jsonl", blimp_line("b", "x", "agreement", "b"))
    write_lines(tmp_path / "made" / "c.jsonl", blimp_line("c", "x", "islands", "c"))
    packed = gzip.compress(blimp_line("a", "x", "islands", "a").encode())
    (tmp_path / "made" / "a.jsonl.gz").write_bytes(packed)
    write_lines(tmp_path / "made" / "README.md", "no pair")
    pairs = read_pairs(str(tmp_path / "made") + "/")
    assert pairs.name == "made"
    assert pairs.good == ["a", "b", "c"]
    assert pairs.groups.tolist() == ["islands/a", "agreement/b", "islands/c"]
    assert pairs.locations[1] == f"{tmp_path}/made/b.jsonl: line 1"
    write_lines(tmp_path / "made" / "c.jsonl", blimp_line("c", "y", "islands", "c"))
    assert read_pairs(str(tmp_path / "made")).sha256 != pairs.sha256


@pytest.mark.parametrize("line, message", [
    ("{", r"x.jsonl: line 2: not JSON \("),
    ("[]", "x.jsonl: line 2: found a list, expected an object"),
    ('{"UID": "a", "UID": "b"}', "line 2: not JSON .*duplicate key 'UID'"),
    ('{"sentence_good": "a", "sentence_bad": "b", "UID": "u"}', "found no linguistics_term"),
    (blimp_line("a", " "), "line 2: sentence_bad: found no text"),
    (blimp_line("a", "b", UID=""), "line 2: UID: found no text"),
    (blimp_line("a", 5), "line 2: sentence_bad: found 5, expected a string"),
    (blimp_line("a", None), "line 2: sentence_bad: found None, expected a string"),
    (blimp_line("a \ud800", "b"), r"line 2: unpaired surrogate '\\ud800' after"),
])  # fmt: skip
def test_a_line_that_is_no_pair_of_blimp_is_refused(tmp_path, line, message):
    path = write_lines(tmp_path / "x.jsonl", blimp_line("a", "b"), line)
    fields = "sentence_good, sentence_bad, linguistics_term, UID"
    advice = f"expected an object with {fields}, all of them text; correct the line"
    refuses(f"{message}.*; {advice}", read_pairs, path)


def test_files_and_folders_without_pairs_are_refused(tmp_path):
    empty = write_lines(tmp_path / "x.jsonl", "")
    refuses("x.jsonl: found no pairs, expected an object", read_pairs, empty)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.json").touch()
    fault = r"data: found no file called NAME.jsonl, expected some, as in BLiMP's data; give"
    refuses(fault, read_pairs, str(tmp_path / "data"))
    for name in ["x.jsonl", "x.jsonl.gz"]:
        write_lines(tmp_path / "data" / name, blimp_line("a", "b"))
    fault = "data: found x.jsonl and x.jsonl.gz, expected one of them; move the other"
    refuses(fault, read_pairs, str(tmp_path / "data"))


@pytest.mark.parametrize("text, message", [
    ("good\tworse\na\tb\n", r"x.tsv: found the header 'good\\tworse', expected good and bad"),
    ("good\tbad\na\n", "x.tsv: line 2: found 1 column, expected 2"),
    ("good\tbad\n", "x.tsv: found no pairs"),
    ("good\tbad\na\t \n", "x.tsv: line 2: found an empty cell"),
])  # fmt: skip
def test_a_table_without_pairs_is_refused(tmp_path, text, message):
    (tmp_path / "x.tsv").write_text(text)
    refuses(message, read_pairs, str(tmp_path / "x.tsv"))


def test_pairs_that_a_model_cannot_decide(pretrained):
    model = hub.from_pretrained(pretrained[1], data=pretrained[0])
    origins = ["x/blimp.tsv: line 5", "x/blimp.tsv: line 7"]
    groups = np.array(["", ""])
    for bad, size in [("\u200b", 0), ("kan " * 40, 40)]:
        pairs = Pairs("blimp", "", origins, ["kan", "lo"], ["lo", bad], groups)
        fault = f"x/blimp.tsv: line 7: .* has {size} tokens, expected 1 to 30; change it"
        refuses(fault, check_pairs_fit, model, pairs)
        refuses(fault, decide_pairs, model, pairs)
    model.score = lambda texts: [(np.nan, 1) for _ in texts]
    pairs = Pairs("blimp", "", ["line 5"], ["kan"], ["lo"], np.array([""]))
    refuses("blimp: the model's bits are NaN or infinite", decide_pairs, model, pairs)


def test_pairs_of_the_same_tokens_are_ties_in_bfloat16(pretrained):
    """Their scores differ, as those of a text do that is in a batch of another size."""
    model = hub.from_pretrained(pretrained[1], data=pretrained[0])
    good = ["kan", "lo", "kan lo", "mi kan lo"]
    pairs = Pairs("same", "", [""] * 4, good, ["KAN", "lo", " kan lo", "kan mi lo"], np.zeros(4))
    score = model.score
    rounding = 1 + 1e-3 * np.arange(8)
    model.score = lambda texts: [
        (bits * factor, size) for (bits, size), factor in zip(score(texts), rounding)
    ]
    with torch.autocast("cpu", torch.bfloat16):
        decisions = decide_pairs(model, pairs)
    assert decisions[:3].tolist() == [0.5] * 3
    assert decisions[3] != 0.5


def test_terms_have_shares_of_their_own_followed_by_their_paradigms():
    decisions = np.array([1.0, 0.0, 0.5, 1.0, 1.0])
    groups = np.array(["b/x", "b/x", "b c/x", "a/z", "b/w"])
    share, parts = percent_right(decisions, groups)
    assert share == pytest.approx(70)
    assert list(parts) == ["a", "a/z", "b", "b/w", "b/x", "b c", "b c/x"]
    assert parts["b"] == pytest.approx(200 / 3)  # a mean over pairs
    assert parts["b/x"] == 50
    _, parts = percent_right(decisions, np.array(["b/x", "b/x", "b c/x", "a/z", "plain"]))
    assert list(parts) == ["a/z", "b c/x", "b/x", "plain"]


def test_intervals_are_over_paradigms():
    """Where the pairs of a paradigm are all right or all wrong, only paradigms can vary."""
    right = np.arange(30) < 18
    decisions = np.repeat(right, 50).astype(float)
    names = np.repeat(np.arange(30), 50)
    low, high = bootstrap_interval(decisions, np.array([f"term/{name}" for name in names]))
    error = 100 * np.sqrt(0.6 * 0.4 / 30)
    assert low == pytest.approx(60 - 1.96 * error, abs=2)
    assert high == pytest.approx(60 + 1.96 * error, abs=2)
    plain = np.array([f"group {name}" for name in names])
    assert bootstrap_interval(decisions, plain) == pytest.approx((60, 60))


@pytest.mark.parametrize("form", ["group {}", "term/{}"])
def test_intervals_of_differences_cover_the_truth_with_few_seeds(form):
    """Seeds differ by 1.5 points, paradigms by 5: in 95 of 100 experiments, 0 is inside."""
    rng = np.random.default_rng(0)
    groups = np.repeat([form.format(number) for number in range(40)], 20)
    covered = 0
    for _ in range(200):
        of_seeds = rng.normal(0, 0.015, size=(2, 1))
        of_groups = np.repeat(rng.normal(0, 0.05 if "/" in form else 0, size=40), 20)
        gaps = of_seeds + of_groups + rng.normal(0, 0.1, size=(2, 800))
        low, high = pairs_interval(gaps, groups)
        covered += low <= 0 <= high
    assert 186 <= covered <= 200


def test_with_one_seed_the_interval_of_a_difference_is_over_paradigms():
    gaps = np.repeat(np.random.default_rng(0).normal(size=(1, 10)), 5, axis=1)
    groups = np.repeat([f"term/{number}" for number in range(10)], 5)
    assert pairs_interval(gaps, groups) == bootstrap_interval(gaps[0], groups)
    assert pairs_interval(np.zeros((2, 50)), groups) == (0, 0)


def test_paradigms_count_by_their_pairs_in_intervals():
    """Of two paradigms, the large one is wrong; one draw in four has the small one alone."""
    decisions = np.array([1.0] * 10 + [0.0] * 90)
    groups = np.array(["term/small"] * 10 + ["term/large"] * 90)
    assert bootstrap_interval(decisions, groups) == (0, 100)
    # Within a single paradigm, the interval is over pairs.
    low, high = bootstrap_interval(decisions, np.full(100, "term/only"))
    assert 0 < low < 10
    assert 10 < high < 20
