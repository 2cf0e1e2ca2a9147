"""The functions of fairseq that are replaced, because it offers a plugin no hook at these places.

For each: what fairseq does, what happens here, instead or in addition, and why. Brackets say when:
- all commands: in the commands of fairseq that import this plugin, in no other program
- training: in `fairseq-train` and `fairseq-hydra-train`
- our models: in training, with models of this plugin and those derived from them, whatever the task
- `torch_adamw`: in training, with this optimizer

`convert_namespace_to_omegaconf` (all commands)
    fairseq: It converts the options that were parsed to a configuration.
    Here: Values with a backslash or a `${...}` are refused. fairseq-validate runs in one process.
    Why: In the configuration, such values would mean something else. With several processes,
    fairseq-validate needs batches for all of them.

`call_main` (our models)
    fairseq: It starts a process for each GPU, and waits for them.
    Here: Signals are handled before, and passed on to these processes. More processes than devices
    are refused. An error in one of the processes is reported in one line.
    Why: A signal would end the run without a checkpoint, and an error would end in stack traces.

`add_defaults` (our models)
    fairseq: It fills in options that were not given. Each process of a run begins with that.
    Here: The run begins, too: what an earlier run in the process has left is forgotten, options are
    checked, signals are handled, memory is set up, and the save folder is taken.
    Why: All of this must happen in each process, before anything is read or written.

`train` (our models)
    fairseq: It trains for an epoch, from the place in the data at which a checkpoint was saved.
    Here: All processes must be at the same update. There is none after the last one, or once
    patience has run out. A validation that was interrupted is run first. A resumed epoch
    continues with a whole update. The task passes on requests to stop.
    Why: A resumed run ends with the same weights as one that was never interrupted.

`Trainer.train_step` (our models)
    fairseq: It makes one update from several batches. It computes another batch in place of an
    empty one, and leaves out a batch for which there is not enough memory.
    Here: Empty batches are left out. Lack of memory ends the run. The first updates are reported.
    Why: The tokens of the other batch would be counted, and nobody would notice missing batches.

`train_step`, `valid_step`, `reduce_metrics` of the task (our models)
    fairseq: It sums what the steps log over all processes.
    Here: Whether a process was asked to stop is logged, too.
    Why: All processes must stop at the same update, even if only one of them gets the signal.

`FP16Optimizer._sync_fp16_grads_to_fp32` (`torch_adamw`)
    fairseq: It copies the gradients one by one.
    Here: They are copied all at once.
    Why: A GPU needs a few kernels instead of one for each weight.

`FP16Optimizer._sync_fp32_params_to_fp16` (`torch_adamw`)
    fairseq: It copies the weights one by one.
    Here: They are copied all at once.
    Why: As for the gradients.

`validate_and_save` (training)
    fairseq: After each update, it validates and saves if it is time for either.
    Here: It runs at most once per update. If the run is to stop, it saves, and the process ends.
    From time to time, freed memory is returned to the system.
    Why: fp16 skips some updates. After one, fairseq would validate and save the same weights again.

`save_checkpoint` (training)
    fairseq: It writes a checkpoint under several names, such as checkpoint_best.pt and
    checkpoint_last.pt.
    Here: Weights that are not finite are refused. A full disk is reported in one line. The last
    checkpoint is written first. The log names those that are removed, and the option that says so.
    Why: The last checkpoint is the one from which a run resumes if it is killed meanwhile.

`torch_persistent_save`, `checkpoint_utils.PathManager` (training)
    fairseq: They write a file, and copy it to its other names.
    Here: Each file gets its name only once it is complete. What --patience has seen is added to it.
    No crash.pt is written.
    Why: A run that is killed leaves no incomplete checkpoint. If the disk is full, writing crash.pt
    would hide the crash.

`load_checkpoint` (training)
    fairseq: It restores the run from one checkpoint, with its place in the data.
    Here: The checkpoints in the folder are tried one after the other, until the run can use one.
    Why: The last one may be missing, damaged or of another run.

`Trainer.load_checkpoint` (training)
    fairseq: It puts what a file contains into model and optimizer, without checks.
    Here: The checkpoint is compared with the run before. What --patience has seen is restored.
    Why: A checkpoint that does not fit ends in an error that says why, not in other results.

`load_checkpoint_to_cpu` (all commands)
    fairseq: It unpickles a file, which can execute code.
    Here: Only tensors, plain values and options of this plugin are read.
    Why: Nobody should have to trust a checkpoint.

`load_model_ensemble_and_task` (all commands)
    fairseq: It builds the model and the task that a checkpoint names, whatever they are.
    Here: They must be of this plugin, and the checkpoint must be whole.
    Why: Some of fairseq's own classes evaluate strings in the configuration.
"""

import functools
import sys

from ..base.command_line import shorten_argparse_errors
from ..fairseq_api import FP16Optimizer, Trainer, checkpoint_utils, distributed_utils
from . import fp16_copies, loading, loop, resuming, saving, starting
from .reporting import reporter
from .run_state import patience


def is_fairseq_command():
    """Whether this process runs one of fairseq's commands, not a program that imports us."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    names = [*sys.modules, getattr(spec, "name", "")]
    return any(name.partition(".")[0] == "fairseq_cli" for name in names)


def install_hooks():
    """Replaces the functions; for fairseq's commands, never for a program that imports us."""
    reporter.install()
    shorten_argparse_errors()
    wrap(checkpoint_utils, loading.load_checkpoint_to_cpu)
    wrap(checkpoint_utils, loading.load_model_ensemble_and_task)
    for module in loaded_commands():
        if hasattr(module, "convert_namespace_to_omegaconf"):
            wrap(module, starting.convert_namespace_to_omegaconf)
        if module.__spec__.name == "fairseq_cli.train":
            install_training_hooks(module)


def loaded_commands():
    """The modules of fairseq's commands that this process has loaded.

    It has done so as a console script, or with `python -m`.
    """
    loaded = []
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec and spec.name.startswith("fairseq_cli."):
            loaded.append(module)
    return loaded


def install_training_hooks(program):
    """Replaces the functions of training; `program` is fairseq's module of the command."""
    wrap(distributed_utils, starting.call_main)
    wrap(program, starting.add_defaults)
    wrap(program, loop.train)
    wrap(program, loop.validate_and_save)
    wrap(Trainer, loop.train_step)
    wrap(checkpoint_utils, resuming.load_checkpoint)
    wrap(Trainer, resuming.load_trainer_checkpoint, "load_checkpoint")
    wrap(checkpoint_utils, saving.save_checkpoint)
    wrap(checkpoint_utils, saving.torch_persistent_save)
    checkpoint_utils.PathManager = saving.AtomicPathManager
    wrap_copies()
    patience.attach(program.should_stop_early)


def wrap_copies():
    """Replaces how fairseq copies between half precision and float32."""
    wrap(FP16Optimizer, fp16_copies.gradients_to_float32, "_sync_fp16_grads_to_fp32")
    wrap(FP16Optimizer, fp16_copies.weights_to_float16, "_sync_fp32_params_to_fp16")


def wrap(owner, function, name=None):
    """Replaces a function of a module or class.

    Args:
        owner: the module or class
        function: the new one; its first argument is the original
        name: name of the original; by default, that is the name of the new one
    """
    name = name or function.__name__
    original = getattr(owner, name)

    @functools.wraps(original)
    def replacement(*args, **kwargs):
        return function(original, *args, **kwargs)

    # fairseq keeps the state of a run in attributes of some functions; it has none of this run yet.
    vars(replacement).clear()
    setattr(owner, name, replacement)
