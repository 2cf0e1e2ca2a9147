"""Standard errors of scores over examples, by a jackknife."""

import math

import numpy as np

# The groups of a jackknife. With 100, a standard error is accurate to about 7%.
JACKKNIFE_GROUPS = 100
MAX_JACKKNIFE_GROUPS = 2000  # where scores are computed fast
MAX_SCORED_EXAMPLES = 10_000_000  # of all groups together, if there are more than JACKKNIFE_GROUPS


def standard_errors(score_subset, indices, groups=JACKKNIFE_GROUPS):
    """The standard errors of scores over examples, by a jackknife.

    Each group of examples is left out once.

    Args:
        score_subset: a function from a list of indices of examples to {metric: score}
        indices: indices of all examples
        groups: how many there are at most, and fewer of many examples; with one for each example,
            an accuracy gets its textbook standard error
    Returns: {metric: standard error}, in the unit of the scores; nan if there is only one example,
        and where a score is not defined
    """
    return jackknife_errors(leave_groups_out(score_subset, indices, groups))


def leave_groups_out(score_subset, indices, groups=JACKKNIFE_GROUPS):
    """The scores without each group of examples: list of {metric: score}.

    Arguments as for `standard_errors`. With the same indices, the groups are the same. With fewer
    than two examples, all scores are nan.
    """
    if len(indices) < 2:
        return [dict.fromkeys(score_subset(list(indices)), math.nan)]
    affordable = max(JACKKNIFE_GROUPS, MAX_SCORED_EXAMPLES // len(indices))
    groups = min(groups, affordable, len(indices))
    order = np.random.default_rng(0).permutation(sorted(indices))
    left_out = [set(order[start::groups].tolist()) for start in range(groups)]
    return [score_subset([index for index in indices if index not in group]) for group in left_out]


def jackknife_errors(scores):
    """The standard errors {metric: error} of `leave_groups_out`, or of their differences."""
    errors = {}
    for metric in scores[0]:
        values = np.array([scores_of_the_rest[metric] for scores_of_the_rest in scores])
        errors[metric] = float(np.sqrt((len(scores) - 1) * values.var()))
    return errors
