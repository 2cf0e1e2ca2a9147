"""The paper's claims on effective ranks, beside what the comparison measured."""

import numpy as np

from evaluation.intervals import seed_interval
from evaluation.report import in_words, table
from preregistration import CONFIDENCE

TAU = "0.9"  # of the ranks in figures and claims


def by_layer(rows):
    """The interval of each layer but that of the embeddings: {layer: :class:`~evaluation.intervals.Interval`}.

    Args:
        rows: (S, L + 1) numbers, a row for each seed; a single row's have no width
    """
    return {layer: seed_interval(column, CONFIDENCE) for layer, column in enumerate(np.transpose(rows)) if layer}


def layers_in_words(intervals):
    """The intervals of layers, and at which of them they show that something is positive, or negative.

    An interval without width shows nothing: ranks are whole numbers, and those of few seeds agree by chance.
    """
    measured = "; ".join(f"layer {layer}: {in_words(each, 1)}" for layer, each in intervals.items())
    positive = [str(layer) for layer, each in intervals.items() if 0 < each.low < each.high]
    negative = [str(layer) for layer, each in intervals.items() if each.low < each.high < 0]
    if len(positive) == len(intervals):
        return measured, "yes"
    shown = [f"at layer{'s' * (len(positive) > 1)} {', '.join(positive)}"] if positive else ["no"]
    if negative:
        shown.append(f"negative at layer{'s' * (len(negative) > 1)} {', '.join(negative)}")
    return measured, "; ".join(shown)


def rank_claims(numbers, theirs, alone, pairs):
    """A table of claims on the MLM, and on models that read no [MASK], with intervals over seeds; empty without any.

    Args:
        numbers: {name of a run: its record}
        theirs, alone: the MLM's title, and the names of its runs
        pairs: {title of another model: list of (name of a run, name of the MLM's run with the same seed)}
    """
    if not any(pairs.values()):
        return ""

    def ranks(names, family):
        """By layer: (S, L + 1)."""
        return np.array([numbers[name]["ranks"][TAU][family] for name in names])

    def gaps(names):
        return ranks(names, "with_mask") - ranks(names, "without_mask")

    def outside(names):
        return np.array([numbers[name]["mask_outside_real"][TAU] for name in names])

    masks = ranks(alone, "mask_tokens")
    rises = (masks[:, 0] < masks[:, -1]).all() and (np.diff(masks[:, 1:]) >= 0).all()
    means = " ".join(f"{rank:.0f}" for rank in masks.mean(0))
    claim = f"{theirs}: the rank of [MASK] tokens rises with depth, for every seed (Lemma 2.1)"
    measured = f"layers 0 (embeddings) to {masks.shape[1] - 1}: {means}"
    rows = [[claim, len(alone), measured, "yes" if rises else "no"]]
    claims = [(f"{theirs}: the rank of inputs with [MASK] exceeds that of inputs without", gaps(alone))]
    for title, both in pairs.items():
        if both:
            ours, mlm = zip(*both)
            own = f"{theirs}: [MASK] has more dimensions outside those of real tokens than in {title} (Theorem 2.2)"
            wider = ranks(ours, "without_mask") - ranks(mlm, "without_mask")
            claims.append((f"{title}: that gap is smaller", gaps(mlm) - gaps(ours)))
            claims.append((own, outside(mlm) - outside(ours)))
            claims.append((f"{title}: text without [MASK] has a higher rank than in {theirs}", wider))
    rows += [[claim, len(seeds), *layers_in_words(by_layer(seeds))] for claim, seeds in claims]
    return table(["claim", "seeds", f"measured, {CONFIDENCE:.0%} interval", "shown"], rows)
