"""The figures of the comparison of scores."""

import os

import numpy as np

from comparison import MAE_LM, MLM
from evaluation.statistics import mean_and_error

FIGURES = {
    "scores.png": "Score against updates, arithmetic and loss of pretraining (mean and standard error over seeds)",
    "layers.png": "Score, and effective rank of text without [MASK], by layer (mean and standard error over seeds)",
}
STYLES = ["s--", "o-", "^:", "x-."]


def draw_scores(path, report):
    """Draws scores against what pretraining took and reached.

    Args:
        path: of the picture
        report: :class:`~comparison_report.ComparisonReport`
    """
    from matplotlib import pyplot

    axes_titles = {"update": "updates", "tflop": "TFLOP", "loss": "validation loss, bits a predicted token"}
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), sharey=True, layout="constrained")
    for (title, curves), style in zip(report.curves().items(), STYLES):
        scores, errors = mean_and_error([[point["score"] for point in curve] for curve in curves])
        for axis, key in zip(axes, axes_titles):
            x = np.mean([[point[key] for point in curve] for curve in curves], 0)
            axis.errorbar(x, scores, errors, fmt=style, capsize=3, label=title)
    for axis, title in zip(axes, axes_titles.values()):
        axis.set_xlabel(title)
        axis.grid(alpha=0.3)
    axes[2].invert_xaxis()  # a lower loss comes later
    axes[0].set_ylabel("mean score over tasks")
    axes[0].legend()
    save(figure, path)


def draw_layers(path, report):
    """Draws the score and the rank of each layer of the final models; see :func:`draw_scores`."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, models in zip(axes, [report.by_layer(), report.ranks_by_layer()]):
        for (title, rows), style in zip(models.items(), STYLES):
            values, errors = mean_and_error(rows)
            axis.errorbar(range(len(values)), values, errors, fmt=style, capsize=3, label=title)
        axis.set_xlabel("layer (0: embeddings)")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(report.by_layer()))
    axes[0].set_ylabel("mean score over tasks")
    axes[1].set_ylabel("effective rank without [MASK]")
    axes[1].set_ylim(bottom=0)
    save(figure, path)


def save(figure, path):
    from matplotlib import pyplot

    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def drawn(report):
    """Those of FIGURES that have something to show: {file: caption}."""
    curves = report.curves()
    compared = all(len(curve) > 1 for model in (MLM, MAE_LM) for curve in curves[model.title])
    return {name: caption for name, caption in FIGURES.items() if compared or name != "scores.png"}


def draw(folder, report):
    """Draws the figures into a folder."""
    for name in drawn(report):
        {"scores.png": draw_scores, "layers.png": draw_layers}[name](os.path.join(folder, name), report)
