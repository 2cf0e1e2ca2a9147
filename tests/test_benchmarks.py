"""The benchmarks, with tiny sizes."""

import multiprocessing

import pytest
import torch

import peers
import pretrain_step
import scale
from conftest import error_of, run_main

# fairseq's use of hydra, torch and numpy
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}Warning") for kind in ["User", "Future", "Deprecation"]]
TINY = "--tokens 32 --batch-size 4 --vocabulary 1000 --layers 4 --width 32 --heads 2 --rounds 1 --steps 2".split()


def rows(text):
    """The rows of the tables in Markdown, without heads: lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {i for i, line in enumerate(lines) if line.startswith("|---")}
    kept = [line for i, line in enumerate(lines) if not heads & {i, i + 1}]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


@pytest.fixture
def forks(monkeypatch):
    """The benchmarks' processes are forks of this one, with what it has imported and a test has changed."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: fork)


def test_models_are_compared_with_the_first(forks, capsys):
    only = ["mae_lm_base", "MLM", "MLM, uncut", "RoBERTa, transformers"]
    run_main(pretrain_step.main, *TINY, "--only", *only, PYTHONWARNINGS="ignore")
    out, err = capsys.readouterr()
    ours, cut, uncut, *peers = rows(out)
    assert ours[0] == "mae_lm_base" and ours[2] == "1.00 (1.00 to 1.00)" and ours[3] == "1.00"
    assert float(ours[1]) > 0 and float(ours[4]) > 0.1
    assert float(cut[3]) < float(uncut[3])
    assert [row[0] for row in peers] == only[3:] or "skipped: RoBERTa, transformers" in err


def test_both_find_the_same_blocks(forks, capsys):
    run_main(scale.main, "--blocks", 1000)
    ours, theirs = rows(capsys.readouterr().out)
    assert ours[0] == theirs[0] == "1,013" and ours[1] == "TokenBlocks"


@pytest.mark.parametrize("words, least, most", [("--rounds 0", 1, 2**31 - 1), ("--vocabulary 65537", 6, 2**16)])
def test_numbers_of_the_benchmark_have_ranges(words, least, most):
    assert f"from {least} to {most}" in error_of(pretrain_step.main, *words.split(), PYTHONWARNINGS="ignore")


def test_peers_take_batches_in_which_nothing_is_predicted():
    tokens = torch.tensor([[7, 8, 9]])
    inputs = {"src_tokens": tokens, "positions": torch.tensor([[2, 0, 1]]), "padded": False}
    found, labels, _ = peers.labelled({"net_input": inputs, "target": tokens[:, :0]}, pad=1)
    assert found.tolist() == [[8, 9, 7]] and labels.eq(peers.IGNORED).all()
