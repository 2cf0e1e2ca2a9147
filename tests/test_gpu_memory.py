"""The formula for the memory of a GPU, compared with measurements, and the batch chosen by it."""

import contextlib
import io
import re
import shlex
import subprocess

import pytest

import pretrain
from conftest import ROOT, run_main
from maelm_fairseq.config import MaeLmConfig
from maelm_fairseq.runs import fairseq_args, gpu_memory, pretrain_settings
from maelm_fairseq.runs.gpu_memory import GIB, bytes_needed
from maelm_fairseq.task import MaeLmTaskConfig

RECIPE = ROOT / "recipes/pretrain_base.sh"


def measured():
    """The rows of our models in RESULTS.md's tables of GPUs: (name, options, GiB)."""
    text = (ROOT / "benchmarks/RESULTS.md").read_text()
    section = text.partition("\n## On a GPU\n")[2].partition("\n## ")[0]
    row = re.compile(r"^\| (mae_lm_base[^|]*) \|.*\| ([0-9.]+) \| [0-9.]+ \|$", re.M)
    for table in section.split("```\npython benchmarks/pretrain_step.py ")[1:]:
        options = dict(re.findall(r"--(micro-batch|mask-prob|decoder-layers) ([0-9.]+)", table))
        for name, memory in row.findall(table):
            yield name, options, float(memory)


@pytest.mark.parametrize("name, options, memory", list(measured()))
def test_the_formula_agrees_with_what_was_measured(name, options, memory):
    model = MaeLmConfig(decoder_layers=int(options.get("decoder-layers", 4)))
    model.share_decoder_layers = "shared" in name
    if "no relative bias" in name:
        model.relative_position_num_buckets = 0
    task = MaeLmTaskConfig(mask_prob=float(options.get("mask-prob", 0.15)))
    needed = bytes_needed(model, task, vocabulary_size=32768, batch=int(options["micro-batch"]))
    assert needed / GIB == pytest.approx(memory, rel=0.1)


def test_predicted_tokens_that_the_encoder_sees_take_memory():
    """With all of them visible, as much as with all masks in the encoder."""
    needed = []
    for options in [{}, dict(random_token_prob=0.5), dict(random_token_prob=1.0)]:
        task = MaeLmTaskConfig(mask_prob=0.3, **options)
        needed.append(bytes_needed(MaeLmConfig(), task, vocabulary_size=100, batch=8))
    assert needed == sorted(needed)
    task = MaeLmTaskConfig(mask_prob=0.3, encoder_mask_fraction=1)
    assert bytes_needed(MaeLmConfig(), task, vocabulary_size=100, batch=8) == needed[-1]


def test_there_are_measurements():
    assert len(list(measured())) == 12


@pytest.fixture
def data(tmp_path):
    """A folder with a vocabulary of 32,768 symbols."""
    others = "".join(f"b{number} 1\n" for number in range(32762))
    (tmp_path / "dict.txt").write_text("a 1\n" + others)
    return tmp_path


@pytest.fixture
def chosen(data, monkeypatch, capsys):
    """A function that returns a recipe's micro-batch and --update-freq on GPUs of so many GB."""

    def in_this_process(command, **options):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            run_main(gpu_memory.main, *command[3:])
        return subprocess.CompletedProcess(command, 0, printed.getvalue())

    def choose(gigabytes, *options):
        monkeypatch.setattr(gpu_memory, "memory_of_gpu", lambda: gigabytes * 10**9)
        monkeypatch.setattr(pretrain_settings.subprocess, "run", in_this_process)
        monkeypatch.setattr(pretrain_settings, "count_gpus", lambda: 8)
        command = [RECIPE, "--data", data, "--save-dir", data, "--dry-run", "--gpus", 2, *options]
        run_main(pretrain.main, *command)
        words = shlex.split(capsys.readouterr().out)
        args = fairseq_args.parse_fairseq_args(words[1:])
        return args.batch_size, *args.update_freq

    return choose


@pytest.mark.parametrize("gigabytes, options, batch, accumulated", [
    (150, "", 256, 4),
    (85, "", 256, 4),  # 79 GiB, which cards of 80 GB have
    (42, "", 64, 16),
    (16, "", 32, 32),
    (150, "--batch-size 64", 64, 16),
    (150, "-a mae_lm_large", 128, 8),
    (150, "--tokens-per-sample 64 --max-positions 64", 1024, 1),
    (150, "--no-fp16", 128, 8),
    (100, "--mask-prob 0.5 --encoder-mask-fade-updates 100", 128, 8),
    (150, "--update-freq 3", 32, 3),
    (150, "--update-freq 1 --batch-size 48", 48, 1),  # which does not divide the recipe's batch
    (150, "--max-sentences 16", 16, 32),
    (150, "--max-tokens 4096", 32, 32),
    (150, "--required-batch-size-multiple 3", 32, 32),
    (150, "--nodes 2", 32, 16),
])  # fmt: skip
def test_a_recipe_fills_the_memory_unless_options_say_the_batch(
    chosen, gigabytes, options, batch, accumulated, monkeypatch
):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert chosen(gigabytes, *options.split()) == (batch, accumulated)
