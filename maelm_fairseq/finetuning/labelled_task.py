"""What all fine-tuning tasks have in common: the encoder of a checkpoint, labelled examples, and scores of a split.

A task reads its file, and says what its head is, its loss, its answers and their scores. Validation logs the scores,
so that fairseq's own options choose the best checkpoint by them; they are also in the state of the task in checkpoints.
"""

import logging
import math
import os
from abc import ABC, abstractmethod
from argparse import Namespace
from collections import Counter
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn.functional as F
from omegaconf import II, MISSING

from ..base.checkpoint_names import first_accepted, resumable_checkpoints
from ..base.errors import UsageError
from ..base.provenance import sha256
from ..base.settings import setting
from ..base.typed_values import shown
from ..checkpoints.building import read_checkpoint
from ..checkpoints.compatibility import ENCODER, compare_configurations
from ..checkpoints.facts import facts_of
from ..engine import MetersDict, metrics, models
from ..precision import PrecisionConfig, check_precision
from ..state_dicts import HEADS
from ..task import TokenTask
from ..vocabulary import read_vocabulary
from .labelled_dataset import IGNORED
from .labelled_files import find_file, is_test

logger = logging.getLogger(__name__)

FEW = 10  # examples of a label that the log points out
SCORES = "scores"  # in the state of the task: {split: {metric: percent}}, and the update
FROM_CHECKPOINT = [*ENCODER, "share_decoder_layers", "decoder_layers"]  # the last two say how ranks are measured


@dataclass
class LabelledTaskConfig(PrecisionConfig):
    data: str = setting(MISSING, "folder with the vocabulary: dict.txt and sentencepiece.model or tokenizer.json")
    labelled: str = setting(MISSING, "folder with the labelled files")
    seed: int = II("common.seed")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    save_dir: str = II("checkpoint.save_dir")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")
    valid_subset: str = II("dataset.valid_subset")


class LabelledTask(TokenTask, ABC):
    """The base of tasks that fine-tune an encoder; their `cfg` is a `LabelledTaskConfig`."""

    files, head = {}, None  # {split: possible names of its file}; name of the head
    needed_state = ()  # names of what prediction takes from the state of a checkpoint
    positions = None  # of the model, once it is built: longer sequences are cut

    def __init__(self, cfg, **unused):
        check_precision(cfg)
        dictionary, self.tokenizer = read_vocabulary(cfg.data)
        super().__init__(cfg, dictionary)
        self._contents = {}  # {split: what its file says}, until there is a dataset of it
        self.split, self.answered = None, []  # in validation: {number of an example: answer} of each batch and process

    # What a task says of itself

    @abstractmethod
    def read(self, path, split):
        """Reads a file: what the next two methods get as `contents`."""

    @abstractmethod
    def prepare(self, path, contents):
        """Puts into the state what prediction needs, such as labels, from the training file."""

    @abstractmethod
    def make_head(self, model):
        """Adds the head to a model, newly initialised."""

    @abstractmethod
    def make_dataset(self, path, split, contents):
        """The examples of a file: `labelled_dataset.LabelledDataset`."""

    def output(self, model, net_input):
        """The output of the head, in float32 or more, on which loss and answers are computed."""
        output, _ = model(**net_input, features_only=True, classification_head_name=self.head)
        return output.to(torch.promote_types(output.dtype, torch.float32))

    def loss(self, output, target):
        """The loss, summed over all targets; the cross-entropy over classes in nats."""
        return F.cross_entropy(output.flatten(0, -2), target.flatten(), ignore_index=IGNORED, reduction="sum")

    @abstractmethod
    def answers(self, output, sample, dataset):
        """What the model predicts for the examples of a batch: a list with plain values for each."""

    @abstractmethod
    def scores(self, dataset, answers):
        """The scores of answers, {number of an example: what `answers` gives}: {metric: percent}, nan if undefined."""

    def report(self, dataset, answers):
        """Precision, recall and F1 of each class, as a text; None where there are no classes."""

    def keep_labels(self, path, labels):
        """Puts the labels of a training file, one for each example, into the state, in order."""
        logger.info(f"{path}: {counted(labels)}")
        counts = Counter(labels)
        labels = sorted(counts)
        few = [label for label in labels if counts[label] < FEW]
        if few:
            some = ", ".join(label[:50] for label in few[:20]) + ", ..." * (len(few) > 20)
            logger.warning(f"{path}: fewer than {FEW} examples of {some}; check that these are labels")
        if len(labels) < 2:
            raise UsageError(f"{path}: every label is {shown(labels[0])}; expected two labels or more")
        self.state.merge_state_dict({"labels": labels})

    def label_number(self, label, path, line):
        """The number of a label; refuses one that the training set does not have."""
        labels = self.state.labels
        if label in labels:
            return labels.index(label)
        known = ", ".join(labels)[:200]
        raise UsageError(
            f"{path}: line {line}: the label {shown(label)} is not one of the training set's, {known}; correct it"
        )

    # Files, each of which is read once

    def path(self, split, required=True):
        """The file of a split; None if there is none and it is not required."""
        return find_file(self.cfg.labelled, split, self.files, required)

    def contents(self, split):
        """What the file of a split says; see `read`."""
        if split not in self._contents:
            self._contents[split] = self.read(self.path(split), split)
        return self._contents[split]

    def prepare_state(self):
        """Reads the training file, and puts into the state what prediction needs."""
        self.prepare(self.path("train"), self.contents("train"))

    # What fairseq asks for

    def build_model(self, cfg, from_checkpoint=False):
        """The encoder of the checkpoint that the run starts from, with a head."""
        if not from_checkpoint:  # of which the state is part
            for split in (self.cfg.valid_subset or "").split(","):
                check_scored(split)
            self.take_sizes(cfg)
            self.prepare_state()
            for split in ["train", "valid"]:  # a resumed run has the same
                path = self.path(split, required=False)
                self.state.merge_state_dict({f"{split}_file": path and sha256(path)})
        model = super().build_model(cfg, from_checkpoint)
        self.positions = model.max_positions()
        self.make_head(model)
        for name, weight in model.named_parameters():
            weight.param_group = layers_below_head(name, len(model.encoder.layers))  # for --lr-layer-decay
        return model

    def take_sizes(self, cfg):
        """Takes the sizes of the encoder from the checkpoint, in place; refuses options that say something else."""
        start = self.cfg.finetune_from_model
        resumable = resumable_checkpoints(self.cfg.save_dir, self.cfg.checkpoint_suffix)
        paths = [start] if start and os.path.isfile(start) else resumable
        if not paths:
            return
        path, state, _ = first_accepted(paths, read_checkpoint)
        facts = facts_of(state, path)
        kept = {name: getattr(facts, name) for name in ["encoder_mask_fraction", "tokens_per_sample"]}
        self.state.merge_state_dict(kept)  # for the model card
        theirs, default = Namespace(**state["cfg"]["model"]), models.MODEL_DATACLASS_REGISTRY[cfg._name]()
        given = [name for name in FROM_CHECKPOINT if str(cfg[name]) != str(getattr(default, name))]
        compare_configurations(theirs, cfg, given, path)
        has_head = any(name.startswith(HEADS) for name in state["model"])
        for name in FROM_CHECKPOINT + ["classification_pooling"] * has_head:
            if str(cfg[name]) == str(getattr(default, name)):
                cfg[name] = getattr(theirs, name)

    def load_dataset(self, split, **kwargs):
        dataset = self.datasets[split] = self.make_dataset(self.path(split), split, self.contents(split))
        del self._contents[split]
        logger.info(dataset.text)
        metric, known = self.cfg.best_checkpoint_metric or "loss", [*dataset.metrics, "loss"]
        if split == "valid" and metric not in known:
            raise UsageError(f"--best-checkpoint-metric {metric}: validation logs {', '.join(known)}; choose one")
        if metric != "loss" and not self.cfg.maximize_best_checkpoint_metric:
            raise UsageError(f"--best-checkpoint-metric {metric} needs --maximize-best-checkpoint-metric")

    def valid_step(self, sample, model, criterion):
        """Computes the loss, as fairseq does, and keeps the answers of all processes."""
        self.split = sample["split"]
        check_scored(self.split)
        model.eval()
        with torch.no_grad():
            loss, ntargets, logged, output = criterion.step(model, sample)
        rows = self.answers(output, sample, self.datasets[self.split])
        self.answered += of_all_processes(dict(zip(sample["id"].tolist(), rows)))
        return loss, ntargets, logged

    def reduce_metrics(self, logging_outputs, criterion):
        super().reduce_metrics(logging_outputs, criterion)
        if self.answered:
            metrics.log_custom(lambda: Scores(self, self.split), "_scores", self.answered)
            for name in self.datasets[self.split].metrics:
                metrics.log_derived(name, lambda meters, name=name: meters["_scores"].logged(name))
            self.answered = []

    def post_validate(self, model, stats, agg):
        """Keeps the scores of a validation; fairseq calls it after that of each split."""
        update, state = int(stats["num_updates"]), self.state.state_dict
        earlier = state.get(SCORES, {})
        if earlier.get("num_updates") != update:
            earlier = {"num_updates": update}
        self.state.merge_state_dict({SCORES: {**earlier, agg["_scores"].split: agg["_scores"].values()}})


def of_all_processes(value):
    """The values that all processes have at this place: list; what fairseq itself gathers must be short."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [value]
    values = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def layers_below_head(name, layers):
    """How many layers below the head a weight is, by its name; the embeddings are below all `layers`."""
    if name.startswith(HEADS):
        return 0
    if name.startswith("encoder.layers."):
        return layers - int(name.split(".")[2])
    return layers + 1


def counted(labels):
    """How often each label occurs, in words."""
    counts = sorted(Counter(labels).items())
    return f"{len(counts)} labels: " + ", ".join(f"{label[:50]} {count:,}" for label, count in counts[:100])


def check_scored(split):
    """Refuses to validate on a test file."""
    if is_test(split):
        raise UsageError(f"--valid-subset {split}: test files are for the finished model; the recipe scores them")


class Scores(MetersDict._DerivedMeter):  # others are saved with a run, and must then be fairseq's
    """The scores of the answers that all processes have given to a split."""

    def __init__(self, task, split):
        super().__init__(lambda meters: len(self.answers))
        self.task, self.split, self.answers, self._values = task, split, {}, None

    def update(self, answered):
        for rows in answered:
            self.answers.update(rows)
        self._values = None

    def values(self):
        """{metric: percent}."""
        self._values = self._values or self.task.scores(self.task.datasets[self.split], self.answers)
        return self._values

    def logged(self, name):
        """A score as fairseq compares it to choose the best checkpoint: 0 where it is undefined."""
        value = self.values().get(name, math.nan)
        return 0.0 if math.isnan(value) else round(value, 2)
