"""Differences between versions, and names from before version 0.2.0."""

import subprocess
from argparse import ArgumentParser, Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass

from conftest import PYTHON, ROOT
from maelm_fairseq import compat
from maelm_fairseq.model import MaeLmConfig
from maelm_fairseq.task import MaeLmTaskConfig


@pytest.mark.parametrize(
    "code, expected",
    [
        ("import maelm_fairseq", False),
        ("import fairseq, maelm_fairseq", False),
        ("import fairseq_cli.train, maelm_fairseq", True),
        ("import sys; sys.argv = ['/elsewhere/recipes/finetune.py']; import maelm_fairseq", False),
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
    state = compat.load_checkpoint(tmp_path / "checkpoint.pt")
    assert state["args"] == Namespace(lr=1) and state["weight"].tolist() == [1, 1]
    assert set(torch.serialization.get_safe_globals()) == before


def test_values_under_former_names_move_to_the_current_ones():
    cfg = SimpleNamespace(relative_position_bins=64, relative_position_num_buckets=32, log_effective_rank=None)
    compat.use_current_names(cfg)
    assert cfg.relative_position_num_buckets == 64 and not hasattr(cfg, "effective_rank_tokens")


def test_former_names_are_accepted_and_not_listed_by_help():
    parser = ArgumentParser()
    for config in [MaeLmConfig(), MaeLmTaskConfig()]:
        gen_parser_from_dataclass(parser, config)
    printed = parser.format_help()
    assert "--relative-position-num-buckets" in printed and "--effective-rank-tokens" in printed
    assert "--relative-position-bins" not in printed and "--log-effective-rank" not in printed
    args = parser.parse_args(["data", "--relative-position-bins", "64", "--log-effective-rank", "100"])
    compat.use_current_names(args)
    assert (args.relative_position_num_buckets, args.effective_rank_tokens) == (64, 100)


def test_lines_are_cut_as_fairseq_cuts_them():
    sizes = np.array([3, 4, 1, 9], dtype=np.int64)
    assert compat.block_spans(sizes, 8, "none").tolist() == [[0, 8], [8, 16], [16, 17]]
    assert compat.block_spans(sizes, 8, "complete").tolist() == [[0, 8], [8, 17]]
    assert compat.block_spans(sizes, 8, "eos").tolist() == [[0, 3], [3, 7], [7, 8], [8, 17]]


def test_the_dtype_of_matrix_products():
    x = torch.zeros(1)
    assert compat.matmul_dtype(x) == torch.float32 and compat.matmul_dtype(x.double()) == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert compat.matmul_dtype(x) == torch.bfloat16
    assert compat.matmul_dtype(x) == torch.float32
