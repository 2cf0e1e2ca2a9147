"""Intervals for a difference of scores over pretraining seeds and test examples.

Two arms, pretrained with the same S seeds, are compared on the same examples of T tasks. Each example of a task
contributes to the score of a seed: 100 if it is right, else 0; for correlations see :func:`contributions`. The
estimate is the difference of the arms' contributions, averaged over examples, tasks and seeds.

Seeds and examples are samples, crossed with each other: every seed answers every example. The estimate's variance has
three parts: seeds / S, examples, and their interaction / S.

:func:`crossed_interval` estimates these parts. Student's t with S - 1 degrees of freedom applies to what varies between
seeds, the normal distribution to the examples, and the squares of the two half-widths are added (the modified
large-sample method of Graybill and Wang, 1980). It covers 95% or slightly more from two seeds on, whichever part is
largest. From a single seed, only examples vary, and the interval is for these very models.

Letters in shapes: S seeds, N examples of a task.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


def contributions(answers, targets, is_class):
    """What each of N examples contributes to the accuracy in percent, or else to 100 x Pearson's correlation: (N,).

    The score is their mean. To a correlation they contribute its value plus its influence function, so that their
    variance is that of the correlation times N.

    Args:
        answers, targets: classes if `is_class`, else values, (N,)
    """
    if is_class:
        return 100.0 * (answers == targets)
    x = answers.astype(np.float64) - answers.mean(dtype=np.float64)
    x, y = x / max(x.std(), 1e-12), (targets - targets.mean()) / targets.std()
    r = (x * y).mean()
    return 100 * (x * y - r * (x**2 + y**2) / 2 + r)


@dataclass
class Paired:
    """Differences between two arms on one task."""

    differences: np.ndarray  # (S, N), the contributions of one arm minus those of the other
    ids: np.ndarray  # (N,) integers; examples with the same id, of any task, are one sample


@dataclass
class Interval:
    """An estimate with its confidence interval, in points."""

    estimate: float
    low: float
    high: float
    error: float


def influences(tasks):
    """What each example adds to the estimates of the seeds, as a deviation: (S, different examples)."""
    ids, places = np.unique(np.concatenate([task.ids for task in tasks]), return_inverse=True)
    parts = [
        (task.differences - task.differences.mean(1, keepdims=True)) / (len(tasks) * task.differences.shape[1])
        for task in tasks
    ]
    sums = np.zeros((len(parts[0]), len(ids)))
    for seed, row in enumerate(np.concatenate(parts, 1)):
        np.add.at(sums[seed], places.reshape(-1), row)
    return sums


def crossed_interval(tasks, level=LEVEL):
    """The interval for the mean difference over seeds and examples of `tasks`, :class:`Paired` with the same seeds.

    The parts of the variance are estimated, and not below 0; from a single seed, that of the examples only.
    """
    means, influence = np.mean([task.differences.mean(1) for task in tasks], 0), influences(tasks)
    seeds, between, examples = len(means), 0.0, (influence.mean(0) ** 2).sum()
    if seeds > 1:
        interaction = np.var(influence, axis=0, ddof=1).sum()
        between = max(np.var(means, ddof=1), interaction) / seeds  # of seeds, and of their interaction with examples
        examples = max(0.0, examples - interaction / seeds)
    probability = (1 + level) / 2
    t, z = stats.t.ppf(probability, max(1, seeds - 1)), stats.norm.ppf(probability)
    estimate, width = float(means.mean()), float(np.sqrt(t**2 * between + z**2 * examples))
    return Interval(estimate, estimate - width, estimate + width, float(np.sqrt(between + examples)))


def seed_interval(values, level=LEVEL):
    """The interval of a mean over seeds, for S numbers without examples, such as ranks: Student's t, or no width."""
    return crossed_interval([Paired(np.reshape(values, (-1, 1)), np.zeros(1, np.int64))], level)
