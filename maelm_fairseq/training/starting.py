"""How a run starts: it checks its options, handles signals, and gets its save folder to itself."""

import logging
import os
import sys

import torch

from ..base.checkpoint_names import LAST_CHECKPOINT, last_checkpoint_path
from ..base.errors import UsageError
from ..base.signals import EXIT_STOPPED
from ..checkpoints.sections import is_plugin_model
from ..fairseq_api import checkpoint_utils, distributed_utils, progress_bar
from . import option_checks, save_folder, stopping
from .memory import keep_freed_memory, limit_caches
from .reporting import reporter
from .run_state import current_run, patience, save_folders

logger = logging.getLogger(__name__)


def convert_namespace_to_omegaconf(original, args):
    """Refuses options that fairseq would misread; validates in one process."""
    option_checks.check_no_interpolation(args)
    if hasattr(args, "path"):  # of fairseq-validate, which needs batches for all of its processes
        args.distributed_world_size = 1
    return original(args)


def call_main(original, cfg, main, **kwargs):
    """Installs signal handlers; reports an error in the process of a GPU in one line."""
    distributed = cfg.distributed_training
    if not is_plugin_model(cfg):
        return original(cfg, main, **kwargs)
    option_checks.check_processes(distributed)
    distributed_utils.infer_init_method(distributed)
    has_method = distributed.distributed_init_method is not None
    spawns = has_method and not distributed.distributed_no_spawn
    stopping.handle_signals(announce=False, pass_on=spawns)
    try:
        return original(cfg, main, **kwargs)
    except torch.multiprocessing.ProcessExitedException as error:
        if error.exit_code == EXIT_STOPPED:
            sys.exit(EXIT_STOPPED)
        raise
    except torch.multiprocessing.ProcessRaisedException as error:
        line = reporter.line_of_trace(str(error))
        if line:
            raise UsageError(line) from None
        raise


def add_defaults(original, cfg):
    """Begins a run: forgets an earlier one, checks options, handles signals, takes the folder."""
    original(cfg)
    if not is_plugin_model(cfg):
        return
    forget_earlier_run()
    on_cpu = option_checks.trains_on_cpu(cfg)
    option_checks.check_run_options(cfg)
    is_master = distributed_utils.is_master(cfg.distributed_training)
    stopping.handle_signals(announce=is_master)
    if on_cpu:
        if is_master:
            warn_of_spinning_threads()
        limit_caches()
        current_run.keeps_freed_memory = keep_freed_memory()
    # Otherwise one process sends the others pickled objects.
    cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True
    check_starting_point(cfg.checkpoint)
    if is_master and not cfg.checkpoint.no_save:
        take_save_folder(cfg.checkpoint.save_dir)


def forget_earlier_run():
    """Clears what this package and fairseq have kept of an earlier run in this process.

    There is one in a sweep of Hydra.
    """
    current_run.reset()
    patience.restore(None)
    vars(checkpoint_utils.save_checkpoint).clear()
    writers = getattr(progress_bar, "_tensorboard_writers", None) or {}
    for writer in writers.values():
        writer.close()
    writers.clear()


def warn_of_spinning_threads():
    """Warns that waiting OpenMP threads keep cores busy, and says how to prevent that.

    Says nothing if the environment sets how they wait.
    """
    chosen = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
    if not chosen and os.environ.get("OMP_NUM_THREADS") != "1":
        logger.warning(
            "idle OpenMP threads keep cores busy, which is slow if other programs are running: "
            "`export GOMP_SPINCOUNT=1000`, then start again"
        )


def check_starting_point(cfg):
    """Refuses a starting point that does not exist, or that the run would overwrite.

    Args:
        cfg: fairseq's checkpoint options
    """
    if getattr(cfg, "continue_once", None):
        save_folder.check_starting_file("--continue-once", cfg.continue_once)
    if cfg.restore_file != LAST_CHECKPOINT:
        save_folder.check_starting_file("--restore-file", cfg.restore_file)
    elif cfg.finetune_from_model:
        save_folder.check_outside(cfg.finetune_from_model, cfg.save_dir)
        if not os.path.lexists(last_checkpoint_path(cfg.save_dir, cfg.checkpoint_suffix)):
            save_folder.check_starting_file("--finetune-from-model", cfg.finetune_from_model)


def take_save_folder(save_dir):
    """Keeps other runs out of the save folder, also other jobs of a sweep.

    To be called in the process that saves.
    """
    current_run.lock = save_folder.lock(save_dir)
    folder = os.path.realpath(save_dir)
    if folder in save_folders:
        raise UsageError(
            f"--save-dir {save_dir}: an earlier job of this sweep uses it; "
            "give each job its own folder"
        )
    save_folders.add(folder)
