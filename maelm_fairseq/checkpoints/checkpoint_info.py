"""What a checkpoint records about its model, apart from weights and sizes, with types."""

import os
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional, Tuple

from ..base.typed_values import as_type
from ..label_scale import UNSCALED
from ..state_dicts import has_lm_head
from .building import num_updates_of
from .schema import TaskState

# Sections of fairseq's configuration that say how a model was trained.
CONFIGURATION_SECTIONS = [
    "checkpoint",
    "model",
    "task",
    "optimization",
    "optimizer",
    "lr_scheduler",
    "dataset",
]


@dataclass(frozen=True)
class RunOptions:
    """Options of the run that wrote a checkpoint; None where there is no such option."""

    share_decoder_layers: Optional[bool] = None
    finetune_from_model: Optional[str] = None
    best_checkpoint_metric: str = "loss"


@dataclass(frozen=True)
class PretrainingOptions:
    """How an encoder was pretrained, which fine-tuned checkpoints keep, too."""

    mask_prob: Optional[float] = None
    leave_unmasked_prob: Optional[float] = None
    random_token_prob: Optional[float] = None
    encoder_mask_fraction: Optional[float] = None
    encoder_mask_fade_updates: Optional[int] = None
    tokens_per_sample: Optional[int] = None
    pretraining_updates: Optional[int] = None  # 0 for an encoder that was never pretrained
    pretraining_start: Optional[str] = None  # the checkpoint that pretraining went on from

    @property
    def trained_positions(self):
        """How many positions pretraining has trained.

        None where that is unknown: an encoder that went on from another may have longer texts
        behind it.
        """
        return None if self.pretraining_start else self.tokens_per_sample


@dataclass(frozen=True)
class CheckpointInfo:
    """What the hub, the export, its card, and fine-tuning need to know of a checkpoint."""

    labels: Optional[List[str]] = None  # the names of the classes, in order
    texts_per_example: int = 1  # of fine-tuning; 2 for pairs
    is_of_sentences: bool = False  # whether it was fine-tuned on sentences or pairs
    tags_are_legal: bool = False  # of training; see `tag_sequences`
    label_scale: Tuple[float, float] = UNSCALED  # mean and std; see the module of this name
    may_be_empty: bool = False  # whether a question may have no answer
    pretraining: PretrainingOptions = PretrainingOptions()
    unigram_bits: Optional[float] = None
    options: RunOptions = RunOptions()  # of the last run
    saved_options: Dict[str, Any] = field(default_factory=dict)  # all options of that run
    has_lm_head: bool = False  # as it has if its last training was pretraining
    updates: Optional[int] = None
    last_valid_score: Any = None  # of the last validation: what chose the best checkpoint
    dev_scores: Optional[Dict[str, float]] = None  # of fine-tuning: {metric: percent}
    train_files_sha256: Tuple[str, ...] = ()  # the labelled files that it was fine-tuned on
    # For an encoder that was imported and has not been trained since: the folder that it came from.
    imported_from: Optional[str] = None
    import_lacks_head: bool = False  # whether it came without the head of pretraining

    @property
    def masks_in_encoder(self):
        """Whether the encoder has seen all masks in pretraining, as in an MLM."""
        return self.pretraining.encoder_mask_fraction == 1

    @property
    def is_pretrained(self):
        """Whether its encoder was pretrained, as far as is known."""
        return self.pretraining.pretraining_updates != 0

    @property
    def is_fine_tuned(self):
        """Whether its last training was not pretraining."""
        return not self.has_lm_head and self.imported_from is None

    def classes(self, outputs):
        """The names of a head's classes, in order, or their numbers if there are no names.

        None for a head with a single output.
        """
        if outputs == 1:
            return None
        labels = self.labels or []
        names = labels if len(labels) == outputs else range(outputs)
        return list(map(str, names))


def info_of_checkpoint(checkpoint, path):
    """The `CheckpointInfo` of what `building.read_checkpoint` returned.

    Raises UsageError: it says something of another type
    """
    location = os.fspath(path)
    saved_options = options_of_run(checkpoint["cfg"], f"{location}: cfg")
    options = as_type(RunOptions, given_options(RunOptions, saved_options), f"{location}: cfg")
    task = as_type(TaskState, checkpoint["task_state"], f"{location}: task_state")
    # A fine-tuned checkpoint has them in the state of its task.
    pretraining = given_options(PretrainingOptions, vars(task))
    pretraining.update(given_options(PretrainingOptions, saved_options))
    has_head = has_lm_head(checkpoint["model"])
    updates = num_updates_of(checkpoint) or None
    if has_head:
        pretraining["pretraining_updates"] = updates
        pretraining["pretraining_start"] = options.finetune_from_model
    extra_state = as_type(dict, checkpoint.get("extra_state") or {}, f"{location}: extra_state")
    imported_from = None
    if "imported_from" in checkpoint:
        imported_from = as_type(str, checkpoint["imported_from"], f"{location}: imported_from")
    dev_scores = as_type(
        Optional[Dict[str, float]],
        (task.scores or {}).get("valid"),
        f"{location}: task_state: scores: valid",
    )
    return CheckpointInfo(
        labels=task.labels,
        texts_per_example=count_texts_per_example(task),
        is_of_sentences=task.form is not None,
        tags_are_legal=bool(task.tags_are_legal),
        label_scale=task.standardised or UNSCALED,
        may_be_empty=bool(task.may_be_empty),
        pretraining=as_type(PretrainingOptions, pretraining, f"{location}: cfg"),
        unigram_bits=task.unigram_bits,
        options=options,
        saved_options=saved_options,
        has_lm_head=has_head,
        updates=updates,
        last_valid_score=extra_state.get("val_loss"),
        dev_scores=dev_scores,
        train_files_sha256=tuple(
            filter(None, [*(task.earlier_train_files or []), task.train_file])
        ),
        imported_from=imported_from,
        import_lacks_head=not checkpoint.get("imported_head", True),
    )


def options_of_run(cfg, location):
    """The options in the sections of a configuration that say how a model was trained.

    Returns: {name: value}; a name that two sections have means the same in both
    """
    options = {}
    for section in CONFIGURATION_SECTIONS:
        options.update(as_type(dict, cfg.get(section) or {}, f"{location}: {section}"))
    return options


def count_texts_per_example(task):
    """How many texts an example of a fine-tuning task has; 1 for tasks without such examples."""
    if task.form is None:
        return 1
    _, columns_of_texts, _, _ = task.form
    return len(columns_of_texts)


def given_options(options_class, values):
    """The values, {name: value}, that are not None and belong to a dataclass of options."""
    names = [option.name for option in fields(options_class)]
    return {name: values[name] for name in names if values.get(name) is not None}
