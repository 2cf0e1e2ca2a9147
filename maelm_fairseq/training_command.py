"""What differs in fairseq-train and fairseq-hydra-train when they train a task of this plugin.

fairseq offers a plugin no hook at these places, so functions of its module `fairseq_cli.train` are replaced, in the
processes of these commands only:

| function | what this adds to fairseq's |
|---|---|
| `call_main` | the process that starts one process for each GPU passes signals on to them |
| `add_defaults` | the first call that knows the whole configuration: signal handlers |
| `train` | a run that has all its updates trains no further one |
| `validate_and_save` | a requested stop: saves a checkpoint without validating, and ends the process |
"""

import functools
import sys

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import TASK_REGISTRY

from . import preemption
from .task import TokenTask

MODULE = "fairseq_cli.train"


def extend():
    """Replaces the functions, if this process runs one of fairseq's training commands."""
    for name in [MODULE, "__main__"]:  # as a console script, or with `python -m`
        module = sys.modules.get(name)
        if module and module.__spec__ and module.__spec__.name == MODULE:
            for function in [add_defaults, train, validate_and_save]:
                _replace(module, function)
            _replace(distributed_utils, call_main)


def _replace(module, function):
    """Replaces a function of a module by one of the same name that gets the original as its first argument."""
    original = getattr(module, function.__name__)
    setattr(module, function.__name__, functools.wraps(original)(functools.partial(function, original)))


def is_ours(cfg):
    """Whether a configuration is for a task of this plugin, or one derived from it."""
    task = TASK_REGISTRY.get(getattr(cfg.task, "_name", None))
    return task is not None and issubclass(task, TokenTask)


def call_main(original, cfg, main, **kwargs):
    distributed = cfg.distributed_training
    if distributed.distributed_init_method is None:
        distributed_utils.infer_init_method(distributed)
    if not is_ours(cfg) or distributed.distributed_init_method is None or distributed.distributed_no_spawn:
        return original(cfg, main, **kwargs)
    preemption.handle_signals(announce=False, pass_on=True)
    try:
        return original(cfg, main, **kwargs)
    except torch.multiprocessing.ProcessExitedException as error:
        if error.exit_code == preemption.STOPPED:
            sys.exit(preemption.STOPPED)
        raise


def add_defaults(original, cfg):
    original(cfg)
    if is_ours(cfg):
        preemption.handle_signals(announce=distributed_utils.is_master(cfg.distributed_training))


def train(original, cfg, trainer, task, epoch_itr):
    if isinstance(task, TokenTask) and 0 < cfg.optimization.max_update <= trainer.get_num_updates():
        epoch_itr.next_epoch_itr(shuffle=epoch_itr.next_epoch_idx > cfg.dataset.curriculum)
        return sys.modules[original.__module__].validate_and_save(
            cfg, trainer, task, epoch_itr, cfg.dataset.valid_subset.split(","), end_of_epoch=False
        )
    return original(cfg, trainer, task, epoch_itr)


def validate_and_save(original, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    if not preemption.agreed():
        with preemption.interruptible():
            return original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
    saves = not (cfg.checkpoint.no_save or cfg.checkpoint.no_last_checkpoints)
    preemption.stop(trainer.get_num_updates(), saves and cfg.checkpoint.save_dir)
