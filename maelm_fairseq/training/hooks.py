"""The functions of fairseq that are replaced, because it offers a plugin no hook at these places.

| function | what is added | when |
|---|---|---|
| `call_main` | signal handlers; errors of a GPU's process in one line | our models |
| `convert_namespace_to_omegaconf` | refuses options that it would misread; validates in one process | all commands |
| `add_defaults` | begins a run: signal handlers; memory; the save folder; no state of an earlier run | our models |
| `train` | all processes at one update, none after the last; whole updates in a resumed epoch; signals | our models |
| `Trainer.train_step` | no empty batches; what does not fit into memory ends the run; signs of life | our models |
| `train_step`, `valid_step`, `reduce_metrics` of the task | a request to stop reaches all processes | our models |
| `FP16Optimizer`'s copies of weights and gradients | all at once, instead of tensor by tensor | `torch_adamw` |
| `validate_and_save` | a requested stop saves and ends the process; once an update; frees memory | training |
| `save_checkpoint` | refuses NaN; a full disk is one line; the last checkpoint is written first | training |
| `torch_persistent_save`, `PathManager.copy` | names appear with complete files | training |
| `checkpoint_utils.load_checkpoint` | the first checkpoint that the run can use, position and all | training |
| `Trainer.load_checkpoint` | compares the checkpoint with the run; restores what patience has seen | training |
| `load_checkpoint_to_cpu` | tensors, plain values and our options alone | all commands |
| `load_model_ensemble_and_task` | builds this plugin's classes only, of whole checkpoints | all commands |

"Training": in `fairseq-train` and `fairseq-hydra-train`; "our models": there, for models of this plugin and those
derived from them, whatever the task; "`torch_adamw`": there, with this optimizer; "all commands": those of fairseq that
import this plugin, no other program.
"""

import contextlib
import functools
import logging
import os
import re
import sys

import torch
from omegaconf import OmegaConf

from ..base.checkpoint_names import LAST, best_checkpoint, first_accepted, interval_checkpoints, last_checkpoint
from ..base.errors import UsageError, is_out_of_memory, one_line, shorten_argparse_errors
from ..base.settings import option
from ..base.signals import STOPPED
from ..checkpoints import writing
from ..checkpoints.compatibility import check_weights
from ..checkpoints.reading import read_file
from ..checkpoints.sections import REGISTRIES, for_fairseq, is_of_our_model
from ..data.epochs import ResumableIterator
from ..engine import PathManager, Trainer, checkpoint_utils, distributed_utils, overwrite_args_by_name, progress_bar
from ..model import MaeLmModel
from ..optimizer import replace_copies
from ..task import MaeLmTask
from . import resume_checks, run_options, save_folder, stopping
from .memory import RETURN_INTERVAL, keep_freed_memory, limit_caches, return_freed_memory
from .reporting import FirstUpdates, reporter

logger = logging.getLogger(__name__)
CANNOT_RESUME = "the run cannot resume from it"


def is_command():
    """Whether this process runs one of fairseq's commands, rather than a program that imports us."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return any(name.partition(".")[0] == "fairseq_cli" for name in [*sys.modules, getattr(main, "name", "")])


def extend():
    """Replaces the functions; for fairseq's commands, never for a program that imports us."""
    reporter.install()
    shorten_argparse_errors()
    hooks, trains = Hooks(), False
    for name in ["load_checkpoint_to_cpu", "load_model_ensemble_and_task"]:
        _replace(checkpoint_utils, name, getattr(hooks, name))
    for module in list(sys.modules.values()):  # as a console script, or with `python -m`
        spec = getattr(module, "__spec__", None)
        if spec and spec.name.startswith("fairseq_cli.") and hasattr(module, "convert_namespace_to_omegaconf"):
            _replace(module, "convert_namespace_to_omegaconf", hooks.convert_namespace_to_omegaconf)
        if spec and spec.name == "fairseq_cli.train":
            for name in ["add_defaults", "train", "validate_and_save"]:
                _replace(module, name, getattr(hooks, name))
            module.should_stop_early.__dict__ = hooks.patience
            trains = True
    if trains:
        for name in ["save_checkpoint", "torch_persistent_save"]:
            _replace(checkpoint_utils, name, getattr(hooks, name))
        _replace(checkpoint_utils, "load_checkpoint", hooks.start)
        _replace(distributed_utils, "call_main", hooks.call_main)
        for name in ["load_checkpoint", "train_step"]:
            _replace(Trainer, name, getattr(hooks, name))
        replace_copies()
        checkpoint_utils.PathManager = type("AtomicPathManager", (PathManager,), {"copy": staticmethod(hooks.copy)})


def _replace(place, name, method):
    """Replaces a function of a module or class by this method, which gets the original first."""
    original = getattr(place, name)

    @functools.wraps(original)
    def replacement(*args, **kwargs):
        return method(original, *args, **kwargs)

    vars(replacement).clear()  # what fairseq keeps as attributes of the original is of no run yet
    setattr(place, name, replacement)


class Hooks:
    """The replacements, and what they know of the current run."""

    def __init__(self):
        self.patience = {}  # what --patience has seen: the attributes of fairseq's function should_stop_early
        self._lock = None  # of the save folder, in the process that saves
        self._first_updates = FirstUpdates()
        self._keeps_memory = False
        self._last = None  # path of the last checkpoint that is being saved
        self._folders = set()  # of all runs of this process
        self._seen = None  # the last update that fairseq was asked to validate and save
        self._validated = False  # whether the checkpoint that the run resumes from was validated
        self._candidate = None  # path of a checkpoint that it tries to resume from
        self._resumed = None  # path of the checkpoint that it has read, while its folder is as it found it
        self._refused = {}  # {path: error} of checkpoints that it could not resume from
        self._read = {}  # {path: contents} of checkpoints that were read and checked, and fairseq is about to read

    # Starting

    def convert_namespace_to_omegaconf(self, original, args):
        run_options.check_texts(args)
        if hasattr(args, "path"):  # of fairseq-validate, which needs batches for all of its processes
            args.distributed_world_size = 1
        return original(args)

    def call_main(self, original, cfg, main, **kwargs):
        distributed = cfg.distributed_training
        if not is_of_our_model(cfg):
            return original(cfg, main, **kwargs)
        run_options.check_processes(distributed)
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
            line = reporter.line_of_trace(str(error))
            if line:
                raise UsageError(line) from None
            raise

    def add_defaults(self, original, cfg):
        original(cfg)
        if not is_of_our_model(cfg):
            return
        self._forget()
        on_cpu = cfg.common.cpu or not torch.cuda.is_available()
        run_options.check(cfg, on_cpu)
        is_master = distributed_utils.is_master(cfg.distributed_training)
        stopping.handle_signals(announce=is_master)
        if on_cpu:
            chosen = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()  # how threads wait
            if is_master and not chosen and os.environ.get("OMP_NUM_THREADS") != "1":
                logger.warning("beside other programs this is slow: `export GOMP_SPINCOUNT=1000`, then start again")
            limit_caches()
            self._keeps_memory = keep_freed_memory()
        cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True  # otherwise one process sends the others pickled objects
        self._open(cfg.checkpoint, is_master)

    def _forget(self):
        """Clears what fairseq has kept of an earlier run in this process, as in a sweep of Hydra."""
        reporter.trained = self._validated = False
        self._seen = self._resumed = None
        vars(checkpoint_utils.save_checkpoint).clear()
        self.patience.clear()
        writers = getattr(progress_bar, "_tensorboard_writers", None) or {}
        for writer in writers.values():
            writer.close()
        writers.clear()
        if self._lock:
            self._lock.close()
        self._lock = None

    def _open(self, cfg, is_master):
        """Checks what a run starts from; the master, which saves, keeps other runs out of its folder."""
        resumes, last = cfg.restore_file == LAST, last_checkpoint(cfg.save_dir, cfg.checkpoint_suffix)
        if getattr(cfg, "continue_once", None):
            save_folder.check_start("--continue-once", cfg.continue_once)
        if cfg.write_checkpoints_asynchronously:
            raise UsageError("--write-checkpoints-asynchronously: files have names before they are whole; remove it")
        if not resumes:
            save_folder.check_start("--restore-file", cfg.restore_file)
        elif cfg.finetune_from_model:
            save_folder.check_outside(cfg.finetune_from_model, cfg.save_dir)
            if not os.path.lexists(last):
                save_folder.check_start("--finetune-from-model", cfg.finetune_from_model)
        if is_master and not cfg.no_save:
            self._lock = save_folder.lock(cfg.save_dir)
            folder = os.path.realpath(cfg.save_dir)
            if folder in self._folders:
                raise UsageError(f"--save-dir {cfg.save_dir}: an earlier job of this sweep has it; give each its own")
            self._folders.add(folder)

    # Reading checkpoints

    def load_checkpoint_to_cpu(self, original, path, arg_overrides=None, load_on_all_ranks=False):
        state = self._read.pop(path, None) or for_fairseq(read_file(path), path)
        state["cfg"] = OmegaConf.create(state["cfg"])
        if arg_overrides is not None:
            overwrite_args_by_name(state["cfg"], arg_overrides)
        return checkpoint_utils._upgrade_state_dict(state)

    def load_model_ensemble_and_task(self, original, filenames, *args, **kwargs):
        for path in filenames:
            if path is None:
                raise UsageError("--path is missing: the checkpoint to validate, such as DIR/checkpoint_best.pt")
            self._read[path] = for_fairseq(read_file(path), path)
            foreign = sorted(REGISTRIES.keys() - self._read[path]["cfg"].keys())
            if foreign:  # fairseq's own, of which some evaluate strings of the configuration
                raise UsageError(f"{path}: expected a checkpoint of this plugin, found another {' and '.join(foreign)}")
        states = dict(self._read)
        with explained(", ".join(map(str, filenames)), "fairseq cannot build the model"):
            models, cfg, task = original(filenames, *args, **kwargs)
        for model, path in zip(models, filenames):
            if isinstance(model, MaeLmModel):
                check_weights(states[path]["model"], model.state_dict(), path)
        return models, cfg, task

    def start(self, original, cfg, trainer, **kwargs):
        """fairseq's `load_checkpoint`, for each checkpoint that the run may resume from, until one can be used."""
        suffix = trainer.checkpoint_suffix
        is_ours = isinstance(trainer.get_model(), MaeLmModel)
        paths, others = save_folder.candidates(cfg, suffix) if is_ours else ([], [])
        if not paths:
            return original(cfg, trainer, **kwargs)
        from_model = cfg.finetune_from_model

        def load(path):
            self._candidate = path
            vars(checkpoint_utils.save_checkpoint).clear()  # the best loss of a checkpoint that was refused
            with explained(path, CANNOT_RESUME):
                return original(cfg, trainer, **kwargs)

        cfg.finetune_from_model = None  # there are checkpoints: the run has left it behind
        try:
            self._resumed, started, self._refused = first_accepted(paths, load, others)
        finally:
            self._candidate, cfg.finetune_from_model = None, from_model
        extra_state, _ = started
        is_best = self._validated and extra_state["val_loss"] == extra_state.get("best")
        last = last_checkpoint(cfg.save_dir, suffix)
        if self._lock and is_best and self._resumed == last:
            save_folder.restore_best(last, best_checkpoint(cfg.save_dir, suffix))
        return started

    def load_checkpoint(self, original, trainer, filename, reset_optimizer=False, *args, **kwargs):
        """Of fairseq's Trainer: all that a checkpoint has, but for the position in the epoch."""
        path, cfg = self._candidate or filename, trainer.cfg.checkpoint
        is_default = cfg.restore_file == LAST and path == last_checkpoint(cfg.save_dir, trainer.checkpoint_suffix)
        is_new_run = is_default and self._candidate is None
        if is_new_run or not isinstance(trainer.get_model(), MaeLmModel):
            return original(trainer, filename, reset_optimizer, *args, **kwargs)
        with explained(path, CANNOT_RESUME):
            state = for_fairseq(read_file(path), path)
            resume_checks.check_run(state, trainer, path, starts_anew=reset_optimizer)
            if self._candidate:
                updates = interval_checkpoints(cfg.save_dir, trainer.checkpoint_suffix)
                resume_checks.check_update(state, updates.get(path), path)
            self._read[path] = state  # not before: what is refused needs no memory
            extra_state = original(trainer, path, reset_optimizer, *args, **kwargs)
            update = trainer.get_num_updates()
            if update:  # before the first one, there are no moments
                is_own = type(trainer.get_model()).__module__ == MaeLmModel.__module__
                resume_checks.check_moments(trainer.optimizer.optimizer, update, is_own, path)
        self._resumed = path
        self._validated = extra_state.get("val_loss") is not None and not reset_optimizer
        self.patience.clear()
        if not reset_optimizer:
            self.patience.update(extra_state.get("early_stopping") or {})
        extra_state["train_iterator"]["path"] = path  # for errors about the position
        return extra_state

    def _set_aside_unused(self, cfg, suffix, update):
        """Renames what a run has left behind in its folder; once all processes have read where they resume."""
        if self._resumed is None:
            return
        save_folder.set_aside_refused(self._refused, self._resumed)
        replaces_last = cfg.restore_file == LAST and self._resumed in interval_checkpoints(cfg.save_dir, suffix)
        if replaces_last and not cfg.no_last_checkpoints:
            writing.copy(self._resumed, last_checkpoint(cfg.save_dir, suffix))  # the run may end without an update
        save_folder.set_aside_later(cfg.save_dir, suffix, update)
        self._resumed = None

    # Writing them

    def save_checkpoint(self, original, cfg, trainer, epoch_itr, val_loss):
        update = trainer.get_num_updates()
        finite = (bool(torch.isfinite(weight).all()) for weight in trainer.model.parameters())
        if isinstance(trainer.get_model(), MaeLmModel) and not all(finite):
            raise not_finite("weights are", update, cfg)
        if not cfg.no_last_checkpoints:
            self._last = last_checkpoint(cfg.save_dir, trainer.checkpoint_suffix)
        try:
            return original(cfg, trainer, epoch_itr, val_loss)
        except OSError as error:
            raise UsageError(
                f"the checkpoint of update {update:,} cannot be written ({error.strerror}); "
                f"{save_folder.where_to_go_on(cfg)}: make room, and run it again"
            ) from None
        finally:
            self._last = None

    def torch_persistent_save(self, original, state, filename, async_write=False):
        if os.path.basename(filename) == "crash.pt":  # nothing resumes from it, and a full disk would hide the crash
            return
        if self.patience:
            state["extra_state"]["early_stopping"] = dict(self.patience)
        # The last checkpoint first: a run that is killed, or finds the disk full, resumes from it.
        writing.save(state, self._last or filename)
        if self._last and filename != self._last:
            writing.copy(self._last, filename)

    def copy(self, src_path, dst_path, overwrite=False):
        """Of fairseq's PathManager."""
        if dst_path != self._last:  # which was written first
            writing.copy(src_path, dst_path)
        return True

    # Training

    def train(self, original, cfg, trainer, task, epoch_itr):
        if not isinstance(trainer.get_model(), MaeLmModel):
            return original(cfg, trainer, task, epoch_itr)
        stopping.listen(task)
        update = resume_checks.same_in_all_processes(trainer.get_num_updates(), cfg.checkpoint.save_dir)
        if self._lock:
            self._set_aside_unused(cfg.checkpoint, trainer.checkpoint_suffix, update)
        last, patience = cfg.optimization.max_update, cfg.checkpoint.patience
        if 0 < patience <= self.patience.get("num_runs", 0):
            logger.info(f"nothing to train: the last {patience} validations were no better (--patience)")
            return [None], True
        losses, ends, over = [None], False, 0 < last <= update
        if over:
            logger.info(f"nothing to train: the checkpoint is of update {update:,}, and --max-update is {last:,}")
        due = getattr(epoch_itr, "validation_due", False) or (over and not self._validated)
        if due and not cfg.dataset.disable_validation:
            self._seen, program = update, sys.modules[original.__module__]
            try:
                losses = program.validate(cfg, trainer, task, epoch_itr, cfg.dataset.valid_subset.split(","))
            except stopping.StopRequested:
                self._stop(cfg.checkpoint, update)
            over |= program.should_stop_early(cfg, losses[0])
        if isinstance(epoch_itr, ResumableIterator):
            ends = epoch_itr.leave_validation()
        if losses[0] is not None:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, losses[0])
        if over or ends:
            return losses, over
        if not reporter.trained and isinstance(task, MaeLmTask):
            task.begin_run(cfg, trainer.criterion)
        frequencies = cfg.optimization.update_freq
        if isinstance(epoch_itr, ResumableIterator):
            epoch_itr.align(frequencies[min(epoch_itr.next_epoch_idx, len(frequencies)) - 1])
        try:
            return original(cfg, trainer, task, epoch_itr)
        except FloatingPointError as error:
            if not re.search(r"\b(nan|inf)\b|loss scale", str(error), re.IGNORECASE):
                raise
            raise not_finite("gradients are", trainer.get_num_updates(), cfg.checkpoint) from None

    def train_step(self, original, trainer, samples, raise_oom=False):
        if not isinstance(trainer.get_model(), MaeLmModel):
            return original(trainer, samples, raise_oom)
        # At the end of an epoch, some processes have empty batches. fairseq computes another in their place, without
        # effect, and counts its tokens, or none of the update's; where there is no other batch, it needs one.
        samples = [sample for sample in samples if sample] or samples[:1]
        try:
            output = original(trainer, samples, raise_oom=True)  # else the batch would be left out
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise UsageError(one_line(error)) from None
        if isinstance(trainer.task, MaeLmTask) and trainer.is_data_parallel_master:
            self._first_updates.report(trainer.get_num_updates(), trainer.cfg.optimization.max_update)
        return output

    def validate_and_save(self, original, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
        reporter.trained = True
        if self._keeps_memory and not trainer.get_num_updates() % RETURN_INTERVAL:
            return_freed_memory()
        losses = [None], False
        if self._seen != trainer.get_num_updates() or end_of_epoch:  # otherwise fp16 has skipped an update
            self._seen = trainer.get_num_updates()
            try:
                losses = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
            except stopping.StopRequested:
                epoch_itr.validation_due = True
        if stopping.Process.agreed:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
            self._stop(cfg.checkpoint, trainer.get_num_updates())
        return losses

    @staticmethod
    def _stop(cfg, update):
        """Ends this process, after a request and a checkpoint."""
        without = ["--restore-file"] * (cfg.restore_file != LAST)  # options that begin the run anew
        names = ["reset_optimizer", "reset_dataloader", "reset_meters", "reset_lr_scheduler"]
        without += [option(name) for name in names if cfg[name]]
        stopping.stop(update, not (cfg.no_save or cfg.no_last_checkpoints) and cfg.save_dir, without)


@contextlib.contextmanager
def explained(path, what):
    """Errors in the block that come from what fairseq finds in a file, and uses unchecked, become one line."""
    try:
        yield
    except Exception as error:
        if one_line(error) is not None:
            raise
        cause = error
        while cause.__context__ is not None:  # fairseq hides the reason
            cause = cause.__context__
        reason = " ".join(str(cause).split())[:300]
        raise UsageError(f"{path}: {what} ({type(cause).__name__}: {reason})") from error


def not_finite(what, update, cfg):
    """The error of a run whose numbers became NaN or infinite; `cfg` are fairseq's options of checkpoints."""
    return UsageError(
        f"the {what} not finite after update {update:,}; {save_folder.where_to_go_on(cfg)}; "
        "a lower --lr, a longer --warmup-updates or a --clip-norm may help"
    )
