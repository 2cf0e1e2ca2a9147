"""Whether a run or a validation can use a checkpoint.

This is checked before fairseq takes anything from it.
"""

import logging

import torch

from ..base.errors import UsageError
from ..base.option_fields import option_name
from ..base.typed_values import as_type, short_repr
from ..checkpoints.building import NOT_A_CHECKPOINT, num_updates_of
from ..checkpoints.compatibility import (
    ENCODER_OPTIONS,
    OPTIONS_FIXED_ON_RESUME,
    check_configuration,
    check_vocabulary,
    check_weights,
)
from ..checkpoints.schema import ExtraState, OptimizerState
from ..checkpoints.sections import component_name
from ..distributed import from_all_processes
from ..label_scale import STANDARDISED
from ..state_dicts import HEAD_PREFIX, reset_mismatched_parts
from ..vocabulary import FINGERPRINT

logger = logging.getLogger(__name__)


def drop_unusable_parts(checkpoint, trainer):
    """Removes what a run that starts anew from a checkpoint cannot use.

    These are heads for other labels, the state of another task, parts that the model lacks, and how
    long the other run took.

    Args:
        checkpoint: from `sections.read_for_fairseq`, after `check_origin`; changed in place
        trainer: fairseq's, of the run
    """
    model = trainer.get_model()
    current_task_state = trainer.task.state.state_dict
    remove_other_heads(checkpoint, checkpoint["cfg"]["model"], model.cfg, current_task_state)
    checkpoint["task_state"] = {FINGERPRINT: checkpoint["task_state"][FINGERPRINT]}
    if isinstance(checkpoint.get("extra_state"), dict):
        checkpoint["extra_state"].pop("previous_training_time", None)
    reset_mismatched_parts(checkpoint["model"], model.state_dict())


def check_run(checkpoint, trainer, path, starts_anew):
    """Refuses a checkpoint that a run cannot start or resume from.

    Args:
        checkpoint: what `sections.read_for_fairseq` returned, after `check_origin` and, if the run
            starts anew, `drop_unusable_parts`
        trainer: fairseq's, of the run
        path: path of the checkpoint
        starts_anew: as by --finetune-from-model or --reset-optimizer: then only the encoder must be
            the same
    """
    check_history(checkpoint.get("optimizer_history"), path, starts_anew)
    extra = as_type(dict, checkpoint.get("extra_state"), f"{path}: extra_state")
    extra = {name: plain_value(value) for name, value in extra.items()}
    as_type(ExtraState, extra, f"{path}: extra_state")
    model = trainer.get_model()
    check_vocabulary(checkpoint, trainer.task.source_dictionary, path)
    names = ENCODER_OPTIONS if starts_anew else ENCODER_OPTIONS + OPTIONS_FIXED_ON_RESUME
    check_configuration(checkpoint["cfg"]["model"], model.cfg, names, path)
    if not starts_anew:
        report_new_schedule(checkpoint["max_update"], trainer.cfg.optimization.max_update, path)
        check_components(checkpoint, trainer, path)
        check_task_state(checkpoint["task_state"], trainer.task.state.state_dict, path)
    check_weights(checkpoint["model"], model.state_dict(), path)


def check_origin(checkpoint, path):
    """Refuses a checkpoint of another model than this plugin's."""
    if "model" not in checkpoint["cfg"] or FINGERPRINT not in checkpoint.get("task_state", {}):
        raise UsageError(f"{path}: {NOT_A_CHECKPOINT}")


def report_new_schedule(saved_value, current_value, path):
    """Says if the checkpoint of a path was made by a run with another --max-update than now."""
    if isinstance(saved_value, int) and saved_value and saved_value != current_value:
        logger.warning(
            f"{path}: the run was to end after {saved_value:,} updates (--max-update), and is now "
            f"to end after {current_value:,}; the learning rate continues where the new schedule "
            "is at this update"
        )


def is_extension(saved_max_update, update, max_update):
    """Whether a run trains on from the checkpoint of a finished one.

    Args:
        saved_max_update: the --max-update of the finished run; None or 0 if it had no end
        update: update of the checkpoint
        max_update: the --max-update of this run
    """
    was_finished = isinstance(saved_max_update, int) and 0 < saved_max_update <= update
    return was_finished and (max_update <= 0 or update < max_update)


def check_history(history, path, starts_anew):
    """Refuses a checkpoint without a number of updates, unless the run starts anew."""
    # The history of an imported encoder has no updates.
    if not history or not (starts_anew or "num_updates" in history[-1]):
        raise UsageError(f"{path}: its number of updates is missing; use another checkpoint")


def remove_other_heads(checkpoint, saved_options, cfg, current_task_state):
    """Removes the heads from a checkpoint if they differ from the run's in labels or pooling.

    Args:
        checkpoint: from `sections.read_for_fairseq`; changed in place
        saved_options: the options of its model, {name: value}
        cfg: the options of the run's model
        current_task_state: state of the run's task
    """
    saved_task_state = checkpoint["task_state"]
    names = ["labels", STANDARDISED]
    has_same_labels = all(
        saved_task_state.get(name) == current_task_state.get(name) for name in names
    )
    has_same_pooling = saved_options["classification_pooling"] == str(cfg.classification_pooling)
    if has_same_labels and has_same_pooling:
        return
    heads = [name for name in checkpoint["model"] if name.startswith(HEAD_PREFIX)]
    for name in heads:
        del checkpoint["model"][name]


def check_task_state(saved_task_state, current_task_state, path):
    """Refuses to resume with other data than those that the checkpoint's task has seen."""
    if STANDARDISED in current_task_state and STANDARDISED not in saved_task_state:
        raise UsageError(
            f"{path}: saved by 0.2.0 or earlier, whose heads predict numbers in another unit; "
            "start a new run in another --save-dir"
        )
    for name in current_task_state:
        if name in saved_task_state and current_task_state[name] != saved_task_state[name]:
            saved_value = describe_entry(saved_task_state[name])
            current_value = describe_entry(current_task_state[name])
            raise UsageError(
                f"{path}: the data differ from those of the run: {name} was {saved_value} and is "
                f"{current_value}; use the same"
            )


def describe_entry(value):
    """A value of the state of a task, for a message; of a long list its beginning."""
    if not isinstance(value, list):
        return short_repr(value)
    text = ", ".join(map(str, value))
    return text if len(text) <= 80 else f"{text[:80]}..."


def check_update(checkpoint, named, path):
    """Refuses a checkpoint of another number of updates than its name says.

    That number is `named`; None if the name says nothing.
    """
    update = num_updates_of(checkpoint)
    if named not in (None, update):
        raise UsageError(
            f"{path}: its name says update {named:,}, and it is of update {update:,}: rename it"
        )


def plain_value(value):
    """The number in a tensor of a single one; other values as they are.

    fairseq saves some numbers of several processes as such tensors.
    """
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def check_moments(optimizer, update, all_weights_have_moments, path):
    """Refuses a wrong state of an Adam.

    PyTorch would compute with it nevertheless, or fail after an update.

    Args:
        optimizer: of PyTorch, which has loaded its state
        update: how many the run has made
        all_weights_have_moments: whether every weight takes part in training
    """
    name = type(optimizer).__name__
    if "Adam" not in name or name == "Adamax":  # which has other moments
        return
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    states = [(weight, optimizer.state.get(weight) or {}) for weight in weights]
    for number, (weight, state) in enumerate(states):
        if not state and not all_weights_have_moments:
            continue
        problem = problem_of_moments(weight, state)
        if problem:
            raise UsageError(
                f"{path}: the optimizer's state of weight {number}: {problem}; use another "
                "checkpoint, or add --reset-optimizer"
            )
    steps = {float(state["step"]) for _, state in states if state}
    if all_weights_have_moments and steps != {update}:
        found = ", ".join(f"{step:g}" for step in sorted(steps))
        raise UsageError(
            f"{path}: the optimizer has made {found} steps with its weights, the run {update:,} "
            "updates; use another checkpoint, or add --reset-optimizer"
        )


def problem_of_moments(weight, state):
    """What is wrong with the state of an Adam for a weight, in words; None if nothing is."""
    for name in ["exp_avg", "exp_avg_sq"]:
        moment = state.get(name)
        shape = tuple(moment.shape) if isinstance(moment, torch.Tensor) else "none"
        if shape != tuple(weight.shape):
            return f"{name} has the shape {shape}, expected {tuple(weight.shape)}"
        if not moment.is_floating_point() or not torch.isfinite(moment).all():
            return f"{name} contains {moment.dtype}, NaN or infinity, expected finite numbers"
    if (state["exp_avg_sq"] < 0).any():
        return "exp_avg_sq contains negative numbers, expected means of squares"
    step = state.get("step")
    if isinstance(step, torch.Tensor):
        is_number = step.numel() == 1
    else:
        is_number = isinstance(step, (int, float))
    if not is_number or not 1 <= float(step) < 2**53:
        return "step is not a number from 1 on"
    return None


def check_components(checkpoint, trainer, path):
    """Refuses to resume with another criterion, optimizer, schedule or precision.

    Also refuses to do so without the state of the optimizer.
    """
    if not isinstance(checkpoint.get("last_optimizer_state"), dict):
        raise UsageError(
            f"{path}: it has no state of the optimizer, so no run can resume from it: add "
            "--reset-optimizer, or start another run with --finetune-from-model"
        )
    as_type(OptimizerState, checkpoint["last_optimizer_state"], f"{path}: last_optimizer_state")
    is_fp16 = trainer.cfg.common.fp16
    was_fp16 = "loss_scale" in checkpoint["last_optimizer_state"]  # then the state has another form
    if was_fp16 != is_fp16:
        saved_value = "with" if was_fp16 else "without"
        current_value = "with" if is_fp16 else "without"
        raise UsageError(
            f"{path}: the run was {saved_value} fp16 and is {current_value}: keep the same "
            "precision, or start another run with --finetune-from-model"
        )
    for name, stored in checkpoint["components"].items():
        current = component_name(trainer.cfg[name])
        if stored and stored != current:
            raise UsageError(
                f"{path}: {option_name(name)} was {stored} and is {current}: use the same, or add "
                "--reset-optimizer"
            )


def check_same_update(update, save_dir):
    """Refuses processes that resume from different updates.

    A process that does not find the checkpoint would otherwise begin a new run, and nobody would
    notice.
    """
    updates = from_all_processes(update)
    if len({*updates}) > 1:
        raise UsageError(
            f"--save-dir {save_dir}: some processes of this run resume from update "
            f"{min(updates):,}, others from {max(updates):,}; give a folder that all machines share"
        )
