"""The figure of a comparison."""

import numpy as np

from evaluation.statistics import seed_interval
from maelm_fairseq.analysis.rank_report import import_pyplot
from maelm_fairseq.engine.files import atomic_write

CAPTION = (
    "Score, and effective rank of text without [MASK], by layer; validation loss against arithmetic "
    "(mean and standard error over seeds)"
)
STYLES = ["s--", "o-", "v-", "^:", "x-."]  # of so many models, the first of a plan


def draw(path, results):
    """Draws what the models of a comparison score and use, layer by layer, and how they learn.

    Args:
        path: of the picture, a PNG
        results: :class:`~results.Results`
    """
    pyplot = import_pyplot()
    figure, (scores, ranks, losses) = pyplot.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for model, style in zip(results.models(), STYLES):
        runs = results.of(model)
        errors(scores, [results.scores_by_layer(run) for run in runs], style, model.title)
        errors(ranks, [results.ranks(run) for run in runs], style, model.title)
        if runs[0].updates:
            rows = [results.numbers[run.name]["validations"] for run in runs]
            loss = np.mean([[row["loss"] for row in each] for each in rows], 0)
            losses.plot([row["gflop"] / 1000 for row in rows[0]], loss, style[1:], label=model.title)
    figure.legend(*scores.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    for axis in (scores, ranks):
        axis.set_xlabel("layer (0: embeddings)")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    scores.set_ylabel("mean score over tasks")
    ranks.set_ylabel("effective rank without [MASK]")
    ranks.set_ylim(bottom=0)
    losses.set(xlabel="TFLOP", ylabel="validation loss, bits a predicted token")
    losses.grid(alpha=0.3)
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=120)
    pyplot.close(figure)


def errors(axis, rows, style, title):
    """Draws the mean of rows of numbers, one for each layer, with its standard error."""
    found = [seed_interval(column) for column in np.transpose(rows)]
    values, error = [each.estimate for each in found], [each.error for each in found]
    axis.errorbar(range(len(found)), values, error, fmt=style, capsize=3, label=title)
