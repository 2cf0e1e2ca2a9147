"""What the comparison runs; its arithmetic and choice of pilots."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

sys.path[:0] = [str(ROOT / folder) for folder in ["recipes", "experiments"]]
import compare  # noqa: E402
import comparison  # noqa: E402
import evaluate  # noqa: E402
import plans  # noqa: E402
import training_log  # noqa: E402
from arithmetic import operations  # noqa: E402
from evaluation.tasks import APART, KNOWN, PRIMARY  # noqa: E402
from kept_records import Records  # noqa: E402
from results import Results  # noqa: E402
from run_folder import RunFolder  # noqa: E402

# The names and options of all runs: records of runs that took days count as done as long as these do not change.
FIXED = {
    "width256": "6b8214f5f92dc5a9df8b081cbd6096a23be92979ae101d464cc6bc2c98ee0021",
    "width128": "e986192d27d5d44760703adf73454e596b6a6238d813a9d2f661935d7a78ecb5",
}


@pytest.mark.parametrize("name", FIXED)
def test_the_runs_and_their_options_are_fixed(name):
    plan = plans.PLANS[name]
    runs = [*plan.runs(), *(run for model in plan.pilots for run in plan.pilot_runs(model))]
    listed = [[run.name, *plan.options(run, 0.002 if run.pilots else None)] for run in runs]
    assert hashlib.sha256(json.dumps(listed).encode()).hexdigest() == FIXED[name]


def test_the_tasks_are_those_of_the_evaluation():
    assert list(comparison.TASKS) == [source.name for source in PRIMARY]
    assert set(comparison.UNSEEN) < {source.name for source in APART}
    assert set(plans.TINY.tasks) <= set(KNOWN)


def plan_of(plan, tmp_path, downloads=False):
    kept = Records(plan, tmp_path / "records")
    folder = RunFolder(plan, tmp_path, tmp_path / "data", tmp_path / "tasks", 1, kept)
    return compare.Plan(folder, downloads, downloads)


@pytest.mark.parametrize("plan", plans.PLANS.values(), ids=plans.PLANS)
def test_jobs_come_after_those_that_they_need(tmp_path, plan):
    before = set()
    for job in plan_of(plan, tmp_path, downloads=True).jobs:
        assert job.name not in before and before >= {*job.needs, *job.after}, job.name
        before.add(job.name)


def test_the_longer_run_costs_what_the_mlm_costs():
    once = [operations(model, plans.SCORES.size, 46.5, 8002) for model in (comparison.MLM, comparison.SHARED)]
    assert 16360 * once[1] / (12250 * once[0]) == pytest.approx(1, abs=1e-3)
    assert once[1] / once[0] == pytest.approx(0.749, abs=5e-4)
    others = plans.BLIND, plans.detecting(comparison.SHARED, 1.0)
    blind, detecting = (operations(model, plans.SCORES.size, 46.5, 8002) for model in others)
    assert blind < once[1] < detecting


def test_cpu_seconds_of_a_training_are_logged():
    program = 'sum(range(30_000_000)); print(\'{"num_updates": "2"}\')'
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        _, logged = training_log.add_cpu_seconds(process)
    found = json.loads(logged)
    assert found["cpu_update"] == 2 and found["cpu_seconds"] > 0.1


def test_each_model_has_the_learning_rate_of_its_own_pilot(tmp_path):
    plan = plans.SCORES
    folder = plan_of(plan, tmp_path).runs_in
    for model, losses in [(comparison.MLM, (8.1, 7.9, 7.9)), (comparison.SHARED, (8, 8, 7))]:
        for run, loss in zip(plan.pilot_runs(model), losses):
            path = Path(folder.record(run))
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps([dict(update=500 * k, loss=loss / k, seconds=1) for k in (1, 2)]))
        folder.choose(model)
    chosen = {run.name: folder.options(run) for run in plan.runs() if run.pilots and run.pilots != comparison.MAE_LM}
    rates = {name: options[options.index("--lr") + 1] for name, options in chosen.items() if name.endswith("1")}
    assert rates == {"mlm-1": "0.001", "shared-1": "0.002", "shared_long-1": "0.002"}
    jobs = [job.name for job in plan_of(plan, tmp_path).jobs]
    assert [name for name in jobs if "pilot" in name or "choice" in name] == [
        *(f"pilot pilot-mae_lm-lr{lr}" for lr in ("0.0005", "0.001", "0.002")),
        "choice mae_lm",
    ]


def test_models_are_fine_tuned_beside_their_evaluation(tmp_path, monkeypatch):
    plan, commands = plan_of(plans.SCORES, tmp_path), []
    jobs = {job.name: job for job in plan.jobs}
    monkeypatch.setattr(plan.runs_in, "execute", lambda name, command: commands.append(command))
    for kind in ["evaluate", "fine-tune"]:
        jobs[f"{kind} mlm-1"].action()
    at = commands[0].index("--tasks")
    tuning = ["--tasks", "trec", "rotten_tomatoes", "--draws", "50", "--fine-tune", "mean"]
    assert commands[1] == [*commands[0][:at], *tuning]
    evaluate.parse([str(part) for part in commands[1][2:]])  # it knows all options
    tuned, leaves = jobs["fine-tune mlm-1"].output, jobs["fine-tune mlm-1"].leaves
    assert tuned.endswith(os.path.join("mlm-1", "rotten_tomatoes", "fine-tuned-mean.json")) and tuned in leaves
    assert not any("frozen" in path for path in leaves)


@pytest.mark.parametrize("plan, count", [("width256", 91), ("width128", 51), ("small", 45)])
def test_the_text_is_downloaded_unless_it_is_given(tmp_path, capsys, plan, count):
    options = ["--plan", plan, "--dest", str(tmp_path / "dest"), "--records", str(tmp_path / "records")]
    compare.compare([*options, "--dry-run"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"0 of {count} jobs are done\n  text: 0 done; to do: text\n  data: 0 done; to do: data\n")
    assert ("pilot" in printed) == (plan == "width256")
    assert not (tmp_path / "dest").exists() and not (tmp_path / "records").exists()


def test_records_of_the_repository_are_of_this_plan():
    """Those of runs that took days are read, count as done, and are reported, or are refused here."""
    for plan in (plans.SCORES, plans.EXPLORATIONS):
        kept = Records(plan, ROOT / "experiments" / "records")
        for run in plan.runs():
            chosen = json.loads(Path(kept.chosen(run.pilots)).read_text())["lr"] if run.pilots else None
            found = kept.has(run, "scores", plan.options(run, chosen))
            assert not found or set(kept.outcomes(run)) == set(plan.tasks)
    assert "| mlm-1 | 0.001 | 12250 | 5.797 | " in Results(
        plans.SCORES, ROOT / "experiments" / "records", "command"
    ).summary("")
