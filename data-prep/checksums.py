"""Checksums of token sequences, for check.py to compare what encode.py wrote with what the files contain."""

from collections import namedtuple

import numpy as np

MODULUS = 1 << 64

Checksum = namedtuple("Checksum", "tokens sum weighted")
Checksum.__doc__ = (
    """Of a sequence of fairseq ids: their number, their sum, and the sum of id * position (from 1), modulo 2**64."""
)

EMPTY = Checksum(0, 0, 0)


def checksum(ids):
    """The Checksum of a numpy array of uint64 ids; takes far less time than encoding them."""
    positions = np.arange(1, len(ids) + 1, dtype=np.uint64)
    return Checksum(len(ids), int(ids.sum()), int((ids * positions).sum()))


def join(first, second):
    """The Checksum of two sequences, concatenated."""
    return Checksum(
        first.tokens + second.tokens,
        (first.sum + second.sum) % MODULUS,
        (first.weighted + second.weighted + first.tokens * second.sum) % MODULUS,
    )
