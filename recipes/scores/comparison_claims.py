"""The claims of the paper beside what the comparison measured of them."""

import numpy as np

from comparison import CONFIDENCE, MAE_LM, MLM, SCRATCH
from comparison_folder import KINDS
from evaluation.report import TITLES, in_words, interval, table
from evaluation.statistics import Interval, seed_interval


def verdict(found):
    """Whether an interval shows that a difference is positive."""
    return "yes" if found.low > 0 else "no: negative" if found.high < 0 else "no"


def by_layer(rows):
    """The interval of each layer but that of the embeddings; a single row's numbers have no width.

    Args:
        rows: (S, L + 1) numbers, a row for each seed
    Returns:
        {layer: :class:`~evaluation.statistics.Interval`}
    """
    columns = np.array(rows, dtype=float).T
    if len(rows) == 1:
        return {layer: Interval(float(x), float(x), float(x), 0.0) for layer, (x,) in enumerate(columns) if layer}
    return {layer: seed_interval(column, CONFIDENCE) for layer, column in enumerate(columns) if layer}


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


class Claims:
    """The table of claims.

    Args:
        report: :class:`~comparison_report.ComparisonReport`
    """

    def __init__(self, report):
        self.report = report
        self.pairs = report.tables.seeds(MAE_LM.name, MLM.name)

    @staticmethod
    def decided(seeds, planned, shown):
        """What is shown, or that it is not decided before all seeds that were planned."""
        return shown if seeds == planned else f"not decided: {seeds} of {planned} seeds"

    def rank_rows(self):
        """Claims on effective ranks, with intervals over the seeds that both models have."""

        def by_arm(numbers):
            """Numbers by layer of the models of MAE-LM and of the MLM: (2, S, L + 1)."""
            found = [[numbers(name) for name in both] for both in self.pairs]
            return np.array(found, dtype=float).swapaxes(0, 1)

        def ranks(family):
            return by_arm(lambda name: self.report.ranks(name)[family])

        (_, masks), real, own = ranks("mask_tokens"), ranks("without_mask"), by_arm(self.report.mask_dimensions)
        gaps = ranks("with_mask") - real
        rises = (masks[:, 0] < masks[:, -1]).all() and (np.diff(masks[:, 1:]) >= 0).all()
        means = " ".join(f"{rank:.0f}" for rank in masks.mean(0))
        claim = "MLM: the rank of [MASK] tokens rises with depth, for every seed (Lemma 2.1)"
        layers = f"layers 0 (embeddings) to {masks.shape[1] - 1}: {means}"
        seeds, planned = len(self.pairs), self.report.comparison.seeds
        yield claim, layers, self.decided(seeds, planned, "yes" if rises else "no")
        own_claim = "MLM: [MASK] has more dimensions outside those of real tokens than in MAE-LM (Theorem 2.2)"
        differences = [
            ("MLM: the rank of inputs with [MASK] exceeds that of inputs without", gaps[1]),
            ("MAE-LM: that gap is smaller", gaps[1] - gaps[0]),
            (own_claim, own[1] - own[0]),
            ("MAE-LM represents text without [MASK] in more dimensions", real[0] - real[1]),
        ]
        for claim, rows in differences:
            measured, shown = layers_in_words(by_layer(rows))
            yield claim, measured, self.decided(seeds, planned, shown)

    def score_rows(self):
        """Claims on scores: differences of arms over seeds and examples."""
        planned = self.report.comparison.seeds
        compared = [
            ("Pretraining raises scores: MLM", MLM.name, SCRATCH.name, "mean"),
            ("Pretraining raises scores: MAE-LM", MAE_LM.name, SCRATCH.name, "mean"),
            ("**MAE-LM scores higher than the MLM** (primary outcome)", MAE_LM.name, MLM.name, "mean"),
            *((f"The same, {TITLES[kind]}", MAE_LM.name, MLM.name, kind) for kind in KINDS.values()),
        ]
        for claim, ours, theirs, kind in compared:
            tasks = self.report.tables.paired(ours, theirs, kind)
            if tasks:
                found, seeds = interval(tasks, CONFIDENCE), len(tasks[0].differences)
                yield claim, in_words(found), self.decided(seeds, planned, verdict(found))

    def table(self):
        return table(
            ["claim", f"measured, {CONFIDENCE:.0%} interval", "shown"], [*self.rank_rows(), *self.score_rows()]
        )
