"""Few-shot probes, trained on a few examples of each class.

They are repeated with different training examples, which are the same for every model.
"""

import numpy as np

from . import probes

SHOTS = [8, 32, 128]  # examples per class; for values, of the lower and of the upper half
REPEATS = 50
MOST_CLASSES = 10  # where there are more, they have too few examples


def has_few_shot(task):
    """Whether a task has few-shot probes.

    It has none with too many classes, nor where more than two texts belong together.
    """
    if len(task.labels or []) > MOST_CLASSES:
        return False
    _, sizes = np.unique(task.ids, return_counts=True)
    return sizes.max() <= 2


def strata(task):
    """The groups from which examples are drawn: classes, or the two halves of the values; (N,)."""
    if task.labels:
        return task.targets
    upper = task.targets > np.median(task.targets)
    if not upper.any():  # more than half have the highest value
        return task.targets == task.targets.max()
    return upper


def most_shots(task):
    """How many examples of the smallest class there can be: at most half of it."""
    _, sizes = np.unique(strata(task), return_counts=True)
    return int(sizes.min()) // 2


def training_examples(task, shots, repeat):
    """The training examples of a repetition, int64 (n,).

    Classes with fewer than twice as many examples give half of them.
    """
    random = np.random.RandomState(repeat)
    stratum_of = strata(task)
    chosen = []
    for stratum in np.unique(stratum_of):
        members = np.flatnonzero(stratum_of == stratum)
        members = members[np.argsort(task.ids[members])]  # independent of the order of the files
        chosen.append(random.permutation(members)[: min(shots, len(members) // 2)])
    return np.concatenate(chosen)


def one_repeat(layers, task, shots, repeat):
    """The score of one repetition, on all but the few examples that train the probe.

    These also select the strength of regularisation and the layer, of layers (L + 1, N, C).
    """
    rows = training_examples(task, shots, repeat)
    # Neither these examples nor the other sentence of a pair.
    rest = np.flatnonzero(~np.isin(task.ids, task.ids[rows]))
    probed = [probes.fit(x[rows], task.targets[rows]) for x in layers]
    chosen = min(range(len(layers)), key=lambda layer: probed[layer][1])
    predict, _ = probed[chosen]
    return probes.score_of_answers(predict(layers[chosen][rest]), task.targets[rest])


def score_few_shot_probes(layers, task, repeats):
    """The scores of all repeats, (SHOTS, repeats), of a task that `has_few_shot`."""
    scores = []
    for shots in SHOTS:
        scores.append([one_repeat(layers, task, shots, repeat) for repeat in range(repeats)])
    return np.array(scores, np.float32)
