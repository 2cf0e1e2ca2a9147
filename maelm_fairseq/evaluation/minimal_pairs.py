"""Minimal pairs, such as BLiMP's: a sentence, and the same with a fault.

A model should find the first more probable.

Letters in shapes: N pairs, S seeds.
"""

from collections import Counter

import numpy as np

from ..base.errors import UsageError
from .intervals import interval_over_seeds_and_items

BOOTSTRAP_DRAWS = 1000


def check_pairs_fit(model, pairs):
    """Refuses pairs of which a sentence has no tokens, or more than a model has positions.

    Args:
        model: `hub.MaeLm`
        pairs: `pair_files.Pairs`
    """
    texts = [*pairs.good, *pairs.bad]
    max_tokens = model.model.max_positions() - 2
    _, sizes = model.tokenizer.encode_plain_text(texts)
    for location, text, size in zip(2 * pairs.locations, texts, sizes):
        if not 0 < size <= max_tokens:
            fault = f"{text[:80]!r} has {size} tokens, expected 1 to {max_tokens}"
            raise UsageError(f"{location}: {fault}; change it or leave the pair out")


def decide_pairs(model, pairs):
    """How each pair is decided by the bits of its sentences: `decide_by_bits`, float64 (N,).

    Args: as for `check_pairs_fit`
    Raises:
        UsageError: as `check_pairs_fit`; or the model cannot score
    """
    check_pairs_fit(model, pairs)
    texts = [*pairs.good, *pairs.bad]
    bits = np.array([total for total, _ in model.score(texts)]).reshape(2, -1)
    if not np.isfinite(bits).all():
        fault = "the model's bits are NaN or infinite: its training diverged"
        raise UsageError(f"{pairs.name}: {fault}; use another checkpoint")
    good, bad = bits
    tokens, sizes = model.tokenizer.encode_plain_text(texts)
    sequences = np.split(tokens, sizes.cumsum()[:-1])
    for pair, (good_tokens, bad_tokens) in enumerate(zip(sequences, sequences[len(good) :])):
        if np.array_equal(good_tokens, bad_tokens):
            bad[pair] = good[pair]  # in bfloat16, rounding differs between batches by far more
    return decide_by_bits(good, bad)


def decide_by_bits(good, bad):
    """Decides pairs by the bits of their sentences, (N,): 1 right, 0 wrong, 0.5 if equal."""
    are_equal = np.isclose(good, bad, rtol=1e-6)  # different batches are rounded differently
    return np.where(are_equal, 0.5, good < bad)


def are_paradigms(groups):
    """Whether all groups are TERM/UID, which are paradigms of linguistic terms."""
    return all("/" in group for group in np.unique(groups))


def percent_right(decisions, groups):
    """The percentage of right decisions, over all pairs and for each group: {group: percentage}.

    Where groups are paradigms, TERM/UID, each TERM is also a group, followed by its paradigms.
    """
    parts = means_by_name(decisions, groups)
    if are_paradigms(groups):
        terms = [group.partition("/")[0] for group in groups]
        parts.update(means_by_name(decisions, np.array(terms)))
        parts = dict(sorted(parts.items(), key=lambda part: part[0].partition("/")))
    return 100 * float(decisions.mean()), parts


def pairs_by_group(groups):
    """How many pairs each group of `percent_right` has: {group: number}, as text."""
    counts = Counter(map(str, groups))
    if are_paradigms(groups):
        counts.update(group.partition("/")[0] for group in groups)
    return {group: f"{count:,}" for group, count in counts.items() if group}


def means_by_name(decisions, names):
    """{name: the percentage of right decisions of its pairs}, by names (N,), without empty ones."""
    named = (name for name in np.unique(names) if name)
    return {str(name): 100 * float(decisions[names == name].mean()) for name in named}


def is_over_paradigms(groups):
    """Whether the `bootstrap_interval` is over paradigms, as it is if there are two or more."""
    return are_paradigms(groups) and len(np.unique(groups)) > 1


def bootstrap_interval(decisions, groups):
    """The 95% interval of the share of right decisions (N,), in percent: `bootstrap_shares`."""
    return tuple(np.quantile(bootstrap_shares(decisions, groups), [0.025, 0.975]))


def bootstrap_shares(decisions, groups):
    """The shares of right decisions in draws of a bootstrap, in percent: (BOOTSTRAP_DRAWS,).

    The pairs of a paradigm have one template, and say something about other sentences only as a
    whole: paradigms are drawn with all their pairs. Otherwise, pairs are drawn within groups.

    Args:
        decisions: (N,), or differences of decisions
        groups: of the pairs, (N,)
    """
    rng = np.random.default_rng(1)
    names, group_numbers = np.unique(groups, return_inverse=True)
    if is_over_paradigms(groups):
        right = np.bincount(group_numbers, decisions)
        sizes = np.bincount(group_numbers)
        draws = rng.integers(len(names), size=(BOOTSTRAP_DRAWS, len(names)))
        return 100 * right[draws].sum(1) / sizes[draws].sum(1)
    drawn = np.zeros(BOOTSTRAP_DRAWS)
    for number in range(len(names)):
        values = decisions[group_numbers == number]
        draws = (rng.integers(len(values), size=len(values)) for _ in range(BOOTSTRAP_DRAWS))
        drawn += [values[rows].sum() / len(decisions) for rows in draws]
    return 100 * drawn


def pairs_interval(decisions, groups):
    """The 95% interval of the share of right decisions, or of the difference of two, in percent.

    Of one seed, it is `bootstrap_interval`, for these models only. Of several, it is over seeds,
    too: see `interval_over_seeds_and_items`.

    Args:
        decisions: (S, N), or differences of decisions
        groups: of the pairs, (N,)
    """
    mean = decisions.mean(axis=0)
    if len(decisions) == 1:
        return bootstrap_interval(mean, groups)
    error = bootstrap_shares(mean, groups).std()
    return interval_over_seeds_and_items(100 * decisions.mean(axis=1), error)
