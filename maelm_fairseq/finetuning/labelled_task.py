"""What all fine-tuning tasks have in common: an encoder, labelled examples, and their scores.

A task reads its file, and says what its head is, its loss, its answers and their scores. Validation
logs the scores, so that fairseq's own options choose the best checkpoint by them; checkpoints also
have them in the state of the task.
"""

import logging
import math
import os
from abc import ABC, abstractmethod
from argparse import Namespace
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Optional

import torch
import torch.nn.functional as F
from omegaconf import II, MISSING

from ..base.checkpoint_names import first_accepted, resumable_checkpoints
from ..base.errors import UsageError
from ..base.provenance import sha256
from ..base.settings import setting
from ..base.typed_values import short_repr
from ..checkpoints.building import read_checkpoint
from ..checkpoints.compatibility import ENCODER_OPTIONS, compare_configurations
from ..checkpoints.facts import facts_of
from ..distributed import from_all_processes
from ..fairseq_api import MetersDict, metrics, models
from ..precision import PrecisionConfig
from ..state_dicts import HEAD_PREFIX
from ..task import MaeLmBaseTask
from ..vocabulary import read_vocabulary
from .jackknife import JACKKNIFE_GROUPS
from .labelled_dataset import IGNORE_INDEX
from .labelled_files import find_file, is_test_split

logger = logging.getLogger(__name__)

RARE_LABEL_COUNT = 10  # examples of a label that the log points out
SCORES_ENTRY = "scores"  # in the state of the task: {split: {metric: percent}}, and the update
# Options of the model that are copied from the checkpoint; only effective_rank needs the last two.
OPTIONS_OF_CHECKPOINT = [*ENCODER_OPTIONS, "share_decoder_layers", "decoder_layers"]


@dataclass
class LabelledTaskConfig(PrecisionConfig):
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


class LabelledTask(MaeLmBaseTask, ABC):
    """The base of tasks that fine-tune an encoder; their `cfg` is a `LabelledTaskConfig`."""

    recipe_help = ""  # the options that only this task has, for the help of its recipe
    files = {}  # {split: possible names of its file}
    head = None  # its name
    needed_state = ()  # names of what prediction takes from the state of a checkpoint
    has_bag_of_words = False  # whether it can be compared with a bag of words
    predicts_dev = False  # whether its official scorer reads predictions for the dev file
    jackknife_groups = JACKKNIFE_GROUPS  # see `jackknife.standard_errors`
    loss_unit = " bits"

    def __init__(self, cfg):
        dictionary, self.tokenizer = read_vocabulary(cfg.data)
        super().__init__(cfg, dictionary)
        self.positions = None  # see `fit_to`
        self._contents = {}  # {split: what its file says}, until there is a dataset of it
        # In validation: the split, and {index of an example: answer} of each batch and process.
        self.split = None
        self.answered = []

    # What a task says of itself

    @classmethod
    @abstractmethod
    def defaults(cls, name, width):
        """The `settings.Defaults` of the recipe.

        Args:
            name: of the folder of labelled files
            width: of the encoder
        """

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
        return F.cross_entropy(
            output.flatten(0, -2), target.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
        )

    @abstractmethod
    def answers(self, output, sample, dataset):
        """What the model predicts for the examples of a batch: a list of plain values for each."""

    @abstractmethod
    def scores(self, dataset, answers):
        """The scores of answers: {metric: percent}, nan where one is undefined.

        The answers are {index of an example: what `answers` gives}.
        """

    @abstractmethod
    def prediction_file(self, dataset, answers, name):
        """The name and the contents of a file with the predictions for a split.

        Args:
            dataset: of the split
            answers: as for `scores`, of all examples
            name: of the folder of labelled files
        """

    def report(self, dataset, answers):
        """Precision, recall and F1 of each class, as a text; None where there are no classes."""

    def keep_labels(self, path, labels):
        """Puts the labels of a training file, one for each example, into the state, in order."""
        logger.info(f"{path}: {counted(labels)}")
        counts = Counter(labels)
        labels = sorted(counts)
        few = [label for label in labels if counts[label] < RARE_LABEL_COUNT]
        if few:
            names = ", ".join(label[:50] for label in few[:20])
            if len(few) > 20:
                names += ", ..."
            logger.warning(
                f"{path}: found labels with fewer than {RARE_LABEL_COUNT} examples: {names}; if "
                "these are not labels, correct the file"
            )
        if len(labels) < 2:
            raise UsageError(
                f"{path}: every label is {short_repr(labels[0])}; expected two labels or more"
            )
        self.state.merge_state_dict({"labels": labels})

    def label_index(self, label, path, line):
        """The index of a label; refuses one that the training set does not have."""
        labels = self.state.labels
        if label in labels:
            return labels.index(label)
        names = ", ".join(labels)[:200]
        raise UsageError(
            f"{path}: line {line}: the label {short_repr(label)} is not one of the training set's, "
            f"{names}; correct it"
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
        if not from_checkpoint:  # from a checkpoint, the state is there already
            for split in (self.cfg.valid_subset or "").split(","):
                check_scored(split)
            self.take_sizes(cfg)
            self.prepare_state()
            for split in ["train", "valid"]:  # a resumed run must have the same files
                path = self.path(split, required=False)
                self.state.merge_state_dict({f"{split}_file": path and sha256(path)})
        model = super().build_model(cfg, from_checkpoint)
        self.fit_to(model)
        self.make_head(model)
        for name, weight in model.named_parameters():
            # For --lr-layer-decay.
            weight.param_group = layers_below_head(name, len(model.encoder.layers))
        return model

    def fit_to(self, model):
        """Limits sequences to the positions of a model."""
        self.positions = model.max_positions()

    def take_sizes(self, cfg):
        """Takes the sizes of the encoder from the checkpoint, in place.

        Options that say something else are refused.
        """
        start = self.cfg.finetune_from_model
        resumable = resumable_checkpoints(self.cfg.save_dir, self.cfg.checkpoint_suffix)
        paths = [start] if start and os.path.isfile(start) else resumable
        if not paths:
            return
        path, state, _ = first_accepted(paths, read_checkpoint)
        self.state.merge_state_dict(asdict(facts_of(state, path).pretraining))
        saved = Namespace(**state["cfg"]["model"])
        default = models.MODEL_DATACLASS_REGISTRY[cfg._name]()

        def is_default(name):
            return str(cfg[name]) == str(getattr(default, name))

        given = [name for name in OPTIONS_OF_CHECKPOINT if not is_default(name)]
        compare_configurations(saved, cfg, given, path)
        names = list(OPTIONS_OF_CHECKPOINT)
        if any(name.startswith(HEAD_PREFIX) for name in state["model"]):
            names.append("classification_pooling")
        for name in names:
            if is_default(name):
                cfg[name] = getattr(saved, name)

    def load_dataset(self, split, **kwargs):
        dataset = self.make_dataset(self.path(split), split, self.contents(split))
        self.datasets[split] = dataset
        del self._contents[split]
        logger.info(dataset.text)
        if split == "valid":
            self.check_best_metric([*dataset.metrics, "loss"])

    def check_best_metric(self, logged):
        """Refuses to choose the best checkpoint by a metric that is not among those logged."""
        metric = self.cfg.best_checkpoint_metric or "loss"
        if metric not in logged:
            raise UsageError(
                f"--best-checkpoint-metric {metric}: validation logs {', '.join(logged)}; "
                "choose one"
            )
        if metric != "loss" and not self.cfg.maximize_best_checkpoint_metric:
            raise UsageError(
                f"--best-checkpoint-metric {metric} needs --maximize-best-checkpoint-metric"
            )

    def valid_step(self, sample, model, criterion):
        """Computes the loss, as fairseq does, and keeps the answers of all processes."""
        self.split = sample["split"]
        check_scored(self.split)
        model.eval()
        with torch.no_grad():
            loss, ntargets, logged, output = criterion.step(model, sample)
        rows = self.answers(output, sample, self.datasets[self.split])
        self.answered += from_all_processes(dict(zip(sample["id"].tolist(), rows)))
        return loss, ntargets, logged

    def reduce_metrics(self, logging_outputs, criterion):
        super().reduce_metrics(logging_outputs, criterion)
        if self.answered:
            metrics.log_custom(lambda: Scores(self, self.split), "_scores", self.answered)
            for name in self.datasets[self.split].metrics:
                metrics.log_derived(name, lambda meters, name=name: meters["_scores"].logged(name))
            self.answered = []

    def post_validate(self, model, stats, agg):
        """Keeps the scores of a validation; fairseq calls it after the validation of each split."""
        update = int(stats["num_updates"])
        kept = self.state.state_dict.get(SCORES_ENTRY, {})
        if kept.get("num_updates") != update:
            kept = {"num_updates": update}
        scores = agg["_scores"]
        self.state.merge_state_dict({SCORES_ENTRY: {**kept, scores.split: scores.values()}})


def layers_below_head(name, layers):
    """How many layers below the head a weight is, by its name.

    The embeddings are below all `layers`.
    """
    if name.startswith(HEAD_PREFIX):
        return 0
    if name.startswith("encoder.layers."):
        return layers - int(name.split(".")[2])
    return layers + 1


def counted(labels):
    """How often each label occurs, in words."""
    counts = sorted(Counter(labels).items())
    listed = ", ".join(f"{label[:50]} {count:,}" for label, count in counts[:100])
    return f"{len(counts)} labels: {listed}"


def check_scored(split):
    """Refuses to validate on a test file."""
    if is_test_split(split):
        raise UsageError(
            f"--valid-subset {split}: test files are for the finished model; the recipe scores them"
        )


# A derived meter: the other kinds are saved with a run, and must then be of fairseq's own classes.
class Scores(MetersDict._DerivedMeter):
    """The scores of the answers that all processes have given to a split."""

    def __init__(self, task, split):
        super().__init__(lambda meters: len(self.answers))
        self.task = task
        self.split = split
        self.answers = {}
        self._values = None

    def update(self, answered):
        for rows in answered:
            self.answers.update(rows)
        self._values = None

    def values(self):
        """{metric: percent}."""
        if not self._values:
            dataset = self.task.datasets[self.split]
            self._values = self.task.scores(dataset, self.answers)
        return self._values

    def logged(self, name):
        """A score as fairseq compares it to choose the best checkpoint: 0 where it is undefined."""
        value = self.values().get(name, math.nan)
        if math.isnan(value):
            return 0.0
        return round(value, 2)
