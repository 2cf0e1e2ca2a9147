"""Training on the CPU keeps freed memory, and bounds what it keeps; nothing else does."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest
import torch

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
        "training_command.RETURN_INTERVAL = 2\n"
        "training_command.keep_freed_memory = lambda: print('freed memory is kept') or True\n"
        "training_command.keep_few_descriptions = lambda: print('few descriptions are kept')\n"
        "training_command.return_freed_memory = lambda: print('freed memory is returned')\n"
    )
    options = [*TINY, "--user-dir", plugin, "--max-update", 5, "--save-dir", tmp_path / "run"]
    if not ours:
        options += ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base", "--encoder-layers", 1]
        options += ["--encoder-attention-heads", 2]
    printed = succeed("fairseq-train", data, *options)
    assert printed.count("freed memory is kept") == printed.count("few descriptions are kept") == ours
    assert printed.count("freed memory is returned") == 2 * ours


SHAPES = """
import ctypes, sys, torch
from maelm_fairseq import memory

class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

def in_use():
    libc.mallinfo2.restype = Counts
    return libc.mallinfo2().uordblks

libc = ctypes.CDLL(None)
assert memory.keep_freed_memory()
if "bounded" in sys.argv:
    assert memory.keep_few_descriptions()
rows, weights = torch.ones(500, 16, dtype=torch.bfloat16), torch.ones(16, 16, dtype=torch.bfloat16)
rows @ weights
before = in_use()
for count in range(2, 402):
    rows[:count] @ weights
print((in_use() - before) // 2**10)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="a function of glibc 2.33")
@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="bfloat16 products of oneDNN")
def test_shapes_of_products_take_little_memory():
    """400 shapes: a quarter of a MiB less each."""
    settings = ["LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"]
    environment = {name: value for name, value in WITHOUT_SETTINGS.items() if name not in settings}
    default, bounded = (
        int(subprocess.check_output([sys.executable, "-c", SHAPES, *arguments], env=environment))
        for arguments in [[], ["bounded"]]
    )
    assert bounded < default * 0.6


RETURNED = """
import torch
from maelm_fairseq import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

assert memory.keep_freed_memory()
tensors = [torch.ones(2**20) for _ in range(100)]
del tensors[:-1]  # the last one is in the way
full = resident()
memory.return_freed_memory()
print((full - resident()) // 2**20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a function of glibc")
def test_freed_memory_is_returned():
    assert int(subprocess.check_output([sys.executable, "-c", RETURNED], env=WITHOUT_SETTINGS)) > 300


def test_number_of_descriptions_left_alone(monkeypatch):
    monkeypatch.setenv(memory.DESCRIPTIONS, "7")
    assert not memory.keep_few_descriptions()
    assert os.environ[memory.DESCRIPTIONS] == "7"


def test_returns_nothing_with_another_library(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory.return_freed_memory()
