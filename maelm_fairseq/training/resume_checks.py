"""Whether a checkpoint is one that a run, or a validation, can use: checked before fairseq takes anything from it."""

from argparse import Namespace

import torch

from ..base.errors import UsageError
from ..base.settings import option
from ..base.typed_values import shown, typed
from ..checkpoints.compatibility import ENCODER, OTHERS, check_vocabulary, check_weights, compare_configurations
from ..checkpoints.run_state import ExtraState, OptimizerState
from ..checkpoints.sections import name_in
from ..number_units import STANDARDISED
from ..state_dicts import HEADS, fit_parts
from ..vocabulary import FINGERPRINT


def check_run(state, trainer, path, starts_anew):
    """Refuses a checkpoint, from `sections.for_fairseq`, that a run cannot start or resume from.

    If it starts anew, as by --finetune-from-model or --reset-optimizer, only the encoder must be the same.
    """
    if "model" not in state["cfg"] or FINGERPRINT not in state.get("task_state", {}):
        raise UsageError(f"{path}: not a checkpoint of MAE-LM; expected one from fairseq-train --arch mae_lm_...")
    history = state.get("optimizer_history")
    if not history or not (starts_anew or "num_updates" in history[-1]):  # an imported encoder has made none
        raise UsageError(f"{path}: its number of updates is missing; use another checkpoint")
    extra = typed(dict, state.get("extra_state"), f"{path}: extra_state")
    typed(ExtraState, {name: plain_value(value) for name, value in extra.items()}, f"{path}: extra_state")
    model = trainer.get_model()
    theirs, ours, own = Namespace(**state["cfg"]["model"]), model.cfg, model.state_dict()
    check_vocabulary(state, trainer.task.source_dictionary, path)
    own_state, their_state = trainer.task.state.state_dict, state["task_state"]
    if starts_anew:
        state["task_state"] = {FINGERPRINT: their_state[FINGERPRINT]}  # its labels are of another task
        compare_configurations(theirs, ours, ENCODER, path)
        same_labels = all(their_state.get(name) == own_state.get(name) for name in ["labels", STANDARDISED])
        if theirs.classification_pooling != str(ours.classification_pooling) or not same_labels:
            for name in [name for name in state["model"] if name.startswith(HEADS)]:
                del state["model"][name]  # they read or say something else
        fit_parts(state["model"], own)
    else:
        compare_configurations(theirs, ours, ENCODER + OTHERS, path)
        check_components(state, trainer, path)
        if STANDARDISED in own_state and STANDARDISED not in their_state:
            raise UsageError(f"{path}: its head predicts numbers as versions until 0.2.0 do; start a run of its own")
        for name in [name for name in own_state if name in their_state and own_state[name] != their_state[name]]:
            was, now = shown(their_state[name]), shown(own_state[name])
            raise UsageError(f"{path}: the data are not those of the run: {name} was {was} and is {now}; use the same")
    check_weights(state["model"], own, path)


def check_update(state, named, path):
    """Refuses a checkpoint of another number of updates than its name says (`named`; None if it says nothing)."""
    update = state["optimizer_history"][-1].get("num_updates", 0)
    if named not in (None, update):
        raise UsageError(f"{path}: its name says update {named:,}, and it is of update {update:,}: rename it")


def plain_value(value):
    """The number in a tensor of one, as which fairseq saves some from several processes; other values as they are."""
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def check_moments(optimizer, update, is_own_model, path):
    """Refuses a state of an Adam with which PyTorch would compute nevertheless, or fail after an update.

    Args:
        optimizer: of PyTorch, which has loaded its state
        update: how many the run has made
        is_own_model: whether every weight takes part in training, and so has moments
    """
    name = type(optimizer).__name__
    if "Adam" not in name or name == "Adamax":  # which has other moments
        return
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    states = [(weight, optimizer.state.get(weight) or {}) for weight in weights]
    for number, (weight, state) in enumerate(states):
        problem = problem_of_moments(weight, state) if state or is_own_model else None
        if problem:
            fix = "use another checkpoint, or add --reset-optimizer"
            raise UsageError(f"{path}: the optimizer's state of weight {number}: {problem}; {fix}")
    steps = {float(state["step"]) for _, state in states if state}
    if is_own_model and steps != {update}:
        found = ", ".join(f"{step:g}" for step in sorted(steps))
        raise UsageError(f"{path}: the optimizer has made {found} steps with its weights, the run {update:,} updates")


def problem_of_moments(weight, state):
    """What is wrong with the state of an Adam for a weight, in words; None if nothing is."""
    for name in ["exp_avg", "exp_avg_sq"]:
        moment = state.get(name)
        if not isinstance(moment, torch.Tensor) or moment.shape != weight.shape:
            found = tuple(moment.shape) if isinstance(moment, torch.Tensor) else "none"
            return f"{name} has the shape {found}, expected {tuple(weight.shape)}"
        if not moment.is_floating_point() or not torch.isfinite(moment).all():
            return f"{name} contains {moment.dtype}, NaN or infinity, expected finite numbers"
    if (state["exp_avg_sq"] < 0).any():
        return "exp_avg_sq contains negative numbers, expected means of squares"
    step = state.get("step")
    is_number = isinstance(step, (int, float)) or (isinstance(step, torch.Tensor) and step.numel() == 1)
    if not is_number or not 1 <= float(step) < 2**53:
        return "step is not a number from 1 on"
    return None


def check_components(state, trainer, path):
    """Refuses to resume with another criterion, optimizer or schedule, or without the state of the optimizer."""
    if not isinstance(state.get("last_optimizer_state"), dict):
        raise UsageError(
            f"{path}: it has no state of the optimizer, so no run can resume from it: add --reset-optimizer, or start "
            "another run with --finetune-from-model"
        )
    typed(OptimizerState, state["last_optimizer_state"], f"{path}: last_optimizer_state")
    fp16 = trainer.cfg.common.fp16  # its state is of other form
    if ("loss_scale" in state["last_optimizer_state"]) != fp16:
        was, now = ("with" if has else "without" for has in (not fp16, fp16))
        raise UsageError(
            f"{path}: the run was {was} fp16 and is {now}: keep the same precision, or start another run with "
            "--finetune-from-model"
        )
    for name, stored in state["components"].items():
        current = name_in(trainer.cfg[name])
        if stored and stored != current:
            raise UsageError(
                f"{path}: {option(name)} was {stored} and is {current}: use the same, or add --reset-optimizer"
            )


def same_in_all_processes(update, save_dir):
    """The update that all processes resume from; one that does not find the checkpoint would begin anew, unnoticed."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        updates = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(updates, update)
        if len({*updates}) > 1:
            found = f"some processes of this run resume from update {min(updates):,}, others from {max(updates):,}"
            raise UsageError(f"--save-dir {save_dir}: {found}; give a folder that all machines share")
    return update
