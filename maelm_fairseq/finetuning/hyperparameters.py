"""The hyperparameters with which the recipes fine-tune: defaults, and what a search tries."""

from dataclasses import dataclass
from typing import List, NamedTuple, Optional


class Hyperparameters(NamedTuple):
    """What a search varies."""

    batch_size: int  # sequences of an update
    lr: float  # the highest learning rate
    warmup_ratio: float  # the share of the updates in which it rises
    epochs: int

    def __str__(self):
        return "batch{}-lr{}-warmup{}-epochs{}".format(*self)


class SearchSpace(NamedTuple):
    """The values of each hyperparameter that `--search` tries."""

    batch_size: List[int]
    lr: List[float]
    warmup_ratio: List[float]
    epochs: List[int]


@dataclass(frozen=True)
class Defaults:
    """What a recipe does unless its options say something else."""

    hyperparameters: Hyperparameters
    search_space: SearchSpace
    layer_decay: Optional[float] = None  # --lr-layer-decay; None for one rate


# Encoders of less than BASE_WIDTH know less at first: on sentences and tags, they learn for longer,
# and at a higher rate. In trials without a record, on a part of the training examples, 5e-4 was the
# best of four rates for a width of 256, a task of 50 classes improved for about ten epochs, and 20
# were no better than 12. Lower rates for lower layers are better than one rate
# (experiments/TUNING.md; for tags, experiments/SMALL.md).
BASE_WIDTH = 768
LARGE_WIDTH = 1024
MAX_LR_FACTOR = 25
SMALL_EPOCHS = 12
SMALL_SEARCHED_EPOCHS = [5, SMALL_EPOCHS, 20]
SMALL_LAYER_DECAY = 0.7  # of the learning rate, for each layer below the head
# With 2 layers, that adds 1 point; with 12, it costs 2 (experiments/TUNING.md).
MAX_DECAYED_LAYERS = 4

# The paper's search space; epochs are each task's own.
BATCH_SIZES = [16, 32]
WARMUP_RATIOS = [1 / 16, 1 / 10]
BASE_RATES = [1e-5, 2e-5, 3e-5, 4e-5]
LARGE_RATES = [5e-6, 7e-6, 1e-5, 2e-5]


def scale_lr(lr, width):
    """A learning rate for an encoder of a width: 25 times as high for one of 256 and less."""
    return float(f"{lr * min(MAX_LR_FACTOR, max(1, (BASE_WIDTH / width) ** 3)):.3g}")


def searched_rates(width):
    """The learning rates that a search tries for an encoder of a width."""
    rates = LARGE_RATES if width >= LARGE_WIDTH else BASE_RATES
    return [scale_lr(lr, width) for lr in rates]


def defaults_for_width(hyperparameters, epochs, width):
    """The `Defaults` of a task for an encoder of a width.

    Args:
        hyperparameters: for an encoder of width 768 or more
        epochs: that a search tries
        width: width of the encoder
    """
    hyperparameters = hyperparameters._replace(lr=scale_lr(hyperparameters.lr, width))
    search_space = SearchSpace(BATCH_SIZES, searched_rates(width), WARMUP_RATIOS, epochs)
    return Defaults(hyperparameters, search_space)


def small_encoder_defaults(hyperparameters, width, num_layers):
    """The `Defaults` for an encoder of less than BASE_WIDTH on files that are not very large.

    For small encoders, a search tries one batch size, and more epochs. Arguments as for
    `defaults_for_width`, and the number of layers of the encoder.
    """
    lr = scale_lr(hyperparameters.lr, width)
    hyperparameters = hyperparameters._replace(lr=lr, epochs=SMALL_EPOCHS)
    search_space = SearchSpace([32], searched_rates(width), [1 / 10], SMALL_SEARCHED_EPOCHS)
    layer_decay = SMALL_LAYER_DECAY if num_layers <= MAX_DECAYED_LAYERS else None
    return Defaults(hyperparameters, search_space, layer_decay)
