"""The comparison of scores: a tiny one from end to end, stopped and resumed, and what it writes."""

import csv
import json
import random
import re
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
import comparison_figures  # noqa: E402
import comparison_folder  # noqa: E402
import training_log  # noqa: E402
from comparison_claims import Claims, layers_in_words  # noqa: E402
from comparison_explorations import explorations  # noqa: E402
from comparison_folder import ComparisonFolder  # noqa: E402
from comparison_report import ComparisonReport, at_equal  # noqa: E402
from evaluation import statistics  # noqa: E402
from pretraining import Optimization  # noqa: E402


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
    """A tiny comparison that was stopped by SIGTERM in a training, and resumed: its folder, its options."""
    folder = tmp_path_factory.mktemp("scores")
    dest = folder / "dest"
    options = [
        "--data",
        prepare(folder),
        "--tasks",
        write_tasks(folder / "tasks"),
        "--dest",
        dest,
        "--tiny",
        "--jobs",
        2,
    ]
    command = list(map(str, [ROOT / "recipes" / "scores.sh", *options]))
    streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process = subprocess.Popen(command, env=REAL_SCRIPTS_ENVIRONMENT, **streams)
    log = dest / "logs" / "pretrain-pilot-lr0.001-beta0.98.log"
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
    return dest, options


def runs_in(cmdline, folder):
    try:
        return f"{folder}/pretraining/" in cmdline.read_text()
    except OSError:
        return False


def weights(path):
    return compat.load_checkpoint(path)["model"]


def test_everything_is_run_and_recorded(finished):
    dest, _ = finished
    pretrained = ["mlm-1", "mae_lm-1", "mlm_decoder-1", "mlm-2", "mae_lm-2"]
    pretrained += ["mae_lm_paper_decoder-1", "mae_lm_decoder4-1"]
    untrained = ["scratch-1", "scratch-2", "scratch_plain-1"]
    pilots = ["pilot-lr0.001-beta0.98", "pilot-lr0.002-beta0.98"]
    explored = [name.replace("pilot-", "pilot-mae_lm-") for name in pilots]
    assert {path.name for path in (dest / "pretraining").iterdir()} == {*pretrained, *untrained, *pilots, *explored}
    for name in pretrained:
        files = {path.name for path in (dest / "pretraining" / name).iterdir()}
        assert files >= {"model.pt", "record.json", *(f"model-{update}.pt" for update in (6, 14))}
        assert not any(file.startswith("checkpoint") for file in files)
        record = json.loads((dest / "pretraining" / name / "record.json").read_text())
        assert [row["update"] for row in record] == list(range(1, 15))
        for row, following in zip(record, record[1:]):
            assert following["gflop"] / following["update"] == pytest.approx(row["gflop"] / row["update"], abs=0.001)
            assert following["cpu_seconds"] >= row["cpu_seconds"] >= 0
    for name in [*pretrained, *untrained]:
        with open(dest / "ranks" / name / "ranks.csv", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        assert {row["tau"] for row in rows} == {"0.9", "0.99"}
    chosen = json.loads((dest / "chosen.json").read_text())
    best = min(
        pilots, key=lambda name: json.loads((dest / "pretraining" / name / "record.json").read_text())[-1]["loss"]
    )
    assert f"pilot-lr{chosen['chosen']['lr']:g}-beta0.98" == best
    record = json.loads((dest / "records" / "pretrain" / "mae_lm-2.json").read_text())
    assert record["made_from"]["options"][record["made_from"]["options"].index("--lr") + 1] == str(
        chosen["chosen"]["lr"]
    )


def test_the_arms_of_a_seed_start_equal_and_see_the_same(finished):
    dest, options = finished
    logs = {}
    for model in ["mlm", "mae_lm", "mlm_decoder"]:
        rows = training_log.training_log(dest / "logs" / f"pretrain-{model}-1.log")
        logs[model] = [(row["num_updates"], row["wpb"], row["predicted"]) for row in rows]
    assert logs["mlm"] == logs["mae_lm"] == logs["mlm_decoder"] and len(logs["mlm"]) == 7

    size = comparison.TINY.size
    torch.manual_seed(1)
    cfg = MaeLmConfig(**vars(size), decoder_layers=2, max_positions=32, relative_position_local_init=True)
    initial = MaeLmModel(cfg, load_dictionary(options[1]), pretraining=True).state_dict()
    scratch = weights(dest / "pretraining" / "scratch-1" / "model.pt")
    plain = weights(dest / "pretraining" / "scratch_plain-1" / "model.pt")
    assert scratch.keys() == plain.keys() and not any(key.startswith("decoder") for key in scratch)
    assert [key for key in scratch if not torch.equal(scratch[key], initial[key])] == []
    assert [key for key in scratch if not torch.equal(scratch[key], plain[key])] == [
        "encoder.relative_bias.table.weight"
    ]
    other = weights(dest / "pretraining" / "scratch-2" / "model.pt")
    assert not torch.equal(other["embed_tokens.weight"], scratch["embed_tokens.weight"])


def scores_of(dest, folder, name):
    """The primary score of a model on each task, computed from its record without the evaluation's program."""
    found = []
    for task in comparison.TINY.tasks:
        with np.load(dest / "evaluation" / folder / "records" / name / task / "frozen.npz") as arrays:
            layer = arrays["mean_layers"][arrays["folds"]]
            answers = arrays["mean_answers"][layer, np.arange(len(layer))]
            found.append(100 * (answers == arrays["targets"]).mean())
    return np.array(found)


def test_the_summary_reports_what_was_measured(finished):
    dest, _ = finished
    summary = (dest / "results" / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("## Does MAE-LM score higher?\n")
    assert "![Score, and effective rank of text without [MASK], by layer" in summary
    differences = [scores_of(dest, "final", f"mae_lm-{s}") - scores_of(dest, "final", f"mlm-{s}") for s in (1, 2)]
    by_task = np.mean(differences, 0)
    claim = re.search(r"\*\*MAE-LM minus MLM, in points: (\S+) \((\S+) to (\S+)\); (.*)\.\*\*", summary)
    estimate, low, high = map(float, claim.groups()[:3])
    assert estimate == pytest.approx(by_task.mean(), abs=0.006) and low < estimate < high
    assert claim[4] == ("better" if low > 0 else "worse" if high < 0 else "no difference is shown")
    scores, tables = [scores_of(dest, "final", f"mae_lm-{s}") for s in (1, 2)], summary.partition("| difference |")
    mean, *each = next(line for line in tables[0].splitlines() if line.startswith("| MAE-LM | 2 |")).split("|")[3:-1]
    assert list(map(float, each)) == pytest.approx(np.mean(scores, 0), abs=0.006)
    expected = [np.mean(scores), abs(scores[0].mean() - scores[1].mean()) / 2]
    assert list(map(float, mean.split(" ± "))) == pytest.approx(expected, abs=0.006)
    row = next(line for line in summary.splitlines() if line.startswith("| MAE-LM minus MLM | 2 |"))
    assert [float(cell) for cell in row.split("|")[4:-1]] == pytest.approx(by_task, abs=0.006)
    titles = [line.split("|")[1].strip() for line in tables[2].splitlines()[2:8]]
    assert titles == [
        "MAE-LM minus MLM",
        "MLM with decoder minus MLM",
        "MAE-LM minus MLM with decoder",
        "MLM minus no pretraining",
        "MAE-LM minus no pretraining",
        "no pretraining minus no pretraining, all heads as in BERT",
    ]
    row = next(line for line in summary.splitlines() if line.startswith("| 14 updates |"))
    final = [np.mean([scores_of(dest, "final", f"{model}-{s}").mean() for s in (1, 2)]) for model in ("mlm", "mae_lm")]
    assert [float(cell.split()[0]) for cell in row.split("|")[2:4]] == pytest.approx(final, abs=0.006)
    on_the_way = next(line for line in summary.splitlines() if line.startswith("| 6 updates |"))
    early = [scores_of(dest, "after-6", f"{model}-{s}").mean() for model in ("mlm", "mae_lm") for s in (1, 2)]
    early = np.mean(np.reshape(early, (2, 2)), 1)
    assert [float(cell.split()[0]) for cell in on_the_way.split("|")[2:4]] == pytest.approx(early, abs=0.006)
    models = summary.partition("| model | loss, bits |")[2].splitlines()
    cells = next(line for line in models if line.startswith("| mae_lm-2 |")).split("|")
    assert float(cells[5]) == pytest.approx(scores[1].mean(), abs=0.006) and 0 < float(cells[6]) < 100
    for name in ["scores.png", "layers.png"]:
        assert (dest / "results" / name).read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def report(finished):
    """The report of the tiny comparison, with all that is evaluated."""
    dest, options = finished
    folder = ComparisonFolder(comparison.TINY, dest, options[1], options[3], 1)
    names = [path.name for path in (dest / "evaluation" / "final" / "records").iterdir()]
    return ComparisonReport(folder, "command", {*((name,) for name in names), *((name, "6") for name in names)})


def rank_differences(dest, family, layer):
    """MAE-LM's rank minus the MLM's after the last update at tau = 0.9, for each seed."""
    found = {}
    for name in [f"{model}-{seed}" for model in ("mae_lm", "mlm") for seed in (1, 2)]:
        with open(dest / "ranks" / name / "ranks.csv", encoding="utf-8") as stream:
            (found[name],) = [
                int(row["rank"])
                for row in csv.DictReader(stream)
                if [row[key] for key in ("checkpoint", "family", "layer", "tau")] == ["14", family, str(layer), "0.9"]
            ]
    return np.array([found[f"mae_lm-{seed}"] - found[f"mlm-{seed}"] for seed in (1, 2)])


def test_the_table_of_claims_has_the_ranks_and_the_scores(finished, report):
    dest, _ = finished
    rows = {row.split(" | ")[0]: row.split(" | ")[1:] for row in Claims(report).table().splitlines()}
    measured, shown = rows["| MAE-LM represents text without [MASK] in more dimensions"]
    signs = []
    for layer in (1, 2):
        values = rank_differences(dest, "without_mask", layer)
        width = stats.t.ppf(0.975, 1) * abs(values[0] - values[1]) / 2
        numbers = [f"{number:+.1f}" for number in (values.mean(), values.mean() - width, values.mean() + width)]
        expected = f"layer {layer}: {numbers[0]}" + f" ({numbers[1]} to {numbers[2]})" * bool(width > 0)
        assert expected in measured
        signs.append(int(values.mean() > width > 0) - int(values.mean() < -width < 0))
    assert shown.startswith("yes") == (signs == [1, 1]) and ("negative" in shown) == (-1 in signs)
    drawn = report.ranks_by_layer()
    assert [a[-1] - b[-1] for a, b in zip(drawn["MAE-LM"], drawn["MLM"])] == list(values)
    measured, shown = rows["| **MAE-LM scores higher than the MLM** (primary outcome)"]
    assert measured in re.search(r"\*\*MAE-LM minus MLM, in points: (.*?);", report.claim())[1]
    assert ("| MLM: the rank of [MASK] tokens rises with depth, for every seed (Lemma 2.1)") in rows


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


def test_scores_at_equal_arithmetic_are_interpolated():
    def curve(*points):
        return [dict(tflop=tflop, loss=loss, score=score) for tflop, loss, score in points]

    curves = {
        "A": [curve((10, 8, 50), (20, 6, 60))],
        "B": [curve((8, 9, 40), (16, 7, 70)), curve((8, 9, 50), (16, 7, 80))],
    }
    assert at_equal(curves, "tflop", "{:.1f} TFLOP") == ["16.0 TFLOP", "56.00", "75.00 ± 5.00"]
    assert at_equal(curves, "loss", "{:.3f} bits") == ["7.000 bits", "55.00", "75.00 ± 5.00"]
    curves["A"] = [curve((20, 6, 60))]
    assert at_equal(curves, "tflop", "{:.1f} TFLOP", 12.0) == ["12.0 TFLOP", "", "60.00 ± 5.00"]
    assert at_equal(curves, "tflop", "{:.1f} TFLOP") == ["16.0 TFLOP", "", "75.00 ± 5.00"]


def test_scores_on_the_way_are_drawn_when_both_arms_have_them(report, monkeypatch):
    curves = {"MLM": [[1], [1]], "MAE-LM": [[1], [1]], "MLM with decoder": [[1, 2]]}  # points
    monkeypatch.setattr(report, "curves", lambda: curves)
    assert list(comparison_figures.drawn(report)) == ["layers.png"]
    curves["MLM"] = curves["MAE-LM"] = [[1, 2], [1, 2]]
    assert list(comparison_figures.drawn(report)) == ["scores.png", "layers.png"]


def test_fine_tuning_is_reported_for_the_seeds_that_have_it(report):
    assert report.fine_tuning() == []
    for name in ["mlm-1", "mae_lm-1", "mlm-2"]:  # stand-ins for what fine-tuning takes hours for
        kinds = report.final[name]["trec"][1]
        kinds["fine-tuned-first"] = kinds["first"]
    scores, differences = report.fine_tuning()
    scores = {row.split(" | ")[0]: row.split(" | ")[1:] for row in scores.splitlines() if row.startswith("| M")}
    found = [report.final[f"mlm-{s}"]["trec"][1]["first"].score() for s in (1, 2)]
    assert scores["| MLM"][0] == "2" and scores["| MAE-LM"][0] == "1" and len(scores) == 2
    assert scores["| MLM"][2].strip(" |") == f"{np.mean(found):.2f}"
    (row,) = [row.split(" | ") for row in differences.splitlines() if row.startswith("| M")]
    difference = report.final["mae_lm-1"]["trec"][1]["first"].score() - found[0]
    assert row[:2] == ["| MAE-LM minus MLM", "1"] and float(row[3].strip(" |")) == pytest.approx(difference, abs=0.006)
    titles = report.tables.comparison("mae_lm", "mlm")
    assert "| mean over trec, fine-tuned on `<s>` (1 seed) |" in titles and "| mean over tasks, `<s>` |" in titles


def test_explorations_are_shown_apart(finished, report):
    dest, _ = finished
    title, pilots, models = explorations(report)
    assert "they decide nothing" in title
    for name, row in zip(["lr0.001-beta0.98", "lr0.002-beta0.98"], pilots.splitlines()[4:]):
        folders = [dest / "pretraining" / f"{prefix}-{name}" for prefix in ("pilot", "pilot-mae_lm")]
        losses = [json.loads((folder / "record.json").read_text())[-1]["loss"] for folder in folders]
        assert [float(cell) for cell in row.split("|")[3:5]] == pytest.approx(losses, abs=0.0006)
    rows = {row.split(" | ")[0]: row.split(" | ")[1:] for row in models.splitlines()[4:]}
    assert len(rows) == 4
    for model, other in [("mlm", "MLM"), ("mae_lm", "MAE-LM")]:
        difference = scores_of(dest, "final", "mae_lm_decoder4-1") - scores_of(dest, "final", f"{model}-1")
        _, found = rows[f"| MAE-LM, 4 decoder layers minus {other}"]
        assert float(found.split()[0]) == pytest.approx(difference.mean(), abs=0.006)
    assert "4 decoder layers" not in report.scores() and "4 decoder layers" not in report.differences()
    nothing = ComparisonReport(report.folder, "command", report.evaluated - {("mae_lm_decoder4-1",)})
    assert "4 decoder layers" not in explorations(nothing)[2] and "decoder4" not in nothing.models()


def test_the_narrow_comparison_tests_nothing(report, monkeypatch):
    measured = report.claim()
    monkeypatch.setattr(report, "comparison", replace(report.comparison, tested=False))
    assert "; secondary: the difference at width 256 is what is tested.**" in report.claim()
    assert report.claim().partition(";")[0] == measured.partition(";")[0]
    assert not comparison.NARROW.tested and comparison.SCORES.tested and comparison.TINY.tested


def test_nothing_is_decided_before_all_seeds_are_there(finished, report):
    fewer = report.evaluated - {("mae_lm-2",)}
    partial = ComparisonReport(report.folder, "command", fewer)
    assert "; not decided: 1 of 2 seeds" in partial.claim() and "these two models only" in partial.claim()
    rows = Claims(partial).table().splitlines()[2:]
    decided = [row for row in rows if not row.endswith(" | not decided: 1 of 2 seeds |")]
    assert [row.split(" | ")[0] for row in decided] == ["| Pretraining raises scores: MLM"]
    with pytest.raises(UsageError, match="nothing to report yet"):
        ComparisonReport(report.folder, "command", {("mlm-1",), ("mlm-2",)})


def test_without_earlier_evaluations_nothing_is_compared_on_the_way(report):
    assert "| at equal |" in report.summary() and "(./scores.png)" in report.summary()
    assert re.search(r"^\| \d+ updates \| .*\n\| [\d.]+ TFLOP \| .*\n\| \d+ CPU seconds \| ", report.summary(), re.M)
    final = ComparisonReport(report.folder, "command", {each for each in report.evaluated if len(each) == 1})
    assert "| at equal |" not in final.summary() and "(./scores.png)" not in final.summary()
    assert "(./layers.png)" in final.summary()


def test_the_gate_stops_what_learns_too_little(report, monkeypatch, tmp_path):
    folder, path, dest = report.folder, report.folder.path, Path(report.folder.dest)
    monkeypatch.setattr(
        folder, "path", lambda *parts: str(tmp_path / parts[0]) if "gate.json" in parts else path(*parts)
    )
    best = max(folder.outcomes(run)["rotten_tomatoes"][1]["mean"].hindsight()[0] for run in folder.comparison.gate())
    trec = [scores_of(dest, "final", name)[0] for name in ("mlm-1", "mae_lm-1", "scratch-1")]
    gain = max(trec[:2]) - trec[2]
    for rotten_tomatoes, trec_gain in [(best, gain + 1), (best + 1, gain)]:
        monkeypatch.setattr(comparison_folder, "GATE_ROTTEN_TOMATOES", rotten_tomatoes)
        monkeypatch.setattr(comparison_folder, "GATE_TREC", trec_gain)
        folder.check_gate()
        assert json.loads((tmp_path / "gate.json").read_text()) == pytest.approx(
            dict(rotten_tomatoes=best, trec_gain=gain)
        )
    monkeypatch.setattr(comparison_folder, "GATE_TREC", gain + 1)
    with pytest.raises(UsageError, match=f"reach {best:.1f} on rotten_tomatoes and gain .* find out why"):
        folder.check_gate()


def test_run_again_it_does_nothing_and_another_setting_is_refused(finished, monkeypatch, capsys):
    dest, options = finished
    options = list(map(str, options))
    patterns = "pretraining/**/*", "ranks/**/*", "evaluation/**/*", "records/**/*"
    before = {path: path.stat().st_mtime_ns for pattern in patterns for path in dest.glob(pattern)}
    compare_scores.compare(options)
    assert "41 of 41 jobs are done" in capsys.readouterr().out
    tiny = replace(comparison.TINY, optimization=Optimization(clip_norm=1.0))
    monkeypatch.setattr(compare_scores, "TINY", tiny)
    with pytest.raises(UsageError, match="`pilot pilot-lr0.001-beta0.98` would have to be done again: .*--clip-norm"):
        compare_scores.compare(options)
    assert {path: path.stat().st_mtime_ns for pattern in patterns for path in dest.glob(pattern)} == before
