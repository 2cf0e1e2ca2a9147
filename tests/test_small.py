"""The small recipe beside a bag of words: variants are options that the recipe takes, tables are those of records."""

import numpy as np
import pandas as pd
import pytest

import measure
import small
import small_page
from conftest import refuses, script
from maelm_fairseq.evaluation import votes
from small import ENCODER, KNOWN, OF_DEV, OVERLAPPING, TARGETS, TOGETHER, WORD_VECTORS

BAG, FREQUENT = "bag of words", "most frequent class"


@pytest.mark.parametrize("variant", [*small.VARIANTS, *small.OBJECTIVES, "deep"])
def test_variants_are_options_of_the_recipe(data, tmp_path, variant):
    words = small.options(f"{variant}-7").split()
    dry = ["--data", data, "--save-dir", tmp_path, "--gpus", 0, "--dry-run"]
    printed = script("recipes/pretrain_small.sh", *dry, *words).stdout
    assert "--seed 7" in printed
    assert ("--cooccurrence-embeddings" in printed) == (not variant.endswith("_random"))


def test_names_are_of_variants():
    assert {small.split(name)[0] for name in small.encoders()} == {*small.OPTIONS}
    assert {*small.TITLES} == {*small.OPTIONS, small.UNTRAINED}
    refuses("large-1: expected VARIANT-SEED with one of small,", small.split, "large-1")


# The page ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path):
    """Ten examples of each task, five of them of dev. Two seeds of an encoder are right for 6 and for 8 of them."""
    yardsticks = {"pairs/groups": np.array(["A/a", "A/a", "A/b", "B/c"]), f"pairs/{KNOWN}": np.array([1, 1, 0, 0]) == 1}
    yardsticks.update({f"pairs/{model}": np.array([0, 2, 1, 0], np.int8) for model in small.MODELS})
    targets = np.arange(10) % 2
    for task in measure.NATURAL:
        found = {TARGETS: targets, OF_DEV: np.arange(10) < 5, BAG: targets, WORD_VECTORS: 1 - targets}
        found.update({FREQUENT: np.zeros(10, int), OVERLAPPING: np.arange(10) == 3})
        yardsticks.update({f"{task}/{name}": values for name, values in found.items()})
    small.save(tmp_path / "yardsticks.npz", yardsticks)
    for seed, right in [(1, 6), (2, 8)]:
        answered = np.where(np.arange(10) < right, targets, 1 - targets)
        arrays = {f"{task}/{ENCODER}": answered for task in measure.NATURAL}
        arrays.update(
            {f"{task}/{TOGETHER}": targets for task in measure.NATURAL}, pairs=np.array([2, 2, 2, 0], np.int8)
        )
        small.save(tmp_path / f"small-{seed}.npz", arrays)
        rows = [["small", seed, 500 * seed, "", measure.TEXT, "validation", "bits", 7.0 - seed]]
        for task in small.FEW_SHOT_TASKS:
            rows.append(["small", seed, "", "", task, "32 examples per class", "accuracy", 40])
            for predictor, value in [("fine-tuned", 60 + 10 * seed), (BAG, 50), (votes.TOGETHER, 80)]:
                rows.append(["small", seed, "", "", task, f"32 labels a class, {predictor}", "accuracy", value])
        pd.DataFrame(rows, columns=measure.COLUMNS).to_csv(tmp_path / f"small-{seed}.csv", index=False)
    return small_page.Page(tmp_path)


def cells(table, name):
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_scores_are_means_over_seeds_on_both_files_or_one(page):
    title = small.TITLES["small"]
    assert cells(page.tasks(), title) == ["2", *["70.00"] * 7]
    assert cells(page.dev(), title)[1:] == ["100.00"] * 7
    assert cells(page.test(), title)[1:] == ["40.00"] * 7
    assert cells(page.tasks(), f"{title}, together with a bag of words")[1:] == ["100.00"] * 7
    assert cells(page.tasks(), BAG) == ["", *["100.00"] * 7]
    assert cells(page.tasks(), FREQUENT)[-1] == "50.00"


def test_differences_are_paired_by_examples(page):
    *_, mean, low, high = map(float, cells(page.differences(), small.TITLES["small"]))
    assert mean == -30
    assert low < -30 < high < 0
    assert set(cells(page.differences(), f"{small.TITLES['small']}, together with a bag of words")) == {"0.00"}


def test_seeds_that_chose_nothing_have_a_row_of_their_own(page):
    title = f"{small.TITLES['small']}, seeds that chose nothing"
    assert cells(page.differences(), title)[-3] == "-20.00"


def test_objectives_are_shown_when_all_have_been_measured(page, tmp_path):
    assert page.objectives_on_pairs() == page.objectives_on_tasks()
    assert "missing: mae_lm-1, mae_lm-2," in page.objectives_on_pairs()
    targets = np.arange(10) % 2
    rights = {"mae_lm": 2, "all_masks": 4, "mlm": 5, "small": 9}
    for seed in small.SEEDS:
        for variant, right in rights.items():
            answered = np.where(np.arange(10) < right, targets, 1 - targets)
            arrays = {f"{task}/{ENCODER}": answered for task in measure.NATURAL}
            arrays.update({f"{task}/{TOGETHER}": targets for task in measure.NATURAL})
            arrays["pairs"] = np.array([2, 2, 0 if variant == "mae_lm" else 2, seed - 1], np.int8)
            small.save(tmp_path / f"{variant}-{seed}.npz", arrays)
    page = small_page.Page(tmp_path)
    pair = f"{small.TITLES['mae_lm']}, minus: {small.TITLES['all_masks']}"
    *each, mean, low, high = map(float, cells(page.objectives_on_pairs(), pair))
    assert each == [-33.33] * 3
    assert mean == -33.33
    assert (low, high) == (-100, 0)
    *points, mean, low, high = map(float, cells(page.objectives_on_tasks(), pair))
    assert points == [-20] * 6
    assert mean == -20
    assert low < -20 < high


def test_minimal_pairs_have_all_and_those_of_known_words(page):
    seeds, share, _, _, known = cells(page.pairs(), small.TITLES["small"])
    assert (seeds, share, known) == ("2", "75.00", "100.00")
    assert cells(page.pairs(), "unigrams")[1] == "37.50"
    assert cells(page.pairs_by_term(), "A")[0] == "100.00"
    assert cells(page.pairs_by_term(), "B")[0] == "0.00"


def test_the_overlap_with_the_pretraining_text_is_counted(page):
    assert cells(page.overlap(), "examples") == ["10"] * 6
    assert cells(page.overlap(), "with 8 words of the text") == ["1"] * 6


def test_losses_and_few_examples_are_those_of_the_records(page):
    assert cells(page.losses(), small.TITLES["small"]) == ["6.00", "5.00"]
    title = small.TITLES["small"]
    assert cells(page.few(), title) == ["75.00"] * 2
    assert cells(page.few(), BAG) == ["50.00"] * 2
    assert cells(page.few(), f"{title}, together with a bag of words") == ["80.00"] * 2
    assert cells(page.few(), f"{title}, a linear probe of its frozen features") == ["40.00"] * 2
