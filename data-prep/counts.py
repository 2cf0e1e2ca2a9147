"""The record of a split, `train.json` beside `train.bin`: what encode.py read and wrote, for check.py to compare."""

import json
from collections import namedtuple

import numpy as np

from files import atomic_write

MODULUS = 1 << 64

Checksum = namedtuple("Checksum", "tokens sum weighted")
Checksum.__doc__ = (
    """Of a sequence of fairseq ids: their number, their sum, and the sum of id * position (from 1), modulo 2**64."""
)

EMPTY = Checksum(0, 0, 0)


def checksum(ids):
    """The Checksum of a numpy array of uint64 ids; costs far less than encoding them."""
    positions = np.arange(1, len(ids) + 1, dtype=np.uint64)
    return Checksum(len(ids), int(ids.sum()), int((ids * positions).sum()))


def join(first, second):
    """The Checksum of two sequences one after the other."""
    return Checksum(
        first.tokens + second.tokens,
        (first.sum + second.sum) % MODULUS,
        (first.weighted + second.weighted + first.tokens * second.sum) % MODULUS,
    )


def save(record, path):
    with atomic_write(path) as stream:
        json.dump(record, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def load(path):
    """The record in a file, or None where there is no such file."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return None
