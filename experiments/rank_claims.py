"""The claims of the paper on effective ranks beside what the comparison measured of them."""

import numpy as np

from comparison import CONFIDENCE
from evaluation.report import count, in_words, table
from evaluation.statistics import seed_interval

TAU = "0.9"  # of the ranks in figures and claims


def by_layer(rows):
    """The interval of each layer but that of the embeddings: {layer: :class:`~evaluation.statistics.Interval`}.

    Args:
        rows: (S, L + 1) numbers, a row for each seed; a single row's have no width
    """
    return {layer: seed_interval(column, CONFIDENCE) for layer, column in enumerate(np.transpose(rows)) if layer}


def layers_in_words(found):
    """The intervals of layers, and at which of them they show that something is positive, or negative.

    An interval without width shows nothing: ranks are whole numbers, and those of few seeds agree by chance.
    """
    measured = "; ".join(f"layer {layer}: {in_words(each, 1)}" for layer, each in found.items())
    positive = [str(layer) for layer, each in found.items() if 0 < each.low < each.high]
    negative = [str(layer) for layer, each in found.items() if each.low < each.high < 0]
    if len(positive) == len(found):
        return measured, "yes"
    shown = [f"at layer{'s' * (len(positive) > 1)} {', '.join(positive)}"] if positive else ["no"]
    if negative:
        shown.append(f"negative at layer{'s' * (len(negative) > 1)} {', '.join(negative)}")
    return measured, "; ".join(shown)


def rank_claims(pairs, ours, theirs):
    """A table of claims on MAE-LM and the MLM, with intervals over seeds; empty without any.

    Args:
        pairs: records of both for each seed: list of (MAE-LM's, the MLM's)
        ours, theirs: the titles of the models
    """
    if not pairs:
        return ""

    def ranks(family):
        """By layer, of both models: (2, S, L + 1)."""
        return np.array([[record["ranks"][TAU][family] for record in both] for both in pairs]).swapaxes(0, 1)

    (_, masks), real = ranks("mask_tokens"), ranks("without_mask")
    gaps = ranks("with_mask") - real
    outside = np.array([[record["mask_outside_real"][TAU] for record in both] for both in pairs]).swapaxes(0, 1)
    rises = (masks[:, 0] < masks[:, -1]).all() and (np.diff(masks[:, 1:]) >= 0).all()
    means = " ".join(f"{rank:.0f}" for rank in masks.mean(0))
    claim = f"{theirs}: the rank of [MASK] tokens rises with depth, for every seed (Lemma 2.1)"
    rows = [[claim, f"layers 0 (embeddings) to {masks.shape[1] - 1}: {means}", "yes" if rises else "no"]]
    own = f"{theirs}: [MASK] has more dimensions outside those of real tokens than in {ours} (Theorem 2.2)"
    differences = [
        (f"{theirs}: the rank of inputs with [MASK] exceeds that of inputs without", gaps[1]),
        (f"{ours}: that gap is smaller", gaps[1] - gaps[0]),
        (own, outside[1] - outside[0]),
        (f"{ours} represents text without [MASK] in more dimensions", real[0] - real[1]),
    ]
    rows += [[claim, *layers_in_words(by_layer(numbers))] for claim, numbers in differences]
    return table(["claim", f"{count(len(pairs))}, {CONFIDENCE:.0%} interval", "shown"], rows)
