"""benchmarks/gpu.py runs on the CPU with tiny sizes, and its checks notice what is wrong."""

import argparse
import subprocess
import sys
from unittest import mock

import pytest
import torch
from fairseq import utils
from torch.utils.flop_counter import FlopCounterMode

from conftest import ROOT, SCRIPTS_ENVIRONMENT

sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu  # noqa: E402
import gpu_checks  # noqa: E402
import pretrain_step  # noqa: E402
from common import Training, write_data  # noqa: E402
from maelm_fairseq.model import MaeLmModel  # noqa: E402


@pytest.fixture
def settings():
    return argparse.Namespace(**gpu.TINY, device="cpu", tiny=True)


def rows(text):
    """The rows of the tables in Markdown, without heads: lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {i for i, line in enumerate(lines) if line.startswith("|---")}
    kept = [line for i, line in enumerate(lines) if not heads & {i, i + 1}]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


def program(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=SCRIPTS_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_parts_run_in_processes_of_their_own():
    done = program(ROOT / "benchmarks" / "gpu.py", "--device", "cpu", "--tiny", "--only", "updates", "encoding")
    assert done.returncode == 0, done.stdout + done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert titles == ["## Updates", "## Encoding"] and done.stdout.endswith("\nall parts passed\n")
    fp16, *autocast, roberta, ours, short = rows(done.stdout)
    assert fp16[:2] == ["fp16", "needs a GPU"] and [row[0] for row in autocast] == list(gpu_checks.RUNS)[1:]
    for row in autocast:
        assert row[2] == "passed"
        first, tenth, eleventh, last = map(float, row[1].split(", "))
        assert first > tenth > last and first > eleventh
    assert [row[0] for row in (roberta, ours, short)] == ["RobertaHubInterface", "MaeLm", "MaeLm, bfloat16"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_they_say_so():
    done = program(ROOT / "benchmarks" / "gpu.py")
    assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("error: --device cuda: PyTorch")


# Results on the device ----------------------------------------------------------------------------------------------


def test_every_precision_is_compared_with_float32(capsys, settings):
    gpu_checks.check_results(settings)
    found = {row[0]: row[1:] for row in rows(capsys.readouterr().out)}
    precisions = ["float32", "fp16", "bf16-autocast"]
    assert list(found) == [precision + decoder for decoder in ["", ", shared"] for precision in precisions]
    for name, row in found.items():
        if name.startswith("float32"):
            assert row[:2] == ["0.0e+00", "0.0e+00"]
        else:
            assert 0 < float(row[0]) and 1e-4 < float(row[1])
    assert {row[-1] for row in found.values()} == {"passed"}


MISTAKES = {
    "no relative bias": lambda model: model.encoder.relative_bias.table.weight.data.zero_(),
    "a NaN": lambda model: model.lm_head.bias.data[0].fill_(float("nan")),
    "another scale in one layer": lambda model: model.encoder.layers[1].attention_norm.weight.data.mul_(1.1),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_results_fail(capsys, settings, monkeypatch, name):
    """A model that differs on the device, as a kernel with a fault would make it."""
    build, count = MaeLmModel.build_model.__func__, []

    def build_wrongly(cls, cfg, task):
        model = build(cls, cfg, task)
        if count:  # the first is the reference
            MISTAKES[name](model)
        count.append(model)
        return model

    monkeypatch.setattr(MaeLmModel, "build_model", classmethod(build_wrongly))
    with pytest.raises(ValueError, match="over the limits: float32"):
        gpu_checks.check_results(settings)
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
        (FIRST, {**LOSSES, 20: float("nan")}, "the loss does not fall"),
    ],
)
def test_bad_updates_are_noticed(losses, resumed, problem):
    found = gpu_checks.wrong(losses, resumed)
    assert found.startswith(problem) and bool(found) == bool(problem)


# Measurements -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("variant", ["mae_lm_base", "mae_lm_base, shared"])
def test_operations_are_those_that_pytorch_counts(settings, tmp_path, variant, layers):
    args = gpu.steps_of(settings, decoder_layers=layers, mask_prob=0.3)
    write_data(tmp_path, args.batch_size * [args.tokens - 1], args.vocabulary)
    training = Training(pretrain_step.training_arguments(tmp_path, args, variant), "cpu")
    model = training.trainer.model.to("meta")
    batch = utils.apply_to_sample(lambda tensor: tensor.to("meta"), next(training.batches))
    with FlopCounterMode(display=False) as counter:
        loss, _, _ = training.trainer.criterion(model, batch)
        loss.backward()
    assert counter.get_total_flops() == pretrain_step.operations(args, variant)


def test_models_are_measured_in_turn_beside_the_first(capsys, settings):
    pretrain_step.compare(gpu.steps_of(settings, only=["mae_lm_base"], rounds=2))
    found = rows(capsys.readouterr().out)
    assert [row[0] for row in found] == ["roberta_base", "mae_lm_base"]
    assert found[0][2] == "1.00 (1.00 to 1.00)"
    assert all(float(row[1]) > 0 and 0.05 < float(row[3]) < 10 for row in found)


def test_a_batch_that_does_not_fit_is_an_error(settings, tmp_path):
    """fairseq would skip it, and the step would seem fast."""
    write_data(tmp_path, 8 * [settings.tokens - 1], settings.vocabulary)
    training = Training(pretrain_step.training_arguments(tmp_path, gpu.steps_of(settings), "mae_lm_base"), "cpu")
    with mock.patch.object(training.task, "train_step", side_effect=RuntimeError("CUDA out of memory.")):
        with pytest.raises(RuntimeError, match="out of memory"):
            training.seconds()
