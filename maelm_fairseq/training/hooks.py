"""The functions of fairseq that are replaced, because it offers a plugin no hook at these places.

| function | what is added | when |
|---|---|---|
| `call_main` | signal handlers; errors of a GPU's process in one line | our models |
| `convert_namespace_to_omegaconf` | no misread options; validates in one process | all commands |
| `add_defaults` | begins a run: signals; memory; save folder; no state of another | our models |
| `train` | one update in all processes, none after the last; whole updates; signals | our models |
| `Trainer.train_step` | no empty batches; lack of memory ends the run; signs of life | our models |
| `train_step`, `valid_step`, `reduce_metrics` of the task | pass on requests to stop | our models |
| `FP16Optimizer._sync_fp16_grads_to_fp32` | copies all gradients at once | `torch_adamw` |
| `FP16Optimizer._sync_fp32_params_to_fp16` | copies all weights at once | `torch_adamw` |
| `validate_and_save` | stops on request, after saving; once an update; frees memory | training |
| `save_checkpoint` | refuses NaN; a full disk is one line; last checkpoint first | training |
| `torch_persistent_save`, `checkpoint_utils.PathManager` | only whole files get names | training |
| `load_checkpoint` | the first checkpoint that the run can use, position and all | training |
| `Trainer.load_checkpoint` | compares the checkpoint with the run; restores patience | training |
| `load_checkpoint_to_cpu` | tensors, plain values and our options alone | all commands |
| `load_model_ensemble_and_task` | builds our classes only, of whole checkpoints | all commands |

"Training": in `fairseq-train` and `fairseq-hydra-train`; "our models": there, for models of this
plugin and those derived from them, whatever the task; "`torch_adamw`": there, with this optimizer;
"all commands": those of fairseq that import this plugin, no other program.
"""

import functools
import sys

from ..base.command_line import shorten_argparse_errors
from ..engine import Trainer, checkpoint_utils, distributed_utils
from ..optimizer import replace_copies
from . import loading, loop, resuming, saving, starting
from .current_run import current
from .reporting import reporter


def is_command():
    """Whether this process runs one of fairseq's commands, not a program that imports us."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    names = [*sys.modules, getattr(main, "name", "")]
    return any(name.partition(".")[0] == "fairseq_cli" for name in names)


def extend():
    """Replaces the functions; for fairseq's commands, never for a program that imports us."""
    reporter.install()
    shorten_argparse_errors()
    replace(checkpoint_utils, loading.load_checkpoint_to_cpu)
    replace(checkpoint_utils, loading.load_model_ensemble_and_task)
    for module in commands():
        if hasattr(module, "convert_namespace_to_omegaconf"):
            replace(module, starting.convert_namespace_to_omegaconf)
        if module.__spec__.name == "fairseq_cli.train":
            extend_training(module)


def commands():
    """The modules of fairseq's commands that this process has loaded.

    It has done so as a console script, or with `python -m`.
    """
    loaded = []
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec and spec.name.startswith("fairseq_cli."):
            loaded.append(module)
    return loaded


def extend_training(program):
    """Replaces the functions of training; `program` is fairseq's module of the command."""
    replace(distributed_utils, starting.call_main)
    replace(program, starting.add_defaults)
    replace(program, loop.train)
    replace(program, loop.validate_and_save)
    replace(Trainer, loop.train_step)
    replace(checkpoint_utils, resuming.load_checkpoint)
    replace(Trainer, resuming.load_trainer_checkpoint, "load_checkpoint")
    replace(checkpoint_utils, saving.save_checkpoint)
    replace(checkpoint_utils, saving.torch_persistent_save)
    checkpoint_utils.PathManager = saving.AtomicPathManager
    replace_copies()
    # fairseq keeps what --patience has seen in attributes of this function: shared, they can be
    # saved with a checkpoint and restored.
    program.should_stop_early.__dict__ = current.patience


def replace(place, function, name=None):
    """Replaces a function of a module or class.

    Args:
        place: the module or class
        function: the new one; its first argument is the original
        name: of the original, by default that of the new one
    """
    name = name or function.__name__
    original = getattr(place, name)

    @functools.wraps(original)
    def replacement(*args, **kwargs):
        return function(original, *args, **kwargs)

    # fairseq keeps the state of a run in attributes of some functions; it has none of this run yet.
    vars(replacement).clear()
    setattr(place, name, replacement)
