"""What is read from a checkpoint file: tensors and plain values, built anew, and for fairseq our own options alone.

torch.load with `weights_only` runs no code, but it makes objects of the classes that fairseq stores, with whatever
attributes the file gives them; and fairseq evaluates strings of some configurations. So no object of a file is used.
"""

import argparse
import typing
from collections import OrderedDict, defaultdict

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf, base, nodes

from ..base.errors import InstallationError, UsageError
from ..engine import (
    CRITERION_DATACLASS_REGISTRY,
    CRITERION_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    TASK_DATACLASS_REGISTRY,
    TASK_REGISTRY,
    distributed_utils,
)

MAPPINGS, SEQUENCES = (dict, OrderedDict, defaultdict), (list, tuple, set)
SCALARS = (str, bytes, int, float, bool, type(None))
# What fairseq saves, without the `args` of old releases, which it would prefer to `cfg`.
KEYS = ["cfg", "model", "criterion", "optimizer_history", "task_state", "extra_state", "last_optimizer_state"]
REGISTRIES = {
    "model": (MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY),
    "task": (TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
    "criterion": (CRITERION_REGISTRY, CRITERION_DATACLASS_REGISTRY),
}
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    raise InstallationError(
        f"torch {torch.__version__} executes code from some checkpoints, even when told to read weights only "
        "(CVE-2025-32434); this needs torch 2.6 or newer: pip install -c constraints.txt ."
    )
HARMLESS = ["sentence_prediction"]  # fairseq's own for fine-tuning: it reads only numbers, names and paths


def checkpoint_classes():
    """Classes other than tensors that fairseq's checkpoints contain: containers and numbers, nothing that runs code."""
    value_nodes = [kind for kind in vars(nodes).values() if isinstance(kind, type) and issubclass(kind, base.Node)]
    return (
        [argparse.Namespace, DictConfig, ListConfig, base.ContainerMetadata, base.Metadata]
        + value_nodes
        + [defaultdict, typing.Any, distributed_utils._TensorPlaceholder]
        + [dict, list, tuple, set, int, float, bool, str, bytes]
    )


def load_checkpoint(file, mmap=False):
    """Reads what torch.save wrote onto the CPU; nothing in it is executed.

    Args:
        file: path, or an open file
        mmap: read tensors when they are used
    Returns:
        dicts, lists, tuples, sets, tensors, texts and numbers; a namespace or configuration becomes a dict
    Raises:
        ValueError: it contains anything else; torch.load raises other types
    """
    with torch.serialization.safe_globals(checkpoint_classes()):
        return plain(torch.load(file, map_location="cpu", weights_only=True, mmap=mmap))


def plain(value):
    """A copy of a value without the objects that it consists of, but for tensors' numbers."""
    kind = type(value)
    if kind in MAPPINGS:
        return {plain(key): plain(each) for key, each in dict.items(value)}
    if kind in SEQUENCES:
        return kind(map(plain, value))
    if kind is argparse.Namespace:
        return plain(vars(value))
    if kind in (DictConfig, ListConfig):
        return plain(OmegaConf.to_container(value))
    if isinstance(value, torch.Tensor):
        return value.detach()  # a tensor without attributes
    if kind in SCALARS:
        return value
    raise UsageError(f"it contains a {kind.__name__}, expected tensors and plain values")


def for_fairseq(state, path):
    """What fairseq's functions get of a checkpoint's contents: known keys, and sections of known options.

    Args:
        state: what :func:`load_checkpoint` returned
        path: of the file, for the error message
    Raises:
        ValueError: it is not a checkpoint of fairseq's
    """
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UsageError(f"{path}: it has no weights of a model; expected a file of fairseq-train")
    cfg = state["cfg"] if isinstance(state.get("cfg"), dict) else {}
    sections = {part: our_options(part, cfg.get(part)) for part in REGISTRIES}
    known = {key: state[key] for key in KEYS if key in state}
    return {**known, "cfg": {part: options for part, options in sections.items() if options is not None}}


def our_options(part, section):
    """The options of a model, task or criterion of this plugin, or of one derived from it.

    Args:
        part: a key of `REGISTRIES`
        section: what the checkpoint's configuration says of it
    Returns:
        dict of the options that its dataclass has; None for any other model, task or criterion
    """
    registry, dataclasses = REGISTRIES[part]
    name = section.get("_name") if isinstance(section, dict) else None
    known = registry.get(name) if isinstance(name, str) else None
    if known is None or known.__module__.startswith("fairseq.") and (part == "model" or name not in HARMLESS):
        return None
    fields = getattr(dataclasses.get(name), "__dataclass_fields__", {})
    return {"_name": name, **{option: value for option, value in section.items() if option in fields}}
