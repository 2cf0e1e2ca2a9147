"""Checkpoints are written whole or not at all, and contain tensors and plain values only."""

import argparse
import os
import shutil

import torch

from ..base.files import atomic_write
from ..base.opening import open_to_read


def save_state(state, path, must_be_new=False):
    """Writes a checkpoint, which gets its name when it is complete and on the disk.

    One that `must_be_new` replaces no file. Options that fairseq keeps in a Namespace become a
    dict.
    """
    cfg = state.get("cfg")
    if isinstance(cfg, dict):
        plain = {}
        for name, section in cfg.items():
            plain[name] = vars(section) if isinstance(section, argparse.Namespace) else section
        state = {**state, "cfg": plain}
    with atomic_write(path, "wb", must_be_new) as stream:
        torch.save(state, stream)


def link_or_copy(source, path):
    """Gives a checkpoint a second name; where the file system has no hard links, copies it.

    The content under that name stays, as checkpoints are replaced, never written into.
    """
    try:
        os.link(os.path.realpath(source), path)
    except OSError:
        copy(source, path)


def copy(source, path):
    """Copies a file to a name that it gets when it is complete."""
    with open_to_read(source) as original, atomic_write(path, "wb") as stream:
        shutil.copyfileobj(original, stream, 1 << 24)
