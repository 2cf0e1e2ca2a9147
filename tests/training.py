"""Runs of `fairseq-train` on a tiny model, and what they leave behind."""

import torch

from conftest import TINY, succeed
from maelm_fairseq.checkpoints import reading

NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0, "--pooler-dropout", 0]


def train(data, save_dir, *arguments, real=False):
    """Trains a tiny model for 4 updates, unless `arguments` say otherwise; returns what was printed."""
    return succeed("fairseq-train", data, *TINY, "--save-dir", save_dir, "--seed", 1, *arguments, real=real)


def checkpoint(save_dir, name="checkpoint_last.pt"):
    return reading.read_file(save_dir / name)


def updates(save_dir):
    return checkpoint(save_dir)["optimizer_history"][-1]["num_updates"]


def assert_same_weights(one, other, tolerance):
    """Compares the last checkpoints of two folders."""
    one, other = checkpoint(one)["model"], checkpoint(other)["model"]
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(one[key], other[key], rtol=0, atol=tolerance, msg=key)
