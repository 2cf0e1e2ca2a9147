"""What stands beside the probes: a bag of words and the most frequent class, which need no encoder.

They are scored on the same folds as the probes, and with the same few labelled examples.

Letters in shapes: N examples.
"""

import numpy as np
from scipy.sparse import hstack
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from bag_of_words import LETTERS, STRENGTHS, WORDS, choose, lower_text
from maelm_fairseq.base.errors import UsageError

from .few_shot import SHOTS, has_few_shot, training_examples
from .outcomes import TEXT
from .probes import score

BAG_OF_WORDS, MOST_FREQUENT = "bag of words", "most frequent class"


class Counts:
    """How often each example has each word, pair of words and group of letters.

    Args:
        texts: N strings, or N pairs
    Raises:
        UsageError: no text has a word
    """

    def __init__(self, texts):
        examples = [(text,) if isinstance(text, str) else text for text in texts]
        self.parts = []
        for place in range(len(examples[0])):
            for settings in (WORDS, LETTERS):
                counter = CountVectorizer(preprocessor=lambda each, place=place: lower_text(place, each), **settings)
                try:
                    self.parts.append(counter.fit_transform(examples))
                except ValueError:
                    raise UsageError("a bag of words: no text has a word; check the labelled files") from None

    def weights(self, rows):
        """The TF-IDF weights of all examples, by the features and frequencies of the training examples `rows`."""
        weighted = []
        for counts in self.parts:
            counts = counts[:, counts[rows].getnnz(axis=0) > 0]
            transformer = TfidfTransformer(sublinear_tf=True).fit(counts[rows])
            weighted.append(transformer.transform(counts))
        return hstack(weighted).tocsr()


def predict(counts, task, rows, rest):
    """What a bag of words that is trained on the examples `rows` predicts for others."""
    x = counts.weights(rows)
    return choose(x[rows], task.targets[rows]).predict(x[rest])


def by_folds(task, predict):
    """What `predict`, a function of training and test examples, predicts for each example: (N,)."""
    predicted = np.empty(task.targets.shape, np.float32 if task.labels is None else np.int64)
    for fold in range(int(task.folds.max()) + 1):
        test = np.flatnonzero(task.folds == fold)
        predicted[test] = predict(np.flatnonzero(task.folds != fold), test)
    return predicted


def few_shot(counts, task, repeats):
    """The scores of bags of words, (SHOTS, repeats), by the examples of :func:`~.few_shot.few_shot`."""
    scores = np.empty((len(SHOTS), repeats), np.float32)
    for i, shots in enumerate(SHOTS):
        for repeat in range(repeats):
            rows = training_examples(task, shots, repeat)
            rest = np.flatnonzero(~np.isin(task.ids, task.ids[rows]))
            scores[i, repeat] = score(predict(counts, task, rows, rest), task.targets[rest])
    return scores


def most_frequent(task, rows, rest):
    """The class that most training examples have, for other examples; of values 0, the mean of all."""
    if task.labels is None:
        return np.zeros(len(rest))
    model = DummyClassifier(strategy="most_frequent").fit(np.zeros((len(rows), 1)), task.targets[rows])
    return model.predict(np.zeros((len(rest), 1)))


def measure(records, task, repeats):
    """Records both on a task, unless that is done.

    Args:
        records: {BAG_OF_WORDS and MOST_FREQUENT: :class:`~.outcomes.Records`}
        repeats: of few-shot training
    """
    same = {"task": task.digest()}
    shared = {"targets": task.targets, "folds": task.folds}
    bag, frequent = records[BAG_OF_WORDS], records[MOST_FREQUENT]
    if not frequent.has(task.name, TEXT, same):
        answers = by_folds(task, lambda rows, rest: most_frequent(task, rows, rest))
        frequent.write(task.name, TEXT, same, {**shared, TEXT: answers[None]})
    of_bag = {**same, "strengths": str(STRENGTHS)}
    origins = {TEXT: of_bag}
    if repeats and has_few_shot(task):
        origins["few_shot"] = {**of_bag, "repeats": f"{SHOTS} {repeats}"}
    missing = [name for name, origin in origins.items() if not bag.has(task.name, name, origin)]
    counts = Counts(task.texts) if missing else None
    for name in missing:
        if name == TEXT:
            array = by_folds(task, lambda rows, rest: predict(counts, task, rows, rest))[None]
        else:
            array = few_shot(counts, task, repeats)
        bag.write(task.name, name, origins[name], {**shared, name: array})
