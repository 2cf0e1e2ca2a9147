#!/usr/bin/env python3
"""The yardstick of fine-tuning: what a bag of words scores on the same files, in seconds, without an encoder.

Its features are TF-IDF weights, on a logarithmic scale, of words and punctuation marks, of pairs of these, and of the
2 to 5 letters within words. A linear support vector machine predicts classes, ridge regression values. Five folds of
the training file choose how strongly it is regularised. Beside it: always the most frequent class.
"""

from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import List

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline, make_union
from sklearn.svm import LinearSVC

from finetune_results import Score
from maelm_fairseq.base.errors import Parser, run
from maelm_fairseq.base.files import save_json
from maelm_fairseq.finetuning.labelled_files import SENTENCE_FILES, find_file, is_test, read_sentences
from maelm_fairseq.finetuning.metrics import METRICS, standard_errors

BAG_OF_WORDS, MOST_FREQUENT = "bag of words", "most frequent class"
WORDS = dict(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]")
LETTERS = dict(ngram_range=(2, 5), analyzer="char_wb")
STRENGTHS = [0.1, 0.3, 1, 3, 10]  # C of the support vector machine, alpha of the ridge
FOLDS = 5


def lower_text(place, texts):
    return texts[place].lower()


def features(number_of_texts):
    """The features of examples; each of their texts has its own."""
    vectorizers = [
        TfidfVectorizer(sublinear_tf=True, preprocessor=partial(lower_text, place), **settings)
        for place in range(number_of_texts)
        for settings in (WORDS, LETTERS)
    ]
    return make_union(*vectorizers)


def fit(examples, targets):
    """Trains a bag of words.

    Args:
        examples: n tuples of one text, or of two
        targets: n classes, or n floats to predict as values
    Returns: a scikit-learn model of such tuples
    """
    vectorizer = features(len(examples[0]))
    model = choose(vectorizer.fit_transform(examples), np.array(targets))
    return make_pipeline(vectorizer, model)


def choose(x, targets):
    """Trains a linear model of features (n, features), with the strength of regularisation that folds choose.

    Args:
        targets: (n,), floats for values, else classes
    """
    if targets.dtype.kind == "f":
        model, strength, folds, largest = Ridge(), "alpha", KFold, len(targets)
    else:
        model, strength, folds = LinearSVC(), "C", StratifiedKFold
        largest = max(Counter(targets.tolist()).values())  # a class
    if largest == 1:
        return model.fit(x, targets)
    folds = folds(min(FOLDS, largest), shuffle=True, random_state=0)
    return GridSearchCV(model, {strength: STRENGTHS}, cv=folds).fit(x, targets).best_estimator_


def scores(labelled, regression=False) -> List[Score]:
    """The scores on every split of a folder that has labels; see :mod:`~maelm_fairseq.finetuning.labelled_files`."""
    train = read_sentences(find_file(labelled, "train", SENTENCE_FILES), regression=regression)
    is_regression = train.form.is_regression
    labels = sorted({example.label for example in train.examples})

    def target(example):
        if is_regression:
            return float(example.label)
        return labels.index(example.label) if example.label in labels else -1

    examples = [example.texts for example in train.examples]
    targets = [target(example) for example in train.examples]
    predictors = {BAG_OF_WORDS: fit(examples, targets)}
    if not is_regression:
        predictors[MOST_FREQUENT] = DummyClassifier(strategy="most_frequent").fit(examples, targets)
    found = []
    for split in SENTENCE_FILES:
        path = find_file(labelled, split, SENTENCE_FILES, required=False)
        if path is None or split == "train":
            continue
        table = read_sentences(path, is_test(split), is_regression, train.form)
        scored = [example for example in table.examples if example.label is not None]
        if not scored:
            continue
        correct = np.array([target(example) for example in scored])
        metrics = train.form.metrics_of(labels)
        for name, model in predictors.items():
            predicted = model.predict([example.texts for example in scored])
            found += score(name, split, metrics, correct, predicted)
    return found


def score(predictor, split, metrics, targets, predicted):
    """A :class:`Score` for each of the metrics; targets and predictions are (n,)."""

    def values(rows):
        return {name: 100 * METRICS[name](targets[rows], predicted[rows]) for name in metrics}

    rows = list(range(len(targets)))
    errors = standard_errors(values, rows)
    return [Score(predictor, split, name, value, errors[name]) for name, value in values(rows).items()]


def main():
    parser = Parser("bag_of_words.py", description=__doc__)
    add = parser.add_argument
    add("--labelled", required=True, metavar="DIR", help="folder of the labelled files, as for finetune_glue.sh")
    add("--regression", action="store_true", help="a column `label` has numbers to predict")
    add("--dest", metavar="FILE.json", help="also write the scores to a file")
    args = parser.parse_args()
    found = scores(args.labelled, args.regression)
    for each in found:
        name = f"{each.split} {each.metric}, {each.predictor}"
        print(f"{name}: {each.value:.2f} ± {each.error:.2f} (standard error over examples)")
    if args.dest:
        save_json([asdict(each) for each in found], args.dest)


if __name__ == "__main__":
    run(main)
