"""Few-shot probes, repeated with different training examples, a few of each class, the same for every model."""

import numpy as np

from . import probes

SHOTS = [8, 32, 128]  # examples per class; for values, of the lower and of the upper half
REPEATS = 50
MOST_CLASSES = 10  # fine classes have too few examples


def training_examples(task, shots, repeat):
    """The training examples of a repetition, in random order, and its two halves.

    Classes with fewer than twice as many examples give half of them.

    Returns:
        int64 (n,) indices; bool (n,), which of them are in the first half, of each class the half
    """
    random = np.random.RandomState(repeat)
    chosen, half = [], []
    strata = task.targets if task.classes else task.targets > np.median(task.targets)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        members = members[np.argsort(task.ids[members])]  # independent of the order of the files
        count = min(shots, len(members) // 2)
        chosen.append(random.permutation(members)[:count])
        half.append(np.arange(count) < (count + 1) // 2)
    return np.concatenate(chosen), np.concatenate(half)


def inner_loss(x, targets, half, classes, strengths):
    """The lowest loss when each half of the training examples predicts the other, and its strength."""
    inner = np.empty((len(strengths), len(targets), classes or 1))
    for train in [half, ~half]:
        inner[:, ~train] = probes.outputs(x[train], targets[train], x[~train], strengths, classes)
    best, loss = probes.best_strength(inner, targets, classes)
    return loss, strengths[best]


def one_repeat(layers, task, shots, repeat, strengths):
    """The score on all examples but a few, which train the probe, and select its strength and layer (L + 1, N, C)."""
    rows, half = training_examples(task, shots, repeat)
    rest = np.setdiff1d(np.arange(len(task.targets)), rows)
    classes, targets = task.classes, task.targets[rows]
    losses, best = zip(*(inner_loss(x[rows], targets, half, classes, strengths) for x in layers))
    chosen = int(np.argmin(losses))
    x = layers[chosen]
    output = probes.outputs(x[rows], targets, x[rest], [best[chosen]], classes)[0]
    return probes.score(probes.answers(output, classes), task.targets[rest])


def few_shot(layers, task, repeats, strengths):
    """The scores of all repeats, (SHOTS, repeats); None for too many classes."""
    if task.classes and task.classes > MOST_CLASSES:
        return None
    return np.array([[one_repeat(layers, task, shots, k, strengths) for k in range(repeats)] for shots in SHOTS])
