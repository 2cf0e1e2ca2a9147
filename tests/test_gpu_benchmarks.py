"""benchmarks/gpu.sh runs on the CPU with tiny sizes, and its checks notice what is wrong."""

import argparse
import contextlib
import subprocess
import sys
import warnings
import zipfile
from unittest import mock

import pytest
import torch
from fairseq import utils
from torch.utils.flop_counter import FlopCounterMode

from conftest import PYTHON, ROOT, SCRIPTS_ENVIRONMENT

sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu  # noqa: E402
import gpu_checks  # noqa: E402
import gpu_steps  # noqa: E402
import pretrain_step  # noqa: E402
from common import FP16, Training, write_data  # noqa: E402
from maelm_fairseq.model import MaeLmModel  # noqa: E402


@pytest.fixture
def settings():
    return argparse.Namespace(**gpu.TINY, device="cpu", tiny=True, fp16=False)


def rows(text):
    """The rows of the tables in Markdown, without heads: lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {i for i, line in enumerate(lines) if line.startswith("|---")}
    kept = [line for i, line in enumerate(lines) if not heads & {i, i + 1}]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


# The command --------------------------------------------------------------------------------------------------------


def shell(*arguments, **environment):
    command = [ROOT / "benchmarks" / "gpu.sh", *arguments]
    return subprocess.run(
        list(map(str, command)),
        env=dict(SCRIPTS_ENVIRONMENT, **environment),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_parts_run_in_processes_of_their_own():
    done = shell("--device", "cpu", "--tiny", "--only", "updates", "data", "--minutes", 60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("#")] == [
        "# On the CPU", "## Updates of a recipe", "## Data loader",
    ]  # fmt: skip
    fp16, *autocast, items, _, _ = rows(done.stdout)
    assert fp16[:2] == ["fp16", "needs a GPU"]
    assert [row[0] for row in autocast] == ["bf16-autocast", "bf16-autocast, shared"]
    for row in autocast:
        assert row[2:] == ["0", "passed"]
        first, tenth, eleventh, last = map(float, row[1].split(", "))
        assert first > tenth > last and first > eleventh
    assert items[0] == "items" and float(items[2]) > 0
    assert done.stdout.splitlines()[-1] == "2 of 2 parts passed"


def test_what_takes_too_long_is_stopped_and_the_others_are_reported():
    done = shell("--device", "cpu", "--tiny", "--only", "checks", "encoding", "--minutes", "0")
    assert done.returncode == 1
    for name in ["checks", "encoding"]:
        assert f"**{name} failed**: took longer than the minutes that were left" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 of 2 parts passed"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    done = shell("--only", "data")
    assert done.returncode == 1 and done.stdout == ""
    assert "error: --device cuda: PyTorch" in done.stderr and "finds no GPU" in done.stderr


def test_wheels_are_used_and_missing_ones_reported(tmp_path):
    done = shell("--wheels", tmp_path, "--device", "cpu")
    assert done.returncode == 1 and done.stderr == f"error: --wheels {tmp_path}: no *.whl in it\n"
    assert shell("--wheels").stderr == "error: --wheels needs a folder\n"

    files = {
        "torch.py": "raise ImportError('this is the torch of a wheel')\n",
        "torch-99.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 99\n",
        "torch-99.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "torch-99-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr("torch-99.dist-info/RECORD", "".join(f"{name},,\n" for name in files))
    done = shell("--wheels", tmp_path / "wheels", "--device", "cpu")
    assert done.returncode == 1 and "this is the torch of a wheel" in done.stderr


def test_an_exception_is_one_line(capsys, settings):
    with mock.patch.dict(gpu.PARTS, data=("Title", mock.Mock(side_effect=RuntimeError("no memory\nmore")))):
        assert not gpu.run_part("data", settings)
    shown = capsys.readouterr()
    assert shown.out == "\n## Title\n\n**data failed**: RuntimeError: no memory\n" and "Traceback" in shown.err


# Results on the device ----------------------------------------------------------------------------------------------


@pytest.fixture
def not_compiled(monkeypatch):
    """Compilers are slow: test_compile.py tries them."""
    kept = {name: case for name, case in gpu_checks.PRECISIONS.items() if "compiled" not in name}
    monkeypatch.setattr(gpu_checks, "PRECISIONS", kept)


def test_every_precision_is_compared_with_float32(capsys, settings, not_compiled):
    gpu_checks.check_results(settings)
    found = {row[0]: row[1:] for row in rows(capsys.readouterr().out)}
    assert list(found) == [precision + decoder for decoder in ["", ", shared"] for precision in gpu_checks.PRECISIONS]
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
def test_wrong_results_fail(capsys, settings, not_compiled, monkeypatch, name):
    """A model that differs on the device, as a kernel with a fault would make it."""
    build, count = MaeLmModel.build_model.__func__, []

    def build_wrongly(cls, cfg, task):
        model = build(cls, cfg, task)
        if count:  # the first is the reference
            MISTAKES[name](model)
        count.append(model)
        return model

    monkeypatch.setattr(MaeLmModel, "build_model", classmethod(build_wrongly))
    with pytest.raises(gpu_checks.Failure, match="over the limits: float32"):
        gpu_checks.check_results(settings)
    assert rows(capsys.readouterr().out)[0][-1] == "FAILED"


# Updates of a recipe ------------------------------------------------------------------------------------------------

HALVES = [{update: 10 - update / 10 for update in range(first, first + 10)} for first in [1, 11]]


@pytest.mark.parametrize(
    ("losses", "resumed", "overflows", "problem"),
    [
        (*HALVES, 5, ""),
        (*HALVES, 6, "6 gradient overflows"),
        (HALVES[0], HALVES[0], 0, "updates 11 to 20 were expected"),
        ({1: 3.0}, HALVES[1], 0, "updates 1 to 10 were expected"),
        (HALVES[0], {**HALVES[1], 20: 9.95}, 0, "the loss does not fall"),
        (HALVES[0], {**HALVES[1], 11: 9.95}, 0, "the loss after resuming is that of a new model"),
        (HALVES[0], {**HALVES[1], 20: float("nan")}, 0, "the loss does not fall"),
    ],
)
def test_bad_updates_are_noticed(losses, resumed, overflows, problem):
    found = gpu_checks.wrong(losses, resumed, overflows)
    assert found.startswith(problem) and bool(found) == bool(problem)


def test_a_recipe_that_fails_is_reported(capsys, settings, monkeypatch):
    monkeypatch.setattr(gpu_checks, "TRAINING", ["--no-such-option"])
    monkeypatch.setenv("PATH", SCRIPTS_ENVIRONMENT["PATH"])
    with pytest.raises(gpu_checks.Failure, match="bf16-autocast: pretrain_base.sh ended with exit status"):
        gpu_checks.check_updates(settings)
    assert rows(capsys.readouterr().out)[1][-1] == "FAILED"


# Measurements -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def fp16_on_the_cpu():
    """fairseq's optimizer for fp16 asks for nothing else of a GPU than the number of the current one."""
    with mock.patch.object(torch.cuda, "current_device", return_value=0):
        yield


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("variant", ["mae_lm_base", "mae_lm_base, shared", "mae_lm_base, shared, no relative bias"])
def test_operations_are_those_that_pytorch_counts(settings, tmp_path, variant, layers):
    args = gpu_steps.step_settings(settings, decoder_layers=layers, mask_prob=0.3)
    write_data(tmp_path, args.batch_size * [args.tokens - 1], args.vocabulary)
    training = Training(pretrain_step.training_arguments(tmp_path, args, variant), "cpu")
    model = training.trainer.model.to("meta")
    batch = utils.apply_to_sample(lambda tensor: tensor.to("meta"), next(training.batches))
    with FlopCounterMode(display=False) as counter:
        loss, _, _ = training.trainer.criterion(model, batch)
        loss.backward()
    assert counter.get_total_flops() == pretrain_step.operations(args, variant)


def test_operations_of_base():
    """In GFLOP a block, with decoders of 4, 2 and 1 layers."""
    for mask_prob, expected in [(0.15, [252, 245, 241]), (0.3, [236, 221, 214])]:
        for layers, count in zip([4, 2, 1], expected):
            args = argparse.Namespace(mask_prob=mask_prob, decoder_layers=layers, **{**gpu.FULL, "batch_size": 1})
            assert round(pretrain_step.operations(args, "mae_lm_base, shared") / 1e9) == count


@pytest.mark.parametrize("fp16", [False, True])
def test_steps_of_all_models_are_measured(capsys, settings, monkeypatch, fp16):
    """Compiled ones aside: test_compile.py."""
    tables = [
        (changes, {n: t for n, t in targets.items() if "compiled" not in n}) for changes, targets in gpu_steps.TABLES
    ]
    monkeypatch.setattr(gpu_steps, "TABLES", tables)
    settings.fp16 = fp16
    with fp16_on_the_cpu():
        gpu_steps.measure_steps(settings)
    text = capsys.readouterr().out
    found = rows(text)
    assert [row[0] for row in found] == [name for _, targets in tables for name in targets]
    assert [row[4] for row in found] == [target for _, targets in tables for target in targets.values()]
    for row in found:
        assert float(row[1]) > 0 and float(row[2].replace(",", "")) > 0 and row[5] == "needs a GPU"
    assert text.count("fp16 (rows" if fp16 else "float32 (rows") == 2
    assert "15% predicted, 4 decoder layers" in text and "30% predicted, 2 decoder layers" in text


def test_steps_in_fp16_have_half_weights(settings, tmp_path):
    settings.fp16 = True
    write_data(tmp_path, 8 * [settings.tokens - 1], settings.vocabulary)
    arguments = gpu_steps.training_arguments(tmp_path, gpu_steps.step_settings(settings), "mae_lm_base")
    assert [*map(str, FP16)] == [*map(str, arguments[arguments.index("--fp16") :][:3])]
    with fp16_on_the_cpu():
        training = Training(arguments, "cpu")
        training.seconds(2)
    assert {weight.dtype for weight in training.trainer.model.parameters()} == {torch.half}
    assert training.trainer.get_num_updates() == 2


def test_a_batch_that_does_not_fit_is_an_error(settings, tmp_path):
    """fairseq would skip it, and the step would seem fast."""
    write_data(tmp_path, 8 * [settings.tokens - 1], settings.vocabulary)
    training = Training(gpu_steps.training_arguments(tmp_path, gpu_steps.step_settings(settings), "mae_lm_base"), "cpu")
    error = RuntimeError("CUDA out of memory.")
    with mock.patch.object(training.task, "train_step", side_effect=error):
        with pytest.raises(RuntimeError, match="out of memory"):
            training.seconds()


def test_synchronisations_are_counted_where_they_happen(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    with gpu_steps.host_synchronisations() as places:
        for _ in range(3):
            warnings.warn(gpu_steps.SYNCHRONISES, stacklevel=1)
        warnings.warn("something else", stacklevel=1)
        assert modes == ["warn"]
    assert modes == ["warn", "default"]
    assert len(places) == 3 and len(set(places)) == 1 and places[0].startswith("test_gpu_benchmarks.py:")


def test_micro_batches_of_all_models_run(capsys, settings):
    settings.fp16 = True
    with fp16_on_the_cpu():
        gpu_steps.count_synchronisations(settings)
    found = rows(capsys.readouterr().out)
    assert [row[0] for row in found] == gpu_steps.SYNCHRONISED and {row[1] for row in found} == {"needs a GPU"}


@pytest.mark.parametrize("fp16", [False, True])
def test_finetuning_is_measured(capsys, settings, fp16):
    settings.fp16 = fp16
    with fp16_on_the_cpu():
        gpu_steps.measure_finetuning(settings)
    found = rows(capsys.readouterr().out)
    assert [row[0] for row in found] == ["roberta_base", "mae_lm_base"]
    assert all(float(row[2]) > 0 for row in found) and found[0][3] == "1.00 (1.00 to 1.00)"


def test_encoding_is_measured(capsys, settings):
    gpu.encoding(settings)
    text = capsys.readouterr().out
    assert [row[0] for row in rows(text)] == ["RobertaHubInterface", "MaeLm", "MaeLm, bfloat16"]
    assert "features in bfloat16 differ" in text


def test_models_in_processes_of_their_own_are_measured(settings):
    settings.threads = 1
    args = gpu_steps.step_settings(settings)
    models = {name: (args, name) for name in ["roberta_base", "mae_lm_base"]}
    seconds, shares, memory = pretrain_step.measure(models, 2, pretrain_step.Process)
    for found in [seconds, shares]:
        assert list(found) == list(models) and all(len(of) == 2 and min(of) > 0 for of in found.values())
    assert all(0.05 < gibibytes < 10 for gibibytes in memory.values())


def test_half_precision_steps_need_a_gpu():
    command = [PYTHON, str(ROOT / "benchmarks" / "pretrain_step.py"), "--precision", "fp16"]
    done = subprocess.run(command, env=SCRIPTS_ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "error: --precision fp16 needs --device cuda\n"


# As if there were a GPU: fairseq's Trainer still trains on the CPU ---------------------------------------------------


class Allocator:
    """PyTorch's counts of GPU memory, in bytes."""

    def __init__(self):
        self.allocated, self.peak = 2**30, 9 * 2**30

    def reset(self):
        self.peak = self.allocated


@pytest.fixture
def gpu_of_sorts(settings, monkeypatch):
    """Changes the settings to those of a GPU, and PyTorch's functions to ones that do nothing or count."""
    settings.device, settings.fp16, allocator = "cuda", True, Allocator()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: allocator.allocated)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: allocator.peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", allocator.reset)
    monkeypatch.setattr(pretrain_step, "matmul_rate", lambda args, dtype: 1e12)
    return allocator


def test_steps_show_the_peak_memory_of_each_model(capsys, settings, gpu_of_sorts, monkeypatch):
    """Of all its steps: fairseq resets the peak after each."""
    seconds = Training.seconds

    def allocating(training, steps):
        gpu_of_sorts.peak = max(gpu_of_sorts.peak, 4 * 2**30)
        torch.cuda.reset_peak_memory_stats()
        return seconds(training, steps)

    monkeypatch.setattr(Training, "seconds", allocating)
    monkeypatch.setattr(gpu_steps, "TABLES", [({}, {"roberta_base": "", "mae_lm_base": "1.15"})])
    gpu_steps.measure_steps(settings)
    assert [row[5] for row in rows(capsys.readouterr().out)] == ["3.0", "3.0"]


def test_waits_of_all_models_are_shown(capsys, settings, gpu_of_sorts, monkeypatch):
    modes, run = [], gpu_steps.micro_batch

    def waiting(training):
        micro_batch = run(training)

        def waits_twice():
            for _ in range(2):
                warnings.warn(gpu_steps.SYNCHRONISES, stacklevel=1)
            return micro_batch()

        return waits_twice

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(gpu_steps, "micro_batch", waiting)
    monkeypatch.setattr(gpu_steps, "SYNCHRONISED", ["mae_lm_base"])
    gpu_steps.count_synchronisations(settings)
    (row,) = rows(capsys.readouterr().out)
    assert row[:3] == ["mae_lm_base", "2", "none"] and "test_gpu_benchmarks.py:" in row[3] and "(2)" in row[3]
    assert modes == ["warn", "default"]
