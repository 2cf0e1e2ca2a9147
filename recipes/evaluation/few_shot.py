"""Few-shot probes: the same draws of a few examples of each class for every model."""

import numpy as np

from . import probes

SHOTS = [8, 32, 128]  # examples of a class; for values, of the lower and of the upper half
DRAWS = 50
MOST_CLASSES = 10  # fine classes have too few examples


def strata(task):
    """The class of each example, or the half that its value is in: int64 (N,)."""
    if task.labels is not None:
        return task.targets
    return (task.targets > np.median(task.targets)).astype(np.int64)


def draw(task, shots, number):
    """The examples of a draw, in random order, and those of its two halves.

    Classes with fewer than twice as many examples give half of them.

    Args:
        number: of the draw
    Returns:
        int64 (n,) indices; bool (n,), which of them are in the first half, of each class the half
    """
    random = np.random.RandomState(number)
    chosen, half = [], []
    for stratum in np.unique(strata(task)):
        members = np.flatnonzero(strata(task) == stratum)
        members = members[np.argsort(task.ids[members])]  # independent of the order of the files
        count = min(shots, len(members) // 2)
        chosen.append(random.permutation(members)[:count])
        half.append(np.arange(count) < (count + 1) // 2)
    return np.concatenate(chosen), np.concatenate(half)


def score(answers, targets, regression):
    """Accuracy in percent, or 100 x Pearson."""
    if not regression:
        return 100 * float(np.mean(answers == targets))
    return 100 * float(np.corrcoef(answers, targets)[0, 1]) if np.std(answers) > 0 else 0.0


def inner_loss(x, targets, half, classes, strengths):
    """The log-loss of the best strength when each half of a draw predicts the other, and that strength."""
    inner = np.empty((len(strengths), len(targets), classes or 1))
    for train in [half, ~half]:
        inner[:, ~train] = probes.outputs(x[train], targets[train], x[~train], strengths, classes)
    variance = np.mean((inner[..., 0] - targets) ** 2, -1, keepdims=True) if classes is None else None
    loss = probes.bits(inner, targets, variance).mean(-1)
    return loss.min(), strengths[int(loss.argmin())]


def evaluate_draw(layers, task, shots, number, strengths):
    """The scores of a draw on all other examples, with the strength and the layer that the draw itself chooses.

    Args:
        layers: (L + 1, N, C)
    Returns:
        score of the last layer, score of the chosen layer
    """
    rows, half = draw(task, shots, number)
    rest = np.setdiff1d(np.arange(len(task.targets)), rows)
    classes, targets = probes.class_count(task), task.targets[rows]
    losses, best = zip(*(inner_loss(x[rows], targets, half, classes, strengths) for x in layers))
    last, chosen, scores = len(layers) - 1, int(np.argmin(losses)), {}
    for layer in {last, chosen}:
        output = probes.outputs(layers[layer][rows], targets, layers[layer][rest], [best[layer]], classes)[0]
        scores[layer] = score(probes.answers(output, classes), task.targets[rest], classes is None)
    return scores[last], scores[chosen]


def few_shot(layers, task, draws, strengths):
    """The scores of all draws: {"last": (SHOTS, draws), "chosen": (SHOTS, draws)}; None for too many classes."""
    if task.labels is not None and len(task.labels) > MOST_CLASSES:
        return None
    scores = np.array([[evaluate_draw(layers, task, shots, k, strengths) for k in range(draws)] for shots in SHOTS])
    return {"last": scores[..., 0], "chosen": scores[..., 1]}
