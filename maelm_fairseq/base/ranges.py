"""Ranges of numbers: of options, and of what files contain."""

from typing import NamedTuple

from .errors import UsageError

INT32_MAX = 2**31 - 1  # the default upper limit of whole numbers
# Bounds of ranges that exclude 0 and 1: close enough to them for any option.
OVER_0 = 1e-9
UNDER_1 = 1 - 1e-9


class Range(NamedTuple):
    """The numbers from `minimum` to `maximum`; not-a-number is in no range."""

    minimum: float
    maximum: float = INT32_MAX

    def check(self, value, name):
        """Refuses a value outside, by an error that begins with its name, such as `--seed`."""
        if not self.minimum <= value <= self.maximum:
            raise UsageError(f"{name} {value} must be {self}")

    def __str__(self):
        if self.minimum != OVER_0 and self.maximum != UNDER_1:
            return f"from {self.minimum:,} to {self.maximum:,}"
        lower = "greater than 0" if self.minimum == OVER_0 else f"at least {self.minimum:,}"
        upper = "less than 1" if self.maximum == UNDER_1 else f"at most {self.maximum:,}"
        return f"{lower} and {upper}"
