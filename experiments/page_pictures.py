"""Pictures of the page: means over seeds as lines."""

import itertools

import matplotlib.pyplot as plt

from arms import ARMS
from page_arms import ARM_TITLES

FEW_SEEDS = 2  # up to so many are drawn each, instead of a standard deviation
COLORS = dict(zip(ARMS, plt.cm.tab10.colors))
COLORS["mlm"] = COLORS["D2"]
COLORS["shared_long"] = "black"
COLORS["shared"] = COLORS["E"]
COLORS["mae_lm"] = COLORS["A"]
COLORS["scratch"] = "0.6"
MARKERS = dict(zip(COLORS, itertools.cycle("os^DvPX")))  # by the order of the colors


def draw_lines(results, name, ylabel, subject, panels):
    """Draws means over seeds, with standard deviations or, where there are few, each seed.

    Args:
        name: name of the picture
        ylabel: label of the y-axis
        subject: says in the caption what is drawn
        panels: {(title, label of the x-axis): {arm: seeds by x, a DataFrame}}

    Returns: Markdown, the picture with its caption
    """
    size = max(6.5, 1 + 3.4 * len(panels)), 3.8
    options = dict(sharey=True, squeeze=False, layout="constrained")
    figure, axes = plt.subplots(1, len(panels), figsize=size, **options)
    for axis, ((title, xlabel), frames) in zip(axes[0], panels.items()):
        for arm, frame in frames.items():
            draw_seeds(axis, arm, frame)
        axis.set(title=title, xlabel=xlabel)
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel(ylabel)
    handles_and_labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles_and_labels, loc="outside lower center", ncols=2)
    results.pictures[name] = figure
    seeds = []
    for frames in panels.values():
        seeds += [len(frame) for frame in frames.values()]
    fewest_to_most = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    caption = f"{subject}; means and standard deviations over {fewest_to_most} seeds"
    if max(seeds) <= FEW_SEEDS:
        caption = f"{subject}; lines are means of {fewest_to_most} seeds, open marks the seeds"
    return f"![{caption}](pictures/{name}.png)\n\n*{caption}.*\n\n"


def draw_seeds(axis, arm, frame):
    """Draws the mean over seeds of an arm, with standard deviations or each of a few seeds.

    `frame` has seeds by x.
    """
    x = frame.columns.astype(float)
    style = dict(color=COLORS[arm], marker=MARKERS[arm], label=ARM_TITLES[arm])
    if len(frame) > FEW_SEEDS:
        axis.errorbar(x, frame.mean(), frame.std(), markersize=4, capsize=2, **style)
        return
    axis.plot(x, frame.mean(), markersize=5, **style)
    for _, values in frame.iterrows():
        axis.plot(x, values, MARKERS[arm], color=COLORS[arm], markersize=5, fillstyle="none")
