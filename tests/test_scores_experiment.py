"""What the comparison of scores runs, written down a second time; its arithmetic, CPU seconds and choice of a pilot."""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ROOT
from maelm_fairseq.errors import UsageError

sys.path[:0] = [str(ROOT / folder) for folder in ["recipes", "recipes/scores", "benchmarks"]]
import compare_scores  # noqa: E402
import comparison  # noqa: E402
import evaluate  # noqa: E402
import pretrain_step  # noqa: E402
import training_log  # noqa: E402
from arithmetic import operations  # noqa: E402
from comparison_folder import ComparisonFolder  # noqa: E402
from evaluation.tasks import KNOWN, PRIMARY  # noqa: E402
from pretraining import Optimization, Size  # noqa: E402

OPTIONS = """
--task mae_lm --criterion mae_lm --arch mae_lm_tiny --encoder-layers 4 --encoder-embed-dim {width}
--encoder-ffn-embed-dim {ffn} --encoder-attention-heads 4 --dropout 0 --attention-dropout 0 --max-positions 64
--tokens-per-sample 64 --batch-size 32 --batch-size-valid 64 --num-workers 0 --bf16-autocast --optimizer torch_adamw
--adam-betas (0.9, {beta}) --adam-eps 1e-06 --weight-decay 0.01 --clip-norm 2.0 --lr-scheduler polynomial_decay
--lr {lr} --warmup-updates {warmup} --total-num-update {updates} --max-update {updates} --distributed-world-size 1
--log-format json --log-interval {log} --save-interval-updates {part} --no-epoch-checkpoints
--decoder-layers {layers} --mask-prob 0.3 --leave-unmasked-prob 0.0 --random-token-prob 0.0
--encoder-mask-fraction {fraction} {bias}{local}--seed {seed} --validate-interval-updates {valid}
"""
WIDE = dict(width=256, ffn=1024)
LONG = dict(updates=12250, warmup=735, part=1750, valid=350, log=50, lr=0.002, beta=0.999, local=True)
PILOT = dict(updates=1000, warmup=60, part=1000, valid=200, log=50, local=True, seed=0, **WIDE)
STILL = dict(updates=2, warmup=1, part=2, valid=1, log=2, lr=0.0, beta=0.98, **WIDE)
MLM, MAE_LM = dict(layers=0, fraction=1.0), dict(layers=2, fraction=0.0)
CONTROL = dict(layers=2, fraction=1.0)
RUNS = [
    ("mlm-1", dict(LONG, **WIDE, **MLM, seed=1)),
    ("mae_lm-1", dict(LONG, **WIDE, **MAE_LM, seed=1)),
    ("mlm_decoder-1", dict(LONG, **WIDE, **CONTROL, seed=1)),
    ("mlm-2", dict(LONG, **WIDE, **MLM, seed=2)),
    ("mae_lm-2", dict(LONG, **WIDE, **MAE_LM, seed=2)),
    ("mlm-3", dict(LONG, **WIDE, **MLM, seed=3)),
    ("mae_lm-3", dict(LONG, **WIDE, **MAE_LM, seed=3)),
    ("mlm-4", dict(LONG, **WIDE, **MLM, seed=4)),
    ("mae_lm-4", dict(LONG, **WIDE, **MAE_LM, seed=4)),
    ("mlm_decoder-2", dict(LONG, **WIDE, **CONTROL, seed=2)),
    ("mae_lm_paper_decoder-1", dict(LONG, **WIDE, layers=4, fraction=0.0, seed=1, decoder_bias=False)),
    ("mae_lm_decoder4-1", dict(LONG, **WIDE, layers=4, fraction=0.0, seed=1)),
    ("pilot-lr0.001-beta0.98", dict(PILOT, **MLM, lr=0.001, beta=0.98)),
    ("pilot-lr0.001-beta0.999", dict(PILOT, **MLM, lr=0.001, beta=0.999)),
    ("pilot-lr0.002-beta0.98", dict(PILOT, **MLM, lr=0.002, beta=0.98)),
    ("pilot-lr0.002-beta0.999", dict(PILOT, **MLM, lr=0.002, beta=0.999)),
    ("pilot-mae_lm-lr0.001-beta0.98", dict(PILOT, **MAE_LM, lr=0.001, beta=0.98)),
    ("pilot-mae_lm-lr0.001-beta0.999", dict(PILOT, **MAE_LM, lr=0.001, beta=0.999)),
    ("pilot-mae_lm-lr0.002-beta0.98", dict(PILOT, **MAE_LM, lr=0.002, beta=0.98)),
    ("pilot-mae_lm-lr0.002-beta0.999", dict(PILOT, **MAE_LM, lr=0.002, beta=0.999)),
    *((f"scratch-{seed}", dict(STILL, **MLM, seed=seed, local=True)) for seed in (1, 2, 3, 4)),
    *((f"scratch_plain-{seed}", dict(STILL, **MLM, seed=seed, local=False)) for seed in (1, 2)),
]
# Width 128: fewer seeds, and no pilots.
NARROW_RUNS = [
    (
        name,
        {**values, **dict(width=128, ffn=512), **(dict(lr=0.001) if values["updates"] == 12250 else dict(beta=0.999))},
    )
    for name, values in RUNS
    if "pilot" not in name and name[-1] in "12"
]


@pytest.mark.parametrize("trial, expected_runs", [(comparison.SCORES, RUNS), (comparison.NARROW, NARROW_RUNS)])
def test_the_runs_and_their_options(trial, expected_runs):
    runs = [*trial.pretrained(), *trial.explored(), *trial.pilots(), *trial.explored_pilots(), *trial.untrained()]
    assert [run.name for run in runs] == [name for name, _ in expected_runs]
    assert [run.name for run in trial.gate()] == ["mlm-1", "mae_lm-1"]
    for run, (_, values) in zip(runs, expected_runs):
        local = "--relative-position-local-init " * values["local"]
        bias = "--decoder-relative-bias " * values.get("decoder_bias", True)
        expected = " ".join(OPTIONS.format(**{**values, "local": local, "bias": bias}).split())
        chosen = Optimization(lr=0.002, second_beta=0.999, warmup_ratio=0.06)
        assert " ".join(run.options(trial.text, chosen)) == expected
        kept = [1750, 3500, 7000, 12250] if values["updates"] == 12250 else []
        assert trial.kept_updates(run) == kept


@pytest.mark.parametrize("trial", comparison.WIDTHS.values(), ids=comparison.WIDTHS)
def test_jobs_come_after_those_that_they_need(tmp_path, trial):
    folder, before = ComparisonFolder(trial, str(tmp_path), None, None, 1), set()
    for job in compare_scores.Plan(folder, True, True).jobs():
        assert job.name not in before and before >= {*job.needs, *job.after}, job.name
        before.add(job.name)


def test_arithmetic_is_that_of_the_benchmarks():
    size, T = Size(12, 768, 3072, 12), 512
    for model, variant, layers in [
        (replace(comparison.MAE_LM, decoder_layers=4), "mae_lm_base", 4),
        (comparison.MAE_LM, "mae_lm_base", 2),
        (comparison.MLM, "roberta_base", 0),  # in pretrain_step.py, what sees all masks
    ]:
        args = argparse.Namespace(
            tokens=T, vocabulary=32768, mask_prob=0.3, decoder_layers=layers, batch_size=1, sizes=pretrain_step.SIZES
        )
        assert operations(model, size, T, 32768) == pytest.approx(pretrain_step.operations(args, variant), rel=1e-3)
    control, mlm = (operations(model, size, T, 32768) for model in (comparison.CONTROL, comparison.MLM))
    deeper = operations(replace(comparison.MLM, decoder_layers=0), replace(size, encoder_layers=14), T, 32768)
    assert mlm < control < deeper  # the decoder's last layer computes the predicted positions only


WORK = """
import os, time

def work(seconds):
    end = os.times().user + seconds
    while os.times().user < end:
        sum(range(300_000))

work(0.5)
print('{"num_updates": "50"}', flush=True)
time.sleep(1)
print("something else", flush=True)
work(1)
print('{"num_updates": "100"}', flush=True)
time.sleep(1)
"""


def test_cpu_seconds_are_those_of_the_process():
    with subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE) as process:
        lines = [line.decode() for line in training_log.add_cpu_seconds(process)]
    assert [line[:14] for line in (lines[0], *lines[2:4])] == ['{"num_updates"', "something else", '{"num_updates"']
    first, second = (json.loads(lines[k]) for k in (1, 4))
    assert (first["cpu_update"], second["cpu_update"]) == (50, 100)
    assert first["cpu_seconds"] == pytest.approx(0.5, abs=0.3) and second["cpu_seconds"] == pytest.approx(1, abs=0.3)


def test_the_pilot_of_the_lowest_last_loss_is_chosen(tmp_path):
    folder = ComparisonFolder(comparison.SCORES, tmp_path, tmp_path / "data", None, 1)
    for run, losses in zip(comparison.SCORES.pilots(), [(7, 8.1), (9, 7.9), (9, 7.9), (8, 8)]):
        path = Path(folder.record(run.name))
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps([dict(update=500 * k, loss=loss, seconds=1) for k, loss in enumerate(losses, 1)]))
    folder.choose()
    options = " ".join(folder.options(comparison.SCORES.pretrained()[0]))
    assert "--adam-betas (0.9, 0.999)" in options and "--lr 0.001 --warmup-updates 735 " in options


def test_the_tasks_are_those_of_the_evaluation():
    assert list(comparison.SCORES.tasks) == [source.name for source in PRIMARY]
    assert set(comparison.TINY.tasks) <= set(KNOWN)


def test_models_are_fine_tuned_beside_their_evaluation(tmp_path, monkeypatch):
    folder = ComparisonFolder(comparison.SCORES, tmp_path, tmp_path / "data", tmp_path / "tasks", 1)
    names = [run.name for run in comparison.SCORES.finetuned()]
    assert names == [
        *("mlm-1", "mae_lm-1", "mlm-2", "mae_lm-2", "mlm-3", "mae_lm-3", "mlm-4", "mae_lm-4"),
        *("mlm_decoder-1", "scratch-1", "scratch_plain-1"),
    ]
    jobs = {job.name: job for job in compare_scores.Plan(folder, False, False).jobs()}
    assert [name for name in jobs if name.startswith("fine-tune ")] == [f"fine-tune {name}" for name in names]
    commands = []
    monkeypatch.setattr(folder, "execute", lambda name, command: commands.append(command))
    for kind in ["evaluate", "fine-tune"]:
        jobs[f"{kind} mlm-1"].action()
    at = commands[0].index("--tasks")
    tuning = ["--tasks", "trec", "rotten_tomatoes", "--draws", "50", "--fine-tune", "first", "mean"]
    assert commands[1] == [*commands[0][:at], *tuning]
    evaluate.parse([str(part) for part in commands[1][2:]])  # it knows all options
    tuned, leaves = jobs["fine-tune mlm-1"].output, jobs["fine-tune mlm-1"].leaves
    assert tuned.endswith(os.path.join("mlm-1", "rotten_tomatoes", "fine-tuned-mean.json")) and tuned in leaves
    assert not any("frozen" in path for path in leaves)


def test_the_text_is_downloaded_unless_it_is_given(tmp_path, capsys):
    compare_scores.compare(["--dest", str(tmp_path / "dest"), "--dry-run"])
    printed = capsys.readouterr().out
    assert printed.startswith("0 of 108 jobs are done\n  text: 0 done; to do: text\n  data: 0 done; to do: data\n")
    compare_scores.compare(["--width", "128", "--dest", str(tmp_path / "dest"), "--dry-run"])
    printed = capsys.readouterr().out
    assert printed.startswith("0 of 58 jobs are done\n") and "pilot" not in printed
    assert not (tmp_path / "dest").exists()
    with pytest.raises(UsageError, match="--jobs 0 must be over 0"):
        compare_scores.compare(["--dest", str(tmp_path / "dest"), "--jobs", "0"])
