"""Ranges of numbers: of options, and of what files contain."""

from typing import NamedTuple

from .errors import UsageError

MOST = 2**31 - 1  # of whole numbers, where nothing smaller is known


class Range(NamedTuple):
    """The numbers from `least` to `most`; not-a-number is in no range."""

    least: float
    most: float = MOST

    def check(self, value, name):
        """Refuses a value outside, by an error that begins with its name, such as `--seed`."""
        if not self.least <= value <= self.most:
            raise UsageError(f"{name} {value} must be from {self}")

    def __str__(self):
        return f"{self.least:,} to {self.most:,}"
