"""The figures of a comparison."""

import os

import numpy as np

import exploratory
from evaluation.intervals import seed_interval
from maelm_fairseq.base.files import atomic_write
from preregistration import MADE

CAPTION = (
    "Score against compute, and score by layer; means and standard errors over seeds. Filled: finished runs; a solid "
    "line joins the two lengths of shared layers. Hollow: within runs, before the learning rate has decayed"
)
ORDER_CAPTION = "The two tasks on word order, by depth; dashed: MAE-LM's decoder; means and standard errors over seeds"
STYLES = {"mlm": "C0s-", "shared_long": "C1o-", "shared": "C1^-", "mae_lm": "C2v-", "scratch": "C7x-"}
OTHER = "C8.:"  # models of other plans


def order_path(path):
    """The path of the second figure, beside the first."""
    return "-order".join(os.path.splitext(path))


def draw(path, results):
    """Draws scores against compute and by layer; in a second picture, the scores on word order by depth.

    Args:
        path: of the first picture, a PNG; for the second see :func:`order_path`
        results: :class:`~results.Results`
    """
    figure, (scores, layers) = subplots("TFLOP", "layer (0: embeddings)")
    points, ended = exploratory.scores_within_runs(results), {}
    for model in results.models():
        runs, style = results.of(model), STYLES.get(model.name, OTHER)
        by_layer(layers, [results.scores_by_layer(run) for run in runs], style, label=model.title)
        if runs[0].updates:
            ends = [results.numbers[run.name]["validations"][-1]["gflop"] / 1000 for run in runs]
            ended[model.name] = end = np.mean(ends), [results.mean_score(run.name) for run in runs]
            within = list(points.get(model.name, {}).values())
            errors(scores, *zip(*within, end), style[:3] + ":", fillstyle="none")
            errors(scores, *zip(end), style[:3])
    if {"shared", "shared_long"} <= set(ended):
        errors(scores, *zip(ended["shared"], ended["shared_long"]), STYLES["shared"][:2] + "-")
    scores.set_ylabel("mean score over tasks")
    scores.set_xlim(left=0)
    save(figure, layers, path)
    order = exploratory.order(results)
    if order:
        figure, axes = subplots(*["layer of the encoder, then of the decoder"] * len(MADE), sharey=True)
        for task, model, encoders, decoders in order:
            axis, style = axes[MADE.index(task)], STYLES[model.name]
            by_layer(axis, encoders, style, label=model.title)
            if decoders:
                joined = np.column_stack([np.mean(encoders, 0)[-1:].repeat(len(decoders)), decoders])
                by_layer(axis, joined, style + "-", len(encoders[0]) - 1, fillstyle="none", label="its decoder")
            axis.set_title(task)
        axes[0].set_ylabel("accuracy, percent")
        save(figure, axes[0], order_path(path))


def subplots(*titles, **options):
    """Axes side by side, with these titles below."""
    from matplotlib.figure import Figure  # not needed for a report without figures

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    axes = figure.subplots(1, len(titles), **options)
    for axis, title in zip(axes, titles):
        axis.set_xlabel(title)
        axis.grid(alpha=0.3)
        axis.xaxis.get_major_locator().set_params(integer=True)
    return figure, axes


def by_layer(axis, rows, style, first=0, **options):
    """Draws the scores of layers from number `first` on, a row for each seed: see :func:`errors`."""
    errors(axis, range(first, first + len(rows[0])), np.transpose(rows), style, **options)


def errors(axis, x, samples, style, **options):
    """Draws the means of samples over seeds, with their standard errors."""
    means = [seed_interval(sample) for sample in samples]
    axis.errorbar(x, [mean.estimate for mean in means], [mean.error for mean in means], fmt=style, capsize=3, **options)


def save(figure, axis, path):
    """Writes a figure, with the legend of an axis above all of them."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=120)
