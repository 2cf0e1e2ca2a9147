"""Training on the CPU keeps freed memory; nothing else does."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from conftest import TINY, succeed
from maelm_fairseq import memory

FAULTS = """
import resource, sys, torch
from maelm_fairseq.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if "keep" in sys.argv:
    assert keep_freed_memory()
faults()
print(faults())
"""
WITHOUT_SETTINGS = {name: value for name, value in os.environ.items() if name not in memory.ENVIRONMENT}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_used_again():
    default, kept = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS, *arguments], env=WITHOUT_SETTINGS))
        for arguments in [[], ["keep"]]
    )
    assert kept < default / 10


def test_left_alone(monkeypatch):
    """With settings of the user's, and with a C library that has none."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    for name in memory.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    assert not memory.keep_freed_memory()
    monkeypatch.setattr(ctypes, "CDLL", None)  # would fail
    for name in memory.ENVIRONMENT:
        monkeypatch.setenv(name, "1")
        assert not memory.keep_freed_memory()
        monkeypatch.delenv(name)


@pytest.mark.parametrize("ours", [True, False])
def test_in_training_of_our_tasks(data, tmp_path, ours):
    plugin = tmp_path / "plugin_that_tells"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(
        "from maelm_fairseq import training_command\n"
        "training_command.keep_freed_memory = lambda: print('freed memory is kept')\n"
    )
    options = [*TINY, "--user-dir", plugin, "--max-update", 1, "--save-dir", tmp_path / "run"]
    if not ours:
        options += ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base", "--encoder-layers", 1]
        options += ["--encoder-attention-heads", 2]
    printed = succeed("fairseq-train", data, *options)
    assert printed.count("freed memory is kept") == ours
