"""A random sample of items whose number is not known in advance."""

import random


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
