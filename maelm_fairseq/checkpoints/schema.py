"""The entries of a checkpoint other than weights and options: their names, types and ranges.

The fields of these classes have the names of a checkpoint's entries, and the types of their values.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Dict, List, Optional, Tuple

from ..base.ranges import MAX_FLOAT, Range
from ..fairseq_api import ChoiceEnum
from ..metrics import METRICS

Count = Annotated[int, Range(0, 2**53)]
Epoch = Annotated[int, Range(1)]
MetricName = ChoiceEnum(list(METRICS))
Finite = Annotated[float, Range(-MAX_FLOAT, MAX_FLOAT)]
Positive = Annotated[float, Range(5e-324, MAX_FLOAT)]
Meter = Tuple[int, str, str, Dict[str, Any]]  # of fairseq: priority, name, class and state


@dataclass
class Consumed:
    """How many batches of a certain size all processes have consumed of an epoch."""

    batches: Count
    max_tokens: Optional[Annotated[int, Range(1)]] = None
    max_sentences: Optional[Annotated[int, Range(1)]] = None
    required_batch_size_multiple: Annotated[int, Range(1)] = 1


@dataclass
class Position:
    """Where in its epoch a run is; of `epochs.ResumableIterator`, or fairseq's iterator."""

    epoch: Epoch
    iterations_in_epoch: Count = 0
    shuffle: bool = True
    consumed: Optional[List[Consumed]] = None
    data: Optional[str] = None
    validation_due: Optional[bool] = None
    ends: Optional[bool] = None


@dataclass
class EarlyStopping:
    """What `--patience` has seen: the best value, and the number of validations since then."""

    best: Optional[float] = None
    num_runs: Count = 0


@dataclass
class ExtraState:
    """What fairseq calls `extra_state`."""

    train_iterator: Position
    val_loss: Optional[float] = None
    best: Optional[float] = None
    early_stopping: Optional[EarlyStopping] = None
    previous_training_time: float = 0.0
    metrics: Optional[Dict[str, List[Meter]]] = None


@dataclass
class ScheduleState:
    """What all of fairseq's schedules of learning rates save: the best loss of validation."""

    best: Optional[float] = None


@dataclass
class OptimizerState:
    """What fairseq's optimizer for fp16 adds to the state of another."""

    loss_scale: Optional[Annotated[float, Range(2.0**-126, 2.0**126)]] = None


@dataclass
class History:
    """The past of an optimizer: the number of its updates, and the state of the schedule."""

    num_updates: Count = 0
    lr_scheduler_state: Optional[ScheduleState] = None
    optimizer_name: Optional[str] = None


@dataclass
class TaskState:
    """The state of a task of this plugin; only fine-tuning tasks have all of it."""

    dictionary_fingerprint: int
    unigram_bits: Optional[float] = None
    mask_prob: Optional[float] = None
    leave_unmasked_prob: Optional[float] = None
    random_token_prob: Optional[float] = None
    encoder_mask_fraction: Optional[float] = None
    encoder_mask_fade_updates: Optional[Count] = None
    tokens_per_sample: Optional[Count] = None
    pretraining_updates: Optional[Count] = None
    pretraining_start: Optional[str] = None
    labels: Optional[List[str]] = None
    tags_are_legal: Optional[bool] = None
    standardised: Optional[Tuple[Finite, Positive]] = None
    form: Optional[Tuple[str, List[str], str, List[MetricName]]] = None
    may_be_empty: Optional[bool] = None
    train_file: Optional[str] = None
    earlier_train_files: Optional[List[str]] = None
    valid_file: Optional[str] = None
    scores: Optional[Dict[str, Any]] = None
