"""What a checkpoint says of itself besides weights and sizes, with types."""

import os
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional, Tuple

from ..base.typed_values import typed
from ..label_scale import UNSCALED
from .building import updates_of
from .run_state import TaskState

# Sections of fairseq's configuration.
CONFIGURATION_SECTIONS = ["checkpoint", "model", "task", "optimization", "dataset"]


ON_CARD = "on_card"  # in the metadata of a field: the model card lists the option


def card_option():
    return field(default=None, metadata={ON_CARD: True})


@dataclass(frozen=True)
class RunOptions:
    """Options of the run that wrote a checkpoint; None where there is no such option."""

    decoder_layers: Any = card_option()
    share_decoder_layers: Optional[bool] = card_option()
    mask_prob: Optional[float] = card_option()
    leave_unmasked_prob: Any = card_option()
    random_token_prob: Any = card_option()
    encoder_mask_fraction: Optional[float] = card_option()
    encoder_mask_fade_updates: Any = card_option()
    lr: Any = card_option()
    update_freq: Any = card_option()
    batch_size: Any = card_option()
    max_tokens: Any = card_option()
    finetune_from_model: Optional[str] = None
    best_checkpoint_metric: str = "loss"

    def card_options(self):
        """The options that the model card lists, {name: value}, in its order."""
        names = [option.name for option in fields(self) if ON_CARD in option.metadata]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class PretrainingOptions:
    """Options of pretraining that fine-tuned checkpoints keep, too."""

    encoder_mask_fraction: Optional[float] = None
    tokens_per_sample: Optional[int] = None


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint says of itself, for the hub, the export, its card, and fine-tuning."""

    labels: Optional[List[str]] = None  # the names of the classes, in order
    texts_per_example: int = 1  # of fine-tuning; 2 for pairs
    is_of_sentences: bool = False  # whether it was fine-tuned on sentences or pairs
    label_scale: Tuple[float, float] = UNSCALED  # mean and std; see the module of this name
    may_be_empty: bool = False  # whether a question may have no answer
    pretraining: PretrainingOptions = PretrainingOptions()
    unigram_bits: Optional[float] = None
    options: RunOptions = RunOptions()  # of the last run
    updates: Optional[int] = None
    valid_metric: Any = None  # of the last validation: what chose the best checkpoint
    dev_scores: Optional[Dict[str, float]] = None  # of fine-tuning: {metric: percent}
    train_file: Optional[str] = None  # SHA-256 of the labelled file of fine-tuning
    # The name of the folder from which an encoder was imported that has not been trained since.
    imported_from: Optional[str] = None
    imported_head: bool = True  # whether that encoder had the head of pretraining

    @property
    def masks_in_encoder(self):
        """Whether the encoder has seen all masks in pretraining, as in an MLM."""
        return self.pretraining.encoder_mask_fraction == 1

    @property
    def is_fine_tuned(self):
        """Whether its last training was of a task without masks."""
        return self.options.mask_prob is None and self.imported_from is None

    def classes(self, outputs):
        """The names of a head's classes, in order, or their numbers if there are no names.

        None for a head with a single output.
        """
        if outputs == 1:
            return None
        labels = self.labels or []
        names = labels if len(labels) == outputs else range(outputs)
        return list(map(str, names))


def info_of_checkpoint(state, path):
    """What a checkpoint of this plugin, from `building.read_checkpoint`, says of itself.

    Raises ValueError: it says something of another type
    """
    where = os.fspath(path)
    sections = {name: state["cfg"].get(name) or {} for name in CONFIGURATION_SECTIONS}
    sections = typed(Dict[str, dict], sections, f"{where}: cfg")
    values = {}
    for section in sections.values():
        values.update(section)
    options = typed(RunOptions, given_options(RunOptions, values), f"{where}: cfg")
    task = typed(TaskState, state["task_state"], f"{where}: task_state")
    # A fine-tuned checkpoint has them in the state of its task.
    pretraining = given_options(PretrainingOptions, vars(task))
    pretraining.update(given_options(PretrainingOptions, values))
    extra_state = typed(dict, state.get("extra_state") or {}, f"{where}: extra_state")
    imported_from = None
    if "imported_from" in state:
        imported_from = typed(str, state["imported_from"], f"{where}: imported_from")

    dev_scores = typed(
        Optional[Dict[str, float]],
        (task.scores or {}).get("valid"),
        f"{where}: task_state: scores: valid",
    )

    return CheckpointInfo(
        labels=task.labels,
        texts_per_example=len(task.form[1]) if task.form else 1,
        is_of_sentences=task.form is not None,
        label_scale=task.standardised or UNSCALED,
        may_be_empty=bool(task.may_be_empty),
        pretraining=typed(PretrainingOptions, pretraining, f"{where}: cfg"),
        unigram_bits=task.unigram_bits,
        options=options,
        updates=updates_of(state) or None,
        valid_metric=extra_state.get("val_loss"),
        dev_scores=dev_scores,
        train_file=task.train_file,
        imported_from=imported_from,
        imported_head=bool(state.get("imported_head", True)),
    )


def given_options(options_class, values):
    """The values, {name: value}, that are not None and belong to a dataclass of options."""
    names = [option.name for option in fields(options_class)]
    return {name: values[name] for name in names if values.get(name) is not None}
