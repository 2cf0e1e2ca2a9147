"""Linear probes of frozen features by nested cross-validation: what is chosen is chosen inside the training folds.

Letters in shapes: N examples, C width, K classes, L + 1 layers with the embeddings, S strengths.
"""

import itertools
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

# Inverse regularization: scikit-learn's C, or 1 / alpha.
STRENGTHS = [1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1]
TOLERANCE = 1e-3  # with 1e-4, log-losses differ by less than 0.001 bits, in twice the time


def regression(strength, classes):
    """Logistic regression, or ridge regression without classes."""
    if classes is None:
        return Ridge(alpha=1 / strength)
    return LogisticRegression(C=strength, tol=TOLERANCE, max_iter=300)


def outputs(x, targets, test, strengths, classes):
    """Trains at each strength and predicts.

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
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for strength in strengths:
            probe = regression(strength, classes).fit(x, targets)
            found.append(probe.predict(test)[:, None] if classes is None else probe.predict_proba(test))
    return np.stack(found)


def bits(predicted, targets, variance):
    """The log-loss of each example in bits: (..., N).

    Args:
        predicted: (..., N, K) probabilities, or (..., N, 1) values
        targets: (N,)
        variance: of the values' errors, (..., 1), whose density is taken to be Gaussian; None for classes
    """
    if variance is None:
        right = np.take_along_axis(predicted, np.broadcast_to(targets[:, None], predicted.shape[:-1] + (1,)), -1)
        return -np.log2(np.maximum(right[..., 0], 1e-12))
    errors = (predicted[..., 0] - targets) ** 2
    return 0.5 * np.log2(2 * np.pi * variance) + errors / (2 * variance * np.log(2))


def best_strength(predicted, targets, classes):
    """Which of several strengths predicts with the lowest mean log-loss.

    Args:
        predicted: (S, N, K) probabilities, or (S, N, 1) values
        targets: (N,)
        classes: K; None for regression
    Returns:
        its place, its loss, and the variance of its errors (1,), None for classes
    """
    variance = None
    if classes is None:
        variance = np.mean((predicted[..., 0] - targets) ** 2, -1, keepdims=True)
    loss = bits(predicted, targets, variance).mean(-1)
    best = int(loss.argmin())
    return best, loss[best], None if variance is None else variance[best]


def answers(predicted, classes):
    """The predicted classes or values: (..., N, K) -> (..., N)."""
    return predicted[..., 0] if classes is None else predicted.argmax(-1)


def inner_outputs(x, task, strengths):
    """What is predicted for each example inside the training folds.

    One training without two folds a and b predicts b for the test fold a, and a for the test fold b.

    Args:
        x: features of one layer, (N, C)
    Returns:
        float64 (F, S, N, K): in row a, predictions for the examples that are not in fold a, which were not trained on,
        neither they nor fold a; nan for fold a
    """
    number = int(task.folds.max()) + 1
    found = np.full((number, len(strengths), len(task.targets), task.classes or 1), np.nan)
    for a, b in itertools.combinations(range(number), 2):
        test = np.flatnonzero(np.isin(task.folds, [a, b]))
        train = np.flatnonzero(~np.isin(task.folds, [a, b]))
        predicted = outputs(x[train], task.targets[train], x[test], strengths, task.classes)
        in_a = task.folds[test] == a
        found[b][:, test[in_a]] = predicted[:, in_a]
        found[a][:, test[~in_a]] = predicted[:, ~in_a]
    return found


def probe_layer(x, task, strengths):
    """Predictions of the test folds from one layer, each with the strength that its training folds choose.

    Args:
        x: (N, C)
    Returns:
        answers (N,), bits (N,), and the log-loss inside the training folds of each fold (F,)
    """
    predicted, found, losses = np.empty(len(task.targets)), np.empty(len(task.targets)), []
    for fold, rows in enumerate(inner_outputs(x, task, strengths)):
        test, train = np.flatnonzero(task.folds == fold), np.flatnonzero(task.folds != fold)
        best, loss, variance = best_strength(rows[:, train], task.targets[train], task.classes)
        output = outputs(x[train], task.targets[train], x[test], strengths[best : best + 1], task.classes)[0]
        predicted[test] = answers(output, task.classes)
        found[test] = bits(output, task.targets[test], variance)
        losses.append(loss)
    return predicted, found, np.array(losses)


def probe(layers, task, strengths):
    """Probes each layer.

    Args:
        layers: features (L + 1, N, C)
        task: :class:`~evaluation.labelled_tasks.Task`
        strengths: list of S numbers
    Returns:
        {"answers": (L + 1, N), "bits": (L + 1, N), "layers": (F,), the layers that the training folds choose}
    """
    found = [probe_layer(x, task, strengths) for x in layers]
    predicted, lost, losses = map(np.stack, zip(*found))
    return {"answers": predicted, "bits": lost, "layers": losses.argmin(0)}
