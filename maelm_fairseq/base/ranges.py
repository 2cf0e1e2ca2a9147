"""Ranges of numbers: of options, and of what files contain."""

from typing import NamedTuple

from .errors import UsageError

INT32_MAX = 2**31 - 1  # the default upper limit of integers
MAX_FLOAT = 1e300  # of numbers that need not be whole


class Range(NamedTuple):
    """The numbers from `minimum` to `maximum`; not-a-number is in no range."""

    minimum: float
    maximum: float = INT32_MAX
    excluded: tuple = ()  # which of the two limits are not in the range

    def check(self, value, name):
        """Refuses a value outside, by an error that begins with its name, such as `--seed`."""
        if not self.minimum <= value <= self.maximum or value in self.excluded:
            raise UsageError(f"{name} {value} must be {self}")

    def __str__(self):
        if self.maximum == MAX_FLOAT:  # a limit that nobody needs to know
            at_least = f", at least {self.minimum:,}" if self.minimum != -MAX_FLOAT else ""
            return f"a finite number{at_least}"
        if not self.excluded:
            return f"from {self.minimum:,} to {self.maximum:,}"
        lower = "greater than" if self.minimum in self.excluded else "at least"
        upper = "less than" if self.maximum in self.excluded else "at most"
        return f"{lower} {self.minimum:,} and {upper} {self.maximum:,}"
