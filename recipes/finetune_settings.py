"""The settings of fine-tuning: defaults, the paper's search space, and what the options ask for."""

import itertools
from collections import namedtuple

from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.config import option


class Settings(namedtuple("Settings", "batch_size lr warmup_ratio epochs")):
    """The settings that a search varies."""

    def __str__(self):
        return "batch{}-lr{}-warmup{}-epochs{}".format(*self)


# GLUE: the batch sizes and learning rates that RoBERTa's authors published (fairseq's examples/roberta/README.glue.md);
# epochs and warm-up are the values of the search space nearest to theirs. SQuAD and tagging: BERT's. None is tuned for
# MAE-LM. Learning rates are for encoders of width 768 or more.
OWN = Settings(32, 2e-5, 1 / 10, 10)
LARGE_TASKS = ["MNLI", "QQP", "QNLI", "SST-2"]  # fewer epochs are enough for these
DEFAULTS = dict.fromkeys(LARGE_TASKS, Settings(32, 1e-5, 1 / 16, 5))
DEFAULTS.update(dict.fromkeys(["CoLA", "MRPC"], Settings(16, 1e-5, 1 / 16, 10)))
DEFAULTS.update(dict.fromkeys(["STS-B", "RTE"], Settings(16, 2e-5, 1 / 16, 10)))
BY_TASK = {"mae_lm_tokens": Settings(32, 3e-5, 1 / 10, 5), "squad": Settings(32, 3e-5, 1 / 10, 3)}
EPOCHS = {"squad": [2, 3]}  # that a search tries
LEARNING_RATES = {"base": [1e-5, 2e-5, 3e-5, 4e-5], "large": [5e-6, 7e-6, 1e-5, 2e-5]}


def for_width(lr, width):
    """A learning rate for an encoder of a width: 27 times as high for one of 256, 50 times for 128 and less."""
    return float(f"{lr * min(50, max(1, (768 / width) ** 3)):.3g}")


def combinations(args, task, name, width):
    """The settings to run, or to search: list of :class:`Settings`.

    Of each setting the values given, else with --search those of the search space, else the default.

    Args:
        task, name: fairseq's name of the task, and that of the folder of labelled files
    Raises:
        UsageError: several values are given without --search
    """
    default = BY_TASK.get(task) or DEFAULTS.get(name, OWN)
    default, values = default._replace(lr=for_width(default.lr, width)), []
    learning_rates = [for_width(lr, width) for lr in LEARNING_RATES["large" if width >= 1024 else "base"]]
    epochs = EPOCHS.get(task) or ([2, 3, 5] if name in LARGE_TASKS else [2, 3, 5, 10])
    searched = Settings([16, 32], learning_rates, [1 / 16, 1 / 10], epochs)
    for field in Settings._fields:
        flag, given = option(field), getattr(args, field)
        if given is None:
            given = getattr(searched, field) if args.search else [getattr(default, field)]
        elif len(given) > 1 and not args.search:
            raise UsageError(f"{flag} {' '.join(map(str, given))}: give one value, or add --search to try them all")
        values.append(list(dict.fromkeys(given)))
    return [Settings(*combination) for combination in itertools.product(*values)]
