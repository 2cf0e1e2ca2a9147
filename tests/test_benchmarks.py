"""The benchmarks, with tiny sizes."""

import contextlib
import io
import itertools
import multiprocessing
import re

import pytest
import torch

import counts
import peers
import pretrain_step
import scale
from conftest import error_of, run_main

# fairseq uses hydra, torch and numpy in ways that they warn of.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}Warning")
    for kind in ["User", "Future", "Deprecation"]
]
TINY = [
    *"--tokens 32 --micro-batch 4 --vocabulary 1000 --rounds 1 --steps 2".split(),
    *"--layers 4 --width 32 --heads 2".split(),
]
MODELS = ["mae_lm_base", "mae_lm_base, no relative bias", "mae_lm_base, shared"]


def rows(text):
    """The rows of the tables in Markdown, without their headers: lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rulers = {i for i, line in enumerate(lines) if line.startswith("|---")}
    cells = []
    for i, line in enumerate(lines):
        if i in rulers or i + 1 in rulers:
            continue
        cells.append([cell.strip() for cell in line.strip("|").split("|")])
    return cells


@pytest.fixture
def forks(monkeypatch):
    """Makes the benchmarks' processes forks of this one, with its imports and a test's changes."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: fork)


def test_models_are_compared_with_the_first(forks, capsys):
    only = ["mae_lm_base", "MLM", "MLM, uncut", "RoBERTa, transformers"]
    options = [*TINY, "--accumulate", 2, "--only", *only]
    run_main(pretrain_step.main, *options, PYTHONWARNINGS="ignore")
    out, err = capsys.readouterr()
    ours, cut, uncut, *peers = rows(out)
    assert ours[0] == "mae_lm_base"
    assert ours[2] == "1.00 (one round)"
    assert ours[3] == "1.00"
    assert float(ours[1]) > 0
    assert float(ours[4]) > 0.1
    assert float(cut[3]) < float(uncut[3])
    assert [row[0] for row in peers] == only[3:] or "skipped: RoBERTa, transformers" in err


def test_ratios_have_the_interval_of_their_mean():
    # Half the interval is 4.303 * 0.1 / sqrt(3).
    assert pretrain_step.with_interval([1.0, 1.1, 1.2]) == "1.10 (0.85 to 1.35)"


@pytest.fixture(scope="module")
def without_a_gpu():
    """What is printed for a run of shapes only: rows of counts, and rows of the host's time."""
    options = [*TINY, "--device", "meta", "--only", *MODELS]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run_main(pretrain_step.main, *options, PYTHONWARNINGS="ignore")
    counts, host = re.split(r"\n\n\| milliseconds", printed.getvalue())
    return rows(counts), rows("| milliseconds" + host)


def test_counts_of_kinds_add_up(without_a_gpu):
    counts, _ = without_a_gpu
    totals = [row for row in counts if not row[0].startswith("- ")]
    for total in totals:
        _, kernels, _, _ = total
        start = counts.index(total) + 1
        kinds = list(itertools.takewhile(lambda row: row[0].startswith("- "), counts[start:]))
        assert sum(int(row[1]) for row in kinds) == int(kernels)
    assert [row[0] for row in totals] == MODELS


def test_attention_is_a_kernel_forward_and_one_backward(without_a_gpu):
    """One of each for every layer of the encoder and the decoder.

    Shared layers have two streams, except the last one, which has only that of the masks.
    """
    counts, _ = without_a_gpu
    kernels = [int(row[1]) for row in counts if row[0] == "- attention"]
    assert kernels == [2 * 8, 2 * 8, 2 * (2 * 3 + 1)]


def test_the_host_has_a_time_for_each_part(without_a_gpu):
    _, host = without_a_gpu
    assert [row[0] for row in host] == MODELS
    for row in host:
        forward, backward, rest, *parts = map(float, row[1:])
        assert forward > 0
        assert backward > 0
        assert rest >= sum(parts) - 0.3  # The numbers are rounded.


def test_bytes_and_flop_of_a_product_are_those_of_its_sizes():
    counter = counts.OperationCounter()
    weight = torch.empty(64, 32, device="meta", dtype=torch.half)
    x = torch.empty(8, 32, device="meta")
    with counter:
        x.half() @ weight.t()
        x.expand(5, 8, 32).contiguous()
    assert counter.kernels == {"casts and copies": 2, "matrix products": 1}
    assert counter.bytes["matrix products"] == 2 * (8 * 32 + 64 * 32 + 8 * 64)
    cast = (4 + 2) * 8 * 32
    copy = 4 * (1 + 5) * 8 * 32  # What is repeated is read once.
    assert counter.bytes["casts and copies"] == cast + copy


def test_both_find_the_same_blocks(forks, capsys):
    run_main(scale.main, "--blocks", 1000)
    ours, theirs = rows(capsys.readouterr().out)
    assert ours[0] == theirs[0] == "1,013"
    assert ours[1] == "TokenBlocks"


@pytest.mark.parametrize("words, least, most", [
    ("--rounds 0", 1, 2**31 - 1), ("--vocabulary 65537", 6, 2**16),
])  # fmt: skip
def test_numbers_of_the_benchmark_have_ranges(words, least, most):
    error = error_of(pretrain_step.main, *words.split(), PYTHONWARNINGS="ignore")
    assert f"from {least} to {most}" in error


def test_peers_take_batches_in_which_nothing_is_predicted():
    tokens = torch.tensor([[7, 8, 9]])
    inputs = {"src_tokens": tokens, "positions": torch.tensor([[2, 0, 1]]), "has_padding": False}
    batch = {"net_input": inputs, "target": tokens[:, :0]}
    in_order, labels, _ = peers.labelled(batch, pad=1)
    assert in_order.tolist() == [[8, 9, 7]]
    assert labels.eq(peers.IGNORED_LABEL).all()
