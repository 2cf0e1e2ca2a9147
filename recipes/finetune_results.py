"""The table of fine-tuning results: one row for each metric of a finished recipe."""

import datetime
import os
import statistics

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


def append_rows(path, rows):
    """Appends rows to a table of results, except those that it already contains (with any date)."""
    existing = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            existing = stream.read().splitlines()
    known = {line.partition("\t")[2] for line in existing}
    new = [] if existing else ["\t".join(COLUMNS)]
    new += ["\t".join(row) for row in rows if "\t".join(row[1:]) not in known]
    with open(path, "a", encoding="utf-8") as stream:
        stream.writelines(line + "\n" for line in new)
    print(f"results: {path}")
