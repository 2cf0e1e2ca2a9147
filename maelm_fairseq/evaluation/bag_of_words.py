"""The baseline of fine-tuning: what a bag of words scores on the same files, in seconds, without
an encoder.

Its features are TF-IDF weights, on a logarithmic scale, of words and punctuation marks, of pairs of
these, and of the 2 to 5 letters within words. A linear support vector machine predicts classes,
ridge regression values. Five folds of the training file choose how strongly it is regularised.
Beside it: always the most frequent class.
"""

import contextlib
import os
from collections import Counter
from typing import List

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import LinearSVC

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
from .baseline_scores import (
    BAG_OF_WORDS,
    MOST_FREQUENT,
    Score,
    save_outcome,
    scores_with_errors,
    show_scores,
)
from .ensemble import one_hot

WORD_NGRAMS = dict(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]")
LETTER_NGRAMS = dict(ngram_range=(2, 5), analyzer="char_wb")
BAG_STRENGTHS = [0.1, 0.3, 1, 3, 10]  # C of the support vector machine, alpha of the ridge
BAG_FOLDS = 5


class NgramCounts:
    """How often each example has each word, pair of words and group of letters.

    Args:
        examples: N tuples of one text, or of two; the first and the second text have features of
            their own

    Attributes:
        matrices: the counts, a sparse (N, n-grams) for each of the texts and kinds of n-grams
    """

    def __init__(self, examples):
        self.matrices = []
        self._vectorizers = []  # of each matrix, with the column of its texts
        for column in range(len(examples[0])):
            texts = lowercased_column(examples, column)
            for settings in (WORD_NGRAMS, LETTER_NGRAMS):
                vectorizer = CountVectorizer(lowercase=False, **settings)
                with contextlib.suppress(ValueError):  # no text has a word
                    self.matrices.append(vectorizer.fit_transform(texts))
                    self._vectorizers.append((vectorizer, column))

    def of_others(self, examples):
        """How often other examples have these n-grams, as `matrices`."""
        matrices = []
        for vectorizer, column in self._vectorizers:
            matrices.append(vectorizer.transform(lowercased_column(examples, column)))
        return matrices


def lowercased_column(examples, column):
    """The first or the second text of each example, in small letters."""
    return [example[column].lower() for example in examples]


class TfidfWeights:
    """TF-IDF weights, whose features and frequencies come from some training examples.

    Args:
        matrices: of `NgramCounts`
        train_indices: indices of the training examples
    """

    def __init__(self, matrices, train_indices):
        self._parts = []  # of each matrix: which n-grams are features, and their weights
        for counts in matrices:
            is_feature = counts[train_indices].getnnz(axis=0) > 0
            transformer = None
            if is_feature.any():
                transformer = TfidfTransformer(sublinear_tf=True)
                transformer.fit(counts[train_indices][:, is_feature])
            self._parts.append((is_feature, transformer))

    def weigh(self, matrices, num_examples):
        """The weights of the features of examples: sparse (num_examples, features).

        `matrices` are their counts.
        """
        # A column of zeros: the only feature where no training example has a word.
        weighted = [csr_matrix((num_examples, 1))]
        for counts, (is_feature, transformer) in zip(matrices, self._parts):
            if transformer is not None:
                weighted.append(transformer.transform(counts[:, is_feature]))
        return hstack(weighted).tocsr()


class BagOfWords:
    """A linear model on TF-IDF weights, trained on some of the examples that were counted.

    Args:
        counts: `NgramCounts` of N examples
        targets: (N,) or more, as for `train_best`
        train_indices: indices of the training examples
    """

    def __init__(self, counts, targets, train_indices):
        self._counts = counts
        self._weights = TfidfWeights(counts.matrices, train_indices)
        self.model = train_best(self.features(train_indices), targets[train_indices])

    def features(self, indices):
        """The features of counted examples, by their indices: sparse (n, features)."""
        matrices = [counts[indices] for counts in self._counts.matrices]
        return self._weights.weigh(matrices, len(indices))

    def margins(self, indices):
        """The `margins_or_values` of n counted examples, by their indices."""
        return margins_or_values(self.model, self.features(indices))

    def margins_of_others(self, examples):
        """The `margins_or_values` of n other examples."""
        features = self._weights.weigh(self._counts.of_others(examples), len(examples))
        return margins_or_values(self.model, features)


def train_best(x, targets):
    """Trains a linear model, with the strength of regularisation that folds choose.

    Args:
        x: (n, features)
        targets: (n,), floats for values, else classes
    """
    if targets.dtype.kind == "f":
        model = Ridge()
        strengths = {"alpha": BAG_STRENGTHS}
        scoring = "neg_mean_squared_error"
        fold_class = KFold
        most_folds = len(targets)
    else:
        model = LinearSVC(random_state=0)
        strengths = {"C": BAG_STRENGTHS}
        scoring = "accuracy"
        fold_class = StratifiedKFold
        sizes = sorted(Counter(targets.tolist()).values())
        if len(sizes) == 1:
            return DummyClassifier().fit(x, targets)
        # With no more folds than the second largest class has examples, each fold leaves two
        # classes to train on.
        most_folds = sizes[-2]
    if most_folds == 1:
        return model.fit(x, targets)
    folds = fold_class(min(BAG_FOLDS, most_folds), shuffle=True, random_state=0)
    search = GridSearchCV(model, strengths, cv=folds, scoring=scoring)
    return search.fit(x, targets).best_estimator_


def margins_or_values(model, x):
    """The margin of each class by a model of `train_best`, or the values that it predicts.

    Returns: (n, classes), or (n, 1)
    """
    if not hasattr(model, "decision_function"):
        return model.predict(x)[:, None]
    margins = model.decision_function(x)
    if margins.ndim > 1:
        return margins
    return np.stack([-margins, margins], axis=1)  # of two classes


def train_and_predict_margins(counts, targets, train_indices, test_indices):
    """The margin of each class, or the values, of examples, after training on others.

    Args:
        counts: `NgramCounts`
        targets: as for `train_best`, of the training examples or more
        train_indices, test_indices: of the training examples, and of the others
    Returns: `margins_or_values` of the others
    """
    return BagOfWords(counts, targets, train_indices).margins(test_indices)


def train_and_predict(counts, targets, train_indices, test_indices):
    """The classes or values that a bag of words predicts, (n,); see `train_and_predict_margins`."""
    bag_of_words = BagOfWords(counts, targets, train_indices)
    return bag_of_words.model.predict(bag_of_words.features(test_indices))


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
        files: {name of a scored file: indices of its examples}
        metrics: their names
    """

    def __init__(self, folder, regression=False):
        tables = read_labelled_folder(folder, regression)
        train = tables["train"]
        self.classes = None
        if not train.schema.is_regression:
            labels = [example.label for example in train.examples]
            print(f"{train.path}: {describe_label_counts(labels)}")
            self.classes = classes_of_training(train.path, labels)
            warning = numeric_labels_warning(train.path, self.classes)
            if warning:
                print(warning)
        self.metrics = train.schema.metrics_of(self.classes or [])
        self.texts = []
        self.files = {}
        targets = []
        for split, table in tables.items():
            start = len(targets)
            examples = [example for example in table.examples if example.label is not None]
            labels = [example.label for example in examples]
            print(f"{table}{describe_labels(labels, self.classes, split)}")
            for example in examples:
                self.texts.append(example.texts)
                targets.append(label_to_target(example, self.classes, table.path, split))
            indices = np.arange(start, len(targets))
            if split == "train":
                self.train_indices = indices
            else:
                self.files[os.path.basename(table.path)] = indices
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
    for name, indices in labelled.files.items():
        targets = labelled.targets[indices]
        for predictor, of_rest in predictions.items():
            predicted = argmax_or_value(of_rest[indices - len(labelled.train_indices)])

            def score_subset(rows, targets=targets, predicted=predicted):
                return compute_scores(labelled.metrics, targets[rows], predicted[rows])

            count = len(indices)
            scores += scores_with_errors(predictor, name, score_subset, count, MAX_JACKKNIFE_GROUPS)
    return scores


def add_options(parser):
    """Adds the options that say what a bag of words is trained on; see `LabelledExamples`."""
    parser.add_argument(
        "--labelled",
        required=True,
        metavar="DIR",
        help="folder of the labelled files, as for finetune_glue.sh",
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
    predictions = baseline_predictions(labelled)
    scores = score_files(labelled, predictions)
    show_scores(scores)
    if args.dest:
        kept = {}
        for name, indices in labelled.files.items():
            if len(indices):
                rows_of_rest = indices - len(labelled.train_indices)
                kept[name] = predictions[BAG_OF_WORDS][rows_of_rest].tolist()
        save_outcome(scores, kept, args.dest)


if __name__ == "__main__":
    run_main(main)
