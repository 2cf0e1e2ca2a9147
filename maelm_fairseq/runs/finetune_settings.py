"""The settings of fine-tuning: defaults, the paper's search space, and what the options ask for."""

import itertools
from collections import namedtuple

from ..base.errors import UsageError
from ..base.settings import option


class Settings(namedtuple("Settings", "batch_size lr warmup_ratio epochs")):
    """The settings that a search varies."""

    def __str__(self):
        return "batch{}-lr{}-warmup{}-epochs{}".format(*self)


# GLUE: the batch sizes and learning rates that RoBERTa's authors published (fairseq's
# examples/roberta/README.glue.md); epochs and warm-up are the values of the search space nearest to
# theirs. SQuAD and tagging: BERT's. None is tuned for MAE-LM. Learning rates are for encoders of
# width 768 or more.
OWN = Settings(32, 2e-5, 1 / 10, 10)
LARGE_TASKS = ["MNLI", "QQP", "QNLI", "SST-2"]  # fewer epochs are enough for these
DEFAULTS = dict.fromkeys(LARGE_TASKS, Settings(32, 1e-5, 1 / 16, 5))
DEFAULTS.update(dict.fromkeys(["CoLA", "MRPC"], Settings(16, 1e-5, 1 / 16, 10)))
DEFAULTS.update(dict.fromkeys(["STS-B", "RTE"], Settings(16, 2e-5, 1 / 16, 10)))
BY_TASK = {"mae_lm_tokens": Settings(32, 3e-5, 1 / 10, 5), "squad": Settings(32, 3e-5, 1 / 10, 3)}
EPOCHS = {"squad": [2, 3]}  # that a search tries
LEARNING_RATES = {"base": [1e-5, 2e-5, 3e-5, 4e-5], "large": [5e-6, 7e-6, 1e-5, 2e-5]}

# Encoders of less than BASE_WIDTH know less at first: on sentences, they learn for longer, and at a
# higher rate. In trials without a record, on a part of the training examples, 5e-4 was the best of
# four rates for a width of 256, a task of 50 classes improved for about ten epochs, and 20 were no
# better than 12. Lower rates for lower layers are better than one rate (experiments/TUNING.md).
BASE_WIDTH = 768
SMALL_EPOCHS = 12
HIGHEST_FACTOR = 25  # of learning rates
SMALL_LAYER_DECAY = 0.7  # of the learning rate, for each layer below the head


def for_width(lr, width):
    """A learning rate for an encoder of a width: 25 times as high for one of 256 and less."""
    return float(f"{lr * min(HIGHEST_FACTOR, max(1, (BASE_WIDTH / width) ** 3)):.3g}")


def searched_settings(task, name, width):
    """The values that a search tries: `Settings` of lists.

    Small encoders need few batch sizes, many epochs.
    """
    size = "large" if width >= 1024 else "base"
    rates = [for_width(lr, width) for lr in LEARNING_RATES[size]]
    if learns_for_long(task, name, width):
        return Settings([32], rates, [1 / 10], [5, SMALL_EPOCHS, 20])
    if task in EPOCHS:
        epochs = EPOCHS[task]
    elif name in LARGE_TASKS:
        epochs = [2, 3, 5]
    else:
        epochs = [2, 3, 5, 10]
    return Settings([16, 32], rates, [1 / 16, 1 / 10], epochs)


def learns_for_long(task, name, width):
    """Whether a small encoder is fine-tuned on sentences of which there are not very many."""
    return width < BASE_WIDTH and task not in BY_TASK and name not in LARGE_TASKS


def combinations(args, task, name, width):
    """The settings to run, or to search: list of `Settings`.

    Of each setting the values given, else with --search those of the search space, else the
    default.

    Args:
        args: of `finetune_options.parse`
        task, name: fairseq's name of the task, and that of the folder of labelled files
        width: of the encoder
    Raises:
        UsageError: several values are given without --search
    """
    default = BY_TASK.get(task) or DEFAULTS.get(name, OWN)
    default = default._replace(lr=for_width(default.lr, width))
    if learns_for_long(task, name, width):
        default = default._replace(epochs=SMALL_EPOCHS)
    searched = searched_settings(task, name, width)
    values = []
    for field in Settings._fields:
        of_field = getattr(args, field)
        if of_field is None:
            of_field = getattr(searched, field) if args.search else [getattr(default, field)]
        elif len(of_field) > 1 and not args.search:
            given = " ".join(map(str, of_field))
            raise UsageError(
                f"{option(field)} {given}: give one value, or add --search to try them all"
            )
        values.append(list(dict.fromkeys(of_field)))
    return [Settings(*combination) for combination in itertools.product(*values)]
