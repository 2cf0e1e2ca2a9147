"""The memory of a GPU by formula, beside what was measured, and the batch that a recipe chooses by it."""

import re

import pytest

import pretrain
from conftest import ROOT, run_main
from gpu_memory import GIB, bytes_needed, largest_batch
from maelm_fairseq.config import MaeLmConfig
from maelm_fairseq.task import MaeLmTaskConfig

RECIPE = ROOT / "recipes/pretrain_base.sh"


def measured():
    """Rows of our models in the tables of RESULTS.md that were measured on a GPU: (name, options, GiB)."""
    text = (ROOT / "benchmarks/RESULTS.md").read_text()
    section = text.partition("\n## On a GPU\n")[2].partition("\n## ")[0]
    for table in section.split("```\npython benchmarks/pretrain_step.py ")[1:]:
        options = dict(re.findall(r"--(micro-batch|mask-prob|decoder-layers) ([0-9.]+)", table))
        for name, memory in re.findall(r"^\| (mae_lm_base[^|]*) \|.*\| ([0-9.]+) \| [0-9.]+ \|$", table, re.M):
            yield name, options, float(memory)


@pytest.mark.parametrize("name, options, memory", list(measured()))
def test_the_formula_agrees_with_what_was_measured(name, options, memory):
    model = MaeLmConfig(decoder_layers=int(options.get("decoder-layers", 4)))
    model.share_decoder_layers = "shared" in name
    if "no relative bias" in name:
        model.relative_position_num_buckets = 0
    task = MaeLmTaskConfig(mask_prob=float(options.get("mask-prob", 0.15)))
    needed = bytes_needed(model, task, vocabulary=32768, batch=int(options["micro-batch"]))
    assert needed / GIB == pytest.approx(memory, rel=0.1)


def test_there_are_measurements():
    assert len(list(measured())) == 12


@pytest.mark.parametrize(
    "memory, sequences, batch", [(150, 2048, 256), (80, 2048, 128), (16, 2048, 32), (80, 96, 32), (3, 8, 1)]
)
def test_the_batch_is_the_largest_that_fits(memory, sequences, batch):
    assert largest_batch(MaeLmConfig(), MaeLmTaskConfig(), 32768, memory * 10**9, sequences) == batch


@pytest.mark.parametrize("options, batch, accumulated", [
    ([], 256, 4),
    (["--batch-size", 64], 64, 16),
    (["--encoder-layers", 48], 128, 8),
    (["--tokens-per-sample", 64, "--max-positions", 64], 1024, 1),
])  # fmt: skip
def test_a_recipe_fills_the_memory_with_the_same_effective_batch(
    tmp_path, capsys, monkeypatch, options, batch, accumulated
):
    (tmp_path / "dict.txt").write_text("a 1\n" * 32763)
    monkeypatch.setattr(pretrain, "memory_of_gpu", lambda: 141 * 10**9)
    command = [RECIPE, "--data", tmp_path, "--save-dir", tmp_path, "--gpus", 2, "--dry-run"]
    run_main(pretrain.main, *command, *options)
    printed = capsys.readouterr().out
    assert f" --batch-size {batch} " in printed
    assert f" --update-freq {accumulated} " in printed
