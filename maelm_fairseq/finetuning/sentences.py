"""Fine-tuning on sentences or pairs, as in GLUE: classification, or regression on numbers."""

import logging
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F

from ..base.errors import UsageError
from ..base.option_fields import setting
from ..base.tokenizer import join_and_cut
from ..fairseq_api import FairseqDataclass, register_criterion, register_task
from ..label_scale import STANDARDISED, label_scale
from ..metrics import argmax_or_value, compute_scores, report_of_classes
from . import glue
from .finetuning_criterion import FineTuningCriterion
from .finetuning_dataset import FineTuningDataset
from .finetuning_task import FineTuningConfig, FineTuningTask
from .jackknife import MAX_JACKKNIFE_GROUPS
from .labelled_files import is_test_split
from .labels import classes_of_training, describe_labels, label_to_target
from .sentence_files import SENTENCE_FILES, TableSchema, numeric_labels_warning, read_sentences

logger = logging.getLogger(__name__)


@dataclass
class SentencesConfig(FineTuningConfig):
    regression: bool = setting(False, "labels are numbers, as the header `score` says, too")


class SentenceDataset(FineTuningDataset):
    """Sentences or pairs, each a sequence of tokens.

    Args:
        examples: list of `sentence_files.Example`
        common: arguments of `FineTuningDataset`

    Attributes:
        ids: the id of each example in a file of predictions
        labels: the label of each example, a text; None where it has none
    """

    def __init__(self, examples, **common):
        super().__init__(**common)
        self.ids = [example.id for example in examples]
        self.labels = [example.label for example in examples]

    def labelled_examples(self):
        return [index for index, label in enumerate(self.labels) if label is not None]


@register_task("mae_lm_sentences", dataclass=SentencesConfig)
class SentencesTask(FineTuningTask):
    """Reads train.tsv, dev.tsv and perhaps test.tsv of `sentence_files.read_sentences`.

    Its state: `labels`, in order, None for regression; `standardised`, mean and standard deviation
    of the training file's numbers, in whose units the head is trained; `form`, the schema of the
    training file.
    """

    recipe_help = "--regression if the column `label` contains numbers to predict"
    files = SENTENCE_FILES
    head_name = "sentences"
    needed_state = ("form",)
    jackknife_groups = MAX_JACKKNIFE_GROUPS

    @classmethod
    def default_settings(cls, folder_name, width, num_layers):
        return glue.sentence_task_defaults(folder_name, width, num_layers)

    @property
    def is_regression(self):
        """Whether numbers are predicted, not classes."""
        return self.recorded.labels is None

    @property
    def num_outputs(self):
        """Of the head: one for each class, or one value."""
        return 1 if self.is_regression else len(self.recorded.labels)

    def loss_unit(self):
        return " (squared error, in variances)" if self.is_regression else super().loss_unit()

    def read(self, path, split):
        if split == "train":
            return read_sentences(path, regression=self.cfg.regression)
        schema = TableSchema(*self.recorded.form)
        return read_sentences(path, is_test_split(split), schema.is_regression, schema)

    def record_prediction_state(self, path, table):
        self.record_state(labels=None, form=list(table.schema))
        if table.schema.is_regression:
            values = [float(example.label) for example in table.examples]
            if min(values) == max(values):
                raise UsageError(
                    f"{path}: every number to predict is {values[0]:g}; expected two or more "
                    "different ones"
                )
            largest = max(map(abs, values)) or 1.0  # the squares of very small numbers would be 0
            mean = np.mean(values)
            std = np.std(np.divide(values, largest)) * largest
            self.record_state(**{STANDARDISED: [float(mean), float(std) or 1.0]})
            return
        classes = classes_of_training(path, [example.label for example in table.examples])
        self.record_state(labels=classes)
        warning = numeric_labels_warning(path, classes)
        if warning:
            logger.warning(warning)

    def add_head(self, model):
        model.register_classification_head(self.head_name, self.num_outputs)

    def make_dataset(self, path, split, table):
        classes = self.recorded.labels
        columns = zip(*(example.texts for example in table.examples))
        encoded = [self.tokenizer.encode_all(texts) for texts in columns]
        joined = [join_and_cut(parts, self.max_tokens) for parts in zip(*encoded)]
        summary = str(table)
        cut = sum(count > 0 for _, count in joined)
        if cut:
            summary += f"; {cut:,} cut to {self.max_tokens} tokens"
        labels = [example.label for example in table.examples if example.label is not None]
        summary += describe_labels(labels, classes, split)
        return SentenceDataset(
            table.examples,
            task=self,
            split=split,
            sequences=[tokens for tokens, _ in joined],
            targets=[
                [label_to_target(example, classes, path, split)] for example in table.examples
            ],
            summary=summary,
            metrics=table.schema.metrics_of(classes or []) if labels else [],
        )

    def compute_loss(self, output, target):
        if self.is_regression:
            mean, std = label_scale(self.state.state_dict)
            standardised = (target - mean) / std
            return F.mse_loss(output, standardised.to(output.dtype), reduction="sum")
        return super().compute_loss(output, target)

    def compute_predictions(self, output, sample, dataset):
        """A list for each example: the logits of all classes, or only the value."""
        if self.is_regression:
            mean, std = label_scale(self.state.state_dict)
            output = output.double() * std + mean
        return output.tolist()

    def compute_scores(self, dataset, predictions):
        scored = [i for i in dataset.labelled_examples() if i in predictions]
        targets = np.array([dataset.targets[i][0] for i in scored])
        predicted = self.predicted_targets(predictions[i] for i in scored)
        return compute_scores(dataset.metrics, targets, predicted)

    def predicted_targets(self, predictions):
        """The values, or the indices of the most probable classes, (n,), of n predictions."""
        predictions = np.array(list(predictions)).reshape(-1, self.num_outputs)
        return argmax_or_value(predictions)

    def constant_prediction(self, dataset, predictions):
        if self.is_regression:
            return None
        classes = self.recorded.labels
        predicted = {classes[i] for i in self.predicted_targets(predictions.values())}
        return predicted.pop() if len(predicted) == 1 < len({*dataset.labels}) else None

    def report(self, dataset, predictions):
        if self.is_regression:
            return None
        scored = [i for i in dataset.labelled_examples() if i in predictions]
        indices = self.predicted_targets(predictions[i] for i in scored)
        classes = self.recorded.labels
        predicted = [classes[index] for index in indices]
        return report_of_classes([dataset.labels[i] for i in scored], predicted)

    def prediction_file(self, dataset, predictions, name):
        """A table with the label or the value of each example; see `glue.prediction_table`."""
        indices = range(len(dataset))
        predicted = self.predicted_targets(predictions[i] for i in indices).tolist()
        classes = self.recorded.labels
        if classes:
            predicted = [classes[index] for index in predicted]
        text = glue.prediction_table(zip(dataset.ids, predicted), name)
        return glue.server_name(name, dataset.split) + ".tsv", text


@register_criterion("mae_lm_sentences", dataclass=FairseqDataclass)
class SentencesCriterion(FineTuningCriterion):
    """Cross-entropy, or the squared error; see `finetuning_criterion.FineTuningCriterion`."""
