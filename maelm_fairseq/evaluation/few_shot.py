"""Few-shot probes, trained on a few examples of each class.

They are repeated with different training examples, which are the same for every model.
"""

import numpy as np

from .probes import fit_ridge_probe, score_predictions

SHOTS = [8, 32, 128]  # examples per class; for values, from each half
REPEATS = 50
MAX_CLASSES = 10  # where there are more, they have too few examples


def has_few_shot(task):
    """Whether a task has few-shot probes.

    A task with more than MAX_CLASSES classes has none, nor has one with groups of more than two
    examples.
    """
    if len(task.labels or []) > MAX_CLASSES:
        return False
    _, sizes = np.unique(task.group_hashes, return_counts=True)
    return sizes.max() <= 2


def assign_strata(task):
    """The groups from which examples are drawn: classes, or the two halves of the values; (N,)."""
    if task.labels:
        return task.targets
    upper = task.targets > np.median(task.targets)
    if not upper.any():  # more than half have the highest value
        return task.targets == task.targets.max()
    return upper


def most_shots(task):
    """How many examples of the smallest class there can be: at most half of it."""
    _, sizes = np.unique(assign_strata(task), return_counts=True)
    return int(sizes.min()) // 2


def training_examples(task, shots, repeat):
    """The training examples of a repetition, int64 (n,).

    Classes with fewer than twice as many examples give half of them.
    """
    random = np.random.RandomState(repeat)
    stratum_of = assign_strata(task)
    chosen = []
    for stratum in np.unique(stratum_of):
        members = np.flatnonzero(stratum_of == stratum)
        # An order that does not depend on the order of the files.
        members = members[np.argsort(task.group_hashes[members])]
        chosen.append(random.permutation(members)[: min(shots, len(members) // 2)])
    return np.concatenate(chosen)


def other_examples(task, train_indices):
    """The examples to score, int64 (n,): without the other sentence of a pair in training."""
    is_trained_on = np.isin(task.group_hashes, task.group_hashes[train_indices])
    return np.flatnonzero(~is_trained_on)


def score_few_shot(task, repeats, predict):
    """The scores of all repetitions, (SHOTS, repeats), on a task that `has_few_shot`.

    Scored are all examples but the few that are trained on.

    Args:
        predict: a function of training and test examples that predicts the latter
    """
    scores = np.empty((len(SHOTS), repeats), np.float32)
    for row, shots in enumerate(SHOTS):
        for repeat in range(repeats):
            train_indices = training_examples(task, shots, repeat)
            test_indices = other_examples(task, train_indices)
            scores[row, repeat] = score_predictions(
                predict(train_indices, test_indices), task.targets[test_indices]
            )
    return scores


def score_few_shot_probes(layers, task, repeats):
    """As `score_few_shot`, for probes of layers (L + 1, N, C).

    The few examples also select the strength of regularisation and the layer.
    """

    def predict(train_indices, test_indices):
        probed = [fit_ridge_probe(x[train_indices], task.targets[train_indices]) for x in layers]
        best = min(range(len(layers)), key=lambda layer: probed[layer][1])
        predict_with_probe, _ = probed[best]
        return predict_with_probe(layers[best][test_indices])

    return score_few_shot(task, repeats, predict)
