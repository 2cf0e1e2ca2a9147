"""The functions of fairseq that are replaced, because it offers a plugin no hook at these places.

| function | what is added | why | when |
|---|---|---|---|
| `call_main` | signal handlers; errors of a GPU's process in one line | all hear of a request to stop | our tasks |
| `add_defaults` | signal handlers; memory; lock of the save folder, newest checkpoint | each process calls it | ours |
| `train` | no update after the last one; a resumed epoch goes on with whole updates | exact resume | our tasks |
| `validate_and_save` | a requested stop saves and ends the process; frees memory | runs after each update | training |
| `save_checkpoint` | refuses NaN; a full disk is one line | the last good checkpoint stays | training |
| `torch_persistent_save`, `PathManager.copy` | names appear with complete files | kills leave no half file | training |
| `load_checkpoint_to_cpu` | verifies the file, rebuilds plain values and our options | torch does not | all commands |
| `load_ema_from_checkpoint` | the same, for `--ema-seed-model` | torch does not | all commands |
| `load_model_ensemble_and_task` | builds this plugin's classes only | others evaluate its texts | all commands |

"Training": in `fairseq-train` and `fairseq-hydra-train`; "our tasks": there, for tasks of this plugin and those derived
from them; "all commands": those of fairseq that import this plugin. A program that imports it is left as it is.
"""

import functools
import os
import re
import sys

import torch

from ..base.errors import UsageError
from ..base.signals import STOPPED
from ..checkpoints import checkpoint_files
from ..checkpoints.building import read_pickle
from ..checkpoints.reading import REGISTRIES, checkpoint_classes, for_fairseq
from ..engine import MODEL_REGISTRY, TASK_REGISTRY, checkpoint_utils, distributed_utils
from ..model import MaeLmModel
from ..task import TokenTask
from . import stopping
from .memory import RETURN_INTERVAL, keep_few_descriptions, keep_freed_memory, return_freed_memory
from .reporting import reporter

MODULE = "fairseq_cli.train"


def is_command():
    """Whether this process runs one of fairseq's commands, rather than a program that imports us."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return any(name.partition(".")[0] == "fairseq_cli" for name in [*sys.modules, getattr(main, "name", "")])


def extend():
    """Replaces the functions; for fairseq's commands, never for a program that imports us."""
    reporter.install()
    torch.serialization.add_safe_globals(checkpoint_classes())  # processes send each other what they have read
    for function in [load_checkpoint_to_cpu, load_ema_from_checkpoint]:
        _replace(checkpoint_utils, function)
    if "fairseq_cli" in sys.modules:  # not a recipe
        _replace(checkpoint_utils, load_model_ensemble_and_task)
    for name in [MODULE, "__main__"]:  # as a console script, or with `python -m`
        module = sys.modules.get(name)
        if module and module.__spec__ and module.__spec__.name == MODULE:
            for function in [add_defaults, train, validate_and_save]:
                _replace(module, function)
            for function in [save_checkpoint, torch_persistent_save]:
                _replace(checkpoint_utils, function)
            _replace(distributed_utils, call_main)
            checkpoint_utils.PathManager = checkpoint_files.AtomicPathManager


def _replace(module, function):
    """Replaces a function of a module by one of the same name that gets the original as its first argument."""
    original = getattr(module, function.__name__)
    setattr(module, function.__name__, functools.wraps(original)(functools.partial(function, original)))


def is_ours(cfg):
    """Whether a configuration is for a task of this plugin, or one derived from it."""
    return _is_registered(TASK_REGISTRY, cfg.task, TokenTask)


def _is_registered(registry, cfg, base):
    registered = registry.get(getattr(cfg, "_name", None))
    return registered is not None and issubclass(registered, base)


def call_main(original, cfg, main, **kwargs):
    distributed = cfg.distributed_training
    if not is_ours(cfg):
        return original(cfg, main, **kwargs)
    if distributed.distributed_init_method is None:
        distributed_utils.infer_init_method(distributed)
    spawns = distributed.distributed_init_method is not None and not distributed.distributed_no_spawn
    stopping.handle_signals(announce=False, pass_on=spawns)
    try:
        return original(cfg, main, **kwargs)
    except torch.multiprocessing.ProcessExitedException as error:
        if error.exit_code == STOPPED:
            sys.exit(STOPPED)
        raise
    except torch.multiprocessing.ProcessRaisedException as error:
        message = re.search(r"maelm_fairseq\.base\.errors\.\w+: (.*)\s*\Z", str(error))
        if message:
            raise UsageError(message.group(1)) from None
        raise


def add_defaults(original, cfg):
    original(cfg)
    is_master = distributed_utils.is_master(cfg.distributed_training)
    if is_ours(cfg):
        stopping.handle_signals(announce=is_master)
        if cfg.common.cpu or not torch.cuda.is_available():
            keep_few_descriptions()
            add_defaults.keeps_memory = keep_freed_memory()
    if _is_registered(MODEL_REGISTRY, cfg.model, MaeLmModel):
        open_save_dir(cfg.checkpoint, is_master)


def open_save_dir(cfg, is_master):
    """Checks what a run starts from, and keeps other runs out of its folder.

    Args:
        cfg: fairseq's configuration of checkpoints
        is_master: whether this is the process that saves
    """
    restores_last = cfg.restore_file == checkpoint_files.LAST
    if not restores_last:
        checkpoint_files.check_exists("--restore-file", cfg.restore_file)
        if is_master and not cfg.reset_dataloader:  # else weights alone will do
            refuse_unusable(cfg.restore_file, needs_optimizer=not cfg.reset_optimizer)
    elif cfg.finetune_from_model and not os.path.exists(os.path.join(cfg.save_dir, checkpoint_files.LAST)):
        checkpoint_files.check_exists("--finetune-from-model", cfg.finetune_from_model)
    if is_master and not cfg.no_save:
        open_save_dir.lock = checkpoint_files.Lock(cfg.save_dir)
        checkpoint_files.remove_partial(cfg.save_dir)
        if restores_last:
            checkpoint_files.renew_last(cfg.save_dir, needs_optimizer=not cfg.reset_optimizer)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()  # the others look for the last checkpoint


def refuse_unusable(restore_file, **needs):
    """Refuses a file that no run can go on from."""
    found = checkpoint_files.why_unusable(restore_file, **needs)
    if found:
        newest = checkpoint_files.describe_newest_good(os.path.dirname(restore_file) or ".")
        raise UsageError(f"--restore-file {restore_file}: {found}; give a checkpoint of fairseq-train: {newest}")


def load_checkpoint_to_cpu(original, path, *args, **kwargs):
    state = for_fairseq(read_pickle(path), path)
    load, torch.load = torch.load, lambda *args, **options: state
    try:
        return original(path, *args, **kwargs)
    finally:
        torch.load = load


def load_ema_from_checkpoint(original, path):
    return load_checkpoint_to_cpu(original, path)


def load_model_ensemble_and_task(original, filenames, *args, **kwargs):
    for path in filenames:
        if path is None:
            raise UsageError("--path is missing: the checkpoint to validate, such as DIR/checkpoint_best.pt")
        foreign = sorted(REGISTRIES.keys() - for_fairseq(read_pickle(path), path)["cfg"].keys())
        if foreign:  # fairseq's own, of which some evaluate strings of the configuration
            raise UsageError(f"{path}: expected a checkpoint of this plugin, found another {' and '.join(foreign)}")
    try:
        return original(filenames, *args, **kwargs)
    except (UsageError, OSError):
        raise
    except Exception as error:  # of whatever type: fairseq uses what it finds in the file unchecked
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"{', '.join(filenames)}: fairseq cannot build the model ({type(error).__name__}: {reason})"
        ) from error


def torch_persistent_save(original, state, filename, async_write=False):
    if async_write:
        return original(state, filename, async_write=True)
    return checkpoint_files.save(state, filename)


def save_checkpoint(original, cfg, trainer, epoch_itr, val_loss):
    update = trainer.get_num_updates()
    if isinstance(trainer.get_model(), MaeLmModel) and not checkpoint_files.are_finite(trainer.model.parameters()):
        raise not_finite("weights are", update, cfg.save_dir)
    try:
        return original(cfg, trainer, epoch_itr, val_loss)
    except Exception as error:  # PyTorch hides the operating system's in its own
        cause = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__context__
        if cause is None:
            raise
        raise UsageError(
            f"the checkpoint of update {update:,} cannot be written ({cause.strerror}); "
            f"{checkpoint_files.describe_newest_good(cfg.save_dir)}; make room, and run the same command again"
        ) from None


def not_finite(what, update, save_dir):
    """The error of a run whose numbers became NaN or infinite."""
    return UsageError(
        f"the {what} not finite after update {update:,}; {checkpoint_files.describe_newest_good(save_dir)}; "
        "a lower --lr, a longer --warmup-updates or a --clip-norm may help"
    )


def train(original, cfg, trainer, task, epoch_itr):
    if not isinstance(task, TokenTask):
        return original(cfg, trainer, task, epoch_itr)
    if 0 < cfg.optimization.max_update <= trainer.get_num_updates():
        epoch_itr.next_epoch_itr(shuffle=epoch_itr.next_epoch_idx > cfg.dataset.curriculum)
        return sys.modules[original.__module__].validate_and_save(
            cfg, trainer, task, epoch_itr, cfg.dataset.valid_subset.split(","), end_of_epoch=False
        )
    frequencies = cfg.optimization.update_freq
    epoch_itr.align(frequencies[min(epoch_itr.next_epoch_idx, len(frequencies)) - 1])
    try:
        return original(cfg, trainer, task, epoch_itr)
    except FloatingPointError as error:
        if not re.search(r"\b(nan|inf)\b|loss scale", str(error), re.IGNORECASE):
            raise
        raise not_finite("gradients are", trainer.get_num_updates(), cfg.checkpoint.save_dir) from None


def validate_and_save(original, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    reporter.trained = True
    if getattr(add_defaults, "keeps_memory", False) and not trainer.get_num_updates() % RETURN_INTERVAL:
        return_freed_memory()
    if not stopping.agreed():
        with stopping.interruptible():
            return original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
    saves = not (cfg.checkpoint.no_save or cfg.checkpoint.no_last_checkpoints)
    stopping.stop(trainer.get_num_updates(), saves and cfg.checkpoint.save_dir)
