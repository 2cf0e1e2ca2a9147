"""The yardstick of fine-tuning: what a bag of words scores on the same files, in seconds, without an encoder.

Its features are TF-IDF weights, on a logarithmic scale, of words and punctuation marks, of pairs of these, and of the
2 to 5 letters within words. A linear support vector machine predicts classes, ridge regression values. Five folds of
the training file choose how strongly it is regularised. Beside it: always the most frequent class.
"""

import contextlib
import os
from collections import Counter
from dataclasses import asdict
from typing import List

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import LinearSVC

from ..base.errors import Parser, run
from ..base.files import check_new
from ..base.json_files import save_json
from ..finetuning.labelled_files import SENTENCE_FILES, are_values, find_file, is_test, read_sentences
from ..finetuning.metrics import MOST_GROUPS, scores_of, standard_errors
from .votes import BAG_OF_WORDS, MOST_FREQUENT, Score, Yardsticks, answer, one_hot

WORDS = dict(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]")
LETTERS = dict(ngram_range=(2, 5), analyzer="char_wb")
STRENGTHS = [0.1, 0.3, 1, 3, 10]  # C of the support vector machine, alpha of the ridge
FOLDS = 5


class Counts:
    """How often each example has each word, pair of words and group of letters.

    Args:
        examples: N tuples of one text, or of two; each of their texts has features of its own
    """

    def __init__(self, examples):
        self.size, self.parts = len(examples), []
        for place in range(len(examples[0])):
            texts = [texts[place].lower() for texts in examples]
            for settings in (WORDS, LETTERS):
                with contextlib.suppress(ValueError):  # no text has a word
                    self.parts.append(CountVectorizer(lowercase=False, **settings).fit_transform(texts))

    def weights(self, rows):
        """The TF-IDF weights of all examples, by features and frequencies of the training examples `rows`.

        Returns: sparse (N, features)
        """
        weighted = [csr_matrix((self.size, 1))]  # where no training example has a word, it is the only feature
        for counts in self.parts:
            counts = counts[:, counts[rows].getnnz(axis=0) > 0]
            if counts.shape[1]:
                transformer = TfidfTransformer(sublinear_tf=True).fit(counts[rows])
                weighted.append(transformer.transform(counts))
        return hstack(weighted).tocsr()


def choose(x, targets):
    """Trains a linear model of features (n, features), with the strength of regularisation that folds choose.

    Args:
        targets: (n,), floats for values, else classes
    """
    if targets.dtype.kind == "f":
        model, folds, size = Ridge(), KFold, len(targets)
        strengths, scoring = {"alpha": STRENGTHS}, "neg_mean_squared_error"
    else:
        model, folds, scoring = LinearSVC(random_state=0), StratifiedKFold, "accuracy"
        strengths, sizes = {"C": STRENGTHS}, sorted(Counter(targets.tolist()).values())
        if len(sizes) == 1:
            return DummyClassifier().fit(x, targets)
        size = sizes[-2]  # of the second class: with fewer folds than that, all have two classes to train on
    if size == 1:
        return model.fit(x, targets)
    folds = folds(min(FOLDS, size), shuffle=True, random_state=0)
    return GridSearchCV(model, strengths, cv=folds, scoring=scoring).fit(x, targets).best_estimator_


def outputs(model, x):
    """How strongly a model of `choose` votes for each class, or the values that it predicts.

    Returns: (n, classes), or (n, 1)
    """
    if not hasattr(model, "decision_function"):
        return model.predict(x)[:, None]
    votes = model.decision_function(x)
    return votes if votes.ndim > 1 else np.stack([-votes, votes], axis=1)


def vote(counts, targets, rows, rest):
    """How strongly a bag of words that is trained on some examples votes for each class of others; see `outputs`.

    Args:
        counts: `Counts`
        targets: as for `choose`, of the training examples or more
        rows, rest: numbers of the training examples, and of the others
    """
    x = counts.weights(rows)
    return outputs(choose(x[rows], targets[rows]), x[rest])


def predict(counts, targets, rows, rest):
    """What a bag of words that is trained on some examples predicts for others; see `vote`."""
    x = counts.weights(rows)
    return choose(x[rows], targets[rows]).predict(x[rest])


def most_frequent(targets, rows, rest):
    """The class that most training examples have, for other examples."""
    classes, counts = np.unique(targets[rows], return_counts=True)
    return np.full(len(rest), classes[counts.argmax()])


class Labelled:
    """The labelled sentences of a folder: those of the training file, then those of each file that is scored.

    Attributes:
        texts: N tuples of one text or two
        targets: (N,), floats for values, else numbers of `classes`; -1 for a class that no training example has
        classes: names in order; None for values
        train: numbers of the training examples
        files: {name of a scored file: numbers of its examples}
        metrics: their names
    """

    def __init__(self, folder, regression=False):
        train = read_sentences(find_file(folder, "train", SENTENCE_FILES), regression=regression)
        is_regression = train.form.is_regression
        tables = {"": train}
        for split in SENTENCE_FILES:
            path = find_file(folder, split, SENTENCE_FILES, required=split == "valid")
            if path and split != "train":
                tables[os.path.basename(path)] = read_sentences(path, is_test(split), is_regression, train.form)
        self.texts, labels, files = [], [], {}
        for name, table in tables.items():
            examples = [example for example in table.examples if example.label is not None]
            files[name] = np.arange(len(labels), len(labels) + len(examples))
            self.texts += [example.texts for example in examples]
            labels += [example.label for example in examples]
        self.train, self.files = files.pop(""), files
        self.classes = None if is_regression else sorted(set(labels[: len(self.train)]))
        if is_regression:
            self.targets = np.array(labels, float)
        else:
            number_of = {label: number for number, label in enumerate(self.classes)}
            self.targets = np.array([number_of.get(label, -1) for label in labels])
        self.metrics = train.form.metrics_of(self.classes or [])
        if self.classes and are_values(self.classes):
            print(f"{train.path}: all labels are numbers: to predict values instead of classes, add --regression")

    @property
    def rest(self):
        """The numbers of all examples that are scored."""
        return np.arange(len(self.train), len(self.texts))


def of_all(labelled):
    """The outputs of each predictor for all examples of a `Labelled` after those of training.

    Returns: {predictor: (n, classes), or (n, 1) for values}
    """
    rows = labelled.targets, labelled.train, labelled.rest
    found = {BAG_OF_WORDS: vote(Counts(labelled.texts), *rows)}
    if labelled.classes is not None:
        frequent = most_frequent(*rows)
        found[MOST_FREQUENT] = one_hot(frequent, len(labelled.classes))
    return found


def scores(labelled, found) -> List[Score]:
    """The scores of outputs as of `of_all` on every file that has labels."""
    rows = []
    for name, numbers in labelled.files.items():
        for predictor, values in found.items():
            answers = answer(values[numbers - len(labelled.train)])
            rows += score(predictor, name, labelled.metrics, labelled.targets[numbers], answers)
    return rows


def score(predictor, file, metrics, targets, predicted):
    """A `Score` for each of the metrics, if there is an example; targets and predictions are (n,)."""
    if not len(targets):
        return []

    def values(rows):
        return scores_of(metrics, targets[rows], predicted[rows])

    rows = list(range(len(targets)))
    errors = standard_errors(values, rows, MOST_GROUPS)
    return [Score(predictor, file, name, value, errors[name]) for name, value in values(rows).items()]


def main():
    parser = Parser("bag_of_words.py", description=__doc__)
    add = parser.add_argument
    add("--labelled", required=True, metavar="DIR", help="folder of the labelled files, as for finetune_glue.sh")
    add("--regression", action="store_true", help="a column `label` has numbers to predict")
    add("--dest", metavar="FILE.json", help="also write scores and outputs to a file")
    args = parser.parse_args()
    if args.dest:
        check_new(args.dest)
    labelled = Labelled(args.labelled, args.regression)
    found = of_all(labelled)
    rows = scores(labelled, found)
    print("± is the standard error over examples")
    for each in rows:
        print(f"{each.predictor}, {each.metric} on {each.file}: {each.value:.2f} ± {each.error:.2f}")
    if args.dest:
        of_files = {name: numbers - len(labelled.train) for name, numbers in labelled.files.items() if len(numbers)}
        kept = {name: found[BAG_OF_WORDS][numbers].tolist() for name, numbers in of_files.items()}
        save_json(asdict(Yardsticks(rows, kept)), args.dest)


if __name__ == "__main__":
    run(main)
