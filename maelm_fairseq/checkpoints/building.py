"""The models of checkpoints of this plugin: finding the file, reading it, building its model."""

import os
from typing import Dict, List, Optional

import torch

from ..base.checkpoint_names import (
    LAST_CHECKPOINT,
    RUN_RECORD,
    best_checkpoint_path,
    last_checkpoint_path,
)
from ..base.errors import MissingFileError, UsageError
from ..base.json_files import read_json
from ..base.typed_values import as_type
from ..config import MaeLmConfig, check_model_options
from ..heads import build_heads
from ..model import MaeLmModel, drop_non_weights
from ..state_dicts import has_lm_head, part_of_weight
from ..vocabulary import FINGERPRINT
from .compatibility import check_vocabulary, check_weights, model_configuration
from .reading import read_torch_file
from .schema import History, TaskState

NOT_A_CHECKPOINT = "not a checkpoint of MAE-LM; expected one from fairseq-train --arch mae_lm_..."


def load_model(checkpoint_file, dictionary):
    """Builds the model of a checkpoint on the CPU: encoder, heads, and decoder if it has one.

    Args:
        checkpoint_file: path of a `.pt` file, or of a folder; see `find_checkpoint_file`
        dictionary: the one it was trained with, with `<mask>`
    Returns: `model.MaeLmModel`, in evaluation mode
    Raises:
        FileNotFoundError: there is no such file
        UsageError: not a checkpoint of MAE-LM, or trained with another dictionary
    """
    checkpoint_file = find_checkpoint_file(os.fspath(checkpoint_file))
    return build_model(read_checkpoint(checkpoint_file), dictionary, checkpoint_file)


def find_checkpoint_file(path):
    """The checkpoint file for a path: a folder's best checkpoint, or else its last.

    Of a run of the fine-tuning recipes, it is the one whose scores are reported. The path of a file
    is returned as it is.
    """
    if not os.path.isdir(path):
        return path
    paths = [best_checkpoint_path(path), last_checkpoint_path(path)]
    record = os.path.join(path, RUN_RECORD)
    if os.path.isfile(record):
        reported = read_json(record, dict, "the scores of a run").get("checkpoint")
        paths = [os.path.join(path, str(reported or LAST_CHECKPOINT))]
    for checkpoint_file in paths:
        if os.path.isfile(checkpoint_file):
            return checkpoint_file
    expected = " or ".join(map(os.path.basename, paths))
    names = sorted(os.listdir(path))
    found = ", ".join(names) or "nothing"
    advice = "give the path of a checkpoint file"
    if "config.json" in names:
        advice = "AutoModel of transformers loads such an export"
    raise MissingFileError(f"{path}: expected {expected}, found {found}; {advice}")


def read_checkpoint(checkpoint_file):
    """Reads a checkpoint of this plugin; see `upgraded_checkpoint`."""
    return upgraded_checkpoint(read_torch_file(checkpoint_file), checkpoint_file)


def upgraded_checkpoint(checkpoint, path):
    """Turns what `reading.read_torch_file` returned into a checkpoint of this plugin.

    It has the form that this version writes.

    Returns:
        `checkpoint` with the weights in "model", the model's options in `["cfg"]["model"]`, sizes
        being those of the weights, and the vocabulary's fingerprint in `["task_state"]`
    Raises UsageError: it is not a checkpoint of MAE-LM
    """
    try:
        cfg = as_type(dict, as_type(dict, checkpoint, path).get("cfg"), f"{path}: cfg")
        options = as_type(dict, cfg.get("model"), f"{path}: cfg: model")
        as_type(dict, cfg.get("task"), f"{path}: cfg: task")
        weights = as_type(Dict[str, torch.Tensor], checkpoint.get("model"), f"{path}: model")
        as_type(
            Optional[List[History]],
            checkpoint.get("optimizer_history"),
            f"{path}: optimizer_history",
        )
    except UsageError as error:
        raise UsageError(f"{path}: {NOT_A_CHECKPOINT} ({error})") from None
    task_state = find_task_state(checkpoint, weights)
    if FINGERPRINT not in task_state or "embed_tokens.weight" not in weights:
        raise UsageError(f"{path}: {NOT_A_CHECKPOINT}")
    labels = as_type(TaskState, task_state, f"{path}: task_state").labels or []
    if len(set(labels)) < len(labels):
        raise UsageError(
            f"{path}: found a label twice among {', '.join(labels)[:200]}; use another checkpoint"
        )
    drop_non_weights(weights)
    sizes = vars(model_configuration(weights, options, path))
    cfg = {**cfg, "model": {**options, **sizes}}
    return {**checkpoint, "model": weights, "cfg": cfg, "task_state": task_state}


def find_task_state(checkpoint, weights):
    """The state of the task in a checkpoint, with the fingerprint of the vocabulary: dict."""
    task_state = checkpoint.get("task_state")
    task_state = dict(task_state) if isinstance(task_state, dict) else {}
    # Versions until 0.2.0 stored it among the weights.
    stored = weights.get(FINGERPRINT)
    if stored is not None and stored.numel() == 1:
        task_state[FINGERPRINT] = int(stored)
    return task_state


def num_updates_of(checkpoint):
    """The number of updates that a checkpoint has seen; 0 for one that was not trained."""
    history = checkpoint.get("optimizer_history")
    return history[-1].get("num_updates", 0) if history else 0


def build_model(checkpoint, dictionary, checkpoint_file):
    """Builds the model of a checkpoint that `read_checkpoint` returned; see `load_model`."""
    check_vocabulary(checkpoint, dictionary, checkpoint_file)
    weights = checkpoint["model"]
    options = checkpoint["cfg"]["model"]
    cfg = MaeLmConfig(**{name: options[name] for name in MaeLmConfig.__dataclass_fields__})
    try:
        check_model_options(cfg)
        with torch.device("meta"):  # takes no memory until it is known that the weights fit
            model = MaeLmModel(cfg, dictionary, needs_lm_head=has_lm_head(weights))
            model.classification_heads.update(build_heads(weights, cfg))
    except UsageError as error:
        raise UsageError(f"{checkpoint_file}: {error}") from None
    model_weights = model.state_dict()
    parts = set(map(part_of_weight, model_weights))
    # Other objectives than MAE-LM may have pretrained further parts.
    weights = {name: weight for name, weight in weights.items() if part_of_weight(name) in parts}
    check_weights(weights, model_weights, checkpoint_file)
    weights = {name: weight.to(model_weights[name].dtype) for name, weight in weights.items()}
    torch.nn.Module.load_state_dict(model, weights, assign=True)  # fairseq's has no `assign`
    return model.eval()


def default_device():
    """Where a model runs unless something else is asked for: on a GPU if PyTorch sees one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
