"""In which units a head predicts numbers: in standard deviations of the training file, or as they are."""

import numpy as np

from .base.errors import UsageError

STANDARDISED = "standardised"  # in the state of a task: mean and deviation


def units(task_state):
    """Mean and standard deviation of what a head predicts as 0 and 1; a head without them predicts the numbers."""
    return task_state.get(STANDARDISED) or (0.0, 1.0)


def in_own_units(head, mean, deviation):
    """Has a head that predicts standardised numbers predict the numbers themselves, in place, in its float32.

    Raises ValueError: float32 cannot tell the numbers apart
    """
    if np.spacing(np.float32(abs(mean))) > deviation / 100:
        raise UsageError(
            f"numbers around {mean:g} that differ by {deviation:g} are too close for float32: subtract {mean:g} from "
            "the labels, and fine-tune again; maelm_fairseq.hub and maelm_fairseq.predict compute in float64"
        )
    head.out_proj.weight.data.mul_(deviation)
    head.out_proj.bias.data.mul_(deviation).add_(mean)
