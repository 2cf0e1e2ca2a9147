"""Sections of the page on planned tests: differences of arms, paired by seed."""

import functools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from maelm_fairseq.evaluation.report import frame_to_markdown
from measure import NATURAL_TASKS, WORD_ORDER_TASKS
from page_arms import ARM_TITLES
from results import PRIMARY_SCORE

EQUIVALENCE_MARGIN = 1.0  # points within which two arms are equivalent
EQUIVALENT = f"equivalent within {EQUIVALENCE_MARGIN:g} point (90% interval)"
MIN_SEEDS = 4  # seeds that a test needs; fewer are described
# {what is tested: (tasks, (feature, layer), pairs of arms)}. The first test is the primary one, the
# others are corrected (Holm).
PLANNED_TESTS = {
    "fine-tuned": (NATURAL_TASKS, PRIMARY_SCORE, [("A", "B"), ("A", "D"), ("A2", "D"), ("E", "D")]),
    "last layer": (NATURAL_TASKS, ("mean", "last"), [("A", "B"), ("A", "D"), ("E", "D")]),
    "last but one": (NATURAL_TASKS, ("mean", "11"), [("A", "B"), ("A", "D"), ("E", "D")]),
    "word order": (WORD_ORDER_TASKS, ("mean", "chosen"), [("A", "B"), ("E", "D")]),
}
# Equivalence is tested for these pairs, and for these instruments, which tell trained layers from
# new ones.
EQUIVALENCE = [("A", "B"), ("E", "D")]
SENSITIVE_INSTRUMENTS = ["fine-tuned", "word order"]
TREC = ["trec", "trec_fine"]  # two tasks with the same questions
TASKS_WITHOUT = {
    "trec_fine": [task for task in NATURAL_TASKS if task != "trec_fine"],
    "rotten_tomatoes": [task for task in NATURAL_TASKS if task != "rotten_tomatoes"],
    "trec and trec_fine": [task for task in NATURAL_TASKS if task not in TREC],
}
WITHOUT_TREC = "fine-tuned, without trec and trec_fine"
UNPLANNED_COMPARISONS = {  # not planned, and not tested
    "fine-tuned": (
        NATURAL_TASKS,
        PRIMARY_SCORE,
        [("B", "D"), ("A", "D2"), ("D2", "D"), ("A2", "A")],
    ),
    "fine-tuned, without trec_fine": (
        TASKS_WITHOUT["trec_fine"],
        PRIMARY_SCORE,
        [("A", "B"), ("A", "D"), ("A2", "D")],
    ),
    WITHOUT_TREC: (
        TASKS_WITHOUT["trec and trec_fine"],
        PRIMARY_SCORE,
        [("A", "B"), ("A", "D"), ("A2", "D"), ("E", "D"), ("A", "D2")],
    ),
    "fine-tuned, without rotten_tomatoes": (
        TASKS_WITHOUT["rotten_tomatoes"],
        PRIMARY_SCORE,
        [("A", "D2"), ("D2", "D")],
    ),
    "last layer": (NATURAL_TASKS, ("mean", "last"), [("A2", "A")]),
    "`<s>`, last layer": (NATURAL_TASKS, ("first", "last"), [("A2", "A")]),
    "word order": (WORD_ORDER_TASKS, ("mean", "chosen"), [("A", "D")]),
}


def tests(results):
    """The planned tests, and the intervals of those with enough seeds drawn."""
    all_tests = compute_tests(results)
    drawn = all_tests[all_tests.p != ""]
    is_order = drawn.on == "word order"
    results.pictures["differences"] = draw_differences(drawn[~is_order], drawn[is_order])
    picture = "![Differences of arms with 95% intervals](pictures/differences.png)"
    return f"{picture}\n\n{frame_to_markdown(all_tests.set_index('on'))}"


def without_trec(results):
    """Differences of fine-tuned scores with and without the questions that two tasks share."""
    tasks_by_title = {"all six tasks": NATURAL_TASKS}
    for left_out in ["trec_fine", "trec and trec_fine"]:
        tasks_by_title[f"without {left_out}"] = TASKS_WITHOUT[left_out]
    _, _, pairs = PLANNED_TESTS["fine-tuned"]
    columns = {}
    for title, tasks in tasks_by_title.items():
        rows = paired_differences(results, [*pairs, ("A", "D2")], tasks, *PRIMARY_SCORE)
        columns[title] = [points_with_interval(row) for _, row in rows.iterrows()]
    return frame_to_markdown(pd.DataFrame(columns, index=rows.index))


@functools.cache
def compute_tests(results):
    """All planned tests, the first of which is primary, and what is only described.

    A DataFrame.
    """
    # Imported here, because it changes the filters of warnings.
    from statsmodels.stats.multitest import multipletests

    planned = differences_of(results, PLANNED_TESTS)
    others = planned.p.iloc[1:].fillna(1)  # the correction also counts tests that are not run
    corrected = [planned.p.iloc[0], *multipletests(others, method="holm")[1]]
    planned.insert(5, "p, Holm", planned.p.where(planned.p.isna(), corrected))
    described = differences_of(results, UNPLANNED_COMPARISONS).assign(p=np.nan)
    frame = pd.concat([planned, described]).reset_index()
    frame[EQUIVALENT] = frame[EQUIVALENT].where(frame.on.isin(SENSITIVE_INSTRUMENTS), "")
    p = frame["p, Holm"]
    conditions = [frame.seeds == 0, p.isna(), p >= 0.05, frame.points > 0]
    words = ["not run", "described", "not shown", "shown"]
    frame["result"] = np.select(conditions, words, "reversed")
    for name in ["p", "p, Holm"]:
        frame[name] = frame[name].map("{:.2g}".format).replace("nan", "")
    frame.loc[0, "p, Holm"] = ""  # the primary test is not corrected
    return frame


def differences_of(results, groups):
    """The differences in groups of comparisons: a DataFrame, whose column `on` has the key.

    `groups` are PLANNED_TESTS or UNPLANNED_COMPARISONS.
    """
    frames = []
    for on, (tasks, (feature, layer), pairs) in groups.items():
        frames.append(paired_differences(results, pairs, tasks, feature, layer).assign(on=on))
    return pd.concat(frames)


def paired_differences(results, pairs, tasks, feature, layer):
    """Differences of arms, paired by seed: a table with intervals and p."""
    rows = []
    for first, second in pairs:
        first_values = results.values(first, tasks, feature, layer)
        second_values = results.values(second, tasks, feature, layer)
        seeds = first_values.index.intersection(second_values.index)
        low = high = p = np.nan
        equivalent = ""
        if len(seeds) > 1:
            result = stats.ttest_rel(first_values[seeds], second_values[seeds])
            low, high = result.confidence_interval(0.95)
        if len(seeds) >= MIN_SEEDS:
            p = result.pvalue
            if (first, second) in EQUIVALENCE:
                equivalent = equivalence(*result.confidence_interval(0.9))
        difference = f"{ARM_TITLES[first]} minus {ARM_TITLES[second]}"
        points = (first_values - second_values).mean()
        rows.append([difference, len(seeds), points, low, high, p, equivalent])
    names = ["difference", "seeds", "points", "from", "to", "p", EQUIVALENT]
    return pd.DataFrame(rows, columns=names).set_index("difference")


def equivalence(low, high):
    """What a 90% interval says of equivalence, as two one-sided tests at 5% do."""
    is_within = -EQUIVALENCE_MARGIN < low and high < EQUIVALENCE_MARGIN
    result = "equivalent" if is_within else "not shown"
    return f"{result} ({low:.2f} to {high:.2f})"


def points_with_interval(row):
    """A difference of `paired_differences` with its interval, as text."""
    return f"{row.points:+.2f} ({row['from']:+.2f} to {row.to:+.2f})"


def draw_differences(natural, order):
    """A figure of differences with 95% intervals; those on word order have an axis of their own."""
    heights = [max(1, len(natural)), max(1, len(order))]
    size = 9, 2 + 0.32 * sum(heights)
    figure, axes = plt.subplots(2, figsize=size, height_ratios=heights, layout="constrained")
    count = int(natural.on.isin(SENSITIVE_INSTRUMENTS).sum())  # they come first
    low, high = -EQUIVALENCE_MARGIN, EQUIVALENCE_MARGIN
    axes[0].fill_betweenx([-0.6, count - 0.5], low, high, color="0.92")
    for axis, frame in zip(axes, [natural, order]):
        rows = range(len(frame))
        names = frame.on.where(frame.index > 0, "primary, fine-tuned")
        axis.axvline(0, color="0.5")
        axis.hlines(rows, frame["from"], frame["to"])
        axis.plot(frame.points, rows, "o")
        axis.set_yticks(rows, names + ": " + frame.difference)
        axis.set_ylim(len(frame) - 0.4, -0.6)
    axes[0].set_xlabel("points on the natural tasks, with 95% intervals")
    axes[1].set_xlabel("points on word order, on a wider scale")
    figure.align_ylabels(axes)
    return figure
