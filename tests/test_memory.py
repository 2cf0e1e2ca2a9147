"""Training on the CPU keeps freed memory, within bounds; nothing else does."""

import ctypes
import os
import platform
import subprocess

import pytest

from conftest import PYTHON, TINY, succeed
from maelm_fairseq.training import memory

HELPERS = """
import resource, sys, torch
from maelm_fairseq.training import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

"""
FAULTS = """
if "ours" in sys.argv:
    assert memory.keep_freed_memory()
faults()
print(faults())
"""
RETURNED = """
assert memory.keep_freed_memory()
tensors = [torch.ones(2**20) for _ in range(100)]
del tensors[:-1]  # the last one is in the way
full = resident()
memory.return_freed_memory()
print((full - resident()) // 2**20)
"""


def measure(code, *arguments):
    """The number that a program prints, in an environment without settings of memory."""
    environment = dict(os.environ)
    for name in memory.MALLOC_VARIABLES:
        environment.pop(name, None)
    program = [PYTHON, "-c", HELPERS + code, *arguments]
    return int(subprocess.check_output(program, env=environment))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc")
def test_freed_memory_is_used_again_and_returned():
    assert measure(FAULTS, "ours") < measure(FAULTS) / 10
    assert measure(RETURNED) > 300


def test_left_alone(monkeypatch):
    """Nothing is set where the C library has no settings, or where the user has made them."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    for name in memory.MALLOC_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert not memory.keep_freed_memory()
    monkeypatch.setattr(ctypes, "CDLL", None)  # would fail
    monkeypatch.setenv(memory.MALLOC_VARIABLES[0], "1")
    assert not memory.keep_freed_memory()


@pytest.mark.parametrize("ours", [True, False])
def test_in_training_of_our_tasks(data, tmp_path, ours):
    plugin = tmp_path / "plugin_that_tells"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(
        "from maelm_fairseq.training import loop, starting\n"
        "loop.RETURN_INTERVAL = 2\n"
        "starting.keep_freed_memory = lambda: print('freed memory is kept') or True\n"
        "starting.limit_caches = lambda: print('caches are limited')\n"
        "loop.return_freed_memory = lambda: print('freed memory is returned')\n"
    )
    options = [*TINY, "--user-dir", plugin, "--max-update", 5, "--save-dir", tmp_path / "run"]
    if not ours:
        options += ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base"]
        options += ["--encoder-layers", 1, "--encoder-attention-heads", 2]
    printed = succeed("fairseq-train", data, *options)
    assert printed.count("freed memory is kept") == (1 if ours else 0)
    assert printed.count("caches are limited") == (1 if ours else 0)
    assert printed.count("freed memory is returned") == (2 if ours else 0)
