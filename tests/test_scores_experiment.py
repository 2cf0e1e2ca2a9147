"""What the comparison of scores runs, written down a second time; its arithmetic, CPU seconds and choice of pilots."""

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
from evaluation.tasks import APART, KNOWN, PRIMARY  # noqa: E402
from pretraining import Size  # noqa: E402

OPTIONS = """
--task mae_lm --criterion mae_lm --arch mae_lm_tiny --encoder-layers 4 --encoder-embed-dim {width}
--encoder-ffn-embed-dim {ffn} --encoder-attention-heads 4 --dropout 0 --attention-dropout 0 --max-positions 64
--tokens-per-sample 64 --batch-size 32 --batch-size-valid 64 --num-workers 0 --bf16-autocast --optimizer torch_adamw
--adam-betas (0.9, 0.999) --adam-eps 1e-06 --weight-decay 0.01 --clip-norm 2.0 --lr-scheduler polynomial_decay
--lr {lr} --warmup-updates {warmup} --total-num-update {updates} --max-update {updates} --distributed-world-size 1
--log-format json --log-interval {log} --save-interval-updates {part} --no-epoch-checkpoints
--decoder-layers {layers} --mask-prob {predicted} --leave-unmasked-prob 0.0 --random-token-prob 0.0
--encoder-mask-fraction {fraction} {model}--seed {seed} --keep-interval-updates 1
"""
BIAS, LOCAL, SHARE = "--decoder-relative-bias ", "--relative-position-local-init ", "--share-decoder-layers "
MLM, MAE_LM = dict(layers=0, fraction=1.0, model=BIAS + LOCAL), dict(layers=2, fraction=0.0, model=BIAS + LOCAL)
SHARED = dict(layers=2, fraction=0.0, model=LOCAL + SHARE)
WIDE = dict(width=256, ffn=1024, log=50, part=500, predicted=0.3, lr=0.002)
LONG, LONGER = dict(WIDE, updates=12250, warmup=735), dict(WIDE, updates=16360, warmup=981)
PILOT = dict(WIDE, updates=1000, warmup=60, seed=0)
STILL = dict(WIDE, updates=2, warmup=1, log=2, part=2, lr=0.0)
RUNS = [
    (f"{name}-{seed}", dict(values, seed=seed))
    for seed in (1, 2, 3, 4)
    for name, values in [
        ("mlm", {**LONG, **MLM}),
        ("shared_long", {**LONGER, **SHARED}),
        ("shared", {**LONG, **SHARED}),
        ("mae_lm", {**LONG, **MAE_LM}),
        ("scratch", {**STILL, **MLM}),
    ]
]
PILOTS = [
    (f"pilot-{name}-lr{lr:g}", {**PILOT, **model, "lr": lr})
    for name, model in [("mlm", MLM), ("shared", SHARED), ("mae_lm", MAE_LM)]
    for lr in (5e-4, 1e-3, 2e-3)
]
NARROW = dict(WIDE, width=128, ffn=512, updates=3500, warmup=210, lr=0.001, seed=1)


def detecting(model, weight):
    extra = f"--arch mae_lm_detection --criterion mae_lm_detection --detection-weight {weight} "
    return {**NARROW, **model, "model": model["model"] + extra}


EXPLORATIONS = [
    ("mlm-1", {**NARROW, **MLM}),
    ("shared-1", {**NARROW, **SHARED}),
    ("mae_lm-1", {**NARROW, **MAE_LM}),
    *((f"shared_{count}-1", {**NARROW, **SHARED, "layers": count}) for count in (1, 3, 4)),
    ("shared_blind-1", {**NARROW, **SHARED, "model": LOCAL + SHARE + "--arch mae_lm_blind_masks "}),
    ("shared_15percent-1", {**NARROW, **SHARED, "predicted": 0.15}),
    ("shared_50percent-1", {**NARROW, **SHARED, "predicted": 0.5}),
    ("mlm_15percent-1", {**NARROW, **MLM, "predicted": 0.15}),
    ("shared_detect0.5-1", detecting(SHARED, 0.5)),
    ("mlm_detect0.5-1", detecting(MLM, 0.5)),
    ("shared_detect1-1", detecting(SHARED, 1.0)),
    ("mlm_detect1-1", detecting(MLM, 1.0)),
    ("shared_detect2-1", detecting(SHARED, 2.0)),
    ("mlm_detect2-1", detecting(MLM, 2.0)),
]


@pytest.mark.parametrize(
    "plan, expected_runs", [(comparison.SCORES, RUNS + PILOTS), (comparison.EXPLORATIONS, EXPLORATIONS)]
)
def test_the_runs_and_their_options(plan, expected_runs):
    runs = [*plan.runs(), *(run for model in plan.pilots for run in plan.pilot_runs(model))]
    assert [run.name for run in runs] == [name for name, _ in expected_runs]
    for run, (_, values) in zip(runs, expected_runs):
        chosen = 0.002 if run.pilots else None
        assert " ".join(plan.options(run, chosen)) == " ".join(OPTIONS.format(**values).split())
    assert [run.name for run in plan.fine_tuned_runs()] == [
        f"{name}-{seed}" for seed in (1, 2, 3, 4) for name in ("mlm", "shared_long", "shared", "mae_lm")
    ] * bool(plan.fine_tuned)


def test_the_tasks_are_those_of_the_evaluation():
    assert list(comparison.TASKS) == [source.name for source in PRIMARY]
    assert set(comparison.UNSEEN) < {source.name for source in APART}
    assert set(comparison.TINY.tasks) <= set(KNOWN)


def folder_of(plan, tmp_path, **names):
    names = {"dest": tmp_path, "data": tmp_path / "data", "tasks": tmp_path / "tasks", **names}
    return ComparisonFolder(plan, *names.values(), 1, tmp_path / "records")


@pytest.mark.parametrize("plan", comparison.PLANS.values(), ids=comparison.PLANS)
def test_jobs_come_after_those_that_they_need(tmp_path, plan):
    before = set()
    for job in compare_scores.Plan(folder_of(plan, tmp_path), True, True).jobs():
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


@pytest.mark.parametrize("mask_prob, shares", [(0.15, {4: 252, 2: 245, 1: 241}), (0.3, {4: 236, 2: 221, 1: 214})])
def test_arithmetic_of_shared_layers(mask_prob, shares):
    masks = replace(comparison.NO_MASKS, mask_prob=mask_prob)
    for layers, expected in shares.items():
        model = replace(comparison.SHARED, masks=masks, decoder_layers=layers)
        assert operations(model, Size(12, 768, 3072, 12), 512, 32768) / 1e9 == pytest.approx(expected, abs=0.6)


def test_the_longer_run_costs_what_the_mlm_costs():
    once = [operations(model, comparison.SCORES.size, 46.5, 8002) for model in (comparison.MLM, comparison.SHARED)]
    assert 16360 * once[1] / (12250 * once[0]) == pytest.approx(1, abs=1e-3)
    assert once[1] / once[0] == pytest.approx(0.749, abs=5e-4)
    more = {name: operations(model, comparison.SCORES.size, 46.5, 8002) for name, model in [
        ("blind", comparison.BLIND), ("detecting", comparison.detecting(comparison.SHARED, 1.0))
    ]}  # fmt: skip
    assert more["blind"] < once[1] < more["detecting"]


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


def test_each_model_has_the_learning_rate_of_its_own_pilot(tmp_path):
    folder, plan = folder_of(comparison.SCORES, tmp_path), comparison.SCORES
    for model, losses in [(comparison.MLM, (8.1, 7.9, 7.9)), (comparison.SHARED, (8, 8, 7))]:
        for run, loss in zip(plan.pilot_runs(model), losses):
            path = Path(folder.record(run.name))
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps([dict(update=500 * k, loss=loss / k, seconds=1) for k in (1, 2)]))
        folder.choose(model)
    chosen = {run.name: folder.options(run) for run in plan.runs() if run.pilots and run.pilots != comparison.MAE_LM}
    rates = {name: options[options.index("--lr") + 1] for name, options in chosen.items() if name.endswith("1")}
    assert rates == {"mlm-1": "0.001", "shared-1": "0.002", "shared_long-1": "0.002"}
    jobs = [job.name for job in compare_scores.Plan(folder, False, False).jobs()]
    assert [name for name in jobs if "pilot" in name or "choice" in name] == [
        *(f"pilot pilot-mae_lm-lr{lr}" for lr in ("0.0005", "0.001", "0.002")),
        "choice mae_lm",
    ]


def test_models_are_fine_tuned_beside_their_evaluation(tmp_path, monkeypatch):
    folder = folder_of(comparison.SCORES, tmp_path)
    jobs, commands = {job.name: job for job in compare_scores.Plan(folder, False, False).jobs()}, []
    monkeypatch.setattr(folder, "execute", lambda name, command: commands.append(command))
    monkeypatch.setattr(folder.kept, "add_outcomes", lambda run, paths: None)
    for kind in ["evaluate", "fine-tune"]:
        jobs[f"{kind} mlm-1"].action()
    at = commands[0].index("--tasks")
    tuning = ["--tasks", "trec", "rotten_tomatoes", "--draws", "50", "--fine-tune", "mean"]
    assert commands[1] == [*commands[0][:at], *tuning]
    evaluate.parse([str(part) for part in commands[1][2:]])  # it knows all options
    tuned, leaves = jobs["fine-tune mlm-1"].output, jobs["fine-tune mlm-1"].leaves
    assert tuned.endswith(os.path.join("mlm-1", "rotten_tomatoes", "fine-tuned-mean.json")) and tuned in leaves
    assert not any("frozen" in path for path in leaves)


def test_the_text_is_downloaded_unless_it_is_given(tmp_path, capsys):
    options = ["--dest", str(tmp_path / "dest"), "--records", str(tmp_path / "records")]
    compare_scores.compare([*options, "--dry-run"])
    printed = capsys.readouterr().out
    assert printed.startswith("0 of 91 jobs are done\n  text: 0 done; to do: text\n  data: 0 done; to do: data\n")
    compare_scores.compare(["--plan", "width128", *options, "--dry-run"])
    printed = capsys.readouterr().out
    assert printed.startswith("0 of 51 jobs are done\n") and "pilot" not in printed
    assert not (tmp_path / "dest").exists() and not (tmp_path / "records").exists()
    with pytest.raises(UsageError, match="--jobs 0 must be over 0"):
        compare_scores.compare([*options, "--jobs", "0"])


def test_records_of_other_options_are_refused(tmp_path):
    folder = folder_of(comparison.EXPLORATIONS, tmp_path)
    run = comparison.EXPLORATIONS.runs()[0]
    folder.kept.begin(run, options=[*folder.options(run), "--lr", "7"], validations=[])
    with pytest.raises(UsageError, match=r"mlm-1.json: made with other options .*--lr 7\) than the plan's"):
        compare_scores.Plan(folder, False, False).jobs()
