"""How fairseq's commands read a checkpoint: once, as plain values, and with errors in one line."""

import contextlib

from omegaconf import OmegaConf

from ..base.errors import UsageError, one_line
from ..checkpoints.compatibility import check_weights
from ..checkpoints.sections import REGISTRIES, read_for_fairseq
from ..fairseq_api import checkpoint_utils, overwrite_args_by_name
from ..model import MaeLmModel

_already_read = {}  # {path: checkpoint}, within `already_read`


@contextlib.contextmanager
def already_read(checkpoints):
    """In the block, fairseq gets what was read and checked: {path: checkpoint}, each once."""
    _already_read.update(checkpoints)
    try:
        yield
    finally:
        _already_read.clear()


def load_checkpoint_to_cpu(original, path, arg_overrides=None, load_on_all_ranks=False):
    """Reads tensors, plain values and options of this plugin alone."""
    checkpoint = _already_read.pop(path, None)
    if checkpoint is None:
        checkpoint = read_for_fairseq(path)
    checkpoint["cfg"] = OmegaConf.create(checkpoint["cfg"])
    if arg_overrides is not None:
        overwrite_args_by_name(checkpoint["cfg"], arg_overrides)
    return checkpoint_utils._upgrade_state_dict(checkpoint)


def load_model_ensemble_and_task(original, filenames, *args, **kwargs):
    """Builds models and tasks of this plugin only, from whole checkpoints."""
    checkpoints = {}
    for path in filenames:
        if path is None:
            raise UsageError(
                "--path is missing: the checkpoint to validate, such as DIR/checkpoint_best.pt"
            )
        checkpoint = read_for_fairseq(path)
        checkpoints[path] = checkpoint
        foreign = sorted(REGISTRIES.keys() - checkpoint["cfg"].keys())
        if foreign:  # fairseq's own, some of which evaluate strings in the configuration
            found = " and ".join(foreign)
            raise UsageError(f"{path}: expected a checkpoint of this plugin, found another {found}")
    paths = ", ".join(map(str, filenames))
    failure = "fairseq cannot build the model"
    with already_read(checkpoints), fairseq_errors_as_usage_error(paths, failure):
        models, cfg, task = original(filenames, *args, **kwargs)
    for model, path in zip(models, filenames):
        if isinstance(model, MaeLmModel):
            check_weights(checkpoints[path]["model"], model.state_dict(), path)
    return models, cfg, task


@contextlib.contextmanager
def fairseq_errors_as_usage_error(path, failure):
    """Errors in the block become one line: fairseq uses what it finds in a file without checks.

    Args:
        path: path of the file, for the message
        failure: what an error means for the user, for the message
    """
    try:
        yield
    except Exception as error:
        if one_line(error) is not None:
            raise
        cause = error
        while cause.__context__ is not None:  # as fairseq hides the first error
            cause = cause.__context__
        reason = " ".join(str(cause).split())[:300]
        raise UsageError(f"{path}: {failure} ({type(cause).__name__}: {reason})") from error
