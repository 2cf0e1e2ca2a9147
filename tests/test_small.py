"""The small recipe beside a bag of words: variants are options that the recipe takes, tables are those of records."""

import pandas as pd
import pytest

import measure
import small
from conftest import refuses, script


@pytest.mark.parametrize("variant", small.VARIANTS)
def test_variants_are_options_of_the_recipe(data, tmp_path, variant):
    words = small.options(f"{variant}-7").split()
    dry = ["--data", data, "--save-dir", tmp_path, "--gpus", 0, "--dry-run"]
    printed = script("recipes/pretrain_small.sh", *dry, *words).stdout
    assert "--seed 7" in printed
    assert ("--cooccurrence-embeddings" in printed) == (not variant.endswith("_random"))


def test_names_are_of_variants():
    assert {small.split(name)[0] for name in small.encoders()} == {*small.VARIANTS} == {*small.TITLES}
    refuses("large-1: expected VARIANT-SEED with one of small,", small.split, "large-1")


@pytest.fixture
def page(tmp_path):
    """A page of two seeds of an encoder on a file, and of a bag of words beside each."""
    for seed in (1, 2):
        rows = [["small", seed, 500 * seed, "", measure.TEXT, "validation", "bits", 7.0 - seed]]
        for task in measure.NATURAL:
            for arm, value in [("small", 60 + 10 * seed), ("bag of words", 75), ("most frequent class", 20)]:
                rows.append([arm, seed, "", "", task, "dev.tsv", "accuracy", value])
                rows.append([arm, seed, "", "", task, "dev.tsv", "accuracy, standard error", 1.5])
        pd.DataFrame(rows, columns=measure.COLUMNS).to_csv(tmp_path / f"small-{seed}.csv", index=False)
    return small.Page(tmp_path)


def cells(table, name):
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_table_of_scores_has_means_over_seeds_and_a_bag_of_words(page):
    table = page.dev()
    assert cells(table, small.TITLES["small"]) == ["2", *["75.00"] * 7]
    assert cells(table, "bag of words")[1:] == ["75.00"] * 7
    assert cells(table, "most frequent class")[-1] == "20.00"


def test_the_table_of_losses_has_each_seed(page):
    assert cells(page.losses(), small.TITLES["small"]) == ["6.00", "5.00"]
