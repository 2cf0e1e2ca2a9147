"""What all fine-tuning tasks have in common: an encoder, labelled examples, and their scores.

A task reads its file, and says what its head is, its loss, its predictions and their scores.
Validation logs the scores, so that fairseq's own options choose the best checkpoint by them;
checkpoints also have them in the state of the task.
"""

import logging
import os
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Optional

import torch
import torch.nn.functional as F
from omegaconf import II, MISSING

from ..base.checkpoint_names import first_accepted, resumable_checkpoint_paths
from ..base.errors import UsageError
from ..base.option_fields import setting
from ..base.provenance import sha256
from ..base_task import MaeLmBaseTask, check_best_checkpoint_options
from ..checkpoints.building import read_checkpoint
from ..checkpoints.checkpoint_info import (
    PretrainingOptions,
    given_options,
    info_of_checkpoint,
)
from ..checkpoints.schema import TaskState
from ..optimizer import set_depth_below_head
from ..precision import PrecisionConfig
from ..state_dicts import HEAD_PREFIX
from ..vocabulary import load_dictionary_and_tokenizer
from .encoder_options import copy_encoder_options
from .finetuning_dataset import IGNORE_INDEX
from .jackknife import JACKKNIFE_GROUPS
from .labelled_files import find_file, is_test_split
from .validation_scores import METER, ValidationScores

logger = logging.getLogger(__name__)

SCORES_ENTRY = "scores"  # in the state of the task: {split: {metric: percent}}, and the update


@dataclass
class FineTuningConfig(PrecisionConfig):
    data: str = setting(
        MISSING,
        "folder with the vocabulary: dict.txt and sentencepiece.model or tokenizer.json",
    )
    labelled: str = setting(MISSING, "folder with the labelled files")
    seed: int = II("common.seed")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    save_dir: str = II("checkpoint.save_dir")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")
    valid_subset: str = II("dataset.valid_subset")


class FineTuningTask(MaeLmBaseTask, ABC):
    """The base of tasks that fine-tune an encoder; their `cfg` is a `FineTuningConfig`."""

    recipe_help = ""  # the options that only this task has, for the help of its recipe
    files = {}  # {split: possible names of its file}
    head_name = None
    needed_state = ()  # names of what prediction takes from the state of a checkpoint
    secondary_metrics = ()  # which results.tsv has, but the recipe does not print
    predicts_dev = False  # whether the recipe also writes predictions for the dev file
    jackknife_groups = JACKKNIFE_GROUPS  # see `jackknife.standard_errors`

    def __init__(self, cfg):
        dictionary, self.tokenizer = load_dictionary_and_tokenizer(cfg.data)
        super().__init__(cfg, dictionary)
        self.max_tokens = None  # see `set_max_tokens`
        self._contents = {}  # {split: what its file says}, until there is a dataset of it
        self.validation = ValidationScores(self)

    # What subclasses define

    @classmethod
    @abstractmethod
    def default_settings(cls, folder_name, width, num_layers):
        """The `hyperparameters.Defaults` of the recipe.

        Args:
            folder_name: name of the folder of labelled files
            width, num_layers: of the encoder
        """

    def loss_unit(self):
        """What follows a loss in messages."""
        return " bits"

    @abstractmethod
    def read(self, path, split):
        """The contents of a file, in a form of the task, such as a list of sentences."""

    @abstractmethod
    def record_prediction_state(self, path, contents):
        """Puts into the state what prediction needs, such as labels.

        Args:
            path, contents: of the training file; see `read`
        """

    @abstractmethod
    def add_head(self, model):
        """Adds the head to a model, newly initialised."""

    @abstractmethod
    def make_dataset(self, path, split, contents):
        """The `finetuning_dataset.FineTuningDataset` of a file's contents; see `read`."""

    def compute_output(self, model, net_input):
        """The output of the head, in float32 or more, from which loss and predictions follow."""
        output, _ = model(**net_input, features_only=True, classification_head_name=self.head_name)
        return output.to(torch.promote_types(output.dtype, torch.float32))

    def compute_loss(self, output, target):
        """The loss, summed over all targets; the cross-entropy over classes in nats."""
        return F.cross_entropy(
            output.flatten(0, -2), target.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
        )

    @abstractmethod
    def compute_predictions(self, output, sample, dataset):
        """What the model predicts for the sequences of a batch: a list of what can be pickled."""

    @abstractmethod
    def compute_scores(self, dataset, predictions):
        """The scores of predictions: {metric: percent}, nan where one is undefined.

        Args:
            dataset: dataset of the split
            predictions: {index of a sequence: what `compute_predictions` gives}
        """

    @abstractmethod
    def prediction_file(self, dataset, predictions, name):
        """The name and the contents of a file with the predictions for a split.

        Args:
            dataset: dataset of the split
            predictions: as for `compute_scores`, of all examples
            name: name of the folder of labelled files
        """

    def constant_prediction(self, dataset, predictions):
        """The label that is predicted everywhere, although there are others; else None.

        Arguments as for `compute_scores`.
        """

    def report(self, dataset, predictions):
        """Precision, recall and F1 of each class, as a text; None where there are no classes."""

    @property
    def recorded(self):
        """The `TaskState` of this run; entries that an older checkpoint does not have are None."""
        names = {field.name for field in fields(TaskState)}
        entries = {name: value for name, value in self.state.state_dict.items() if name in names}
        return TaskState(**{"dictionary_fingerprint": 0, **entries})

    def record_state(self, **entries):
        """Puts entries into the state of the task, which checkpoints keep.

        Raises TypeError: an entry is no field of `schema.TaskState`, so that nothing would read it
        """
        unknown = entries.keys() - {field.name for field in fields(TaskState)}
        if unknown:
            raise TypeError(
                f"{', '.join(unknown)}: expected fields of checkpoints.schema.TaskState; add them "
                "there"
            )
        self.state.merge_state_dict(entries)

    # Files, each of which is read once

    def path(self, split, required=True):
        """The file of a split; None if there is none and it is not required."""
        return find_file(self.cfg.labelled, split, self.files, required)

    def read_split(self, split):
        """What the file of a split says; see `read`."""
        if split not in self._contents:
            self._contents[split] = self.read(self.path(split), split)
        return self._contents[split]

    def prepare_state(self):
        """Reads the training file, and puts into the state what prediction needs."""
        self.record_prediction_state(self.path("train"), self.read_split("train"))

    # What fairseq asks for

    def build_model(self, cfg, from_checkpoint=False):
        """The encoder of the checkpoint that the run starts from, with a head."""
        if not from_checkpoint:  # from a checkpoint, the state is there already
            for split in (self.cfg.valid_subset or "").split(","):
                check_not_test_split(split)
            checksums = {}
            for split in ["train", "valid"]:
                path = self.path(split, required=False)
                checksums[f"{split}_file"] = path and sha256(path)
            start = self.starting_checkpoint()
            if start:
                self.keep_history(*start, checksums["train_file"])
                copy_encoder_options(*start, cfg)
            else:
                self.record_state(pretraining_updates=0)
            self.prepare_state()
            self.record_state(**checksums)  # a resumed run must have the same files
        model = super().build_model(cfg, from_checkpoint)
        self.set_max_tokens(model)
        self.add_head(model)
        for name, weight in model.named_parameters():
            set_depth_below_head(weight, layers_below_head(name, len(model.encoder.layers)))
        return model

    def set_max_tokens(self, model):
        """Limits sequences to the positions of a model."""
        self.max_tokens = model.max_positions()

    def starting_checkpoint(self):
        """The checkpoint that the run starts from or resumes: its path and its state.

        None if there is none.
        """
        start = self.cfg.finetune_from_model
        if start and os.path.isfile(start):
            paths = [start]
        else:
            paths = resumable_checkpoint_paths(self.cfg.save_dir, self.cfg.checkpoint_suffix)
        if not paths:
            return None
        path, state, _ = first_accepted(paths, read_checkpoint)
        return path, state

    def keep_history(self, path, checkpoint, train_file):
        """Puts into the state how the encoder of a checkpoint was pretrained and fine-tuned.

        Args:
            train_file: the SHA-256 of the file that it is fine-tuned on now
        """
        info = info_of_checkpoint(checkpoint, path)
        self.record_state(**asdict(info.pretraining))
        earlier = [digest for digest in info.train_files_sha256 if digest != train_file]
        self.record_state(earlier_train_files=earlier)

    def load_dataset(self, split, **kwargs):
        dataset = self.make_dataset(self.path(split), split, self.read_split(split))
        self.datasets[split] = dataset
        del self._contents[split]
        logger.info(dataset.summary + (self.positions_note(dataset) if split == "train" else ""))
        if split == "valid":
            check_best_checkpoint_options(self.cfg, [*dataset.metrics, "loss"], dataset.metrics)

    def positions_note(self, dataset):
        """What the log says of sequences that are longer than those of pretraining."""
        known = given_options(PretrainingOptions, vars(self.recorded))
        trained_positions = PretrainingOptions(**known).trained_positions
        if trained_positions is None:
            return ""
        longer = int((dataset.sizes > trained_positions).sum())
        if not longer:
            return ""
        return (
            f"; {longer:,} of more tokens than the {trained_positions} of pretraining, which left "
            "later positions untrained: go on with longer blocks, as docs/own_text.md does"
        )

    def valid_step(self, sample, model, criterion):
        """Computes the loss, as fairseq does, and keeps the predictions of all processes."""
        split = sample["split"]
        check_not_test_split(split)
        model.eval()
        with torch.no_grad():
            loss, ntargets, logged, output = criterion.step(model, sample)
        predictions = self.compute_predictions(output, sample, self.datasets[split])
        self.validation.gather(split, dict(zip(sample["id"].tolist(), predictions)))
        return loss, ntargets, logged

    def reduce_metrics(self, logging_outputs, criterion):
        super().reduce_metrics(logging_outputs, criterion)
        self.validation.log()

    def post_validate(self, model, stats, agg):
        """Keeps the scores of a validation; fairseq calls it after the validation of each split."""
        update = int(stats["num_updates"])
        kept = self.state.state_dict.get(SCORES_ENTRY, {})
        if kept.get("num_updates") != update:
            kept = {"num_updates": update}
        scores = {**kept, self.validation.split: agg[METER].scores()}
        self.record_state(**{SCORES_ENTRY: scores})


def layers_below_head(name, num_layers):
    """How many layers below the head a weight is, by its name.

    The embeddings are below all `num_layers`.
    """
    if name.startswith(HEAD_PREFIX):
        return 0
    if name.startswith("encoder.layers."):
        return num_layers - int(name.split(".")[2])
    return num_layers + 1


def check_not_test_split(split):
    """Refuses to validate on a test file."""
    if is_test_split(split):
        raise UsageError(
            f"--valid-subset {split}: test files are for the finished model; the recipe scores them"
        )
