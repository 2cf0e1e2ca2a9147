"""Exploratory analyses: ranks against scores, scores within runs, and in which layers word order can be read off.

Letters in shapes: P points, a layer of a model each; S seeds, L + 1 layers with the embeddings, D of the decoder.
"""

import numpy as np
from scipy.stats import rankdata

from evaluation.outcomes import CHOSEN
from evaluation.report import table
from preregistration import CONFIDENCE, MADE, MAE_LM, MLM, SHARED, SHARED_LONG, TAU

RESAMPLES = 2_000


def correlation(x, y, groups, weights):
    """Pearson's correlation within groups, weighted; all arguments are (P,)."""
    counts = np.maximum(np.bincount(groups, weights), 1)
    x, y = (values - (np.bincount(groups, weights * values) / counts)[groups] for values in (x, y))
    spread = np.sqrt((weights * x * x).sum() * (weights * y * y).sum())
    return (weights * x * y).sum() / spread if spread else np.nan


def rank_and_score(results):
    """A table of Spearman's correlation between effective rank and score over the layers of models, without layer 0.

    Its interval comes from a bootstrap over models, each with all of its layers.
    """
    rows = []
    for title, all_models, key in [
        ("all models and layers", True, lambda run, layer: ""),
        ("pretrained models, all layers", False, lambda run, layer: ""),
        ("pretrained models, within each layer", False, lambda run, layer: f"{layer}"),
        ("seeds of one arm, within each layer", False, lambda run, layer: f"{layer} {run.model.name}"),
    ]:
        runs = [run for run in results.runs if run.updates or all_models]
        ranks = [results.numbers[run.name]["ranks"][TAU]["without_mask"][1:] for run in runs]
        scores = [results.scores_by_layer(run)[1:] for run in runs]
        keys = [key(run, layer) for run, row in zip(runs, ranks) for layer in range(len(row))]
        groups, ranked = np.unique(keys, return_inverse=True)[1], np.stack([np.ravel(ranks), np.ravel(scores)], 1)
        for group in range(groups.max() + 1):
            ranked[groups == group] = rankdata(ranked[groups == group], axis=0)
        count, models = len(runs), np.arange(len(keys)) * len(runs) // len(keys)
        drawn = np.random.RandomState(0).multinomial(count, np.full(count, 1 / count), RESAMPLES)  # same everywhere
        weighted = np.vstack([np.ones(count), drawn])[:, models]
        estimate, *resampled = [correlation(*ranked.T, groups, weights) for weights in weighted]
        if np.isfinite(estimate):
            low, high = np.nanquantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
            rows.append([title, count, f"{estimate:+.2f} ({low:+.2f} to {high:+.2f})"])
    return table(["correlation of rank and score", "models", f"Spearman's, {CONFIDENCE:.0%} interval"], rows)


def order(results):
    """The scores of the two tasks on word order, by depth.

    Returns:
        list of (task, model, the encoder's scores (S, L + 1), the decoder's (S, D) for the runs that have them)
    """
    scores = []
    for task in [task for task in MADE if task in results.tasks]:
        for model in filter(results.of, (MLM, SHARED, SHARED_LONG, MAE_LM)):
            runs = results.of(model)
            recorded = [results.probed.get(run.name + "-decoder", {}).get(task) for run in runs]
            decoders = [score["by_layer"][1:] for score in recorded if score]
            scores.append((task, model, [results.scores_by_layer(run, [task]) for run in runs], decoders))
    return scores


def order_table(results):
    """The means over seeds of :func:`order`; empty where these tasks are not evaluated."""
    rows, layers = [], results.comparison.size.encoder_layers + 1
    for task, model, encoders, decoders in order(results):
        depths = [f"{score:.2f}" for part in (encoders, decoders) if part for score in np.mean(part, 0)]
        rows.append([task, model.title, len(encoders), *depths])
    widest = max(map(len, rows), default=0)
    header = ["task", "model", "seeds", *(f"layer {layer}" for layer in range(layers))]
    header += [f"decoder {layer + 1}" for layer in range(widest - len(header))]
    return table(header, [row + [""] * (widest - len(row)) for row in rows])


def scores_within_runs(results):
    """The scores of checkpoints within runs: {name of a model: {update: (TFLOP, list of the seeds' scores)}}."""
    curves = {}
    for name, scores in results.probed.items():
        name, _, update = name.rpartition("-")
        run = next((run for run in results.runs if run.name == name), None)
        if run and update.isdigit() and set(results.tasks) <= set(scores):
            update, end = int(update), results.numbers[name]["validations"][-1]
            tflop = end["gflop"] / 1000 * update / end["update"]
            point = curves.setdefault(run.model.name, {}).setdefault(update, (tflop, []))
            point[1].append(np.mean([scores[task][CHOSEN] for task in results.tasks]))
    return {name: dict(sorted(points.items())) for name, points in curves.items()}


def text(results):
    """The tables, for a page of results."""
    by_depth = order_table(results)
    sections = [
        "Do representations of higher rank have better features? Effective ranks of text without [MASK], in layer 1 "
        "and above, against the mean scores of these layers. Intervals are from a bootstrap over models, each with all "
        "its layers; since models of one arm are alike, they describe these arms, not encoders in general.\n",
        rank_and_score(results),
    ]
    if by_depth:
        text = "Which layers represent word order? The two tasks that need it, by depth, on text without [MASK]; for "
        text += "MAE-LM also the layers of the decoder, which is discarded after pretraining:\n"
        sections += [text, by_depth]
    return "\n".join(sections)
