"""Linear probes of frozen features by nested cross-validation: what is selected is selected inside the training folds.

Letters in shapes: N examples, C width, K classes, L + 1 layers with the embeddings, S strengths.
"""

import itertools

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

# Inverse regularization: scikit-learn's C, or 1 / alpha.
STRENGTHS = [1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1]
TOLERANCE = 1e-3  # with 1e-4, log-losses differ by less than 0.001 bits, and it takes twice as long


def outputs(x, targets, test, strengths, classes):
    """Trains logistic regressions, or without classes ridge regressions, at each strength, and predicts.

    Args:
        x, targets: features (n, C) and targets (n,) to train on; every class occurs
        test: features (N, C)
        strengths: list of S numbers
        classes: K; None for regression
    Returns:
        float64 (S, N, K) probabilities, or (S, N, 1) values
    """
    scale = StandardScaler().fit(x)
    x, test = scale.transform(x), scale.transform(test)
    if classes is None:
        return np.stack([Ridge(alpha=1 / strength).fit(x, targets).predict(test)[:, None] for strength in strengths])
    probes = [LogisticRegression(C=strength, tol=TOLERANCE, max_iter=300) for strength in strengths]
    return np.stack([probe.fit(x, targets).predict_proba(test) for probe in probes])


def best_strength(predicted, targets, classes):
    """The index of the strength with the lowest mean loss, and that loss: the log-loss in nats, or the squared error.

    Args:
        predicted: (S, N, K) probabilities, or (S, N, 1) values
        targets: (N,)
        classes: K; None for regression
    """
    if classes is None:
        losses = (predicted[..., 0] - targets) ** 2
    else:
        losses = -np.log(np.maximum(predicted[:, np.arange(len(targets)), targets], 1e-12))
    means = losses.mean(-1)
    return int(means.argmin()), means.min()


def answers(predicted, classes):
    """The predicted classes or values: (..., N, K) -> (..., N)."""
    return predicted[..., 0] if classes is None else predicted.argmax(-1)


def score(answers, targets):
    """The accuracy in percent where targets are integers, else 100 times Pearson's correlation."""
    if targets.dtype.kind != "f":
        return 100 * float((answers == targets).mean())
    if answers.std() == 0:
        return 0.0
    return 100 * float(np.corrcoef(answers, targets)[0, 1])


def inner_outputs(x, task, strengths):
    """The predictions for each example inside the training folds.

    One training without two folds a and b predicts b for the test fold a, and a for the test fold b.

    Returns:
        float64 (F, S, N, K): in row a, predictions for the examples outside fold a, by models trained neither on them
        nor on fold a; nan for fold a
    """
    number = int(task.folds.max()) + 1
    inner = np.full((number, len(strengths), len(task.targets), task.classes or 1), np.nan)
    for a, b in itertools.combinations(range(number), 2):
        in_a, in_b = task.folds == a, task.folds == b
        train, test = ~(in_a | in_b), in_a | in_b
        predicted = outputs(x[train], task.targets[train], x[test], strengths, task.classes)
        inner[b][:, in_a] = predicted[:, in_a[test]]
        inner[a][:, in_b] = predicted[:, in_b[test]]
    return inner


def probe_layer(x, task, strengths):
    """Predictions for the test folds from one layer, (N, C), each with the strength that its training folds select.

    Returns:
        answers (N,), and the loss inside the training folds of each fold (F,)
    """
    predicted, losses = np.empty(len(task.targets)), []
    for fold, rows in enumerate(inner_outputs(x, task, strengths)):
        test, train = task.folds == fold, task.folds != fold
        best, loss = best_strength(rows[:, train], task.targets[train], task.classes)
        output = outputs(x[train], task.targets[train], x[test], strengths[best : best + 1], task.classes)[0]
        predicted[test] = answers(output, task.classes)
        losses.append(loss)
    return predicted, np.array(losses)


def probe(layers, task, strengths):
    """Probes each layer of features (L + 1, N, C), on a :class:`~evaluation.labelled_tasks.Task`.

    Returns:
        {"answers": (L + 1, N), "layers": (F,), the layers that the training folds select}
    """
    predicted, losses = map(np.stack, zip(*(probe_layer(x, task, strengths) for x in layers)))
    return {"answers": predicted, "layers": losses.argmin(0)}
