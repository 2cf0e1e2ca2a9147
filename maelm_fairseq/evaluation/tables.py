"""What an evaluation writes and prints: its tables."""

import datetime
import os
import platform
from importlib.metadata import version

from ..base.files import atomic_write
from .few_shot import has_few_shot, most_shots
from .model_record import SCORE_COLUMNS, all_scores
from .probe_tasks import SECONDARY_TASKS
from .report import Report

SCORES_FILE = "scores.csv"  # of all models in a folder
TABLES_FILE = "evaluation.md"  # of the models and tasks of a command
FIRST_LINES = {SCORES_FILE: ",".join(SCORE_COLUMNS), TABLES_FILE: "# Evaluation"}


def tables_heading(args, tasks, secondary):
    """The command, the machine and the tasks of the tables."""
    versions = f"Python {platform.python_version()}, scikit-learn {version('scikit-learn')}"
    lines = [
        f"Printed on {datetime.date.today()} ({platform.machine()}, {versions}) by",
        f"```\n{args.command_line}\n```",
    ]
    for task in tasks:
        line = f"- {task.name}: {len(task.texts):,} examples, {task.dropped} left out "
        line += "(repeated, of a small class, or without a label); "
        line += f"{len(task.labels)} classes" if task.labels else "values"
        line += f"; {task.metric}"
        if args.few_shot_repeats and has_few_shot(task):
            line += f"; few-shot probes have at most {most_shots(task)} of its smallest class"
        if task.name in secondary:
            line += "; in no mean"
        lines.append(line)
    return "\n".join(lines) + "\n"


def record_path(args, name):
    """The path of the record of a model or baseline."""
    return os.path.join(args.dest, name + ".npz")


def write_tables(args, tasks, records, baselines):
    """Writes SCORES_FILE and TABLES_FILE; prints how pairs are decided, and comparisons of arms."""
    secondary = [] if args.labelled else SECONDARY_TASKS
    names_of_tasks = [task.name for task in tasks]
    names_of_pairs = [pairs.name for pairs in args.pairs]
    report = Report(records, names_of_tasks, names_of_pairs, secondary, baselines)
    with atomic_write(os.path.join(args.dest, SCORES_FILE)) as stream:
        all_scores(args.dest).to_csv(stream, index=False, lineterminator="\n")
    path = os.path.join(args.dest, TABLES_FILE)
    with atomic_write(path) as stream:
        described = tables_heading(args, tasks, secondary)
        stream.write(f"{FIRST_LINES[TABLES_FILE]}\n{described}\n{report.text(args.compare)}")
    for name in names_of_pairs:
        for model, row in report.decided(name).iterrows():
            share = (
                f"{row.right:.2f}% ({row['from']:.2f} to {row.to:.2f}) of {row.pairs:,.0f} pairs"
            )
            print(f"{model}, {name}: {share} decided correctly; by chance 50%")
    for arms in args.compare:
        print_comparison(report, arms)
    on_embeddings = [
        task.name for task in tasks if any(embeddings_chosen_by_model(records, task.name))
    ]
    if on_embeddings:
        print(
            f"{', '.join(on_embeddings)}: the best probes read the embeddings, so these scores do "
            "not compare the layers: for that, see the tables of the last layer and of <s>"
        )
    print(f"tables: {path}")


def print_comparison(report, arms):
    """Prints the mean difference between two arms on tasks, and that on each set of pairs."""
    title = f"{arms[0]} minus {arms[1]}"
    if report.tasks:
        estimate, low, high, seeds = report.differences(arms).loc["mean"].iloc[:4]
        interval = f"{low:+.2f} to {high:+.2f}"
        over = f"over {seeds:g} seeds" if seeds > 1 else "over examples, for these two models only"
        scored = "mean over tasks" if len(report.averaged) > 1 else report.averaged[0]
        print(f"{title}, {scored}: {estimate:+.2f} ({interval}, {over})")
    for name, row in report.pair_differences(arms).iterrows():
        more = f" and {row.seeds:g} seeds" if row.seeds > 1 else ", for these two models only"
        interval = f"{row['from']:+.2f} to {row.to:+.2f}, {report.source_of_interval(name)}{more}"
        differing = f"decided differently: {row.differing:,.0f} of {row.pairs:,.0f} pairs"
        print(f"{title}, {name}: {row.iloc[0]:+.2f} points ({interval}); {differing}")


def embeddings_chosen_by_model(records, task):
    """Whether the training folds chose layer 0 for each encoder: list of bool."""
    return [bool((record.arrays[f"{task}/mean/layers"] == 0).any()) for record in records]
