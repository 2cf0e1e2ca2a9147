"""The unit in which a head predicts numbers.

It is the standard deviation of the training file's numbers, or their own unit.
"""

import numpy as np

from .base.errors import UsageError

STANDARDISED = "standardised"  # in the state of a task: mean and std
UNSCALED = (0.0, 1.0)  # mean and std for a head that predicts the numbers themselves


def label_scale(task_state):
    """Mean and standard deviation of the numbers that a head predicts in standardised form.

    They are `UNSCALED` for a head that predicts the numbers themselves.
    """
    return task_state.get(STANDARDISED) or UNSCALED


def fold_label_scale_into_head(head, mean, std):
    """Folds the mean and standard deviation of the labels into a head, in place, in float32.

    Raises UsageError: float32 cannot tell the numbers apart
    """
    if np.spacing(np.float32(abs(mean))) > std / 100:
        raise UsageError(
            f"numbers around {mean:g} that differ by {std:g} are too close for float32: "
            f"subtract {mean:g} from the labels, and fine-tune again; "
            "maelm_fairseq.hub and maelm_fairseq.predict compute in float64"
        )
    head.out_proj.weight.data.mul_(std)
    head.out_proj.bias.data.mul_(std).add_(mean)
