"""What was added to the comparison after its runs: ranks against scores, scores within runs, where order is known.

Letters in shapes: P points, a layer of a model each; S seeds, L + 1 layers with the embeddings, D of the decoder.
"""

import numpy as np
from scipy.stats import rankdata

from comparison import CONFIDENCE, MADE, MAE_LM, MLM, SHARED, SHARED_LONG
from evaluation.outcomes import CHOSEN
from evaluation.report import table
from rank_claims import TAU

RESAMPLES = 2_000


def correlation(x, y, groups, weights):
    """Pearson's correlation of what differs within groups; all arguments are (P,)."""
    counts = np.maximum(np.bincount(groups, weights), 1)
    x, y = (values - (np.bincount(groups, weights * values) / counts)[groups] for values in (x, y))
    spread = np.sqrt((weights * x * x).sum() * (weights * y * y).sum())
    return (weights * x * y).sum() / spread if spread else np.nan


def rank_and_score(results):
    """A table of Spearman's correlation of effective rank and score over layers of models, but not layer 0.

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
        found = [correlation(*ranked.T, groups, weights[models]) for weights in np.vstack([np.ones(count), drawn])]
        if np.isfinite(found[0]):
            low, high = np.nanquantile(found[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
            rows.append([title, count, f"{found[0]:+.2f} ({low:+.2f} to {high:+.2f})"])
    return table(["correlation of rank and score", "models", f"Spearman's, {CONFIDENCE:.0%} interval"], rows)


def order(results):
    """The scores of the tasks about order, by depth.

    Returns:
        list of (task, model, the encoder's scores (S, L + 1), the decoder's (S, D) for the runs that have them)
    """
    found = []
    for task in [task for task in MADE if task in results.tasks]:
        for model in filter(results.of, (MLM, SHARED, SHARED_LONG, MAE_LM)):
            runs = results.of(model)
            kept = [results.later.get(run.name + "-decoder", {}).get(task) for run in runs]
            decoders = [scores["by_layer"][1:] for scores in kept if scores]
            found.append((task, model, [results.scores_by_layer(run, [task]) for run in runs], decoders))
    return found


def order_table(results):
    """The means over seeds of :func:`order`."""
    rows = []
    for task, model, encoders, decoders in order(results):
        depths = [f"{score:.2f}" for part in (encoders, decoders) if part for score in np.mean(part, 0)]
        rows.append([task, model.title, len(encoders), *depths])
    widest = max(map(len, rows), default=0)
    encoder = results.comparison.size.encoder_layers
    header = ["task", "model", "seeds", *(f"layer {layer}" for layer in range(encoder + 1))]
    header += [f"decoder {layer}" for layer in range(1, widest - len(header) + 1)]
    return table(header, [row + [""] * (widest - len(row)) for row in rows])


def on_the_way(results):
    """The scores of checkpoints within runs: {name of a model: {update: (TFLOP, list of the seeds' scores)}}."""
    found = {}
    for name, scores in results.later.items():
        name, _, update = name.rpartition("-")
        run = next((run for run in results.runs if run.name == name), None)
        if run and update.isdigit() and set(results.tasks) <= set(scores):
            update, end = int(update), results.numbers[name]["validations"][-1]
            tflop = end["gflop"] / 1000 * update / end["update"]
            point = found.setdefault(run.model.name, {}).setdefault(update, (tflop, []))
            point[1].append(np.mean([scores[task][CHOSEN] for task in results.tasks]))
    return {name: dict(sorted(points.items())) for name, points in found.items()}


def text(results):
    """The tables, for a page of results."""
    sections = [
        "Does a wider use of dimensions go with better features? Effective ranks of text without [MASK] in layers 1 to "
        "the last, against the mean scores of these layers. The intervals come from a bootstrap over models, each with "
        "all its layers; since models of one arm are alike, they speak of these arms, not of encoders at large.\n",
        rank_and_score(results),
    ]
    if order(results):
        sections += [
            "Where is order known? The two tasks about it by depth, on text without [MASK], and for MAE-LM also the "
            "layers of the decoder, which is thrown away after pretraining:\n",
            order_table(results),
        ]
    return "\n".join(sections)
