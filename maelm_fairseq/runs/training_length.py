"""Whether fine-tuning was long enough, in words: by the curve of dev scores, and by its updates."""

import math

from ..base.errors import counted
from .learning_curve import MIN_VALIDATIONS

FEW_UPDATES = 200  # with fewer, more epochs may score higher


def describe_training_length(curve, result, epochs, default_epochs, updates):
    """Lines for the user: how the score changed, and how many epochs to try.

    Args:
        curve: `LearningCurve` of the scores in `result`
        result: the `Result` of the encoder on the dev file
        epochs, updates: of training
        default_epochs: those of the recipe for such an encoder
    """
    lines = []
    score = f"{result.metric} on {result.file_name}"
    rise = curve.late_rise()
    fall = curve.fall_from_peak()
    since = curve.level_since()
    advice = None
    if not curve.has_enough_validations:
        lines.append(
            f"fewer than {MIN_VALIDATIONS} validations, too few to tell whether {score} was still "
            "rising"
        )
        advice = f"try more --epochs than {epochs}"
    elif rise is not None:
        lines.append(
            f"still improving: {score} rose by {rise:.2f} over the last quarter of training"
        )
        advice = f"try more --epochs than {epochs}"
    elif fall is not None:
        lines.append(
            f"trained too long: {score} fell by {fall.points:.2f} after {fall.share:.0%} of "
            "training"
        )
        return [*lines, f"try fewer --epochs than {epochs}"]
    elif since == 1:
        lines.append(
            f"not settled: {score} still changed by more than its standard error between the last "
            "two validations"
        )
    elif since is not None:
        lines.append(
            f"level: after {since:.0%} of training, {score} changed by no more than its standard "
            "error; more epochs may still help, as a falling learning rate levels every curve"
        )
    advice = epochs_to_try(epochs, default_epochs, updates) or advice
    return [*lines, advice] if advice else lines


def epochs_to_try(epochs, default_epochs, updates):
    """Advice to train for the default, or for enough updates; None where both are reached."""
    reasons = {}
    if epochs < default_epochs:
        reasons[default_epochs] = "the recipe's default for this encoder"
    if updates < FEW_UPDATES:
        enough = math.ceil(epochs * FEW_UPDATES / updates)
        verb = "is" if epochs == 1 else "are"
        found = f"{counted(epochs, 'epoch')} {verb} only {counted(updates, 'update')}"
        reasons[enough] = f"{found}, of {FEW_UPDATES} or more"
    if not reasons:
        return None
    most = max(reasons)
    return f"try --epochs {most}: {reasons[most]}"
