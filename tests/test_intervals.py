"""Intervals of the evaluation, on simulated scores with known effects."""

import sys

import numpy as np
import pytest
from scipy import stats

from conftest import ROOT

sys.path.insert(0, str(ROOT / "recipes"))
from evaluation.intervals import (  # noqa: E402
    Interval,
    Paired,
    crossed_interval,
    pearson_contributions,
    seed_interval,
)

EFFECT = 0.5
EXAMPLES = [200, 300]  # of two tasks
EXAMPLE_VARIANCE = 1000.0
SIMULATIONS = 600
RATIOS = [0, 0.3, 1, 10]  # the variance of a mean that comes from seeds, to that from examples


def of_mean(variance):
    """The variance of the mean over tasks of the mean over examples, of independent values of this variance."""
    return np.mean([variance / count for count in EXAMPLES]) / len(EXAMPLES)


def simulate(random, seeds, ratio, effect=EFFECT, interaction=400.0):
    """Differences of two arms on two tasks, with variance between seeds, between examples, and of both."""
    by_seed = random.normal(0, np.sqrt(ratio * of_mean(EXAMPLE_VARIANCE) * seeds), seeds)
    tasks, first = [], 0
    for count in EXAMPLES:
        noise = random.normal(0, np.sqrt(interaction), (seeds, count))
        by_example = random.normal(0, np.sqrt(EXAMPLE_VARIANCE), count)
        tasks.append(Paired(effect + by_seed[:, None] + by_example + noise, np.arange(first, first + count)))
        first += count
    return tasks


def test_the_interval_over_seeds_is_students():
    values = np.random.default_rng(1).normal(2, 3, 4)
    interval = seed_interval(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.estimate == pytest.approx(values.mean()) and interval.error == pytest.approx(stats.sem(values))
    assert seed_interval(values[:1]) == Interval(*values[[0, 0, 0]], 0)


def binomial_error(share):
    return np.sqrt(share * (1 - share) / SIMULATIONS)


@pytest.mark.parametrize("seeds", [2, 4])
def test_the_primary_interval_covers_the_effect(seeds):
    random = np.random.default_rng(seeds)
    for ratio in RATIOS:
        intervals = [crossed_interval(simulate(random, seeds, ratio)) for _ in range(SIMULATIONS)]
        coverage = np.mean([interval.low <= EFFECT <= interval.high for interval in intervals])
        assert coverage >= 0.95 - 3 * binomial_error(0.95), ratio
        if seeds == 4:  # from two seeds the spread is unknown, and the interval very wide
            assert coverage <= 0.98 + 3 * binomial_error(0.98), ratio


def test_from_a_single_seed_only_examples_vary_and_the_same_text_in_several_tasks_counts_once():
    random = np.random.default_rng(5)
    differences = random.normal(0, 30, (1, 400))
    once = crossed_interval([Paired(differences, np.arange(400))])
    same = crossed_interval([Paired(differences, np.arange(400))] * 2)
    other = crossed_interval([Paired(differences, np.arange(400)), Paired(differences, np.arange(400, 800))])
    assert same == once
    assert once.error == pytest.approx(np.std(differences) / np.sqrt(400))
    assert (once.low, once.high) == pytest.approx(stats.norm.interval(0.95, differences.mean(), once.error))
    assert other.error == pytest.approx(once.error / np.sqrt(2))


def test_contributions_to_a_correlation():
    """Their mean is the correlation; their variance is that of the jackknife."""
    random = np.random.default_rng(6)
    targets = random.normal(size=300)
    predictions = np.stack([targets + random.normal(size=300) * noise for noise in [0.5, 2]])
    for row, each in zip(predictions, pearson_contributions(predictions, targets)):
        assert each.mean() == pytest.approx(100 * np.corrcoef(row, targets)[0, 1])
        left_out = [100 * np.corrcoef(np.delete(row, i), np.delete(targets, i))[0, 1] for i in range(300)]
        jackknife = np.sqrt(299 / 300 * np.sum((left_out - np.mean(left_out)) ** 2))
        assert np.std(each) / np.sqrt(300) == pytest.approx(jackknife, rel=0.03)
    np.testing.assert_allclose(pearson_contributions(np.ones(300), targets), 0, atol=1e-6)
