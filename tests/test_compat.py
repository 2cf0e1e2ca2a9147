"""Differences between versions of fairseq and torch."""

import subprocess
from argparse import Namespace

import pytest
import torch

from conftest import PYTHON, ROOT
from maelm_fairseq.engine import versions


@pytest.mark.parametrize(
    "code, expected",
    [
        ("import fairseq, maelm_fairseq", False),
        ("import fairseq_cli.train, maelm_fairseq", True),
        (f"import sys; sys.argv = [{str(ROOT / 'recipes' / 'finetune_glue.py')!r}]; import maelm_fairseq", True),
    ],
)
def test_only_commands_change_their_process(code, expected):
    code += "; import sys, torch; print(sys.excepthook is not sys.__excepthook__)"
    code += "; import argparse; print(argparse.Namespace in torch.serialization.get_safe_globals())"
    printed = subprocess.check_output([PYTHON, "-c", code], cwd=ROOT, universal_newlines=True)
    assert printed.split()[-2:] == [str(expected)] * 2


def test_loading_a_checkpoint_leaves_torchs_list_of_safe_classes_alone(tmp_path):
    torch.save({"args": Namespace(lr=1), "weight": torch.ones(2)}, tmp_path / "checkpoint.pt")
    before = set(torch.serialization.get_safe_globals())
    state = versions.load_checkpoint(tmp_path / "checkpoint.pt")
    assert state["args"] == Namespace(lr=1) and state["weight"].tolist() == [1, 1]
    assert set(torch.serialization.get_safe_globals()) == before
