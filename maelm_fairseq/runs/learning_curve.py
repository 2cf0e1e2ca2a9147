"""How the score on the dev file changed during fine-tuning: still rising, fallen, or level.

Letters in shapes: V validations.
"""

import math
from typing import NamedTuple

import numpy as np

MIN_VALIDATIONS = 4  # fewer do not tell


class Fall(NamedTuple):
    """How a score fell before the end of training."""

    points: float  # below its peak
    share: float  # of training, at the peak


class LearningCurve:
    """The median over seeds of the scores after each validation, up to the end of training.

    Changes up to the standard error of a score, over examples, count as none.

    Args:
        curves: for each seed, the (update, score) of each validation; those that lack validations,
            as they do if a log was lost, are left out
        standard_error: of a score, over examples
    """

    def __init__(self, curves, standard_error):
        length = max(map(len, curves))
        complete = [curve for curve in curves if len(curve) == length]
        points = np.array(complete, float).reshape(len(complete), length, 2)
        updates, self.scores = np.median(points, axis=0).T  # (V,) each
        self.shares = updates / max(updates, default=1)  # of training, after each validation
        self.standard_error = standard_error
        self.has_enough_validations = length >= MIN_VALIDATIONS
        is_known = not (math.isnan(standard_error) or np.isnan(self.scores[-1:]).any())
        self._tells = self.has_enough_validations and is_known

    def late_rise(self):
        """By how much the score rose over the last quarter of training; None if it did not."""
        if not self._tells:
            return None
        (earlier,) = np.nonzero(self.shares <= 0.75)
        rise = self.scores[-1] - self.scores[earlier.max(initial=0)]
        return float(rise) if rise > self.standard_error else None

    def fall_from_peak(self):
        """The `Fall` of the score from its peak; None if it did not fall."""
        if not self._tells:
            return None
        peak = int(np.nanargmax(self.scores))
        points = float(self.scores[peak] - self.scores[-1])
        if points > self.standard_error:
            return Fall(points, float(self.shares[peak]))
        return None

    def level_since(self):
        """After which share of training the score stayed level with the last one; None if unknown.

        It is 1 where only the last score is level with itself. A score that is undefined is level
        with none.
        """
        if not self._tells:
            return None
        distances = np.abs(self.scores - self.scores[-1])
        (distant,) = np.nonzero(~(distances <= self.standard_error))
        return float(self.shares[distant.max(initial=-1) + 1])
