"""The settings of fine-tuning: defaults, the paper's search space, and what the options ask for."""

import itertools
import math
from collections import namedtuple

from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.config import option


class Settings(namedtuple("Settings", "batch_size lr warmup_ratio epochs")):
    """The settings that a search varies."""

    def __str__(self):
        return "batch{}-lr{:g}-warmup{:g}-epochs{}".format(*self)


# GLUE: the batch sizes and learning rates that RoBERTa's authors published (fairseq's examples/roberta/README.glue.md);
# epochs and warm-up are the values of the search space nearest to theirs. SQuAD: BERT's. None is tuned for MAE-LM.
DEFAULTS = {
    "CoLA": Settings(16, 1e-5, 1 / 16, 10),
    "SST-2": Settings(32, 1e-5, 1 / 16, 5),
    "MRPC": Settings(16, 1e-5, 1 / 16, 10),
    "QQP": Settings(32, 1e-5, 1 / 16, 5),
    "STS-B": Settings(16, 2e-5, 1 / 16, 10),
    "MNLI": Settings(32, 1e-5, 1 / 16, 5),
    "QNLI": Settings(32, 1e-5, 1 / 16, 5),
    "RTE": Settings(16, 2e-5, 1 / 16, 10),
    "squad_1.1": Settings(32, 3e-5, 0.1, 3),
    "squad_2.0": Settings(32, 3e-5, 0.1, 3),
}
LIMITS = Settings((1, math.inf), (0, math.inf), (0, 1), (1, math.inf))
LARGE_WIDTH = 1024
LEARNING_RATES = {"base": [1e-5, 2e-5, 3e-5, 4e-5], "large": [5e-6, 7e-6, 1e-5, 2e-5]}


def search_space(width, epochs):
    """The values that a search tries for an encoder of this width, `epochs` among them: :class:`Settings` of lists."""
    learning_rates = LEARNING_RATES["large" if width >= LARGE_WIDTH else "base"]
    return Settings([16, 32], learning_rates, [1 / 16, 1 / 10], epochs)


def combinations(args, task, space):
    """The settings to run, or to search: list of :class:`Settings`.

    Of each setting the values given, else those of `space` with --search, else the default.

    Raises:
        UsageError: a value is missing or out of range, or one of several without --search
    """
    values = []
    for name in Settings._fields:
        flag, given = option(name), getattr(args, name)
        if given is None and args.search:
            given = getattr(space, name)
        elif given is None and task not in DEFAULTS:
            raise UsageError(f"{flag}: no default for task {task} in finetune_settings.py; give a value")
        elif given is None:
            given = [getattr(DEFAULTS[task], name)]
        elif len(given) > 1 and not args.search:
            raise UsageError(f"{flag} {' '.join(map(str, given))}: give one value, or add --search to try them all")
        least, most = getattr(LIMITS, name)
        for value in given:
            if not least <= value <= most:
                raise UsageError(f"{flag} {value} must be from {least} to {most}")
        values.append(given)
    return [Settings(*combination) for combination in itertools.product(*values)]
