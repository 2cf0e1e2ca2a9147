"""The settings of fine-tuning: defaults, the paper's search space, and what the options ask for."""

import csv
import itertools
import math
import os
from collections import namedtuple

from fairseq_options import RECIPES, option
from maelm_fairseq.engine.errors import UsageError

LARGE_WIDTH = 1024
LEARNING_RATES = {"base": [1e-5, 2e-5, 3e-5, 4e-5], "large": [5e-6, 7e-6, 1e-5, 2e-5]}


class Settings(namedtuple("Settings", "batch_size lr warmup_ratio epochs")):
    """The settings that a search varies."""

    def __str__(self):
        return "batch{}-lr{:g}-warmup{:g}-epochs{}".format(*self)


def search_space(width, epochs):
    """The values that a search tries: :class:`Settings` of lists.

    Args:
        width: of the encoder
        epochs: the values for this task
    """
    learning_rates = LEARNING_RATES["large" if width >= LARGE_WIDTH else "base"]
    return Settings([16, 32], learning_rates, [1 / 16, 1 / 10], epochs)


def combinations(args, task, space):
    """The settings to run, or to search: list of :class:`Settings`.

    Args:
        args: the options; those named as the settings are None or lists
        task: name of the task, in finetune_settings.tsv
        space: from :func:`search_space`
    Raises:
        UsageError: a value is out of range, missing, or one of several without --search
    """
    lists = [values(args, task, name, getattr(space, name)) for name in Settings._fields]
    return [Settings(*combination) for combination in itertools.product(*lists)]


def values(args, task, name, space):
    """The values of a setting: those given, else the search space with --search, else the default."""
    flag, given = option(name), getattr(args, name)
    if given is None and args.search:
        return space
    if given is None:
        default = read_settings(task).get(name)
        if default is None:
            raise UsageError(f"{flag}: no default for task {task} in finetune_settings.tsv; set it")
        return [type(space[0])(float(default))]
    if len(given) > 1 and not args.search:
        raise UsageError(f"{flag} {' '.join(map(str, given))}: give one value, or add --search to try them all")
    for value in given:
        if name == "warmup_ratio" and not 0 <= value < 1:
            raise UsageError(f"{flag} {value} must be at least 0 and below 1")
        if name != "warmup_ratio" and not 0 < value < math.inf:
            raise UsageError(f"{flag} {value} must be over 0, and finite")
    return given


def read_settings(task):
    """The row of finetune_settings.tsv for a task: dict of strings, empty if there is no such row."""
    with open(os.path.join(RECIPES, "finetune_settings.tsv"), encoding="utf-8") as stream:
        rows = csv.DictReader((line for line in stream if not line.startswith("#")), delimiter="\t")
        return next((row for row in rows if row["task"] == task), {})
