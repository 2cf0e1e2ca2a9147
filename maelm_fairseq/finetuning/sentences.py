"""Fine-tuning on sentences or pairs, as in GLUE: classification, or regression on numbers."""

import logging
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F

from ..base.settings import setting
from ..base.subwords import sequence
from ..fairseq_api import FairseqDataclass, register_criterion, register_task
from ..label_scale import STANDARDISED, label_scale
from . import glue
from .jackknife import MAX_JACKKNIFE_GROUPS
from .labelled_criterion import LabelledCriterion
from .labelled_dataset import LabelledDataset
from .labelled_files import is_test_split
from .labelled_task import LabelledTask, LabelledTaskConfig, counted
from .metrics import compute_scores, report_of_classes
from .sentence_files import SENTENCE_FILES, Form, are_values, read_sentences

logger = logging.getLogger(__name__)

# The index of a label of a test file that the training file does not have: no answer is right.
UNKNOWN_LABEL = -1


@dataclass
class SentencesConfig(LabelledTaskConfig):
    regression: bool = setting(False, "labels are numbers, as the header `score` says, too")


@register_task("mae_lm_sentences", dataclass=SentencesConfig)
class SentencesTask(LabelledTask):
    """Reads train.tsv, dev.tsv and perhaps test.tsv of `sentence_files.read_sentences`.

    Its state: `labels`, in order, None for regression; `standardised`, mean and standard deviation
    of the training file's numbers, in whose units the head is trained; `form` of the training file.
    """

    recipe_help = "--regression if a column `label` has numbers to predict"
    files = SENTENCE_FILES
    head = "sentences"
    needed_state = ("form",)
    has_bag_of_words = True
    jackknife_groups = MAX_JACKKNIFE_GROUPS
    defaults = staticmethod(glue.defaults_of)

    @property
    def loss_unit(self):
        return super().loss_unit if self.state.labels else " (squared error, in variances)"

    def read(self, path, split):
        if split == "train":
            return read_sentences(path, regression=self.cfg.regression)
        form = Form(*self.state.form)
        return read_sentences(path, is_test_split(split), form.is_regression, form)

    def prepare(self, path, table):
        self.state.merge_state_dict({"labels": None, "form": list(table.form)})
        if table.form.is_regression:
            values = [float(example.label) for example in table.examples]
            largest = max(map(abs, values)) or 1.0  # the squares of very small numbers would be 0
            mean = np.mean(values)
            std = np.std(np.divide(values, largest)) * largest
            self.state.merge_state_dict({STANDARDISED: [float(mean), float(std) or 1.0]})
            return
        self.keep_labels(path, [example.label for example in table.examples])
        if are_values(self.state.labels):
            logger.warning(
                f"{path}: all labels are numbers: to predict values instead of classes, "
                "add --regression"
            )

    def make_head(self, model):
        model.register_classification_head(self.head, len(self.state.labels or [None]))

    def make_dataset(self, path, split, table):
        columns = zip(*(example.texts for example in table.examples))
        encoded = [self.tokenizer.encode_all(texts) for texts in columns]
        joined = [sequence(parts, self.positions) for parts in zip(*encoded)]
        text = str(table)
        cut = sum(count > 0 for _, count in joined)
        if cut:
            text += f"; {cut:,} cut to {self.positions} tokens"
        targets = [[self.target(example, path, split)] for example in table.examples]
        labels = [example.label for example in table.examples]
        scored = [label for label in labels if label is not None]
        text += self.labels_text(scored, split)
        metrics = []
        if scored:
            metrics = table.form.metrics_of(self.state.labels or [])
        return LabelledDataset(
            self,
            split,
            [tokens for tokens, _ in joined],
            targets,
            text,
            metrics,
            ids=[example.id for example in table.examples],
            labels=labels,
        )

    def labels_text(self, labels, split):
        """What the log says about a list of labels, those that a split has."""
        classes = self.state.labels or []
        if not is_test_split(split):
            if classes and split.startswith("valid"):
                return f"; {counted(labels)}"
            return ""
        if not labels:
            return "; no labels"
        text = f"; {len(labels):,} have labels, and are scored in the end"
        unknown = ", ".join(sorted(set(labels) - set(classes)))
        if classes and unknown:
            text += f"; labels that no training example has count as wrong: {unknown[:200]}"
        return text

    def target(self, example, path, split):
        """The index of a label, or its value; 0 where there is none."""
        if self.state.labels is None:
            return float(example.label or 0)
        if example.label is None:
            return 0
        if is_test_split(split) and example.label not in self.state.labels:
            return UNKNOWN_LABEL
        return self.label_index(example.label, path, example.line)

    def loss(self, output, target):
        if self.state.labels is None:
            mean, std = label_scale(self.state.state_dict)
            standardised = (target - mean) / std
            return F.mse_loss(output, standardised.to(output.dtype), reduction="sum")
        return super().loss(output, target)

    def answers(self, output, sample, dataset):
        """The logits of each class, or the value."""
        if self.state.labels is None:
            mean, std = label_scale(self.state.state_dict)
            output = output.double() * std + mean
        return output.tolist()

    def labelled_examples(self, dataset):
        """The indices of the examples that have labels, in order."""
        return [index for index, label in enumerate(dataset.labels) if label is not None]

    def scores(self, dataset, answers):
        scored = [i for i in self.labelled_examples(dataset) if i in answers]
        targets = np.array([dataset.targets[i][0] for i in scored])
        predicted = self.predicted(answers[i] for i in scored)
        return compute_scores(dataset.metrics, targets, predicted)

    def predicted(self, answers):
        """The values, or the indices of the most probable classes, (n,), of n answers."""
        outputs = np.array(list(answers)).reshape(-1, len(self.state.labels or [None]))
        if self.state.labels is None:
            return outputs[:, 0]
        return outputs.argmax(1)

    def report(self, dataset, answers):
        if self.state.labels is None:
            return None
        scored = [i for i in self.labelled_examples(dataset) if i in answers]
        indices = self.predicted(answers[i] for i in scored)
        predicted = [self.state.labels[index] for index in indices]
        return report_of_classes([dataset.labels[i] for i in scored], predicted)

    def prediction_file(self, dataset, answers, name):
        """A table with the label or the value of each example; see `glue.prediction_table`."""
        indices = range(len(dataset))
        predicted = self.predicted(answers[i] for i in indices).tolist()
        if self.state.labels:
            predicted = [self.state.labels[index] for index in predicted]
        text = glue.prediction_table(zip(dataset.ids, predicted), name)
        return glue.server_name(name, dataset.split) + ".tsv", text


@register_criterion("mae_lm_sentences", dataclass=FairseqDataclass)
class SentencesCriterion(LabelledCriterion):
    """Cross-entropy, or the squared error; see `labelled_criterion.LabelledCriterion`."""
