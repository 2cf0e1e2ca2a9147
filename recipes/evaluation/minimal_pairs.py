"""Minimal pairs, as of BLiMP: a sentence, and the same with a fault; the model should find the first more probable.

Letters in shapes: N pairs.
"""

import os
from dataclasses import dataclass

import numpy as np

from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import sha256
from maelm_fairseq.base.utf8 import read_lines

COLUMNS = ["good", "bad"]  # and perhaps GROUP
GROUP = "group"
DRAWS = 1000  # of the bootstrap


@dataclass
class Pairs:
    """The pairs of a file."""

    path: str
    digest: str  # SHA-256
    lines: list  # N numbers
    good: list  # N strings
    bad: list  # N strings
    groups: np.ndarray  # (N,) strings; "" without groups

    @property
    def name(self):
        return os.path.splitext(os.path.basename(self.path))[0]


def read_pairs(path):
    """Reads a file of tab-separated columns with a header: `good`, `bad` and perhaps `group`, in any order.

    Raises:
        UsageError: a column is missing, a line has other columns than the header, or there is no pair
    """
    rows = []
    for number, line in read_lines(path):
        cells = line.split("\t")
        if number == 1:
            header = cells
            if not set(COLUMNS) <= set(header) or len(set(header)) < len(header):
                expected = "expected good and bad, perhaps group, separated by tabs"
                raise UsageError(f"{path}: found the header {line!r}, {expected}")
        elif line:
            if len(cells) != len(header):
                raise UsageError(f"{path}, line {number}: found {len(cells)} columns, expected {len(header)}")
            row = dict(zip(header, map(str.strip, cells)))
            if not row["good"] or not row["bad"]:
                raise UsageError(f"{path}, line {number}: found an empty cell, expected two sentences")
            rows.append([number, *(row[column] for column in COLUMNS), row.get(GROUP, "")])
    if not rows:
        raise UsageError(f"{path}: found no pairs, expected a header and a line for each")
    lines, good, bad, groups = map(list, zip(*rows))
    return Pairs(path, sha256(path), lines, good, bad, np.array(groups))


def decide(model, pairs):
    """How each pair is decided by the sums of bits: 1 right, 0 wrong, 0.5 where they are equal; float64 (N,).

    Raises:
        UsageError: a sentence has no tokens, or more than the model has positions; or the model cannot score
    """
    texts, most = [*pairs.good, *pairs.bad], model.model.max_positions() - 2
    _, sizes = model.tokenizer.encode_lines(texts)
    for number, text, size in zip(2 * pairs.lines, texts, sizes):
        if not 0 < size <= most:
            fault = f"{text[:80]!r} has {size} tokens, expected 1 to {most}; change it or leave the pair out"
            raise UsageError(f"{pairs.path}, line {number}: {fault}")
    bits = np.array([total for total, _ in model.score(texts)]).reshape(2, -1)
    if not np.isfinite(bits).all():
        fault = "the model's bits are no numbers: its training diverged"
        raise UsageError(f"{pairs.name}: {fault}; use another checkpoint")
    same = np.isclose(*bits, rtol=1e-6)  # the rounding of different batches
    return np.where(same, 0.5, bits[0] < bits[1])


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
