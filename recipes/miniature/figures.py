"""The figures of the miniature reproduction."""

import os

from experiment import FRACTION
from maelm_fairseq import effective_rank

FIGURES = {
    "ranks-pretrained.png": "Effective rank by layer, after pretraining (Figures 1 and 5a of the paper)",
    "ranks-finetuned.png": "Effective rank by layer, after fine-tuning (Figure 5b)",
    "score-against-time.png": "Score against time of pretraining (Figure 3)",
    "mask-fraction.png": "Rank gap and score by the share of masks that the encoder sees (Figure 4)",
}
SCORE = "mean score over tasks"


def draw_ranks(path, report, name_of):
    """Draws the ranks of the compared models.

    Args:
        path: of the picture
        report: :class:`~report.Report`
        name_of: function of a run -> the name of its ranks
    """
    panels = {run.title: report.results.rank_rows[name_of(run)] for run in report.experiment.compared_once()}
    effective_rank.draw(path, panels)


def draw_mask_fraction(path, report):
    """Draws rank gap and score against the share of masks that the encoder sees."""
    from matplotlib import pyplot

    base = report.compared_once[1]
    fractions = {base.name: base.model.masks.encoder_mask_fraction}
    fractions.update({run.name: run.value for run in report.varied if run.kind == FRACTION})
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    axes[0].plot(list(fractions.values()), [report.results.gap(name, report.last) for name in fractions], "o-")
    axes[0].set_ylabel("rank gap, last layer:\nwith [MASK] minus without")
    axes[1].errorbar(list(fractions.values()), *error_bars(report, fractions), fmt="o-", capsize=3)
    axes[1].set_ylabel(SCORE)
    for axis in axes:
        axis.set_xlabel("share of the masks in the encoder")
        axis.grid(alpha=0.3)
    save(figure, path)


def draw_score_against_time(path, report):
    """Draws scores against updates and minutes of pretraining."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for run, style in zip(report.compared_once, ["s--", "o-"]):
        seconds = {row["update"]: row["seconds"] for row in report.results.validations(run.name)}
        parts = report.experiment.part_updates(report.updates)
        updates = {run.part_name(number): at for number, at in parts.items()}
        updates = {name: at for name, at in updates.items() if report.results.is_evaluated(name)}
        updates[run.name] = max(seconds)
        points = error_bars(report, updates)
        updates = list(updates.values())
        axes[0].errorbar(updates, *points, fmt=style, capsize=3, label=run.title)
        axes[1].errorbar([seconds[at] / 60 for at in updates], *points, fmt=style, capsize=3, label=run.title)
    axes[0].set_xlabel("updates of pretraining")
    axes[1].set_xlabel("minutes of pretraining")
    axes[0].set_ylabel(SCORE)
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend()
    save(figure, path)


def error_bars(report, names):
    """The scores of models, and their standard errors."""
    return tuple(zip(*(report.results.score(name) for name in names)))


def save(figure, path):
    from matplotlib import pyplot

    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw(folder, report):
    """Draws into a folder those of FIGURES that have results."""
    draw_ranks(os.path.join(folder, "ranks-pretrained.png"), report, lambda run: run.name)
    if report.has_finetuned_ranks:
        draw_ranks(os.path.join(folder, "ranks-finetuned.png"), report, lambda run: run.finetuned_name)
    draw_mask_fraction(os.path.join(folder, "mask-fraction.png"), report)
    draw_score_against_time(os.path.join(folder, "score-against-time.png"), report)
