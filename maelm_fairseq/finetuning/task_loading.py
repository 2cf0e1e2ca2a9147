"""Fine-tuned models and their tasks outside fairseq's commands."""

from ..base.errors import UsageError
from ..base_task import make_task
from ..checkpoints.building import build_model, default_device, read_checkpoint
from ..checkpoints.sections import checked_section_options
from ..fairseq_api import tasks
from . import sentences, squad, tagging  # noqa: F401  their tasks register themselves
from .finetuning_task import FineTuningTask


def task_class_of(name):
    """The `FineTuningTask` of a name; None if there is none."""
    task_class = tasks.TASK_REGISTRY.get(name)
    if task_class is None or not issubclass(task_class, FineTuningTask):
        return None
    return task_class


def load_task(checkpoint_file, **options):
    """The task of a fine-tuned checkpoint, and its model, outside fairseq's commands.

    `options` replace those in the checkpoint.

    Returns: `FineTuningTask`, and the model in evaluation mode, on a GPU if there is one
    Raises:
        FileNotFoundError: there is no such file
        UsageError: it is not a checkpoint of such a task
    """
    checkpoint = read_checkpoint(checkpoint_file)
    saved = checked_section_options("task", checkpoint["cfg"].get("task"), checkpoint_file)
    saved = saved or {"_name": None}
    name = saved.pop("_name")
    task_class = task_class_of(name)
    if task_class is None:
        raise UsageError(
            f"{checkpoint_file}: its task is {name}, expected a task that fine-tunes on labelled "
            "files"
        )
    task = make_task(task_class, **{**saved, **options})
    task.load_state_dict(checkpoint["task_state"])
    missing = [name for name in task.needed_state if getattr(task.recorded, name) is None]
    if missing:
        raise UsageError(
            f"{checkpoint_file}: task_state: found no {' and no '.join(missing)}; "
            "use another checkpoint"
        )
    model = build_model(checkpoint, task.dictionary, checkpoint_file)
    task.set_max_tokens(model)
    return task, model.to(default_device())
