"""Files of raw text: what they must be, what identifies them, and a sample of them."""

import hashlib
import os
import random

from maelm_fairseq.base.errors import MissingFileError, UsageError


def check_files(paths, option):
    """Raises UsageError unless every path is a file that is not empty."""
    for path in paths:
        if not os.path.exists(path):
            raise MissingFileError(f"{option}: file {path} does not exist; expected a text file; check the path")
        if not os.path.isfile(path):
            raise UsageError(f"{option}: {path} is not a file; expected text in a file, which is read more than once")
        if os.path.getsize(path) == 0:
            raise UsageError(f"{option}: file {path} is empty; expected UTF-8 text; leave it out or fill it")


def fingerprint(path):
    """Name, size and a hash of 64 parts of a file, including the first and last: quick, and differs between corpora."""
    size, part = os.path.getsize(path), 1 << 16
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for number in range(64):
            stream.seek(max(0, size - part) * number // 63)
            digest.update(stream.read(part))
            if size <= part:
                break
    return {"file": os.path.basename(path), "bytes": size, "sha256_of_samples": digest.hexdigest()}


class Reservoir:
    """Draws a uniform sample without replacement in one pass; the same items always give the same sample.

    Algorithm R of Vitter, "Random Sampling with a Reservoir", 1985.

    Args:
        size: number of items to keep
        seed: of the random numbers
    Attributes:
        items: the sample so far; all items, in order, while there are no more than `size`
    """

    def __init__(self, size, seed=1):
        self.size, self.items, self.seen = size, [], 0
        self.random = random.Random(seed).random

    def add(self, item):
        self.seen += 1
        place = int(self.random() * self.seen)
        if len(self.items) < self.size:
            self.items.append(item)
        elif place < self.size:
            self.items[place] = item
