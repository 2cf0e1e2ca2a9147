"""The paper in miniature: what its experiment is, and a tiny one: every kind of job, resumed, and what it writes."""

import csv
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import REAL_SCRIPTS_ENVIRONMENT, ROOT, SCRIPTS_ENVIRONMENT, documents, prepare
from maelm_fairseq.errors import UsageError

sys.path[:0] = [str(ROOT / "recipes"), str(ROOT / "recipes" / "miniature")]
import experiment  # noqa: E402
import figures  # noqa: E402
import run as miniature  # noqa: E402
import training_log  # noqa: E402


def start(*arguments, real=False):
    return subprocess.Popen(
        list(map(str, arguments)),
        env=REAL_SCRIPTS_ENVIRONMENT if real else SCRIPTS_ENVIRONMENT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, start_new_session=True,
    )  # fmt: skip


def script(*arguments, status=0):
    """Runs a script of the repository; returns what it printed, standard error last."""
    process = start(*arguments)
    printed, errors = process.communicate()
    assert process.returncode == status, (printed + errors)[-3000:]
    return printed + errors


def reproduce(*arguments):
    """What recipes/reproduce.sh does, in this process."""
    miniature.reproduce(list(map(str, arguments)))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Binarized text and labelled texts: options of reproduce.sh."""
    folder = tmp_path_factory.mktemp("prepared")
    data = prepare(folder)
    rng = random.Random(1)
    for split, count in [("train", 60), ("dev", 20)]:
        texts = [" ".join(documents(1, rng.random(), lines=1)[0]) for _ in range(count)]
        rows = [f"{text}\t{'up' if text < 'm' else 'down'}\n" for text in texts]
        (folder / "tasks" / "mood").mkdir(parents=True, exist_ok=True)
        (folder / "tasks" / "mood" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows), encoding="utf-8")
    return ["--data", data, "--tasks", folder / "tasks"]


TINY = ["--tiny", "--updates", 8, "--seeds", 1, "--jobs", 2]


def alive(group):
    """Whether a process of a process group runs."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(found) == group and state not in "ZX":
            return True
    return False


@pytest.fixture(scope="module")
def finished(prepared, tmp_path_factory):
    """A reproduction that was killed twice on the way and resumed: its options, its folder, what it printed.

    What is killed are real processes, those of a group; what resumes it may be a fork.
    """
    dest = tmp_path_factory.mktemp("reproduction") / "dest"
    options = ["--dest", dest, *TINY, *prepared]
    command = [ROOT / "recipes" / "reproduce.sh", *options]

    def start_and_await(condition):
        process = start(*command, real=True)
        while not condition():
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        return process

    def pretrained():
        record = dest / "records" / "pretrain" / "mlm-1.json"
        return record.exists() and json.loads(record.read_text())["finished"]

    # Many jobs are left at both points, so there is always one to stop.
    process = start_and_await(pretrained)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    while alive(process.pid):
        time.sleep(0.1)
    process = start_and_await(lambda: list(dest.glob("evaluation/records/*/mood/*.npz")))
    process.terminate()  # it alone: what it started must not go on
    process.communicate()
    assert not alive(process.pid)
    before = (dest / "pretraining" / "mlm-1" / "model.pt").stat().st_mtime_ns
    printed = script(*command)
    assert (dest / "pretraining" / "mlm-1" / "model.pt").stat().st_mtime_ns == before
    return options, dest, printed


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished reproduction, to change: its options, its folder."""
    options, dest, _ = finished
    copy = tmp_path / "copy"
    shutil.copytree(dest, copy)
    return [copy if option == dest else option for option in options], copy


def times(folder, *patterns):
    """{file: when it was written} of a folder."""
    return {path: path.stat().st_mtime_ns for pattern in patterns for path in folder.rglob(pattern)}


def table(path):
    with open(path, encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_every_kind_of_run_is_there(finished):
    _, dest, _ = finished
    runs = {"mlm-1", "mae_lm-1", "fraction-0.5", "decoder-1", "mask-prob-0.5", "no-relative-bias"}
    assert {path.name for path in (dest / "pretraining").iterdir()} == runs
    ranks = table(dest / "results" / "ranks.csv")
    assert {row["run"] for row in ranks} == runs | {"mlm-1-finetuned", "mae_lm-1-finetuned"}
    scores = table(dest / "results" / "scores.csv")
    others = {"mlm-1-part1", "mae_lm-1-part1", "random-weights", "pieces"}
    assert {row["run"] for row in scores} == runs | others and len(scores) == len(runs | others)
    for run in ["mlm-1", "mae_lm-1"]:
        assert [path.parent.name for path in (dest / "finetuning" / run).rglob("model.pt")] == ["seed1"]


def test_equal_updates_on_the_same_text_in_the_same_order(finished):
    _, dest, _ = finished
    logs = {}
    for model in ["mlm", "mae_lm"]:
        rows = training_log.training_log(dest / "logs" / f"pretrain-{model}-1.log")
        logs[model] = [(row["num_updates"], row["wpb"], row["predicted"]) for row in rows]
        record = json.loads((dest / "pretraining" / f"{model}-1" / "record.json").read_text())
        assert [row["update"] for row in record] == [4, 8]
        assert all(row["rank_mask_tokens"] > 0 for row in record)
        seconds = [row["seconds"] for row in record]
        assert seconds == sorted(seconds)
    assert logs["mlm"] == logs["mae_lm"] and len(logs["mlm"]) >= 2


def test_the_summary_reports_what_was_measured(finished):
    _, dest, printed = finished
    summary = (dest / "results" / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("## The paper in miniature\n")
    scores = {row["run"]: float(row["score"]) for row in table(dest / "results" / "scores.csv")}
    for run, score in scores.items():
        with np.load(dest / "evaluation" / "records" / run / "mood" / "frozen.npz") as arrays:
            answers = arrays["mean_answers"][arrays["mean_layers"][arrays["folds"]], np.arange(len(arrays["folds"]))]
            assert score == pytest.approx(100 * (answers == arrays["targets"]).mean())
    for run, title in [("mlm-1", "MLM"), ("mae_lm-1", "MAE-LM"), ("pieces", "counts of pieces")]:
        assert f"| {title} | 1 | {scores[run]:.2f} | {scores[run]:.2f} |" in summary
    claim = next(line for line in summary.splitlines() if "scores higher" in line)
    difference = f"{scores['mae_lm-1'] - scores['mlm-1']:+.2f}"
    assert f" | {difference} (" in claim and claim.endswith(" | not decided: one seed |")
    assert f"| **mean over tasks** (primary) | {difference} | " in summary
    (row,) = [line for line in summary.splitlines() if line.startswith("| decoder layers: 1 |")]
    right = scores["decoder-1"] / 100
    error = 100 * np.sqrt(right * (1 - right) / len(answers))
    assert float(row.split("|")[-2].split(" ± ")[1]) == pytest.approx(error, rel=0.02)
    ranks = {
        (row["family"], int(row["layer"])): int(row["rank"])
        for row in table(dest / "results" / "ranks.csv")
        if row["run"] == "mlm-1"
    }
    cells = " | ".join(str(ranks["mask_tokens", layer]) for layer in range(3))
    assert f"| MLM, 1 | [MASK] tokens | {cells} |" in summary
    claim = next(line for line in summary.splitlines() if "rises with depth" in line)
    assert claim.endswith("| yes |" if ranks["mask_tokens", 0] < ranks["mask_tokens", 2] else "| no |")
    assert claim in printed
    assert "Encoders of 2 layers, width 32; 8 updates of 8 sequences of 32 tokens, 30% of them predicted." in summary
    titles = [line.split(" | ")[0] for line in summary.partition("| rank gap |")[2].splitlines()[2:8]]
    assert titles == [
        "| (MLM)",
        "| share of masks in the encoder: 0, decoder layers: 2, mask probability: 0.3",
        "| share of masks in the encoder: 0.5",
        "| decoder layers: 1",
        "| mask probability: 0.5",
        "| no relative position bias",
    ]
    for name in ["ranks-pretrained", "ranks-finetuned", "mask-fraction", "score-against-time"]:
        assert (dest / "results" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_run_again_it_only_writes_the_results(finished, tmp_path):
    options, dest, _ = finished
    state = times(dest, "*.json", "*.pt", "ranks/*/*")
    summary = (dest / "results" / "summary.md").read_text(encoding="utf-8")
    file = tmp_path / "RESULTS.md"
    file.write_text("# Results\n\nbefore\n\n## The paper in miniature\nold\n\n## Other\nafter\n", encoding="utf-8")
    script(ROOT / "recipes" / "reproduce.sh", *options, "--results", file)
    assert times(dest, "*.json", "*.pt", "ranks/*/*") == state
    summary = summary.replace("(./", "(miniature/")
    assert file.read_text(encoding="utf-8") == f"# Results\n\nbefore\n\n{summary}\n## Other\nafter\n"
    for name in figures.FIGURES:
        assert f"(miniature/{name})" in summary and (tmp_path / "miniature" / name).exists()


def test_results_of_what_is_done_so_far(copied):
    options, copy = copied
    for name in ["decoder-1", "mlm-1-finetuned"]:
        shutil.rmtree(copy / "ranks" / name)
    for name in ["fraction-0.5", "mlm-1-part1"]:
        (copy / "evaluation" / "records" / name / "mood" / "frozen.json").unlink()
    reproduce(*options, "--report")
    summary = (copy / "results" / "summary.md").read_text(encoding="utf-8")
    assert "4 jobs have not been run yet." in summary
    assert "| mask probability: 0.5 |" in summary and "| decoder layers: 1 |" not in summary
    assert "| share of masks in the encoder: 0.5 |" not in summary
    assert "after fine-tuning on mood |" not in summary and "Figure 5b" not in summary
    shutil.rmtree(copy / "ranks" / "mlm-1")
    with pytest.raises(UsageError, match="nothing to report yet"):
        reproduce(*options, "--report")


def test_results_of_another_pretraining_are_not_reported(copied):
    options, copy = copied
    shutil.copy(copy / "pretraining" / "decoder-1" / "model.pt", copy / "pretraining" / "mlm-1" / "model.pt")
    with pytest.raises(UsageError, match="nothing to report yet"):
        reproduce(*options, "--report")


def test_a_dry_run_shows_what_is_left_and_changes_nothing(finished, copied, capsys, tmp_path):
    options, copy = copied
    (copy / "pretraining" / "decoder-1" / "record.json").unlink()
    (copy / "evaluation" / "records" / "decoder-1" / "mood" / "frozen.json").unlink()
    files = sorted(copy.rglob("*"))
    reproduce(*options, "--dry-run")
    printed = capsys.readouterr().out
    assert "  pretrain: 5 done; to do: decoder-1\n" in printed
    assert "  evaluate: 7 done; to do: decoder-1\n" in printed
    assert sorted(copy.rglob("*")) == files
    _, dest, _ = finished
    fresh = tmp_path / "fresh"
    script(ROOT / "recipes" / "reproduce.sh", *[fresh if each == copy else each for each in options], "--dry-run")
    assert not fresh.exists()


def test_after_another_pretraining_what_was_measured_is_measured_again(copied, capsys):
    options, copy = copied

    def spectrum(name):
        with np.load(copy / "ranks" / name / "spectra.npz") as spectra:
            return spectra[f"{name}/without_mask"]

    assert (spectrum("decoder-1") != spectrum("mask-prob-0.5")).any()
    model = copy / "pretraining" / "mask-prob-0.5" / "model.pt"
    shutil.copy(model, copy / "pretraining" / "decoder-1" / "model.pt")
    reproduce(*options, "--dry-run")
    printed = capsys.readouterr().out
    assert "23 of 25 jobs are done\n" in printed
    assert printed.count("to do again: decoder-1: its input model.pt changed\n") == 2

    others = {
        path: time
        for path, time in times(copy, "model*.pt", "ranks.csv", "frozen.json").items()
        if "results" not in path.parts
    }
    (copy / "ranks" / "decoder-1" / "old").touch()
    script(ROOT / "recipes" / "reproduce.sh", *options)
    assert (spectrum("decoder-1") == spectrum("mask-prob-0.5")).all()
    assert not (copy / "ranks" / "decoder-1" / "old").exists()
    record = copy / "evaluation" / "records" / "decoder-1" / "mood" / "frozen.json"
    assert hashlib.sha256(model.read_bytes()).hexdigest() in str(json.loads(record.read_text())["made_from"])
    again = {path for path, time in others.items() if path.stat().st_mtime_ns != time}
    assert again == {copy / "ranks" / "decoder-1" / "ranks.csv", record}


def test_a_pretraining_is_never_lost(copied, monkeypatch, capsys):
    options, copy = copied
    state = times(copy, "*")
    changed = replace(miniature.TINY, optimization=experiment.Optimization(lr=0.002))
    monkeypatch.setattr(miniature, "TINY", changed)
    for more in [[], ["--dry-run"]]:
        with pytest.raises(UsageError) as raised:
            reproduce(*options, *more)
        assert str(raised.value) == (
            f"{copy}/pretraining/mlm-1: `pretrain mlm-1` would have to be done again: --lr was 0.001, is 0.002. "
            "That takes long: undo the change, choose another --dest, or remove this folder to do it again"
        )
    runs = "mlm-1, mae_lm-1, fraction-0.5, decoder-1, mask-prob-0.5, no-relative-bias"
    assert f"    to do again: {runs}: --lr was 0.001, is 0.002\n" in capsys.readouterr().out
    assert times(copy, "*") == state


def test_a_folder_of_other_options_is_refused(finished):
    options, dest, _ = finished
    printed = script(ROOT / "recipes" / "reproduce.sh", *options, "--seeds", 2, status=1)
    assert (
        printed
        == f"error: {dest}/plan.json: begun with other options (--seeds 1); repeat them, or choose another --dest\n"
    )


def test_a_job_that_fails_names_its_log(prepared, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(prepared[1], data)
    (data / "train.bin").write_bytes(b"")
    command = [ROOT / "recipes" / "reproduce.sh", "--dest", tmp_path / "dest", *TINY, "--data", data, *prepared[2:]]
    printed = script(*command, status=1)
    assert "stopped with exit status 1: error: " in printed and "the whole log is in" in printed


def test_the_time_of_training_is_summed_and_a_resumed_part_counts_once(tmp_path):
    def line(kind, **stats):
        return f"2026-11-21 10:00:00 | INFO | {kind} | {json.dumps({k: str(v) for k, v in stats.items()})}\n"

    log = tmp_path / "train.log"
    first = [line("train_inner", num_updates=u, train_wall=w) for u, w in [(10, 5), (20, 7)]]
    valid = line("valid", valid_num_updates=20, valid_loss=8.5, valid_rank_mask_tokens=3)
    again = [line("train_inner", num_updates=u, train_wall=w) for u, w in [(20, 6), (30, 4)]]
    last = line("valid", valid_num_updates=30, valid_loss=8.25)
    cpu = [
        json.dumps(dict(cpu_update=u, cpu_seconds=s)) + "\n" for u, s in [(10, 2.5), (20, 3.0), (20, 4.25), (30, 1.0)]
    ]
    log.write_text("".join([*first, *cpu[:2], valid, "something else\n", *again, *cpu[2:], last]))
    assert training_log.pretraining_record(log) == [
        dict(update=20, loss=8.5, seconds=11, cpu_seconds=6.75, rank_mask_tokens=3),
        dict(update=30, loss=8.25, seconds=15, cpu_seconds=7.75),
    ]
