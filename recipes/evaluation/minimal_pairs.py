"""Minimal pairs, as of BLiMP: a sentence, and the same with a fault.

A model should find the first more probable.

Letters in shapes: N pairs.
"""

import numpy as np

from maelm_fairseq.base.errors import UsageError

DRAWS = 1000  # of the bootstrap


def decide(model, pairs):
    """How each pair is decided by the sums of bits, as by :func:`compare`; float64 (N,).

    Args:
        model: :class:`~maelm_fairseq.hub.MaeLm`
        pairs: :class:`~evaluation.pair_files.Pairs`
    Raises:
        UsageError: a sentence has no tokens, or more than the model has positions; or the model
            cannot score
    """
    texts, most = [*pairs.good, *pairs.bad], model.model.max_positions() - 2
    _, sizes = model.tokenizer.encode_lines(texts)
    for place, text, size in zip(2 * pairs.places, texts, sizes):
        if not 0 < size <= most:
            fault = f"{text[:80]!r} has {size} tokens, expected 1 to {most}"
            raise UsageError(f"{place}: {fault}; change it or leave the pair out")
    bits = np.array([total for total, _ in model.score(texts)]).reshape(2, -1)
    if not np.isfinite(bits).all():
        fault = "the model's bits are no numbers: its training diverged"
        raise UsageError(f"{pairs.name}: {fault}; use another checkpoint")
    return compare(*bits)


def compare(good, bad):
    """Decides pairs by the bits of their sentences, (N,): 1 right, 0 wrong, 0.5 if equal."""
    same = np.isclose(good, bad, rtol=1e-6)  # the rounding of different batches
    return np.where(same, 0.5, good < bad)


def shares(decisions, groups):
    """The percentages of right decisions: of all; and {group: of its pairs}."""
    parts = {str(group): 100 * float(decisions[groups == group].mean()) for group in np.unique(groups) if group}
    return 100 * float(decisions.mean()), parts


def interval(decisions, groups):
    """The 95% interval of the share of right decisions, in percent, by a bootstrap within groups."""
    rng, totals = np.random.default_rng(1), np.zeros(DRAWS)
    for group in np.unique(groups):
        values = decisions[groups == group]
        totals += [values[rng.integers(len(values), size=len(values))].sum() for _ in range(DRAWS)]
    return tuple(100 * np.quantile(totals / len(decisions), [0.025, 0.975]))
