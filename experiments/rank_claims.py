"""The paper's claims on effective ranks, beside what the comparison measured."""

import numpy as np

from evaluation.intervals import seed_interval
from evaluation.report import in_words, table
from preregistration import CONFIDENCE, MAE_LM, MLM, SHARED, TAU


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


def rank_claims(results):
    """A table of claims on the MLM, and on MAE-LM and shared layers after equal updates; empty without any.

    Args:
        results: :class:`~results.Results`
    """
    pairs = {model.title: results.seeds_of((model, MLM)) for model in (MAE_LM, SHARED)}
    if not any(pairs.values()):
        return ""

    def ranks(names, family):
        """By layer: (S, L + 1)."""
        return np.array([results.numbers[name]["ranks"][TAU][family] for name in names])

    def gaps(names):
        return ranks(names, "with_mask") - ranks(names, "without_mask")

    def outside(names):
        return np.array([results.numbers[name]["mask_outside_real"][TAU] for name in names])

    alone = [run.name for run in results.of(MLM)]
    masks = ranks(alone, "mask_tokens")
    rises = (masks[:, 0] < masks[:, -1]).all() and (np.diff(masks[:, 1:]) >= 0).all()
    means = " ".join(f"{rank:.0f}" for rank in masks.mean(0))
    claim = "MLM: the rank of [MASK] tokens rises with depth, for every seed (Lemma 2.1)"
    measured = f"layers 0 (embeddings) to {masks.shape[1] - 1}: {means}"
    rows = [[claim, len(alone), measured, "yes" if rises else "no"]]
    claims = [("MLM: the rank of inputs with [MASK] exceeds that of inputs without", gaps(alone))]
    for title, both in pairs.items():
        if both:
            ours, mlm = zip(*both)
            own = f"MLM: [MASK] has more dimensions outside those of real tokens than in {title} (Theorem 2.2)"
            wider = ranks(ours, "without_mask") - ranks(mlm, "without_mask")
            claims.append((f"{title}: that gap is smaller", gaps(mlm) - gaps(ours)))
            claims.append((own, outside(mlm) - outside(ours)))
            claims.append((f"{title}: text without [MASK] has a higher rank than in MLM", wider))
    for claim, seeds in claims:
        intervals = {layer: seed_interval(column, CONFIDENCE) for layer, column in enumerate(seeds.T) if layer}
        rows.append([claim, len(seeds), *layers_in_words(intervals)])
    return table(["claim", "seeds", f"measured, {CONFIDENCE:.0%} interval", "shown"], rows)
