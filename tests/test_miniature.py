"""The paper in miniature, as small as can be: every kind of job, resumed, and what it writes."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from conftest import ROOT, SCRIPTS_ENVIRONMENT, documents, prepare

sys.path.insert(0, str(ROOT / "recipes"))
import reproduce_report  # noqa: E402


def start(*arguments):
    return subprocess.Popen(
        list(map(str, arguments)),
        env=SCRIPTS_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        universal_newlines=True, start_new_session=True,
    )  # fmt: skip


def script(*arguments, status=0):
    """Runs a script of the repository; gives what it printed, standard error last."""
    process = start(*arguments)
    printed, errors = process.communicate()
    assert process.returncode == status, (printed + errors)[-3000:]
    return printed + errors


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Binarized text and a labelled task, as data-prep makes them: options of reproduce.sh."""
    folder = tmp_path_factory.mktemp("prepared")
    data = prepare(folder)
    rng = random.Random(1)
    for split, count in [("train", 60), ("dev", 20)]:
        texts = [" ".join(documents(1, rng.random(), lines=1)[0]) for _ in range(count)]
        rows = [f"{text}\t{'up' if text < 'm' else 'down'}\n" for text in texts]
        (folder / "raw" / "mood").mkdir(parents=True, exist_ok=True)
        (folder / "raw" / "mood" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows), encoding="utf-8")
    script(
        ROOT / "data-prep" / "glue.sh", "--input", folder / "raw", "--task", "mood", "--vocabulary", data,
        "--dest", folder / "tasks", "--max-tokens", 32,
    )  # fmt: skip
    return ["--data", data, "--tasks", folder / "tasks"]


TINY = ["--tiny", "--updates", 8, "--seeds", 1, "--finetune-seeds", 2, "--jobs", 2]


@pytest.fixture(scope="module")
def finished(prepared, tmp_path_factory):
    """A reproduction that was killed twice on the way and went on: its command, its folder, what it printed."""
    dest = tmp_path_factory.mktemp("reproduction") / "dest"
    command = [ROOT / "recipes" / "reproduce.sh", "--dest", dest, *TINY, *prepared]

    def start_and_await(file):
        process = start(*command)
        while not list(dest.glob(file)):
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        return process

    process = start_and_await("pretraining/mlm-1/record.json")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    process = start_and_await("finetuning/*/mood/*/*/*/train.log")
    process.terminate()  # it alone: what it started must not go on
    process.communicate()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    before = (dest / "pretraining" / "mlm-1" / "model.pt").stat().st_mtime_ns
    printed = script(*command)
    assert (dest / "pretraining" / "mlm-1" / "model.pt").stat().st_mtime_ns == before
    return command, dest, printed


@pytest.mark.parametrize("start_takes", [1, 0], ids=["amid its start", "while it runs"])
def test_a_recipe_that_is_stopped_leaves_no_program_behind(start_takes):
    recipe = """
import sys, time
sys.path.insert(0, sys.argv[1])
import child_processes
print("ready", flush=True)
with child_processes.program(["sleep", "60"], preexec_fn=lambda: time.sleep(float(sys.argv[2]))):
    pass
"""
    process = start(sys.executable, "-c", recipe, ROOT / "recipes", start_takes)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.terminate()
    _, errors = process.communicate()
    assert process.returncode == 143 and not errors
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


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
    parts = {f"{model}-1-part{part}" for model in ["mlm", "mae_lm"] for part in [1, 2, 3]}
    assert {row["run"] for row in scores} == runs | parts | {"scratch"}
    count = {run: sum(row["run"] == run for row in scores) for run in runs | parts | {"scratch"}}  # of seeds
    assert count == {run: 2 if run in ["scratch", "mlm-1", "mae_lm-1"] else 1 for run in count}


def test_equal_updates_on_the_same_text_in_the_same_order(finished):
    _, dest, _ = finished
    logs = {}
    for model in ["mlm", "mae_lm"]:
        rows = reproduce_report.training_log(dest / "logs" / f"pretrain-{model}-1.log")
        logs[model] = [(row["num_updates"], row["wpb"], row["predicted"]) for row in rows]
        record = json.loads((dest / "pretraining" / f"{model}-1" / "record.json").read_text())
        assert [row["update"] for row in record] == [2, 4, 6, 8]
        assert all(row["rank_mask_tokens"] > 0 for row in record)
        seconds = [row["seconds"] for row in record]
        assert seconds == sorted(seconds)
    assert logs["mlm"] == logs["mae_lm"]


def test_the_summary_tells_what_was_measured(finished):
    _, dest, printed = finished
    summary = (dest / "results" / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("## The paper in miniature\n")
    scores = [float(row["score"]) for row in table(dest / "results" / "scores.csv") if row["run"] == "mae_lm-1"]
    assert f"{np.median(scores):.2f} ({min(scores):.2f} to {max(scores):.2f})" in summary
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
    for name in ["ranks-pretrained", "ranks-finetuned", "mask-fraction", "score-against-time"]:
        assert (dest / "results" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_run_again_it_only_writes_the_results(finished, tmp_path):
    command, dest, _ = finished
    state = {path: path.stat().st_mtime_ns for path in dest.rglob("*.json")}
    summary = (dest / "results" / "summary.md").read_text(encoding="utf-8")
    results = tmp_path / "RESULTS.md"
    results.write_text("# Results\n\nbefore\n\n## The paper in miniature\nold\n\n## Other\nafter\n", encoding="utf-8")
    script(*command, "--results", results)
    assert {path: path.stat().st_mtime_ns for path in dest.rglob("*.json")} == state
    summary = summary.replace("(./", "(miniature/")
    assert results.read_text(encoding="utf-8") == f"# Results\n\nbefore\n\n{summary}\n## Other\nafter\n"
    for name in reproduce_report.FIGURES:
        assert f"(miniature/{name})" in summary and (tmp_path / "miniature" / name).exists()


def test_results_of_what_is_done_so_far(finished, tmp_path):
    command, dest, _ = finished
    copy = tmp_path / "copy"
    shutil.copytree(dest, copy)
    command = [copy if argument == dest else argument for argument in command]
    for name in ["decoder-1", "mlm-1-finetuned"]:
        shutil.rmtree(copy / "ranks" / name)
    for name in ["scratch", "fraction-0.5", "mlm-1-part2"]:
        (copy / "finetuning" / name / "mood.json").unlink()
    script(*command, "--report")
    summary = (copy / "results" / "summary.md").read_text(encoding="utf-8")
    assert "5 of its jobs are not run yet." in summary
    assert "| mood, accuracy | not run | " in summary and "decoder layers: 1" not in summary
    assert "after fine-tuning on mood |" not in summary and "Figure 5b" not in summary
    shutil.rmtree(copy / "ranks" / "mlm-1")
    assert "nothing to report yet" in script(*command, "--report", status=1)


def test_a_dry_run_shows_what_is_left_and_changes_nothing(finished, tmp_path):
    command, dest, _ = finished
    copy = tmp_path / "copy"
    shutil.copytree(dest, copy)
    (copy / "pretraining" / "decoder-1" / "record.json").unlink()
    (copy / "finetuning" / "decoder-1" / "mood.json").unlink()
    files = sorted(copy.rglob("*"))
    printed = script(*[copy if argument == dest else argument for argument in command], "--dry-run")
    assert "left: decoder-1\n" in printed and "left: decoder-1 mood\n" in printed and "left: nothing\n" in printed
    assert sorted(copy.rglob("*")) == files
    fresh = tmp_path / "fresh"
    script(*[fresh if argument == dest else argument for argument in command], "--dry-run")
    assert not fresh.exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (["--updates", 8, "--minutes-per-model", 1], "not allowed with argument"),
        ([], "--minutes-per-model --updates is required"),
        (["--updates", 2], "--updates 2 must be at least 4"),
        (["--minutes-per-model", 0], "--minutes-per-model 0.0 must be over 0"),
        (["--updates", 8, "--seeds", 0], "--seeds 0 must be over 0"),
        (["--updates", 8, "--tasks", "nowhere"], "no task in it"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    printed = script(ROOT / "recipes" / "reproduce.sh", "--dest", tmp_path / "dest", "--tiny", *options, status=1)
    assert printed.startswith("error: ") and message in printed and printed.count("\n") == 1


def test_a_folder_of_other_options_is_refused(finished):
    command, _, _ = finished
    printed = script(*command, "--seeds", 2, status=1)
    assert "begun with other options (--seeds 1)" in printed


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
    log.write_text("".join([*first, valid, "something else\n", *again, last]))
    assert reproduce_report.pretraining_record(log) == [
        dict(update=20, loss=8.5, seconds=11, rank_mask_tokens=3),
        dict(update=30, loss=8.25, seconds=15),
    ]


def test_the_difference_and_its_error():
    less, error = reproduce_report.difference([3.0, 5.0], [1.0, 2.0, 3.0])
    assert less == 2 and error == pytest.approx((2 / 2 + 1 / 3) ** 0.5)
