"""What models predict for each dev and test example of a task.

The models are a fine-tuned encoder, and a linear model of word vectors.

Letters in shapes: n scored examples, K outputs, one for each class or one for a value,
N vocabulary, C width.
"""

import numpy as np
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.preprocessing import StandardScaler

from maelm_fairseq.base_task import make_task
from maelm_fairseq.data.cooccurrence import compute_embeddings, count_neighbours
from maelm_fairseq.finetuning.prediction import predict_split
from maelm_fairseq.finetuning.task_loading import load_task
from maelm_fairseq.task import MAX_COUNTED_TOKENS, MaeLmTask
from maelm_fairseq.vocabulary import load_dictionary_and_tokenizer

SPLITS = ["valid", "test"]
# Inverse strengths of regularisation: C of a logistic regression, 1 / alpha of a ridge regression.
REGULARISATION_GRID = [0.01, 0.1, 1, 10, 100]
FOLDS = 5
TOKENS = 64  # of a block of the pretraining text, as in the small recipe


def predict_with_encoder(checkpoint, folder, data):
    """The outputs of a fine-tuned model for all examples of the dev and the test file, (n, K)."""
    task, model = load_task(str(checkpoint), labelled=str(folder), data=str(data))
    outputs = []
    for split in SPLITS:
        predictions = predict_split(task, model, split)
        outputs += [predictions[index] for index in sorted(predictions)]
    return np.array(outputs, np.float32).reshape(len(outputs), -1)


def word_vectors(data, width):
    """Vectors of the vocabulary, from co-occurrence in the pretraining text: float32 (N, C)."""
    task = make_task(MaeLmTask, data=str(data), tokens_per_sample=TOKENS)
    vocabulary = len(task.source_dictionary)
    blocks = task.read_split("train").evenly_spaced_blocks(MAX_COUNTED_TOKENS)
    pairs, counts = count_neighbours(blocks, vocabulary)
    return compute_embeddings(pairs, counts, vocabulary, width, std=1.0).numpy()


def predict_with_word_vectors(labelled, vectors, data):
    """The predictions of a linear model that reads the mean vector of a text's tokens, (n,)."""
    _, tokenizer = load_dictionary_and_tokenizer(str(data))
    encoded = tokenizer.encode_all([texts[0] for texts in labelled.texts])
    means = []
    for tokens in encoded:
        total = vectors[np.array(tokens, int)].sum(axis=0)
        means.append(total / max(1, len(tokens)))
    x = np.stack(means)
    train = labelled.train_indices
    targets = labelled.targets[train]
    x = StandardScaler().fit(x[train]).transform(x)
    if labelled.classes is None:
        alphas = [len(train) / 10 / strength for strength in REGULARISATION_GRID]
        model = RidgeCV(alphas, cv=FOLDS)
    else:
        inverse_strengths = [strength / 100 for strength in REGULARISATION_GRID]
        model = LogisticRegressionCV(Cs=inverse_strengths, cv=FOLDS, max_iter=300)
    return model.fit(x[train], targets).predict(x[labelled.scored_indices])
