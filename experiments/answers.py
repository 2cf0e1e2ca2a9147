"""What a fine-tuned encoder, and a linear model of word vectors, answer for each dev and test example of a task.

Letters in shapes: n scored examples, K outputs, one for each class or one for a value, N vocabulary, C width.
"""

import numpy as np
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.preprocessing import StandardScaler

from maelm_fairseq.data.cooccurrence import count_neighbours, embeddings
from maelm_fairseq.finetuning.prediction import load_task, make_task, predict
from maelm_fairseq.task import SAMPLE
from maelm_fairseq.vocabulary import read_vocabulary

SPLITS = ["valid", "test"]
STRENGTHS = [0.01, 0.1, 1, 10, 100]  # of regularisation: C of a logistic regression, and the inverse alpha of a ridge
FOLDS = 5
TOKENS = 64  # of a block of the pretraining text, as in the small recipe


def of_encoder(checkpoint, folder, data):
    """The outputs of a fine-tuned model for all examples of the dev and the test file, (n, K)."""
    task, model = load_task(str(checkpoint), labelled=str(folder), data=str(data))
    found = []
    for split in SPLITS:
        answers = predict(task, model, split)
        found += [answers[number] for number in sorted(answers)]
    return np.array(found, np.float32).reshape(len(found), -1)


def word_vectors(data, width):
    """Vectors of the symbols of the pretraining text by their co-occurrence, float32 (N, C)."""
    task = make_task("mae_lm", data=str(data), tokens_per_sample=TOKENS)
    vocabulary = len(task.source_dictionary)
    pairs, counts = count_neighbours(task.read_split("train").sample(SAMPLE), vocabulary)
    return embeddings(pairs, counts, vocabulary, width, deviation=1.0).numpy()


def of_word_vectors(labelled, vectors, data):
    """The answers of a linear model that reads the mean vector of a text's tokens, (n,)."""
    _, tokenizer = read_vocabulary(str(data))
    encoded = tokenizer.encode_all([texts[0] for texts in labelled.texts])
    x = np.stack([vectors[np.array(tokens, int)].sum(axis=0) / max(1, len(tokens)) for tokens in encoded])
    train, targets = labelled.train, labelled.targets[labelled.train]
    x = StandardScaler().fit(x[train]).transform(x)
    if labelled.classes is None:
        model = RidgeCV([len(train) / 10 / strength for strength in STRENGTHS], cv=FOLDS)
    else:
        model = LogisticRegressionCV(Cs=[strength / 100 for strength in STRENGTHS], cv=FOLDS, max_iter=300)
    return model.fit(x[train], targets).predict(x[labelled.rest])
