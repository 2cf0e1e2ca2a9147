"""The comparison: a tiny one from end to end, stopped and resumed; its records, and what it reports."""

import json
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import REAL_SCRIPTS_ENVIRONMENT, ROOT, SCRIPTS_ENVIRONMENT, documents, prepare
from maelm_fairseq.engine.errors import UsageError

sys.path[:0] = [str(ROOT / folder) for folder in ["recipes", "experiments"]]
import compare  # noqa: E402
import plans  # noqa: E402
from comparison import FINE_TUNED_TASKS  # noqa: E402
from evaluation import outcomes, statistics  # noqa: E402
from kept_records import Records  # noqa: E402
from pretraining import Optimization  # noqa: E402
from rank_claims import layers_in_words  # noqa: E402
from results import Results  # noqa: E402

TINY = plans.TINY
TASKS = TINY.tasks


def write_tasks(folder):
    """Labelled texts for all tasks, of two classes."""
    rng = random.Random(1)
    for task in TASKS:
        (folder / task).mkdir(parents=True)
        for split, count in [("train", 30), ("dev", 10)]:
            rows = []
            for i in range(count):
                text = "kan lon" if i % 2 else "mish sepo"
                text += f" {documents(1, rng.random(), lines=1, words=6)[0][0]} {task}{split}{i}"
                rows.append(f"{text}\tclass{i % 2}\n")
            (folder / task / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A tiny comparison that was stopped by SIGTERM in a training, and resumed: its folder, options and report."""
    folder = tmp_path_factory.mktemp("scores")
    dest = folder / "dest"
    folders = ["--data", prepare(folder), "--tasks", write_tasks(folder / "tasks"), "--dest", dest]
    options = list(map(str, [*folders, "--records", folder / "records", "--plan", "tiny", "--jobs", 2]))
    command = [str(ROOT / "experiments" / "compare.sh"), *options]
    streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process = subprocess.Popen(command, env=REAL_SCRIPTS_ENVIRONMENT, **streams)
    log = dest / "logs" / "pretrain-pilot-shared-lr0.0005.log"
    while not (log.exists() and "train_inner" in log.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.terminate()
    printed, _ = process.communicate()
    assert process.returncode == 75, printed
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if runs_in(path, dest)]
    done = subprocess.run(command, env=SCRIPTS_ENVIRONMENT, **streams)
    assert done.returncode == 0, done.stdout
    return dest, options, done.stdout.partition("## ")[2]


def runs_in(cmdline, folder):
    try:
        return f"{folder}/pretraining/" in cmdline.read_text()
    except OSError:
        return False


PRETRAINED = ["mlm-1", "shared_long-1", "shared-1", "mae_lm-1", "shared_blind-1", "mlm_detect1-1"]
PRETRAINED += ["mlm-2", "shared_long-2", "shared-2"]


def record_of(folder, name):
    return json.loads((folder / "tiny" / f"{name}.json").read_text())


def test_everything_is_run_and_recorded(finished):
    dest, _, _ = finished
    pilots = [f"pilot-shared-lr{lr}" for lr in ("0.0005", "0.001", "0.002")]
    assert {path.name for path in (dest / "pretraining").iterdir()} == {*PRETRAINED, "scratch-1", *pilots}
    kept = dest.parent / "records"
    names = {f"{name}.{kind}" for name in [*PRETRAINED, "scratch-1"] for kind in ("json", "npz")}
    assert {path.name for path in (kept / "tiny").iterdir()} == {*names, "tasks.npz", "chosen-shared.json"}
    chosen = record_of(kept, "chosen-shared")
    records = {float(name.rpartition("lr")[2]): dest / "pretraining" / name / "record.json" for name in pilots}
    losses = {str(lr): json.loads(path.read_text())[-1]["loss"] for lr, path in records.items()}
    assert chosen["losses"] == losses and losses[str(chosen["lr"])] == min(losses.values())
    for name in PRETRAINED:
        assert not list((dest / "pretraining" / name).glob("checkpoint*"))
        record = record_of(kept, name)
        assert [row["update"] for row in record["validations"]] == list(range(2, 19 if "long" in name else 15, 2))
        for row, following in zip(record["validations"], record["validations"][1:]):
            assert following["gflop"] / following["update"] == pytest.approx(row["gflop"] / row["update"], abs=0.001)
            assert following["cpu_seconds"] >= row["cpu_seconds"]
        assert set(record["ranks"]) == {"0.9", "0.99"} and len(record["ranks"]["0.9"]["without_mask"]) == 3
        if name in ("shared-1", "shared_long-2"):
            assert record["options"][record["options"].index("--lr") + 1] == str(chosen["lr"])
    gflop = {name: record_of(kept, name)["validations"][0]["gflop"] for name in PRETRAINED}
    assert gflop["shared-1"] < gflop["mlm-1"]


def scores_of(dest, name):
    """The scores of a model on the tasks, computed from the evaluation's records without its program."""
    found = []
    for task in TASKS:
        with np.load(dest / "evaluation" / "records" / name / task / "frozen.npz") as arrays:
            layers = arrays["mean_layers"][arrays["folds"]]
            answers = arrays["mean_answers"][layers, np.arange(len(layers))]
            found.append(100 * (answers == arrays["targets"]).mean())
    return np.array(found)


def cells(text, start):
    """The cells of the first row of a table that begins so."""
    return [cell.strip() for cell in next(row for row in text.splitlines() if row.startswith(start)).split("|")[1:-1]]


def test_the_summary_reports_what_was_measured(finished):
    dest, _, summary = finished
    assert summary.startswith("Which encoder has the better features?\n")
    scores = {
        name: np.array([scores_of(dest, f"{name}-{s}") for s in (1, 2)]) for name in ("mlm", "shared_long", "shared")
    }
    by_seed = (scores["shared_long"] - scores["mlm"])[:, :2].mean(1)  # the last task is in no mean
    claim = re.search(
        r"\*\*shared layers, the MLM's arithmetic minus MLM, in points: (\S+?)(?: \((\S+) to (\S+)\))?; ", summary
    )
    estimate = float(claim[1])
    low, high = (float(claim[k] or estimate) for k in (2, 3))  # no interval where both seeds agree
    assert estimate == pytest.approx(by_seed.mean(), abs=0.006) and low <= estimate <= high
    verdict = "better" if low > 0 else "worse" if high < 0 else "no difference is shown"
    assert f"; {verdict}.**" in summary
    row = cells(summary, "| shared layers | 2 |")
    expected = [scores["shared"][:, :2].mean(), abs(np.diff(scores["shared"][:, :2].mean(1))[0]) / 2]
    assert list(map(float, row[2].split(" ± "))) == pytest.approx(expected, abs=0.006)
    assert list(map(float, row[3:])) == pytest.approx(scores["shared"].mean(0), abs=0.006)
    _, differences, _ = summary.split("| difference | seeds |")
    row = cells(differences, "| shared layers minus MLM | 2 |")
    unseen = (scores["shared"] - scores["mlm"])[:, 2]
    assert float(row[2].split()[0]) == pytest.approx((scores["shared"] - scores["mlm"])[:, :2].mean(), abs=0.006)
    assert float(row[4].split()[0]) == pytest.approx(unseen.mean(), abs=0.006)
    record = record_of(dest.parent / "records", "shared_long-2")
    row = cells(summary, "| shared_long-2 |")
    assert row[2:4] == ["18", f"{record['validations'][-1]['loss']:.3f}"]
    assert row[6] == str(record["ranks"]["0.9"]["without_mask"][-1])
    assert "| MLM: the rank of [MASK] tokens rises with depth, for every seed (Lemma 2.1) |" in summary


def test_the_page_is_made_from_the_records_alone(finished, tmp_path):
    """No model, log or evaluation: only what is kept; its section replaces the one before."""
    dest, _, summary = finished
    shutil.copytree(dest.parent / "records", tmp_path / "records")
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\n## Another\ntext\n")
    for _ in range(2):
        compare.compare(["--plan", "tiny", "--records", f"{tmp_path}/records", "--report", "--results", str(page)])
        text = page.read_text(encoding="utf-8")
        assert text.startswith("# Results\n\n## Another\ntext\n\n## Which encoder") and text.count("## ") == 2
        figure = re.search(r"!\[Score, .*\]\((pictures/tiny.png)\)", text)[1]
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
        assert text.partition("```\nEncoders")[2].strip() == summary.partition("```\nEncoders")[2].strip()
    with pytest.raises(UsageError, match="nothing to report yet, expected the records of shared_long-1 and mlm-1"):
        compare.compare(["--plan", "tiny", "--records", str(tmp_path), "--report"])


def test_what_is_kept_gives_the_same_scores_for_values(tmp_path):
    """Regression, which the tiny comparison has not: values are kept in half precision."""
    random, path = np.random.default_rng(1), str(outcomes.record_path(tmp_path / "evaluation", "mlm-1", "tweets"))
    targets = random.normal(size=200)
    arrays = dict(ids=np.arange(200, dtype=np.uint64), targets=targets, folds=np.arange(200) % 5)
    arrays["mean_answers"] = (targets + random.normal(size=(3, 200))).astype(np.float32)
    arrays["mean_bits"], arrays["mean_layers"] = np.zeros((3, 200)), np.array([0, 1, 2, 1, 0])
    record = dict(model="mlm-1", task="tweets", metric="100 x Pearson", kinds=["mean"], made_from={}, seconds={})
    found = outcomes.Outcome(record, arrays, "mean")
    record["scores"] = {"mean": dict(chosen=found.score(), last=found.score("last"), by_layer=found.by_layer())}
    outcomes.save(path, record, arrays)
    of_tweets = replace(TINY, tasks=("tweets",))
    (run, *_), kept = of_tweets.runs(), Records(of_tweets, tmp_path / "records")
    trained = dict(options=[], validations=[dict(update=2, loss=7.5)])
    kept.keep(run, trained, [path])
    assert kept.read(run)["scores"]["tweets"]["mean"] == record["scores"]["mean"]
    again = kept.outcomes(run)["tweets"][1]["mean"]
    np.testing.assert_allclose(again.contributions(), found.contributions(), atol=0.5)
    assert again.score() == pytest.approx(found.score(), abs=0.02)
    outcomes.save(path, record, {**arrays, "ids": arrays["ids"] + 1})
    with pytest.raises(UsageError, match="mlm-1 was evaluated on other examples of tweets"):
        kept.keep(run, trained, [path])
    kept.keep(run, dict(trained, validations=[dict(update=2, loss=7.4)]), [])
    assert not kept.has(run, "scores")  # another training replaces it


def report(finished, **change):
    """The report of the tiny comparison, with some of its settings changed."""
    return Results(replace(TINY, **change), finished[0].parent / "records", "command")


def test_nothing_is_decided_before_all_seeds_are_there(finished):
    three = tuple(replace(arm, seeds=3) for arm in TINY.arms)
    assert "; not decided: 2 of 3 seeds" in report(finished, arms=three).claim()
    one = tuple(replace(arm, seeds=1) for arm in TINY.arms)
    assert "these two models only: examples vary" in report(finished, arms=one).claim()
    assert "; explorations decide nothing.**" in report(finished, tested=False).claim()


def test_fine_tuning_is_reported_for_the_seeds_that_have_it(finished, tmp_path):
    folder = tmp_path / "records"
    shutil.copytree(finished[0].parent / "records", folder)
    for name in ["mlm-1", "shared-1", "mlm-2"]:  # stand-ins for what fine-tuning takes hours for
        record, arrays = record_of(folder, name), {}
        with np.load(folder / "tiny" / f"{name}.npz") as found:
            arrays.update(found)
        for task in FINE_TUNED_TASKS:
            record["scores"][task]["fine-tuned-mean"] = record["scores"][task]["mean"]
            arrays[f"{task} fine-tuned-mean"] = arrays[f"{task} mean"]
        (folder / "tiny" / f"{name}.json").write_text(json.dumps(record))
        np.savez(folder / "tiny" / f"{name}.npz", **arrays)
    summary = Results(TINY, folder, "command").summary("")
    _, differences, others = summary.split("| difference | seeds |")
    tuned = cells(others, "| shared layers minus MLM |")[-1]
    found = [scores_of(finished[0], f"{name}-1")[:2].mean() for name in ("shared", "mlm")]
    assert float(tuned.split()[0]) == pytest.approx(found[0] - found[1], abs=0.006)
    assert cells(others, "| shared layers, the MLM's arithmetic minus MLM |")[-1] == ""


@pytest.mark.parametrize(
    "one, two, shown",
    [((1, 3), (2, 4), "yes"), ((1, 3), (-4, -2), "at layer 1; negative at layer 2"), ((-1, 3), (2, 2), "no")],
)
def test_a_claim_on_ranks_is_shown_layer_by_layer(one, two, shown):
    measured, verdict = layers_in_words({1: statistics.Interval(1, *one, 1), 2: statistics.Interval(2, *two, 1)})
    assert verdict == shown and measured.count("layer ") == 2


def test_run_again_it_does_nothing_and_another_setting_is_refused(finished, monkeypatch, capsys):
    dest, options, _ = finished
    before = {path: path.stat().st_mtime_ns for path in dest.parent.rglob("*") if path.is_file()}
    compare.compare(options)
    assert "0 of 0 jobs are done" in capsys.readouterr().out
    monkeypatch.setitem(compare.PLANS, "tiny", replace(TINY, optimization=Optimization(clip_norm=1.0)))
    with pytest.raises(UsageError, match="mlm-1.json: made with other options .*choose another --records"):
        compare.compare(options)
    with pytest.raises(UsageError, match="`pilot pilot-shared-lr0.0005` would have to be done again: .*--clip-norm"):
        compare.compare([*options, "--records", str(dest / "other")])
    assert {path: path.stat().st_mtime_ns for path in dest.parent.rglob("*") if path.is_file()} == before


def test_a_lost_record_is_made_again(finished, tmp_path, monkeypatch):
    """From what the folder of the runs has."""
    dest, options, _ = finished
    folder = tmp_path / "records"
    shutil.copytree(dest.parent / "records", folder)
    before = {path.name: path.stat().st_size for path in (folder / "tiny").iterdir()}
    lost = record_of(folder, "shared-2")
    for path in (folder / "tiny").glob("shared-2.*"):
        path.unlink()
    monkeypatch.setattr(compare.RunFolder, "execute", None)  # nothing is to be run
    compare.compare([*options, "--records", str(folder)])
    assert record_of(folder, "shared-2") == lost
    assert {path.name: path.stat().st_size for path in (folder / "tiny").iterdir()} == before
