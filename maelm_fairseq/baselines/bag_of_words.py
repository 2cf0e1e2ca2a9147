"""The baseline of fine-tuning: what a bag of words scores on the same files, in seconds, without
an encoder.

Its features are TF-IDF weights, on a logarithmic scale, of words and punctuation marks, of pairs of
these, and of the 2 to 5 letters within words. A linear support vector machine predicts classes,
ridge regression values. Five folds of the training file choose how strongly it is regularised.
Beside it: always the most frequent class.
"""

import os
from typing import List

import numpy as np

from ..base.command_line import Parser
from ..base.destinations import check_new_file
from ..base.running import run_main
from ..finetuning.jackknife import MAX_JACKKNIFE_GROUPS
from ..finetuning.labels import (
    classes_of_training,
    describe_label_counts,
    describe_labels,
    label_to_target,
)
from ..finetuning.sentence_files import numeric_labels_warning, read_labelled_folder
from ..metrics import argmax_or_value, compute_scores
from .bag_of_words_model import NgramCounts, train_and_predict_margins
from .baseline_scores import (
    BAG_OF_WORDS,
    MOST_FREQUENT,
    Score,
    save_outcome,
    scores_with_errors,
    show_scores,
)
from .ensemble import one_hot


def predict_most_frequent(targets, train_indices, test_indices):
    """The class of most training examples, predicted for others: (n,).

    See `train_and_predict_margins`.
    """
    classes, counts = np.unique(targets[train_indices], return_counts=True)
    return np.full(len(test_indices), classes[counts.argmax()])


class LabelledExamples:
    """The labelled sentences of a folder.

    The training file comes first, then each file that is scored.

    Attributes:
        texts: N tuples of one text or two
        targets: (N,), floats for values, else indices of `classes`; -1 for a class that no training
            example has
        classes: names in order; None for values
        train_indices: indices of the training examples
        indices_by_file: {name of a scored file: indices of its examples}
        metrics: their names
        summary: what was read, lines for the user
    """

    def __init__(self, folder, regression=False):
        tables = read_labelled_folder(folder, regression)
        train = tables["train"]
        self.classes = None
        self.summary = []
        if not train.schema.is_regression:
            labels = [example.label for example in train.examples]
            self.summary.append(f"{train.path}: {describe_label_counts(labels)}")
            self.classes = classes_of_training(train.path, labels)
            warning = numeric_labels_warning(train.path, self.classes)
            if warning:
                self.summary.append(warning)
        self.metrics = train.schema.metrics_of(self.classes or [])
        self.texts = []
        self.indices_by_file = {}
        targets = []
        for split, table in tables.items():
            start = len(targets)
            examples = [example for example in table.examples if example.label is not None]
            labels = [example.label for example in examples]
            self.summary.append(f"{table}{describe_labels(labels, self.classes, split)}")
            for example in examples:
                self.texts.append(example.texts)
                targets.append(label_to_target(example, self.classes, table.path, split))
            indices = np.arange(start, len(targets))
            if split == "train":
                self.train_indices = indices
            else:
                self.indices_by_file[os.path.basename(table.path)] = indices
        self.targets = np.array(targets)

    @property
    def scored_indices(self):
        """The indices of all examples that are scored."""
        return np.arange(len(self.train_indices), len(self.texts))


def baseline_predictions(labelled):
    """What each predictor predicts for all examples but the training examples.

    Returns: {predictor: (n, classes), or (n, 1) for values}
    """
    targets_and_indices = labelled.targets, labelled.train_indices, labelled.scored_indices
    predictions = {
        BAG_OF_WORDS: train_and_predict_margins(NgramCounts(labelled.texts), *targets_and_indices)
    }
    if labelled.classes is not None:
        frequent = predict_most_frequent(*targets_and_indices)
        predictions[MOST_FREQUENT] = one_hot(frequent, len(labelled.classes))
    return predictions


def score_files(labelled, predictions) -> List[Score]:
    """The scores of `baseline_predictions`, or of others like them, on every file with labels."""
    scores = []
    for name, indices in labelled.indices_by_file.items():
        targets = labelled.targets[indices]
        for predictor, outputs in predictions.items():
            predicted = argmax_or_value(outputs[indices - len(labelled.train_indices)])

            def score_subset(rows, targets=targets, predicted=predicted):
                return compute_scores(labelled.metrics, targets[rows], predicted[rows])

            count = len(indices)
            scores += scores_with_errors(predictor, name, score_subset, count, MAX_JACKKNIFE_GROUPS)
    return scores


def outputs_by_file(labelled, predictions):
    """What `baseline_predictions` has for each file with labels: {predictor: {file: rows}}."""
    outputs = {predictor: {} for predictor in predictions}
    for name, indices in labelled.indices_by_file.items():
        if len(indices):
            rows = indices - len(labelled.train_indices)
            for predictor, of_all in predictions.items():
                outputs[predictor][name] = of_all[rows].tolist()
    return outputs


def add_options(parser):
    """Adds the options that say what a bag of words is trained on; see `LabelledExamples`."""
    parser.add_argument(
        "--labelled",
        required=True,
        metavar="DIR",
        help="folder of the labelled files, as for finetune_sentences.sh",
    )
    parser.add_argument(
        "--regression", action="store_true", help="the column `label` contains numbers to predict"
    )


def main():
    parser = Parser("bag_of_words.py", description=__doc__)
    add_options(parser)
    add = parser.add_argument
    add("--dest", metavar="FILE.json", help="also write scores and predictions to a file")
    args = parser.parse_args()
    if args.dest:
        check_new_file(args.dest)
    labelled = LabelledExamples(args.labelled, args.regression)
    print(*labelled.summary, sep="\n")
    predictions = baseline_predictions(labelled)
    scores = score_files(labelled, predictions)
    show_scores(scores)
    if args.dest:
        save_outcome(scores, outputs_by_file(labelled, predictions), args.dest)


if __name__ == "__main__":
    run_main(main)
