"""Fine-tuning on sentences or pairs: classification, or regression where labels are numbers, as in GLUE."""

from dataclasses import dataclass, field

import numpy as np
import torch.nn.functional as F

from ..base.errors import UsageError
from ..engine import FairseqDataclass, register_criterion, register_task
from ..vocabulary import sequence
from .labelled_files import SENTENCE_FILES, find_file, read_sentences
from .labelled_task import LabelledCriterion, LabelledDataset, LabelledTask, LabelledTaskConfig
from .metrics import METRICS


@dataclass
class SentencesConfig(LabelledTaskConfig):
    regression: bool = field(default=False, metadata={"help": "labels are numbers, as the header `score` says, too"})


@register_task("mae_lm_sentences", dataclass=SentencesConfig)
class SentencesTask(LabelledTask):
    """Reads train.tsv, dev.tsv and perhaps test.tsv of :func:`~.labelled_files.read_sentences`.

    Its state: `labels`, in order, None for regression; `texts`, 1 or 2 of an example; `form` of the training file.
    """

    files, head = SENTENCE_FILES, "sentences"

    def read(self, path, split):
        return read_sentences(path, split.startswith("test"), self.cfg.regression)

    def prepare(self):
        table = self.read(find_file(self.cfg.labelled, "train", self.files), "train")
        self.state.merge_state_dict({"labels": None, "texts": len(table.form.texts)})
        if not table.form.is_regression:
            self.keep_labels(table.path, [example.label for example in table.examples])

    def make_head(self, model):
        model.register_classification_head(self.head, len(self.state.labels or [None]))

    def make_dataset(self, path, split):
        table, state = self.read(path, split), self.state.state_dict
        if len(table.form.texts) != state["texts"]:
            raise UsageError(f"{path}: {len(table.form.texts)} texts per example, but training had {state['texts']}")
        columns = [self.tokenizer.encode_all(texts) for texts in zip(*(example.texts for example in table.examples))]
        joined = [sequence(self.dictionary, parts, self.positions) for parts in zip(*columns)]
        cut = sum(count > 0 for _, count in joined)
        text = f"{table}; {cut:,} cut to {self.positions} tokens" if cut else str(table)
        targets = [[self.target(example, path)] for example in table.examples]
        made = LabelledDataset(self, split, [tokens for tokens, _ in joined], targets, text, table.form.metrics)
        made.numbers = [example.number for example in table.examples]
        return made

    def target(self, example, path):
        """The number of a label, or its value; 0 where there is none."""
        if self.state.labels is None:
            return float(example.label or 0)
        return 0 if example.label is None else self.label_number(example.label, path, example.line)

    def loss(self, output, target):
        return (
            F.mse_loss(output, target, reduction="sum") if self.state.labels is None else super().loss(output, target)
        )

    def answers(self, output, sample, dataset):
        """The logits of each class, or the value."""
        return output.tolist()

    def scores(self, dataset, answers):
        outputs, targets = np.array(list(answers.values())), np.array([dataset.targets[i][0] for i in answers])
        predicted = outputs[:, 0] if self.state.labels is None else outputs.argmax(1)
        return {name: 100 * METRICS[name](targets, predicted) for name in dataset.metrics}


@register_criterion("mae_lm_sentences", dataclass=FairseqDataclass)
class SentencesCriterion(LabelledCriterion):
    """Cross-entropy, or the squared error; see :class:`~.labelled_task.LabelledCriterion`."""
