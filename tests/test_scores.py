"""The comparison of scores: a tiny one from end to end, stopped and resumed, and what it writes."""

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
import torch
from scipy import stats

from conftest import REAL_SCRIPTS_ENVIRONMENT, ROOT, SCRIPTS_ENVIRONMENT, documents, prepare
from maelm_fairseq import compat
from maelm_fairseq.errors import UsageError
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import load_dictionary

sys.path[:0] = [str(ROOT / folder) for folder in ["recipes", "recipes/scores", "benchmarks"]]
import compare_scores  # noqa: E402
import comparison  # noqa: E402
import training_log  # noqa: E402
from comparison_claims import layers_in_words  # noqa: E402
from comparison_records import Records  # noqa: E402
from comparison_report import ComparisonReport  # noqa: E402
from evaluation import statistics  # noqa: E402
from pretraining import Optimization  # noqa: E402

TASKS = comparison.TINY.tasks


def alive(pid):
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def write_tasks(folder):
    """Labelled texts for all tasks, of two classes."""
    rng = random.Random(1)
    for task in comparison.TINY.tasks:
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
    options = [
        "--data",
        prepare(folder),
        "--tasks",
        write_tasks(folder / "tasks"),
        "--dest",
        dest,
        "--records",
        folder / "records",
        "--tiny",
        "--jobs",
        2,
    ]
    command = list(map(str, [ROOT / "recipes" / "scores.sh", *options]))
    streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process = subprocess.Popen(command, env=REAL_SCRIPTS_ENVIRONMENT, **streams)
    log = dest / "logs" / "pretrain-pilot-mlm-lr0.0005.log"
    while not (log.exists() and "train_inner" in log.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    trainings = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if runs_in(path, dest)]
    process.terminate()
    printed, _ = process.communicate()
    assert process.returncode == 75, printed
    assert not any(map(alive, trainings))
    done = subprocess.run(command, env=SCRIPTS_ENVIRONMENT, **streams)
    assert done.returncode == 0, done.stdout
    return dest, options, done.stdout.partition("## ")[2]


def runs_in(cmdline, folder):
    try:
        return f"{folder}/pretraining/" in cmdline.read_text()
    except OSError:
        return False


def weights(path):
    return compat.load_checkpoint(path)["model"]


PRETRAINED = ["mlm-1", "shared_long-1", "shared-1", "mae_lm-1", "shared_blind-1", "mlm_detect1-1"]
PRETRAINED += ["mlm-2", "shared_long-2", "shared-2"]


def test_everything_is_run_and_recorded(finished):
    dest, options, _ = finished
    pilots = [f"pilot-{model}-lr{lr}" for model in ("mlm", "shared") for lr in ("0.0005", "0.001", "0.002")]
    assert {path.name for path in (dest / "pretraining").iterdir()} == {*PRETRAINED, "scratch-1", *pilots}
    kept = dest.parent / "records" / "tiny"
    names = {f"{name}.{kind}" for name in [*PRETRAINED, "scratch-1"] for kind in ("json", "npz")}
    assert {path.name for path in kept.iterdir()} == {*names, "tasks.npz", "chosen-mlm.json", "chosen-shared.json"}
    chosen = {model: json.loads((kept / f"chosen-{model}.json").read_text()) for model in ("mlm", "shared")}
    for model, found in chosen.items():
        losses = {
            lr: json.loads((dest / "pretraining" / f"pilot-{model}-lr{float(lr):g}" / "record.json").read_text())
            for lr in found["losses"]
        }
        losses = {lr: rows[-1]["loss"] for lr, rows in losses.items()}
        assert found["losses"] == losses and losses[str(found["lr"])] == min(losses.values())
    for name in PRETRAINED:
        files = {path.name for path in (dest / "pretraining" / name).iterdir()}
        assert files >= {"model.pt", "record.json"} and not any(file.startswith("checkpoint") for file in files)
        record = json.loads((kept / f"{name}.json").read_text())
        assert [row["update"] for row in record["validations"]] == list(range(2, 19 if "long" in name else 15, 2))
        for row, following in zip(record["validations"], record["validations"][1:]):
            assert following["gflop"] / following["update"] == pytest.approx(row["gflop"] / row["update"], abs=0.001)
            assert following["cpu_seconds"] >= row["cpu_seconds"] >= 0
        assert set(record["ranks"]) == {"0.9", "0.99"} and len(record["ranks"]["0.9"]["without_mask"]) == 3
        model = name.split("_")[0].split("-")[0]
        if model in chosen and "detect" not in name and "blind" not in name:
            assert record["options"][record["options"].index("--lr") + 1] == str(chosen[model]["lr"])
    gflop = {name: json.loads((kept / f"{name}.json").read_text())["validations"][0]["gflop"] for name in PRETRAINED}
    assert gflop["shared-1"] < gflop["mlm-1"]


def test_the_arms_of_a_seed_start_equal_and_see_the_same(finished):
    dest, options, _ = finished
    logs = {}
    for model in ["mlm", "shared", "mae_lm", "mlm_detect1"]:
        rows = training_log.training_log(dest / "logs" / f"pretrain-{model}-1.log")
        logs[model] = [(row["num_updates"], row["wpb"], row["predicted"]) for row in rows]
    assert all(log == logs["mlm"] for log in logs.values()) and len(logs["mlm"]) == 7

    torch.manual_seed(1)
    cfg = MaeLmConfig(**vars(comparison.TINY.size), max_positions=32, relative_position_local_init=True)
    initial = MaeLmModel(cfg, load_dictionary(options[1]), pretraining=True).state_dict()
    scratch = weights(dest / "pretraining" / "scratch-1" / "model.pt")
    assert not any(key.startswith("decoder") for key in scratch)
    assert [key for key in scratch if not torch.equal(scratch[key], initial[key])] == []
    shared = weights(dest / "pretraining" / "shared-1" / "model.pt")
    assert shared.keys() == scratch.keys()


def scores_of(dest, name, kind="mean", selection="chosen"):
    """The scores of a model on the tasks, computed from the evaluation's records without its program."""
    found = []
    for task in TASKS:
        with np.load(dest / "evaluation" / "records" / name / task / "frozen.npz") as arrays:
            layers = arrays[kind + "_layers"] if selection == "chosen" else np.full(5, 2)
            answers = arrays[kind + "_answers"][layers[arrays["folds"]], np.arange(len(arrays["folds"]))]
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
    _, differences, others = (part for part in summary.split("| difference | seeds |"))
    row = cells(differences, "| shared layers minus MLM | 2 |")
    unseen = (scores["shared"] - scores["mlm"])[:, 2]
    assert float(row[2].split()[0]) == pytest.approx((scores["shared"] - scores["mlm"])[:, :2].mean(), abs=0.006)
    assert float(row[4].split()[0]) == pytest.approx(unseen.mean(), abs=0.006)
    last = [
        scores_of(dest, f"shared-{s}", selection="last") - scores_of(dest, f"mlm-{s}", selection="last") for s in (1, 2)
    ]
    last = np.array(last)[:, :2].mean(1)
    width = stats.t.ppf(0.975, 1) * abs(last[0] - last[1]) / 2
    text = f"{last.mean():+.2f}" + f" ({last.mean() - width:+.2f} to {last.mean() + width:+.2f})" * bool(width)
    assert cells(others, "| shared layers minus MLM | 2 |")[2] == text
    record = json.loads((dest.parent / "records" / "tiny" / "shared_long-2.json").read_text())
    row = cells(summary, "| shared_long-2 |")
    assert row[2:4] == ["18", f"{record['validations'][-1]['loss']:.3f}"]
    assert row[6] == str(record["ranks"]["0.9"]["without_mask"][-1])
    assert "| MLM: the rank of [MASK] tokens rises with depth, for every seed (Lemma 2.1) |" in summary


def test_the_page_has_the_section_and_its_figure(finished, tmp_path):
    dest, options, summary = finished
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\n## Another\ntext\n")
    records = ["--tiny", "--records", str(dest.parent / "records")]
    for _ in range(2):
        compare_scores.compare([*records, "--report", "--results", str(page)])
        text = page.read_text(encoding="utf-8")
        assert text.startswith("# Results\n\n## Another\ntext\n\n## Which encoder")
        figure = re.search(r"!\[Score, .*\]\((scores/tiny.png)\)", text)[1]
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
        assert text.count("## ") == 2 and cells(text, "| shared layers | 2 |") == cells(
            summary, "| shared layers | 2 |"
        )


def test_the_report_needs_the_records_alone(finished, tmp_path, capsys):
    """No model, log or evaluation: only what is kept."""
    dest, _, summary = finished
    shutil.copytree(dest.parent / "records", tmp_path / "records")
    compare_scores.compare(["--tiny", "--records", str(tmp_path / "records"), "--report"])
    printed = capsys.readouterr().out
    assert printed.partition("```\nEncoders")[2].strip() == summary.partition("```\nEncoders")[2].strip()
    with pytest.raises(UsageError, match="nothing to report yet, expected the records of shared_long-1 and mlm-1"):
        compare_scores.compare(["--tiny", "--records", str(tmp_path), "--report"])


def test_what_is_kept_gives_the_same_scores_for_values(tmp_path):
    """Regression, which the tiny comparison has not: values are kept in half precision."""
    from evaluation import outcomes

    random, path = np.random.default_rng(1), tmp_path / "evaluation" / "records" / "mlm-1" / "tweets" / "frozen.json"
    targets = random.normal(size=200)
    arrays = dict(ids=np.arange(200, dtype=np.uint64), targets=targets, folds=np.arange(200) % 5)
    for kind in ("mean", "first"):
        arrays[f"{kind}_answers"] = (targets + random.normal(size=(3, 200))).astype(np.float32)
        arrays[f"{kind}_bits"], arrays[f"{kind}_layers"] = np.zeros((3, 200)), np.array([0, 1, 2, 1, 0])
    record = dict(
        model="mlm-1", task="tweets", metric="100 x Pearson", kinds=["mean", "first"], made_from={}, seconds={}
    )
    found = {kind: outcomes.Outcome(record, arrays, kind) for kind in record["kinds"]}
    record["scores"] = {
        kind: dict(chosen=o.score(), last=o.score("last"), by_layer=o.by_layer()) for kind, o in found.items()
    }
    outcomes.save(str(path), record, arrays)
    comparison_of_tweets = replace(comparison.TINY, tasks=("tweets",))
    run = comparison_of_tweets.runs()[0]
    kept = Records(comparison_of_tweets, tmp_path / "records")
    kept.begin(run, options=[], validations=[])
    kept.add_outcomes(run, {"tweets": str(path)})
    again = kept.outcomes(run)["tweets"][1]["mean"]
    assert again.score() == found["mean"].score() and again.by_layer() == found["mean"].by_layer()
    assert again.contributions().mean() == pytest.approx(found["mean"].score(), abs=0.02)
    arrays["ids"] = arrays["ids"] + 1
    outcomes.save(str(path), record, arrays)
    with pytest.raises(UsageError, match="mlm-1 was evaluated on other examples of tweets"):
        kept.add_outcomes(run, {"tweets": str(path)})


def report(finished, **change):
    """The report of the tiny comparison, with some of its settings changed."""
    return ComparisonReport(replace(comparison.TINY, **change), finished[0].parent / "records", "command")


def test_nothing_is_decided_before_all_seeds_are_there(finished):
    three = tuple(replace(arm, seeds=3) for arm in comparison.TINY.arms)
    assert "; not decided: 2 of 3 seeds" in report(finished, arms=three).claim()
    one = tuple(replace(arm, seeds=1) for arm in comparison.TINY.arms)
    assert "these two models only: examples vary" in report(finished, arms=one).claim()
    assert "; explorations decide nothing.**" in report(finished, tested=False).claim()


def test_what_is_not_measured_yet_is_left_out(finished, tmp_path):
    folder = tmp_path / "records"
    shutil.copytree(finished[0].parent / "records", folder)
    for name in ("mae_lm-1", "shared_long-2", "shared_blind-1"):
        (folder / "tiny" / f"{name}.json").unlink()
    record = json.loads((folder / "tiny" / "mlm-2.json").read_text())
    (folder / "tiny" / "mlm-2.json").write_text(json.dumps({k: v for k, v in record.items() if k != "ranks"}))
    summary = ComparisonReport(comparison.TINY, folder, "command").summary("")
    assert "MAE-LM" not in summary.partition("| difference |")[2] and "not decided: 1 of 2 seeds" in summary
    assert cells(summary, "| mlm-2 |")[6:] == [""] * 4


def test_fine_tuning_is_reported_for_the_seeds_that_have_it(finished, tmp_path):
    folder = tmp_path / "records"
    shutil.copytree(finished[0].parent / "records", folder)
    for name in ["mlm-1", "shared-1", "mlm-2"]:  # stand-ins for what fine-tuning takes hours for
        path, arrays = folder / "tiny" / f"{name}.json", {}
        record = json.loads(path.read_text())
        with np.load(folder / "tiny" / f"{name}.npz") as found:
            arrays.update(found)
        for task in comparison.FINE_TUNED_TASKS:
            record["scores"][task]["fine-tuned-mean"] = record["scores"][task]["mean"]
            arrays[f"{task} fine-tuned-mean"] = arrays[f"{task} mean"]
        path.write_text(json.dumps(record))
        np.savez(folder / "tiny" / f"{name}.npz", **arrays)
    summary = ComparisonReport(comparison.TINY, folder, "command").summary("")
    _, differences, others = summary.split("| difference | seeds |")
    tuned = cells(others, "| shared layers minus MLM |")[-1]
    found = [scores_of(finished[0], f"{name}-1")[:2].mean() for name in ("shared", "mlm")]
    assert float(tuned.split()[0]) == pytest.approx(found[0] - found[1], abs=0.006)
    assert cells(others, "| shared layers, the MLM's arithmetic minus MLM |")[-1] == ""


@pytest.mark.parametrize(
    "intervals, shown",
    [
        ([(1, 3), (2, 4)], "yes"),
        ([(-1, 3), (2, 4)], "at layer 2"),
        ([(-1, 3), (-2, 4)], "no"),
        ([(1, 3), (-4, -2)], "at layer 1; negative at layer 2"),
        ([(-3, -1), (-4, -2)], "no; negative at layers 1, 2"),
        ([(1, 1), (-2, -2)], "no"),
    ],
)
def test_a_claim_on_ranks_is_shown_layer_by_layer(intervals, shown):
    found = {
        layer: statistics.Interval((low + high) / 2, low, high, 1) for layer, (low, high) in enumerate(intervals, 1)
    }
    measured, verdict = layers_in_words(found)
    assert verdict == shown and measured.count("layer ") == 2


def test_run_again_it_does_nothing_and_another_setting_is_refused(finished, monkeypatch, capsys):
    dest, options, _ = finished
    options = list(map(str, options))
    before = {path: path.stat().st_mtime_ns for path in dest.parent.rglob("*") if path.is_file()}
    compare_scores.compare(options)
    assert "0 of 0 jobs are done" in capsys.readouterr().out
    tiny = replace(comparison.TINY, optimization=Optimization(clip_norm=1.0))
    monkeypatch.setattr(compare_scores, "TINY", tiny)
    with pytest.raises(UsageError, match="mlm-1.json: made with other options .*choose another --records"):
        compare_scores.compare(options)
    elsewhere = [*options, "--records", str(dest / "other")]
    with pytest.raises(UsageError, match="`pilot pilot-mlm-lr0.0005` would have to be done again: .*--clip-norm"):
        compare_scores.compare(elsewhere)
    assert {path: path.stat().st_mtime_ns for path in dest.parent.rglob("*") if path.is_file()} == before


def test_a_lost_record_is_made_again_and_the_others_are_kept(finished, tmp_path, capsys):
    dest, options, _ = finished
    folder = tmp_path / "records"
    shutil.copytree(dest.parent / "records", folder)
    (folder / "tiny" / "shared-2.json").unlink()
    fresh = [*map(str, options), "--records", str(folder), "--dest", str(tmp_path / "dest"), "--dry-run"]
    compare_scores.compare(fresh)
    printed = capsys.readouterr().out
    assert printed.startswith("0 of 3 jobs are done") and printed.count("to do: shared-2\n") == 3
