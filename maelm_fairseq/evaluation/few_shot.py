"""Few-shot probes, repeated with different training examples, a few of each class, the same for every model."""

import numpy as np

from . import probes

SHOTS = [8, 32, 128]  # examples per class; for values, of the lower and of the upper half
REPEATS = 50
MOST_CLASSES = 10  # fine classes have too few examples


def has_few_shot(task):
    """Whether a task has few-shot probes: not with too many classes, nor where more than two texts belong together."""
    return len(task.labels or []) <= MOST_CLASSES and np.unique(task.ids, return_counts=True)[1].max() <= 2


def strata(task):
    """What examples are drawn from: their classes; of values, the lower and the upper half: (N,)."""
    if task.labels:
        return task.targets
    upper = task.targets > np.median(task.targets)
    return upper if upper.any() else task.targets == task.targets.max()  # more than half are the highest


def most_shots(task):
    """How many examples of the smallest class there can be: at most half of it."""
    return int(np.unique(strata(task), return_counts=True)[1].min()) // 2


def training_examples(task, shots, repeat):
    """The training examples of a repetition, int64 (n,).

    Classes with fewer than twice as many examples give half of them.
    """
    random, chosen, found = np.random.RandomState(repeat), [], strata(task)
    for stratum in np.unique(found):
        members = np.flatnonzero(found == stratum)
        members = members[np.argsort(task.ids[members])]  # independent of the order of the files
        chosen.append(random.permutation(members)[: min(shots, len(members) // 2)])
    return np.concatenate(chosen)


def one_repeat(layers, task, shots, repeat):
    """The score on all examples but a few, which train the probe, and select its strength and layer (L + 1, N, C)."""
    rows = training_examples(task, shots, repeat)
    rest = np.flatnonzero(~np.isin(task.ids, task.ids[rows]))  # nor the other sentence of a pair
    probed = [probes.fit(x[rows], task.targets[rows]) for x in layers]
    chosen = min(range(len(layers)), key=lambda layer: probed[layer][1])
    return probes.score(probed[chosen][0](layers[chosen][rest]), task.targets[rest])


def few_shot(layers, task, repeats):
    """The scores of all repeats, (SHOTS, repeats), of a task that `has_few_shot`."""
    scores = [[one_repeat(layers, task, shots, repeat) for repeat in range(repeats)] for shots in SHOTS]
    return np.array(scores, np.float32)
