"""The table of fine-tuning results: one row for each metric of a finished recipe."""

import datetime
import os
import statistics

from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write, one_at_a_time

COLUMNS = ["date", "task", "metric", "median", "min", "max", "deviation", "seeds", "values", "start", "settings"]


def best_run(all_metrics, folder):
    """The index of the run that scores highest in the first metric; `all_metrics`: for each run a dict of them."""
    names = {tuple(metrics) for metrics in all_metrics}
    if len(names) > 1 or () in names:
        raise UsageError(f"{folder}: its runs have different metrics; remove each metrics.json there and run again")
    first = names.pop()[0]
    return max(range(len(all_metrics)), key=lambda i: all_metrics[i][first])


def make_rows(task, all_metrics, start, settings):
    """Makes a row for each metric, and prints a line for each.

    Args:
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


def add_rows(path, rows):
    """Adds rows to a table of results, except those that it already contains (with any date)."""
    with one_at_a_time(os.path.dirname(path)):
        lines = []
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                lines = stream.read().splitlines()
        lines = lines or ["\t".join(COLUMNS)]
        known = {line.partition("\t")[2] for line in lines}
        added = ["\t".join(map(printable, row)) for row in rows]
        lines += [line for line in added if line.partition("\t")[2] not in known]
        with atomic_write(path) as stream:
            stream.writelines(line + "\n" for line in lines)
    print(f"results: {path}")


def printable(text):
    """A text without tabs, line breaks and what is not Unicode, such as bytes of a file's name."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
