"""The small recipe beside a bag of words: its variants, and the tables that show records."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import measure
import small
import small_page
import small_variants
from conftest import ROOT, refuses, script
from maelm_fairseq.baselines import ensemble
from measurements import HELD_OUT_TEXT, Measurement
from small import (
    ENCODER_ALONE,
    IS_DEV_KEY,
    KNOWN,
    OVERLAPPING,
    TARGETS,
    WITH_BAG_OF_WORDS,
    WORD_VECTORS,
)
from small_variants import OPTIONS_OF_VARIANT, UNTRAINED, VARIANT_TITLES, variant_and_seed
from tables import cells

BAG, FREQUENT = "bag of words", "most frequent class"


@pytest.fixture
def dry_run(data, tmp_path):
    """A function: what the recipe prints of the options of an encoder."""
    (tmp_path / "data").symlink_to(data)

    def run(name):
        words = small_variants.options_of_recipe(name, tmp_path).split()
        dry = ["--save-dir", tmp_path / "run", "--gpus", 0, "--dry-run"]
        return script("recipes/pretrain_small.sh", *dry, *words).stdout

    return run


@pytest.mark.parametrize("variant", [*small_variants.VARIANTS, *small_variants.OBJECTIVES, "deep"])
def test_variants_are_options_of_the_recipe(dry_run, variant):
    printed = dry_run(f"{variant}-7")
    assert "--seed 7" in printed
    assert ("--cooccurrence-embeddings" in printed) == (not variant.endswith("_random"))


@pytest.mark.parametrize("variant, updates", [
    ("short", 3000),
    ("half_batch", 3000),
    ("double_batch", 3000),
    ("small_batch", 9000),
])  # fmt: skip
def test_other_batches_have_as_many_sequences_in_all(dry_run, variant, updates):
    """--batch-size alone keeps the effective batch."""
    printed = dry_run(f"{variant}-1")
    sequences = 1
    for option in ["batch-size", "update-freq", "max-update"]:
        sequences *= int(re.findall(rf"--{option} (\d+)", printed)[-1])
    assert sequences == 64 * updates


def test_names_are_of_variants():
    variants = {variant_and_seed(name)[0] for name in small_variants.encoder_names()}
    assert variants == {*OPTIONS_OF_VARIANT}
    assert {*VARIANT_TITLES} == {
        *OPTIONS_OF_VARIANT,
        UNTRAINED,
    }
    refuses(
        "large-1: expected VARIANT-SEED with one of small,",
        variant_and_seed,
        "large-1",
    )


# The page -----------------------------------------------------------------------------------------

EXAMPLES = np.arange(10)
CLASSES = EXAMPLES % 2  # of the examples


@pytest.fixture
def page(tmp_path):
    """Ten examples of each task, five of them of dev, and four minimal pairs.

    Two seeds of an encoder are right for 6 and for 8 of the examples.
    """
    small.save_arrays(tmp_path / "baselines.npz", baselines())
    for seed, right in [(1, 6), (2, 8)]:
        arrays = answers(right)
        arrays["pairs"] = np.array([2, 2, 2, 0], np.int8)
        small.save_arrays(tmp_path / f"small-{seed}.npz", arrays)
        table = pd.DataFrame(records(seed), columns=Measurement._fields)
        table.to_csv(tmp_path / f"small-{seed}.csv", index=False)
    return small_page.Page(tmp_path)


def baselines():
    arrays = {
        "pairs/groups": np.array(["A/a", "A/a", "A/b", "B/c"]),
        f"pairs/{KNOWN}": np.array([True, True, False, False]),
    }
    for model in small.NGRAM_MODELS:
        arrays[f"pairs/{model}"] = np.array([0, 2, 1, 0], np.int8)
    for task in measure.NATURAL_TASKS:
        arrays[f"{task}/{TARGETS}"] = CLASSES
        arrays[f"{task}/{IS_DEV_KEY}"] = EXAMPLES < 5
        arrays[f"{task}/{BAG}"] = CLASSES
        arrays[f"{task}/{WORD_VECTORS}"] = 1 - CLASSES
        arrays[f"{task}/{FREQUENT}"] = np.zeros(10, int)
        arrays[f"{task}/{OVERLAPPING}"] = EXAMPLES == 3
    return arrays


def answers(right):
    """Answers of an encoder: `right` of them are right alone, and all with a bag of words."""
    answered = np.where(EXAMPLES < right, CLASSES, 1 - CLASSES)
    arrays = {}
    for task in measure.NATURAL_TASKS:
        arrays[f"{task}/{ENCODER_ALONE}"] = answered
        arrays[f"{task}/{WITH_BAG_OF_WORDS}"] = CLASSES
    return arrays


def records(seed):
    """Rows of a table with losses and with scores from few examples."""
    text = HELD_OUT_TEXT
    rows = [["small", seed, 500 * seed, "", text, "validation", "bits", 7.0 - seed]]
    for task in small.FEW_SHOT_TASKS:
        scores = {
            "32 examples per class": 40,
            "32 labels a class, fine-tuned": 60 + 10 * seed,
            f"32 labels a class, {BAG}": 50,
            f"32 labels a class, {ensemble.ENSEMBLE}": 80,
        }
        for feature, score in scores.items():
            rows.append(["small", seed, "", "", task, feature, "accuracy", score])
    return rows


def test_scores_are_means_over_seeds_on_both_files_or_one(page):
    title = VARIANT_TITLES["small"]
    assert cells(page.tasks(), title) == ["2", *["70.00"] * 7]
    assert cells(page.dev(), title)[1:] == ["100.00"] * 7
    assert cells(page.test(), title)[1:] == ["40.00"] * 7
    assert cells(page.tasks(), f"{title}, together with a bag of words")[1:] == ["100.00"] * 7
    assert cells(page.tasks(), BAG) == ["", *["100.00"] * 7]
    assert cells(page.tasks(), FREQUENT)[-1] == "50.00"


def test_differences_are_paired_by_examples(page):
    title = VARIANT_TITLES["small"]
    *_, mean, low, high = map(float, cells(page.differences(), title))
    assert mean == -30
    over_seeds = stats.t.ppf(0.975, 1) * 10  # one seed is 20 points behind, the other 40
    assert over_seeds < high - mean < over_seeds + 2
    assert mean - low == pytest.approx(high - mean, abs=0.01)
    together = cells(page.differences(), f"{title}, together with a bag of words")
    assert set(together) == {"0.00"}


def test_seeds_that_chose_nothing_have_a_row_of_their_own(page):
    title = f"{VARIANT_TITLES['small']}, seeds that chose nothing"
    assert cells(page.differences(), title)[-3] == "-20.00"


def test_objectives_are_shown_when_all_have_been_measured(page, tmp_path):
    assert page.objectives_on_pairs() == page.objectives_on_tasks()
    assert "until all seeds are: mae_lm-1, mae_lm-2," in page.objectives_on_pairs()
    rights = {"mae_lm": 2, "all_masks": 4, "mlm": 5, "half": 9}
    for seed in small_variants.SEEDS:
        for variant, right in rights.items():
            arrays = answers(right)
            third_pair = 0 if variant == "mae_lm" else 2
            arrays["pairs"] = np.array([2, 2, third_pair, seed - 1], np.int8)
            small.save_arrays(tmp_path / f"{variant}-{seed}.npz", arrays)
    arrays = {**answers(0), "pairs": np.zeros(4, np.int8)}
    small.save_arrays(tmp_path / "half-4.npz", arrays)  # a seed that the others do not have
    page = small_page.Page(tmp_path)
    row = f"{VARIANT_TITLES['half']}, minus: {VARIANT_TITLES['mlm']}"
    assert cells(page.objectives_on_pairs(), row)[:4] == ["0.00"] * 4
    assert cells(page.objectives_on_tasks(), row)[0] == "3"
    row = f"{VARIANT_TITLES['mae_lm']}, minus: {VARIANT_TITLES['all_masks']}"
    *by_seed, mean, low, high = map(float, cells(page.objectives_on_pairs(), row))
    assert by_seed == [-25] * 3
    assert mean == -25
    # Seeds agree; of the paradigms, only that of one of the four pairs differs.
    assert -80 < low < -70
    assert 20 < high < 30
    seeds, *by_task, mean, low, high = map(float, cells(page.objectives_on_tasks(), row))
    assert seeds == 3
    assert by_task == [-20] * 6
    assert mean == -20
    assert low < -20 < high


def test_what_was_measured_of_some_seeds_only(page, tmp_path):
    """No objective is shown before its last seed; the last seeds need not be fine-tuned."""
    pairs = {"pairs": np.array([2, 2, 2, 0], np.int8)}
    for name in ["mae_lm-1", "mae_lm-2", "all_masks-1", "all_masks-2", "all_masks-3", "mlm-1"]:
        arrays = {**answers(5), **pairs}
        small.save_arrays(tmp_path / f"{name}.npz", arrays)
    page = small_page.Page(tmp_path)
    mae_lm, all_masks, mlm = map(VARIANT_TITLES.get, ["mae_lm", "all_masks", "mlm"])
    assert mae_lm not in page.tasks() + page.pairs()
    assert cells(page.tasks(), all_masks)[0] == "3"
    assert page.objectives_on_pairs().endswith(
        " are: mae_lm-3, mlm-2, mlm-3, half-1, half-2, half-3."
    )
    small.save_arrays(tmp_path / "mae_lm-3.npz", pairs)
    page = small_page.Page(tmp_path)
    row = f"{mae_lm}, minus: {all_masks}"
    assert cells(page.objectives_on_pairs(), row)[:3] == ["0.00"] * 3
    assert cells(page.objectives_on_tasks(), row)[:7] == ["2", *["0.00"] * 6]
    assert mlm not in page.tasks() + page.pairs() + page.objectives_on_pairs()


def test_minimal_pairs_have_all_and_those_of_known_words(page):
    seeds, share, _, _, known = cells(page.pairs(), VARIANT_TITLES["small"])
    assert (seeds, share, known) == ("2", "75.00", "100.00")
    assert cells(page.pairs(), "unigrams")[1] == "37.50"
    assert cells(page.pairs_by_term(), "A")[0] == "100.00"
    assert cells(page.pairs_by_term(), "B")[0] == "0.00"


def test_other_settings_stand_beside_the_run_that_they_change(page, tmp_path):
    for variant, bits, right in [("short", 5.5, 6), ("deep", 5.0, 7)]:
        pairs = {"pairs": np.array([2, 1, 0, 0], np.int8)}
        small.save_arrays(tmp_path / f"{variant}-1.npz", {**answers(right), **pairs})
        rows = [
            [variant, 1, updates, "", HELD_OUT_TEXT, "validation", "bits", loss]
            for updates, loss in [(500, 7.0), (1000, bits)]
        ]
        table = pd.DataFrame(rows, columns=Measurement._fields)
        table.to_csv(tmp_path / f"{variant}-1.csv", index=False)
    only_losses = pd.DataFrame(rows, columns=Measurement._fields).assign(arm="rate", value=6.5)
    only_losses.to_csv(tmp_path / "rate-1.csv", index=False)
    page = small_page.Page(tmp_path)
    table = page.other_settings()
    assert cells(table, VARIANT_TITLES["rate"]) == ["6.50", "", "", "", "", ""]
    assert cells(table, VARIANT_TITLES["short"]) == ["5.50", "37.50", "60.00", "", "", ""]
    assert cells(table, VARIANT_TITLES["deep"])[:4] == ["5.00", "37.50", "70.00", "10.00"]
    assert VARIANT_TITLES["deep"] not in page.tasks() + page.pairs() + page.losses()


def test_the_overlap_with_the_pretraining_text_is_counted(page):
    assert cells(page.overlap(), "examples") == ["10"] * 6
    assert cells(page.overlap(), "with 8 words of the text") == ["1"] * 6


def test_losses_and_few_examples_are_those_of_the_records(page):
    title = VARIANT_TITLES["small"]
    assert cells(page.losses(), title) == ["6.00", "5.00"]
    assert cells(page.few(), title) == ["75.00"] * 2
    assert cells(page.few(), BAG) == ["50.00"] * 2
    assert cells(page.few(), f"{title}, together with a bag of words") == ["80.00"] * 2
    assert cells(page.few(), f"{title}, a linear probe of its frozen features") == ["40.00"] * 2


@pytest.mark.parametrize("path, beginning", [
    ("README.md", "| a laptop |"),
    ("experiments/RESULTS.md", "- **On tasks like those of this page**"),
    ("experiments/SMALL.md", "Is an encoder that a laptop pretrains in an hour worth it?"),
])  # fmt: skip
def test_prose_has_the_numbers_of_the_tables(path, beginning):
    """Where a page says by how much the encoder is ahead of a bag of words."""
    text = (ROOT / "experiments" / "SMALL.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- differences -->\n(.*?)<!-- end -->", text, flags=re.S)
    title = VARIANT_TITLES["small"]
    mean, low, high = map(float, cells(table, title)[-3:])
    together = float(cells(table, title + small_page.WITH_BAG)[-3])
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    (claim,) = [line for line in lines if line.startswith(beginning)]
    assert f"{mean:.1f} points higher than" in claim
    assert (f"{low:.1f} to {high:.1f}" in claim) == (path != "README.md")
    assert re.search(rf"(together|combined with it) {together:.1f}\b", claim)


def comparison(measure, *variants):
    """The mean difference of two variants on "pairs" or "tasks", and its interval, of the page."""
    text = (ROOT / "experiments" / "SMALL.md").read_text(encoding="utf-8")
    block = rf"<!-- objectives_on_{measure} -->\n(.*?)<!-- end -->"
    (table,) = re.findall(block, text, flags=re.S)
    titles = [VARIANT_TITLES[variant] for variant in variants]
    return map(float, cells(table, ", minus: ".join(titles))[-3:])


@pytest.mark.parametrize("path", ["README.md", "experiments/RESULTS.md", "experiments/SMALL.md"])
def test_prose_has_the_planned_comparison(path):
    """With its intervals, which README leaves to the pages of results."""
    mean, low, high = comparison("pairs", "mae_lm", "all_masks")
    assert abs(mean) < 0.1
    claims = [
        line
        for line in (ROOT / path).read_text(encoding="utf-8").splitlines()
        if "less than 0.1 points" in line
    ]
    assert len(claims) == 1
    has_intervals = path != "README.md"
    assert (f"({low:+.1f} to {high:+.1f}" in claims[0]) == has_intervals
    mean, low, high = comparison("tasks", "mae_lm", "all_masks")
    assert f"{-mean:.1f} point lower" in claims[0]
    assert (f"({low:+.1f} to {high:+.1f})" in claims[0]) == has_intervals


@pytest.mark.parametrize("path, beginning", [
    ("experiments/RESULTS.md", "- **What came of it**"),
    ("experiments/SMALL.md", "**Beside an MLM with 80/10/10**"),
])  # fmt: skip
def test_prose_has_the_comparisons_with_the_mlm(path, beginning):
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    (claim,) = [line for line in lines if line.startswith(beginning)]
    for variant in ["mae_lm", "half"]:
        mean, low, high = comparison("pairs", variant, "mlm")
        assert f"{abs(mean):.1f} points" in claim or f"{mean:+.1f} " in claim
        assert f"({low:+.1f} to {high:+.1f}" in claim


def test_prose_says_what_the_second_half_of_the_updates_adds():
    lines = (ROOT / "experiments" / "SMALL.md").read_text(encoding="utf-8").splitlines()
    (claim,) = [line for line in lines if line.startswith("**Half the pretraining**")]
    for measured in ["tasks", "pairs"]:
        mean, low, high = comparison(measured, "small", "half")
        assert f"{mean:.1f} points" in claim
        assert f"({low:.1f} to {high:.1f}" in claim


def test_prose_says_what_pretraining_adds():
    """In the mean of the tasks, and from which side of the bag of words."""
    text = (ROOT / "experiments" / "SMALL.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- tasks -->\n(.*?)<!-- end -->", text, flags=re.S)
    titles = [VARIANT_TITLES[variant] for variant in ["small", "untrained"]]
    pretrained, untrained = (float(cells(table, title)[-1]) for title in titles)
    behind = float(cells(table, BAG)[-1]) - untrained
    assert f"**Pretraining adds {pretrained - untrained:.1f} points**" in text
    assert f"scores {behind:.1f} points lower than the bag of words" in text


def test_own_text_has_the_scores_on_trec():
    text = (ROOT / "experiments" / "SMALL.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- tasks -->\n(.*?)<!-- end -->", text, flags=re.S)
    title = VARIANT_TITLES["small"]
    rows = [cells(table, row)[1] for row in [title, title + small_page.WITH_BAG, BAG]]
    encoder, together, bag = (f"{float(score):.1f}%" for score in rows)
    page = (ROOT / "docs" / "own_text.md").read_text(encoding="utf-8")
    assert f"scored {encoder} on dev and test together, and {together} with the help" in page
    assert f"the bag of words ({bag})" in page
