"""The parts of benchmarks/gpu.py run on the CPU with tiny sizes, and its checks notice what is wrong."""

import argparse
import multiprocessing
import re

import pytest
import torch

import gpu
import gpu_checks
import peers
import pretrain_step
import scale
from conftest import SCRIPTS_ENVIRONMENT, error_of, refuses, run_main
from maelm_fairseq import precision

# fairseq's use of hydra, torch and numpy
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}Warning") for kind in ["User", "Future", "Deprecation"]]
SETTINGS = argparse.Namespace(**gpu.TINY, device="cpu", tiny=True)


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


def test_a_part_that_fails_is_reported_after_all_others(forks, monkeypatch, capfd):
    monkeypatch.setattr(gpu, "PARTS", {"steps": lambda settings: open("nothing"), "checks": lambda settings: None})
    with pytest.raises(SystemExit, match="True"):
        run_main(gpu.main, "--device", "cpu", "--tiny")
    out, err = capfd.readouterr()
    assert out.endswith("\n## Checks\n\n\nfailed: steps\n") and err.startswith("error: nothing: No such")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    assert re.search("--device cuda: PyTorch .* finds no GPU", error_of(gpu.main))


# Results on the device ----------------------------------------------------------------------------------------------


def test_every_precision_is_compared_with_float32(capsys, monkeypatch):
    monkeypatch.setattr(precision, "is_fast_in_bfloat16", lambda kind: True)
    gpu_checks.check_results(SETTINGS)
    table = rows(capsys.readouterr().out)
    names = ["float32", "fp16", "bf16-autocast"]
    assert [row[0] for row in table] == [name + decoder for decoder in ["", ", shared"] for name in names]
    for name, loss, gradients, *_, verdict in table:
        assert verdict == "passed"
        if name.startswith("float32"):
            assert loss == gradients == "0.0e+00"
        else:
            assert 0 < float(loss) and 1e-4 < float(gradients)


MISTAKES = {
    "no relative bias": lambda model: model.encoder.relative_bias.table.weight.data.zero_(),
    "a NaN": lambda model: model.lm_head.bias.data[0].fill_(float("nan")),
    "another scale in one layer": lambda model: model.encoder.layers[1].attention_norm.weight.data.mul_(1.1),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_results_fail(capsys, monkeypatch, name):
    """A model that differs on the device, as a kernel with a fault would make it."""
    made = []  # the first is the reference

    def make_wrongly(model, width, original=gpu_checks.make_layers_matter):
        original(model, width)
        if made:
            MISTAKES[name](model)
        made.append(model)

    monkeypatch.setattr(gpu_checks, "make_layers_matter", make_wrongly)
    monkeypatch.setattr(gpu_checks, "DECODERS", {"": []})
    monkeypatch.setattr(gpu_checks, "PRECISIONS", {"float32": gpu_checks.PRECISIONS["float32"]})
    refuses("over the limits: float32", gpu_checks.check_results, SETTINGS)
    assert rows(capsys.readouterr().out)[0][-1] == "FAILED"


# Updates of a recipe ------------------------------------------------------------------------------------------------

LOSSES = {update: 10 - update / 10 for update in range(1, 21)}
FIRST = {update: LOSSES[update] for update in range(1, 11)}


@pytest.mark.parametrize(
    ("losses", "resumed", "problem"),
    [
        (FIRST, LOSSES, ""),
        (FIRST, FIRST, "updates logged"),
        (FIRST, {**LOSSES, 1: 9.8}, "the first updates were made again"),
        (FIRST, {**LOSSES, 20: 9.95}, "the loss does not fall"),
        (FIRST, {**LOSSES, 11: 9.95}, "the loss after resuming is that of a new model"),
    ],
)
def test_bad_updates_are_noticed(losses, resumed, problem):
    message = gpu_checks.wrong(losses, resumed)
    assert message.startswith(problem) and bool(message) == bool(problem)


def test_a_recipe_is_trained_and_resumed(monkeypatch, capsys):
    monkeypatch.setenv("PATH", SCRIPTS_ENVIRONMENT["PATH"])
    monkeypatch.setattr(gpu_checks, "RUNS", {"fp16": [], "bf16-autocast": ["--bf16-autocast"]})
    gpu_checks.check_updates(SETTINGS)
    fp16, autocast = rows(capsys.readouterr().out)
    assert fp16[:2] == ["fp16", "needs a GPU"] and autocast[::2] == ["bf16-autocast", "passed"]


# Measurements -------------------------------------------------------------------------------------------------------


def test_models_are_compared_with_the_first(forks, capsys):
    only = ["mae_lm_base", "MLM", "MLM, uncut", "RoBERTa, transformers"]
    pretrain_step.compare(gpu.steps_of(SETTINGS, only=only))
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
