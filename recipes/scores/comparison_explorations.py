"""What was tried after results were known, and decides nothing."""

import os

from comparison import CONFIDENCE, MAE_LM, MLM
from evaluation.report import in_words, interval, table


def pilots(report):
    """A table of the last validation losses of both models' pilots, of those that are done for both."""
    comparison, rows = report.comparison, []
    for both in zip(comparison.pilots(), comparison.explored_pilots()):
        if all(os.path.exists(report.folder.record(run.name)) for run in both):
            losses = (f"{report.records(run.name)[-1]['loss']:.3f}" for run in both)
            rows.append([f"{both[0].optimization.lr:g}", f"{both[0].optimization.second_beta:g}", *losses])
    header = ["learning rate", "second beta", *(f"{model.title}, bits" for model in (MLM, MAE_LM))]
    return table(header, rows) if rows else ""


def models(report):
    """A table of further models, compared with those of the same seed; the intervals are for these models only."""
    rows = []
    for run in report.comparison.explored():
        for model in (MLM, MAE_LM):
            tasks = report.tables.paired(run.model.name, model.name)
            if tasks:
                loss = f"{report.records(run.name)[-1]['loss']:.3f}"
                rows.append([f"{run.model.title} minus {model.title}", loss, in_words(interval(tasks, CONFIDENCE))])
    return table(["one seed; examples vary", "loss, bits", "mean over tasks"], rows) if rows else ""


def explorations(report):
    """The sections on them: list of text, empty if nothing is done.

    Args:
        report: :class:`~comparison_report.ComparisonReport`
    """
    updates = f"{report.comparison.pilot_updates:,}"
    sections = {
        f"Validation loss of the pilots, after {updates} updates:": pilots(report),
        "Further models, evaluated as above:": models(report),
    }
    found = [f"{title}\n\n{text}" for title, text in sections.items() if text]
    title = "**Explorations**, added when the results of two seeds were known; they decide nothing.\n"
    return [title, *found] if found else []
