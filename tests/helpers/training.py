"""Runs of `fairseq-train` on a tiny model, and what they leave behind."""

import torch

from conftest import TINY, run, succeed
from maelm_fairseq.checkpoints import reading

NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0, "--pooler-dropout", 0]


def train(data, save_dir, *arguments, real=False):
    """Trains a tiny model, for 4 updates unless `arguments` differ; returns what was printed."""
    options = [*TINY, "--save-dir", save_dir, "--seed", 1, *arguments]
    return succeed("fairseq-train", data, *options, real=real)


def checkpoint(save_dir, name="checkpoint_last.pt"):
    return reading.read_torch_file(save_dir / name)


def updates(save_dir):
    return checkpoint(save_dir)["optimizer_history"][-1]["num_updates"]


def assert_same_weights(one, other, tolerance):
    """Compares the last checkpoints of two folders."""
    weights = checkpoint(one)["model"]
    others = checkpoint(other)["model"]
    assert weights.keys() == others.keys()
    for name in weights:
        torch.testing.assert_close(weights[name], others[name], rtol=0, atol=tolerance, msg=name)


def error_of_command(*arguments, program="fairseq-train"):
    """Runs a command, which must fail; returns its one line of error."""
    done = run(program, *arguments)
    assert done.returncode == 1, done.stdout[-3000:]
    errors = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stdout[-3000:]
    assert "Traceback" not in done.stdout, done.stdout[-3000:]
    return errors[0]
