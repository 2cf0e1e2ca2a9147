"""A bag of words: a linear model on TF-IDF weights of words, pairs of words, and letters."""

import contextlib
from collections import Counter

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import LinearSVC

WORD_NGRAMS = dict(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]")
LETTER_NGRAMS = dict(ngram_range=(2, 5), analyzer="char_wb")
REGULARISATION_GRID = [0.1, 0.3, 1, 3, 10]  # C of the support vector machine, alpha of the ridge
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
        grid = {"alpha": REGULARISATION_GRID}
        scoring = "neg_mean_squared_error"
        fold_class = KFold
        most_folds = len(targets)
    else:
        model = LinearSVC(random_state=0)
        grid = {"C": REGULARISATION_GRID}
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
    search = GridSearchCV(model, grid, cv=folds, scoring=scoring)
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
