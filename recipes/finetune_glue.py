#!/usr/bin/env python3
"""Fine-tunes a pretrained encoder on a GLUE task, or on your own data in the same format, and evaluates it.

For each seed it runs fairseq-train and computes the task's metrics on the dev set. It reports the median over the
seeds, and writes the best seed's predictions for the test set in the GLUE server's format (SAVE_DIR/submission).
"""

import os

import numpy as np
import torch

import finetune
from child_processes import terminate_children_on_sigterm
from maelm_fairseq import hub
from maelm_fairseq.base.errors import InstallationError, UsageError, run
from maelm_fairseq.base.files import atomic_write, read_json
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
CLASSIFICATION_METRICS, REGRESSION_METRICS = ["accuracy"], ["pearson", "spearman"]  # of all other tasks
SERVER_NAMES = {("MNLI", "test"): "MNLI-m", ("MNLI", "test1"): "MNLI-mm"}


class GlueTask:
    """The prepared data of a task.

    Args:
        folder: the folder that data-prep/glue.sh wrote for the task
        name: name of the task
    """

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.record_file = os.path.join(folder, "task.json")
        self.record = read_json(
            self.record_file,
            dict,
            "the record of a finished run of data-prep/glue.sh",
            "prepare the data again with data-prep/glue.sh",
        )
        self.labels = self.record["labels"]  # None for regression
        self.dictionary = load_dictionary(folder)
        self.metrics = TASK_METRICS.get(name, CLASSIFICATION_METRICS if self.labels else REGRESSION_METRICS)

    def options(self, bf16=False):
        """The options of fairseq's `sentence_prediction` for this task.

        Args:
            bf16: use the criterion that knows --bf16-autocast
        """
        options = ["--task", "sentence_prediction", "--criterion", "mae_lm_" * bf16 + "sentence_prediction"]
        options += ["--init-token", self.dictionary.bos()]
        if self.record["pair"]:
            options += ["--separator-token", self.dictionary.eos()]
        if self.labels:
            return options + ["--num-classes", len(self.labels)]
        return options + ["--num-classes", 1, "--regression-target"]

    def splits(self, kind):
        """The dev or test sets, for kind `valid` or `test`; MNLI has a second, mismatched one of each."""
        return [split for split in (kind, kind + "1") if split in self.record["splits"]]

    def column(self, name, split, dictionary):
        """One column of a split: fairseq's dataset of int64 tensors (T,)."""
        from fairseq.data import data_utils  # after the plugin, which keeps fairseq's import quiet

        return data_utils.load_indexed_dataset(os.path.join(self.folder, name, split), dictionary)

    def tokens(self, split):
        """The examples as input for the model: list of int64 tensors (T,)."""
        bos, eos = torch.tensor([self.dictionary.bos()]), torch.tensor([self.dictionary.eos()])
        first = self.column("input0", split, self.dictionary)
        if not self.record["pair"]:
            return [torch.cat([bos, a]) for a in first]
        second = self.column("input1", split, self.dictionary)
        return [torch.cat([bos, first[i], eos, second[i]]) for i in range(len(first))]

    def targets(self, split):
        """The gold labels: class numbers or values, (n,)."""
        from fairseq.data import Dictionary

        if self.labels is None:
            return np.loadtxt(os.path.join(self.folder, "label", split + ".label"), ndmin=1)
        dictionary = Dictionary.load(os.path.join(self.folder, "label", "dict.txt"))
        return np.array([int(item[0]) - dictionary.nspecial for item in self.column("label", split, dictionary)])

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
            with open(os.path.join(self.folder, split + ".index"), encoding="utf-8") as stream:
                indices = stream.read().split("\n")[:-1]
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
    folder = os.path.join(args.data, args.task)
    if not os.path.isdir(folder):
        found = ", ".join(sorted(os.listdir(args.data))) if os.path.isdir(args.data) else "no such folder"
        raise UsageError(f"--task {args.task}: not in {args.data} ({found}); prepare it with data-prep/glue.sh")
    task = GlueTask(folder, args.task)
    recipe = finetune.Recipe(
        args,
        extra,
        args.task,
        data=folder,
        record=task.record_file,
        examples=task.record["splits"]["train"]["examples"],
        max_tokens=task.record["max_tokens"],
        options=task.options(finetune.BF16 in extra),
        evaluate=task.evaluate,
        epochs=[2, 3, 5] if args.task in LARGE_TASKS else [2, 3, 5, 10],
    )
    best = recipe.main()
    if best and task.splits("test"):
        task.write_submission(best, os.path.join(args.save_dir, "submission"))


if __name__ == "__main__":
    run(main)
