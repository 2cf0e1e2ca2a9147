#!/usr/bin/env python3
"""Fine-tunes a pretrained encoder on a GLUE task, or on your own data in the same format, and evaluates it.

For each seed it runs fairseq-train and computes the task's metrics on the dev set. It reports the median over the
seeds, and writes the best seed's predictions for the test set in the GLUE server's format (SAVE_DIR/submission).
"""

import os
from dataclasses import dataclass
from typing import List, Optional

import numpy as np
import torch

import finetune
from child_processes import terminate_children_on_sigterm
from maelm_fairseq import hub
from maelm_fairseq.base.errors import InstallationError, UsageError, run
from maelm_fairseq.base.files import atomic_write, read_json
from maelm_fairseq.data.blocks import TokenBlocks
from maelm_fairseq.vocabulary import load_dictionary

try:
    from scipy import stats
    from sklearn import metrics
except ImportError as error:
    raise InstallationError(f"{error}: pip install scikit-learn scipy (the extra `finetune`)") from None

LARGE_TASKS = ["MNLI", "QQP", "QNLI", "SST-2"]  # fewer epochs are enough for these
METRICS = {
    "accuracy": metrics.accuracy_score,
    "f1": metrics.f1_score,
    "matthews": metrics.matthews_corrcoef,
    "pearson": lambda targets, predictions: stats.pearsonr(targets, predictions)[0],
    "spearman": lambda targets, predictions: stats.spearmanr(targets, predictions)[0],
}
TASK_METRICS = {"CoLA": ["matthews"], "MRPC": ["accuracy", "f1"], "QQP": ["accuracy", "f1"]}
AGAIN = "prepare the data again with data-prep/glue.sh"
LONGEST = 1 << 30  # tokens of a text: none is cut
SERVER_NAMES = {("MNLI", "test"): "MNLI-m", ("MNLI", "test1"): "MNLI-mm"}


@dataclass
class Split:
    examples: int


@dataclass
class Splits:
    """MNLI has a second, mismatched dev and test set."""

    train: Split
    valid: Split
    valid1: Optional[Split] = None
    test: Optional[Split] = None
    test1: Optional[Split] = None


@dataclass
class TaskRecord:
    """What data-prep/glue.sh records of its data."""

    pair: bool
    labels: Optional[List[str]]  # None for regression
    max_tokens: int
    splits: Splits


class GlueTask:
    """The prepared data of a task, in the folder that data-prep/glue.sh wrote for it."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.record_file = os.path.join(folder, "task.json")
        expected = "the record of a finished run of data-prep/glue.sh"
        self.record = read_json(self.record_file, TaskRecord, expected, AGAIN)
        self.labels = self.record.labels
        self.dictionary = load_dictionary(folder)
        self.metrics = TASK_METRICS.get(name, ["accuracy"] if self.labels else ["pearson", "spearman"])

    def options(self, bf16):
        """The options of fairseq's `sentence_prediction` for this task; `bf16`: with --bf16-autocast, or without."""
        options = ["--task", "sentence_prediction", "--criterion", "mae_lm_" * bf16 + "sentence_prediction"]
        options += ["--init-token", self.dictionary.bos(), "--num-classes", len(self.labels) if self.labels else 1]
        options += ["--separator-token", self.dictionary.eos()] * self.record.pair
        return options + ["--regression-target"] * (not self.labels)

    def splits(self, kind):
        """The names of the sets of a kind, `valid` or `test`."""
        return [split for split in (kind, kind + "1") if getattr(self.record.splits, split)]

    def checked(self, examples, path, split):
        """The examples of a file of a split, which must be as many as the record says."""
        expected = getattr(self.record.splits, split).examples
        if len(examples) != expected:
            raise UsageError(f"{path}: found {len(examples):,} examples, expected {expected:,}; {AGAIN}")
        return examples

    def column(self, name, split):
        """One column of a split: list of int64 tensors (T,)."""
        path = os.path.join(self.folder, name, split)
        lines = self.checked(TokenBlocks(path, LONGEST, "eos"), path, split)
        return [torch.from_numpy(lines[i]) for i in range(len(lines))]

    def tokens(self, split):
        """The examples as input for the model: list of int64 tensors (T,)."""
        bos, eos = torch.tensor([self.dictionary.bos()]), torch.tensor([self.dictionary.eos()])
        first = self.column("input0", split)
        if not self.record.pair:
            return [torch.cat([bos, a]) for a in first]
        return [torch.cat([bos, a, eos, b]) for a, b in zip(first, self.column("input1", split))]

    def targets(self, split):
        """The gold labels: class numbers or values, (n,)."""
        if self.labels is not None:
            return np.array([int(item[0]) - self.dictionary.nspecial for item in self.column("label", split)])
        path = os.path.join(self.folder, "label", split + ".label")
        try:
            values = np.loadtxt(path, ndmin=1)
        except ValueError as error:
            raise UsageError(f"{path}: {error}; {AGAIN}") from None
        return self.checked(values, path, split)

    def predict(self, model, split):
        """The model's predictions: class numbers or values, (n,)."""
        logits = model.head_logits(self.tokens(split)).numpy()
        return logits.argmax(1) if self.labels else logits[:, 0]

    def load(self, model_file):
        return hub.from_pretrained(model_file, data=self.folder).to("cuda" if torch.cuda.is_available() else "cpu")

    def evaluate(self, model_file):
        """The task's metrics on its dev sets, in percent."""
        model, scores = self.load(model_file), {}
        for split in self.splits("valid"):
            targets, predictions = self.targets(split), self.predict(model, split)
            for metric in self.metrics:
                name = metric + ("_mismatched" if split == "valid1" else "")
                scores[name] = 100 * float(METRICS[metric](targets, predictions))
        return scores

    def write_submission(self, model_file, folder):
        """Writes a model's predictions for the test sets in the GLUE server's format."""
        model = self.load(model_file)
        os.makedirs(folder, exist_ok=True)
        for split in self.splits("test"):
            path = os.path.join(self.folder, split + ".index")
            with open(path, encoding="utf-8") as stream:
                indices = self.checked(stream.read().split("\n")[:-1], path, split)
            path = os.path.join(folder, SERVER_NAMES.get((self.name, split), self.name) + ".tsv")
            with atomic_write(path) as stream:
                stream.write("index\tprediction\n")
                for index, prediction in zip(indices, self.predict(model, split)):
                    if self.labels:
                        prediction = self.labels[prediction]
                    elif self.name == "STS-B":
                        prediction = f"{min(max(prediction, 0), 5):.3f}"  # the server accepts only 0 to 5
                    stream.write(f"{index}\t{prediction}\n")
            print(f"predictions for the test set: {path}")


def main():
    terminate_children_on_sigterm()
    parser = finetune.parser(__doc__)
    parser.add_argument("--task", required=True, help="a folder in --data: CoLA, SST-2, MRPC, QQP, STS-B, MNLI, ...")
    args, extra = parser.parse_known_args()
    args.task = os.path.normpath(args.task)  # without the slash that a shell completes
    folder = os.path.join(args.data, args.task)
    if os.sep in args.task or not os.path.isdir(folder):
        folders = ", ".join(sorted(os.listdir(args.data))) if os.path.isdir(args.data) else "no such folder"
        raise UsageError(f"--task {args.task}: not in {args.data} ({folders}); prepare it with data-prep/glue.sh")
    task = GlueTask(folder, args.task)
    recipe = finetune.Recipe(
        args,
        extra,
        args.task,
        data=folder,
        record=task.record_file,
        examples=task.record.splits.train.examples,
        max_tokens=task.record.max_tokens,
        options=task.options(finetune.BF16 in extra),
        evaluate=task.evaluate,
        epochs=[2, 3, 5] if args.task in LARGE_TASKS else [2, 3, 5, 10],
    )
    best = recipe.main()
    if best and task.splits("test"):
        task.write_submission(best, os.path.join(args.save_dir, "submission"))


if __name__ == "__main__":
    run(main)
