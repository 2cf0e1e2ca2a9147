"""Confidence intervals of means over seeds and over items, such as examples or paradigms.

Letters in shapes: S seeds.
"""

import numpy as np
from scipy import stats


def interval_over_seeds_and_items(seed_values, item_error):
    """The 95% interval of the mean of values, where both seeds and items are samples.

    Its half is the root of the sum of squares of two halves: that over seeds, by Student's t, and
    that over items, by the normal distribution. It is rather too wide than too narrow: a bootstrap
    of two or three seeds is far too narrow.

    Args:
        seed_values: (S,), for two seeds or more
        item_error: the standard error of their mean over items
    Returns: low, high
    """
    over_seeds = stats.t.ppf(0.975, len(seed_values) - 1) * stats.sem(seed_values)
    half = np.hypot(over_seeds, stats.norm.ppf(0.975) * item_error)
    mean = np.mean(seed_values)
    return mean - half, mean + half
