"""The comparison: a tiny one from end to end, stopped and resumed; its records, and what it reports."""

import functools
import json
import random
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import compare
import evaluate
import exploratory
import plans
from conftest import ROOT, SCRIPTS_ENVIRONMENT, documents, script
from evaluation import outcomes
from evaluation.intervals import Interval
from evaluation.labelled_tasks import Task
from maelm_fairseq.base.errors import UsageError
from preregistration import FINE_TUNED_TASKS
from rank_claims import layers_in_words
from record_store import FINE_TUNED, Records
from results import Results
from runs import Runs
from test_preemption import STOPPED, finish, start

TINY = plans.TINY
PILOTS = [f"pilot-shared-lr{lr}" for lr in ("0.0005", "0.001", "0.002")]
PRETRAINED = ["mlm-1", "shared_long-1", "mae_lm-1", "mlm-2", "shared_long-2"]


def write_tasks(folder):
    """Labelled texts for all tasks, of two classes."""
    rng = random.Random(1)
    for task in TINY.tasks:
        (folder / task).mkdir(parents=True)
        for split, count in [("train", 30), ("dev", 10)]:
            rows = ["sentence\tlabel"]
            for i in range(count):
                text = documents(1, rng.random(), lines=1, words=6)[0][0]
                rows.append(f"{['mish sepo', 'kan lon'][i % 2]} {text} {task}{split}{i}\tclass{i % 2}")
            (folder / task / f"{split}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def finished(prepared, tmp_path_factory):
    """A tiny comparison that was stopped by SIGTERM in a training, and resumed: its folder, options and report."""
    folder = tmp_path_factory.mktemp("scores")
    dest = folder / "dest"
    folders = ["--data", prepared, "--tasks", write_tasks(folder / "tasks"), "--dest", dest]
    options = list(map(str, [*folders, "--records", folder / "records", "--plan", "tiny", "--jobs", 2]))
    process = start([ROOT / "experiments" / "compare.sh", *options], **SCRIPTS_ENVIRONMENT)
    log = dest / "pretraining" / PILOTS[0] / "pretraining.log"
    while not (log.exists() and "train_inner" in log.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.terminate()
    finish([process], STOPPED)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if runs_in(path, dest)]
    return dest, options, script("experiments/compare.sh", *options).stdout.partition("## ")[2]


def runs_in(cmdline, folder):
    try:
        return f"{folder}/pretraining/" in cmdline.read_text()
    except OSError:
        return False


def record_of(folder, name):
    return json.loads((folder / "tiny" / f"{name}.json").read_text())


def test_everything_is_run_and_recorded(finished):
    dest, _, _ = finished
    assert {path.name for path in (dest / "pretraining").iterdir()} == {*PRETRAINED, *PILOTS}
    records = dest.parent / "records"
    names = {f"{name}.{kind}" for name in PRETRAINED for kind in ("json", "npz")}
    assert {path.name for path in (records / "tiny").iterdir()} == {*names, "tasks.npz", "chosen-shared.json"}
    chosen = record_of(records, "chosen-shared")
    assert list(chosen["losses"]) == ["0.0005", "0.001", "0.002"]
    assert chosen["losses"][str(chosen["lr"])] == min(chosen["losses"].values())
    for name in PRETRAINED:
        assert not list((dest / "pretraining" / name).glob("checkpoint*"))
        record = record_of(records, name)
        assert [row["update"] for row in record["validations"]] == list(range(2, 19 if "long" in name else 15, 2))
        assert len(record["ranks"]["0.9"]["without_mask"]) == 3
        if name.startswith("shared"):
            assert record["options"][record["options"].index("--lr") + 1] == str(chosen["lr"])
    gflop = {name: record_of(records, name)["validations"][0]["gflop"] for name in PRETRAINED}
    assert gflop["shared_long-1"] < gflop["mlm-1"]


def scores_of(dest, name):
    """The scores of a model on the tasks, computed from the evaluation's records without its program."""
    scores = []
    for task in TINY.tasks:
        with np.load(dest / "evaluation" / "records" / name / task / "frozen.npz") as arrays:
            layers = arrays["mean_layers"][arrays["folds"]]
            answers = arrays["mean_answers"][layers, np.arange(len(layers))]
            scores.append(100 * (answers == arrays["targets"]).mean())
    return np.array(scores)


def cells(text, start):
    """The cells of the first row of a table that begins with `start`."""
    return [cell.strip() for cell in next(row for row in text.splitlines() if row.startswith(start)).split("|")[1:-1]]


def test_the_summary_reports_what_was_measured(finished):
    dest, _, summary = finished
    ours, mlm = (np.array([scores_of(dest, f"{name}-{seed}") for seed in (1, 2)]) for name in ("shared_long", "mlm"))
    mean, difference = ours[:, :2].mean(1), (ours - mlm)[:, :2].mean()  # the last task is in no mean
    title, near = "shared layers, the MLM's compute", functools.partial(pytest.approx, abs=0.006)

    def numbers(row):
        return [float(cell.split()[0]) for cell in row]

    claim = re.search(rf"\*\*{title} minus MLM, in points: (\S+?)(?: \((\S+) to (\S+)\))?; (.*)\.\*\*", summary)
    estimate = float(claim[1])
    low, high = (float(claim[k] or estimate) for k in (2, 3))  # no interval where both seeds agree
    assert estimate == near(difference) and low <= estimate <= high
    assert claim[4] == ("better" if low > 0 else "worse" if high < 0 else "no difference is shown")
    row = cells(summary, f"| {title} | 2 |")
    assert list(map(float, row[5].split(" ± "))) == near([mean.mean(), abs(mean[1] - mean[0]) / 2])
    assert numbers(row[6:7]) == near([difference])
    assert numbers(cells(summary.split("| model | trec |")[1], f"| {title} |")[1:]) == near(ours.mean(0)[:2])
    row = cells(summary, f"| {title} minus MLM | 2 |")
    assert numbers([row[2], row[4]]) == near([difference, (ours - mlm)[:, 2].mean()])
    records = [record_of(dest.parent / "records", f"shared_long-{seed}") for seed in (1, 2)]
    row = cells(summary.split("| model | learning rate |")[1], f"| {title} |")
    assert row[2] == " ".join(f"{record['validations'][-1]['loss']:.3f}" for record in records)
    assert row[4] == " ".join(str(record["ranks"]["0.9"]["without_mask"][-1]) for record in records)
    assert "| MLM: the rank of [MASK] tokens rises with depth, for every seed (Lemma 2.1) | 2 |" in summary
    assert "| MAE-LM: that gap is smaller | 1 |" in summary


def test_the_report_is_made_from_the_records_alone(finished, tmp_path, capsys):
    """No model, log or evaluation: only what is kept."""
    dest, _, summary = finished
    shutil.copytree(dest.parent / "records", tmp_path / "records")
    figure = str(tmp_path / "figure.png")
    compare.compare(["--plan", "tiny", "--records", f"{tmp_path}/records", "--report", "--figure", figure])
    printed = capsys.readouterr().out.partition("```\nEncoders")[2]
    link = re.search(rf"!\[.*\]\({re.escape(figure)}\)\n\n", printed)[0]
    assert printed.replace(link, "") == summary.partition("```\nEncoders")[2]
    assert Path(figure).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="nothing to report yet, expected the records of shared_long-1 and mlm-1"):
        compare.compare(["--plan", "tiny", "--records", str(tmp_path), "--report"])


def test_the_page_of_results_is_what_the_committed_records_say(tmp_path, monkeypatch):
    """No model is at hand: the command that the page names writes it and its pictures again."""
    page, pictures = "experiments/RESULTS.md", "experiments/pictures"
    text = (ROOT / page).read_text(encoding="utf-8")
    (options,) = re.findall(r"<!-- Made by experiments/compare\.sh (.*) -->", text)
    (tmp_path / pictures).mkdir(parents=True)
    (tmp_path / page).write_text(re.sub(r"(?<=-->\n)(?s:.*)(?=\n<!-- End)", "to be replaced", text), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    compare.compare(options.split())
    assert (tmp_path / page).read_text(encoding="utf-8") == text
    for folder in (tmp_path, ROOT):
        drawn = {f"pictures/{path.name}" for path in (folder / pictures).iterdir()}
        assert drawn == set(re.findall(r"\]\((pictures/.*?)\)", text))


def test_what_was_measured_after_the_runs_is_reported_beside_them(finished, tmp_path):
    shutil.copytree(finished[0].parent / "records", tmp_path / "records")
    records = Records(TINY, tmp_path / "records")
    for name, score in [("mlm-1-8", 40), ("mlm-2-8", 60), ("mae_lm-1-decoder", 99)]:
        for task in TINY.tasks:
            records.keep_probed(name, task, {"chosen": score, "by_layer": [score]})
    measured = dict(seconds=0.25, memory_mib=1000, lowest=0.5, highest=0.75)
    models = {"mlm": dict(measured, ratio=1.0), "shared_long": dict(measured, ratio=0.7)}
    costs = [dict(date="a day", machine=name, rounds=3, models=models) for name in ("one", "two")]
    (tmp_path / "records" / "tiny" / "cost.json").write_text(json.dumps(costs))
    results = Results(TINY, records, "command")
    end = record_of(tmp_path / "records", "mlm-1")["validations"][-1]
    ((update, (tflop, scores)),) = exploratory.scores_within_runs(results)["mlm"].items()
    assert (update, scores) == (8, [40, 60]) and tflop == pytest.approx(end["gflop"] / 1000 * 8 / 14)
    summary, title = results.summary(), "shared layers, the MLM's compute"
    assert cells(summary, f"| {title} | 2 |")[4:7] == ["0.250 (0.70)", "0.90", "1,000"]
    assert f"on a day (two): MLM 0.250 (1.00), 1.00; {title} 0.250 (0.70), 0.90; medians of 3 rounds, " in summary


def test_records_give_the_same_scores_for_values(tmp_path):
    """Regression, which the tiny comparison lacks: values are recorded in half precision."""
    random, path = np.random.default_rng(1), outcomes.record_path(tmp_path / "evaluation", "mlm-1", "tweets")
    targets, ids = random.normal(size=200), np.arange(200, dtype=np.uint64)
    task = Task("tweets", [], None, targets, ids, np.arange(200) % 5, 0)
    answers, layers = targets + random.normal(size=(3, 200)), np.array([0, 1, 2, 1, 0])
    outcomes.save(path, "mlm-1", task, {"mean": dict(answers=answers, layers=layers)}, {})
    (run, *_), records = TINY.runs(), Records(replace(TINY, tasks=("tweets",)), tmp_path / "records")
    records.keep(run, dict(options=[], ranks={}))
    assert not records.has(run)
    records.add(run, [path])
    assert records.has(run)
    whole, recorded = outcomes.read(path)[1]["mean"], records.outcomes(run)["tweets"][1]["mean"]
    np.testing.assert_allclose(recorded.contributions(), whole.contributions(), atol=0.5)
    assert recorded.score() == pytest.approx(whole.score(), abs=0.02)


def test_nothing_is_decided_before_all_seeds_are_there(finished):
    def claim(**change):
        changed = replace(TINY, **change)
        return Results(changed, Records(changed, finished[0].parent / "records"), "command").claim()

    assert "; not decided: 2 of 3 seeds" in claim(arms=tuple(replace(arm, seeds=3) for arm in TINY.arms))
    one = claim(arms=tuple(replace(arm, seeds=1) for arm in TINY.arms))
    assert "for these two models only" in one
    assert "; nothing is tested.**" in claim(tested=False)


def test_fine_tuning_comes_last_and_is_reported_for_the_seeds_that_have_it(finished, tmp_path, monkeypatch):
    """With stand-ins for what fine-tuning takes hours for: the outcomes of the frozen features."""
    dest, options, _ = finished
    shutil.copytree(dest.parent / "records", tmp_path / "records")
    begun = []

    def execute(runs, name, command, device=None):
        args = evaluate.parse(list(map(str, command[2:])))
        (model,) = args.names
        begun.append(model)
        assert (args.tasks, args.fine_tune) == (list(FINE_TUNED_TASKS), ["mean"])
        if begun[2:]:  # the third one is stopped
            raise KeyboardInterrupt
        for name in args.tasks:
            mean = outcomes.read(outcomes.record_path(args.dest, model, name))[1]["mean"]
            task = Task(name, [], ["class0", "class1"], mean.targets, mean.ids, mean.folds, 0)
            path = outcomes.record_path(args.dest, model, name, FINE_TUNED)
            outcomes.save(path, model, task, {FINE_TUNED: vars(mean)}, {})

    monkeypatch.setattr(Runs, "execute", execute)
    tuned = replace(TINY, fine_tuned=(plans.MLM, plans.SHARED_LONG))
    monkeypatch.setitem(compare.PLANS, "tiny", tuned)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compare.compare([*options[:-1], "1", "--records", str(tmp_path / "records")])
    assert begun == ["mlm-1", "shared_long-1", "mlm-2", "mlm-2"]  # what the records have is not done again
    summary = Results(tuned, Records(tuned, tmp_path / "records"), "command").summary()
    cell = cells(summary.split("| difference | seeds |")[2], "| shared layers, the MLM's compute minus MLM |")[-1]
    ours, mlm = (scores_of(dest, f"{name}-1")[:2].mean() for name in ("shared_long", "mlm"))
    assert float(cell.split()[0]) == pytest.approx(ours - mlm, abs=0.006) and cell.endswith(", 1 seed")
    assert summary.count(", 1 seed |") == 3  # and those of the two arms
    assert "Planned but not fine-tuned: mlm-2, shared_long-2.\n" in summary and "not evaluated" not in summary


@pytest.mark.parametrize(
    "one, two, shown",
    [((1, 3), (2, 4), "yes"), ((1, 3), (-4, -2), "at layer 1; negative at layer 2"), ((-1, 3), (2, 2), "no")],
)
def test_a_claim_on_ranks_is_shown_layer_by_layer(one, two, shown):
    measured, verdict = layers_in_words({1: Interval(1, *one, 1), 2: Interval(2, *two, 1)})
    assert verdict == shown and measured.count("layer ") == 2


def test_run_again_it_does_nothing_and_another_plan_is_refused(finished, monkeypatch, capsys):
    dest, options, _ = finished
    options = [*options[:-1], "1"]  # at a time
    before = {path: path.stat().st_mtime_ns for path in dest.parent.rglob("*") if path.is_file()}
    compare.compare(options)
    assert "5 of 5 runs are in " in capsys.readouterr().out
    monkeypatch.setitem(compare.PLANS, "tiny", replace(TINY, text=replace(TINY.text, batch_size=4)))
    differs = ".*different options: --batch-size differs; choose another"
    with pytest.raises(UsageError, match=f"mlm-1.json: {differs} --records"):
        compare.compare(options)
    with pytest.raises(UsageError, match=f"lr0.0005: {differs} --dest"):
        compare.compare([*options, "--records", str(dest / "other")])
    assert {path: path.stat().st_mtime_ns for path in dest.parent.rglob("*") if path.is_file()} == before
