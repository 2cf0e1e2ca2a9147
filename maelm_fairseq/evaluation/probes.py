"""Linear probes of frozen features by cross-validation.

All that is selected is selected inside the training folds. The probes are ridge regression and
scikit-learn's ridge classifier: their leave-one-out errors, which select the regularisation and the
layer, come with the fit, so that all layers of an encoder take only minutes.

Letters in shapes: N examples, C width, L + 1 layers with the embeddings, F folds.
"""

import numpy as np
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.preprocessing import StandardScaler

RIDGE_ALPHAS = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5]  # of regularisation


def score_predictions(predictions, targets):
    """The accuracy in percent where targets are integers, else 100 times Pearson's correlation.

    The correlation of constants counts as 0.
    """
    if targets.dtype.kind != "f":
        return 100 * float((predictions == targets).mean())
    if predictions.std() == 0 or targets.std() == 0:
        return 0.0
    return 100 * float(np.corrcoef(predictions, targets)[0, 1])


def fit_ridge_probe(x, targets):
    """Trains a probe on features (n, C) and targets (n,).

    Its regularisation has the strength with the lowest leave-one-out error.

    Returns:
        a function from features (N, C) to predictions (N,); that error, the mean square
    """
    scale = StandardScaler().fit(x)
    model_class = RidgeCV if targets.dtype.kind == "f" else RidgeClassifierCV
    model = model_class(RIDGE_ALPHAS).fit(scale.transform(x), targets)

    def predict(rows):
        return model.predict(scale.transform(rows))

    return predict, -float(model.best_score_)


def predict_by_folds(task, predict):
    """What `predict`, a function of training and test examples, predicts for each example: (N,)."""
    answer_type = np.float32 if task.labels is None else np.int64
    predicted = np.empty(task.targets.shape, answer_type)
    for fold in range(int(task.folds.max()) + 1):
        test = np.flatnonzero(task.folds == fold)
        predicted[test] = predict(np.flatnonzero(task.folds != fold), test)
    return predicted


def probe_layer(x, task):
    """Predictions for the test folds from one layer, (N, C).

    Returns:
        predictions (N,), and the leave-one-out error inside the training folds of each fold (F,)
    """
    losses = []

    def predict(train_indices, test_indices):
        predict_with_probe, loss = fit_ridge_probe(x[train_indices], task.targets[train_indices])
        losses.append(loss)
        return predict_with_probe(x[test_indices])

    return predict_by_folds(task, predict), np.array(losses)


def probe_all_layers(layers, task):
    """Probes each layer of features (L + 1, N, C), on a `probe_tasks.ProbeTask`.

    Returns:
        {"predictions": (L + 1, N), "layers": (F,), the layers that the training folds select}
    """
    predictions, losses = zip(*(probe_layer(x, task) for x in layers))
    return {"predictions": np.stack(predictions), "layers": np.stack(losses).argmin(0)}
