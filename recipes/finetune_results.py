"""The table of fine-tuning results: one row for each metric of a finished recipe."""

import datetime
import os
import statistics

from maelm_fairseq.engine.errors import UsageError

COLUMNS = ["date", "task", "metric", "median", "min", "max", "deviation", "seeds", "values", "start", "settings"]


def describe(metrics):
    """Metrics in one line."""
    return ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())


def make_rows(task, all_metrics, start, settings):
    """Makes a row for each metric, and prints a line for each.

    Args:
        task: name of the task
        all_metrics: for each seed, a dict of metrics in percent
        start: the pretrained checkpoint, or "scratch"
        settings: the settings and further options, as one string
    Returns:
        list of rows: strings, one for each of COLUMNS
    """
    rows, today = [], datetime.date.today().isoformat()
    for metric in all_metrics[0]:
        values = [metrics[metric] for metrics in all_metrics]
        median, low, high = statistics.median(values), min(values), max(values)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{task} {metric}: {median:.2f}, median of {len(values)} seeds ({low:.2f} to {high:.2f})")
        numbers = [f"{number:.2f}" for number in (median, low, high, deviation)]
        shown = " ".join(f"{value:.2f}" for value in values)
        rows.append([today, task, metric, *numbers, str(len(values)), shown, start, settings])
    return rows


def existing_rows(path):
    """The lines of a table of results; none if it does not exist."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as stream:
        lines = stream.read().splitlines()
    if lines and lines[0].split("\t") != COLUMNS:
        raise UsageError(f"{path}: not a table of results; move it, or choose another --save-dir")
    return lines


def append_rows(path, rows):
    """Appends rows to a table of results, except those that it already contains (with any date)."""
    rows = ["\t".join(row) for row in rows]
    existing = existing_rows(path)
    known = {line.partition("\t")[2] for line in existing}
    new = [row for row in rows if row.partition("\t")[2] not in known]
    if new:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "a", encoding="utf-8") as stream:
            stream.write("\n".join(([] if existing else ["\t".join(COLUMNS)]) + new) + "\n")
    print(f"results: {path}")
