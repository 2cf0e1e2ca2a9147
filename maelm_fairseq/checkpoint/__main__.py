"""Says what is in a checkpoint, without executing or building anything from it.

    python -m maelm_fairseq.checkpoint FILE...

A file from a stranger is safe to look at in this way, and with everything else of this package. fairseq's own commands
build the model, task and criterion that a file names; with this plugin loaded they refuse files that name others than
its own.
"""

import argparse
import os

import torch

from ..errors import Parser, UsageError, run
from . import read_pickle
from .contents import found
from .files import damage
from .origin import is_trusted, named_parts


def parse_args():
    parser = Parser(
        prog="python -m maelm_fairseq.checkpoint",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .pt file")
    return parser.parse_args().files


def describe(path):
    """What is in a checkpoint: list of lines.

    Raises:
        FileNotFoundError: there is no such file
        ValueError: it cannot be read
    """
    state = read_pickle(path)
    problem = damage(path)
    lines = [f"{path}: {os.path.getsize(path):,} bytes, {problem or 'whole'}"]
    if not isinstance(state, dict):
        return [*lines, f"  not a checkpoint of fairseq: {found(state)}"]
    for part, name in named_parts(state).items():
        origin = "" if is_trusted(part, name) else ", not of this plugin: fairseq must not build it"
        lines.append(f"  {part}: {ascii(name) if name else 'not named'}{origin if name else ''}")
    history, extra = state.get("optimizer_history"), state.get("extra_state")
    last = history[-1] if isinstance(history, list) and history else None
    if isinstance(last, dict):
        lines.append(f"  updates: {found(last.get('num_updates'))}")
    if isinstance(extra, dict) and "val_loss" in extra:
        lines.append(f"  validation loss: {found(extra['val_loss'])}")
    return lines + describe_weights(state.get("model"))


def describe_weights(weights):
    """Lines about the weights of a checkpoint."""
    if not isinstance(weights, dict):
        return [f"  weights: {found(weights)}, expected a dict of tensors"]
    tensors = {name: value for name, value in weights.items() if isinstance(value, torch.Tensor)}
    parts = {}
    for name, value in tensors.items():
        parts.setdefault(ascii(name).strip("'").partition(".")[0], []).append(value)
    wrong = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    lines = [f"  weights of {part}: {sum(v.numel() for v in values):,} numbers" for part, values in parts.items()]
    if len(tensors) < len(weights):
        lines.append(f"  {len(weights) - len(tensors)} weights are no tensors")
    if wrong:
        lines.append(f"  NaN or infinite: {', '.join(map(ascii, wrong[:5]))}, {len(wrong)} in all")
    return lines


def main():
    problems = 0
    for path in parse_args():
        try:
            print("\n".join(describe(path)))
        except UsageError as error:
            print(f"{error}")
            problems += 1
    if problems:
        raise UsageError(f"{problems} of the files could not be read")


if __name__ == "__main__":
    run(main)
