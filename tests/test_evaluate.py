"""recipes/evaluate.sh from end to end, on tiny models and tasks; its records and tables."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import evaluate as evaluate_program
from conftest import PYTHON, documents, script
from evaluation import fine_tuning, outcomes
from evaluation.features import Encoder
from evaluation.intervals import Paired, crossed_interval
from evaluation.labelled_tasks import load_task
from evaluation.report import Report
from jobs import Jobs
from maelm_fairseq import hub
from maelm_fairseq.base.errors import MissingFileError, UsageError
from maelm_fairseq.checkpoints import reading
from maelm_fairseq.heads import POOLING

MODELS, TASKS = ["mlm-1", "mae_lm-1", "mlm-2", "mae_lm-2"], ["kind", "length"]


@pytest.fixture(scope="module")
def evaluated(pretrained, tmp_path_factory):
    """A folder in which two arms of two seeds, whose weights are noisy, were evaluated on two tasks; the arguments."""
    (data, checkpoint), folder = pretrained, tmp_path_factory.mktemp("evaluated")
    state = reading.read_file(checkpoint)
    for seed, name in enumerate(MODELS):
        torch.manual_seed(seed)
        noise = {key: 0.1 * torch.randn(value.shape) for key, value in state["model"].items() if key.endswith("weight")}
        noisy = {key: value + noise.get(key, 0) for key, value in state["model"].items()}
        torch.save({**state, "model": noisy}, folder / f"{name}.pt")
    texts = sorted({line for document in documents(120, 7) for line in document})[:150]
    labels = {"kind": lambda text: "long" if len(text) > 30 else "short", "length": lambda text: str(len(text))}
    for task, label in labels.items():
        (folder / "labelled" / task).mkdir(parents=True)
        rows = [f"{text if task == 'kind' else text[::-1]}\t{label(text)}\n" for text in texts]
        for split, part in [("train", rows[:100]), ("dev", rows[100:])]:
            (folder / "labelled" / task / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(part))
    arguments = [
        "--checkpoint", *(folder / f"{name}.pt" for name in MODELS), "--data", data, "--dest", folder / "out",
        "--labelled", folder / "labelled", "--tasks", "kind", "length", "--regression", "length",
        "--few-shot-repeats", 2, "--compare", "mae_lm", "mlm",
    ]  # fmt: skip
    return folder, arguments, script("recipes/evaluate.sh", *arguments).stdout


def load(folder, model, task):
    """The record of a model on a task, and its outcomes."""
    return outcomes.read(outcomes.record_path(folder / "out", model, task))


def rows_of(text, title):
    """The cells of a section's first table: {first cell: the others}."""
    section = re.split(r"^## ", text, flags=re.M)
    (lines,) = [part.splitlines()[1:] for part in section if part.startswith(title)]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[1:] for row in cells}


def test_records_agree_with_the_tables(evaluated):
    folder, _, output = evaluated
    text = (folder / "out" / "evaluation.md").read_text()
    primary = rows_of(text, "Score")
    assert list(primary)[2:] == MODELS and primary["model"] == ["kind", "length", "mean"]
    for model in MODELS:
        scores = []
        for task in TASKS:
            record, kinds = load(folder, model, task)
            outcome, metric = kinds["mean"], record["metric"]
            answers = outcome.answers[outcome.layers[outcome.folds], np.arange(150)]
            score = 100 * np.mean(answers == outcome.targets)
            if task == "length":
                assert metric == "100 x Pearson"
                score = 100 * np.corrcoef(answers, outcome.targets)[0, 1]
            scores.append(score)
            assert record["scores"]["mean"]["chosen"] == pytest.approx(score, abs=1e-3)
            assert f"{model}, {task}: {metric} {score:.2f}" in output
        shown = primary[model][2].split(" ± ")
        assert float(shown[0]) == pytest.approx(np.mean(scores), abs=0.01) and float(shown[1]) > 0
    few = [load(folder, MODELS[-1], task)[0]["few_shot"]["chosen"][-1] for task in TASKS]
    shown = [float(cell) for cell in rows_of(text, "Few-shot")[MODELS[-1]][1:]]
    assert shown == pytest.approx([*few, np.mean(few)], abs=0.006)  # the last row is that of most examples
    assert rows_of(text, "By layer")["model"] == ["representation", "layer 0", "layer 1", "layer 2"]
    assert list(rows_of(text, "`<s>`"))[2:] == MODELS


def test_arms_are_compared_by_seed_and_example(evaluated):
    folder, _, output = evaluated
    rows = rows_of((folder / "out" / "evaluation.md").read_text(), "mae_lm minus mlm")
    difference, low, high, _ = rows["**mean over tasks** (primary)"]
    assert f"\nmae_lm minus mlm, mean over tasks: {difference} ({low} to {high})\n" in output
    measured = {(name, task): load(folder, name, task)[1]["mean"] for name in MODELS for task in TASKS}
    tasks = []
    for task in TASKS:
        values = {name: measured[name, task].contributions() for name in MODELS}
        differences = np.stack([values[f"mae_lm-{seed}"] - values[f"mlm-{seed}"] for seed in [1, 2]])
        tasks.append(Paired(differences, measured["mlm-1", task].ids))
    for title, each in [("**mean over tasks** (primary)", tasks), ("kind", tasks[:1]), ("length", tasks[1:])]:
        interval = crossed_interval(each)
        shown = [float(cell) for cell in rows[title]]
        assert shown == pytest.approx([interval.estimate, interval.low, interval.high, interval.error], abs=0.006)
    last = {name: sum(measured[name, task].score(outcomes.LAST) for task in TASKS) for name in MODELS}
    expected = (last["mae_lm-1"] + last["mae_lm-2"] - last["mlm-1"] - last["mlm-2"]) / 4
    assert float(rows["mean over tasks, last layer"][0]) == pytest.approx(expected, abs=0.006)
    assert "mean over tasks, `<s>`" in rows
    with pytest.raises(UsageError, match="different examples"):
        outcomes.pair([measured["mlm-1", "kind"]], [measured["mlm-1", "length"]])


def test_one_seed_is_compared_over_examples_only_and_what_is_secondary_is_in_no_mean(evaluated):
    names = dict(zip(["imdb", "own"], TASKS))
    results = {model: {name: load(evaluated[0], model, names[name]) for name in names} for model in MODELS[:3]}
    text = Report(results, [("mae_lm", "mlm")]).text()
    assert "1 seed; 95% intervals over examples, for these two models only" in text
    for title in ["Score", "Last layer"]:
        scores = list(rows_of(text, title).values())[2:]
        assert [mean.split(" ± ")[0] for _, _, mean in scores] == [own for _, own, _ in scores]
    rows = rows_of(text, "mae_lm minus mlm")
    assert rows["**mean over tasks** (primary)"] == rows["own"] != rows["imdb"]


def test_the_same_command_resumes(evaluated):
    folder, arguments, output = evaluated
    times = {path: path.stat().st_mtime_ns for path in (folder / "out" / "records").rglob("*.*")}
    assert len(times) == len(MODELS) * 2 * 2
    lost = folder / "out" / "records" / "mlm-2" / "kind" / "frozen.json"
    before = lost.read_text()
    lost.unlink()
    assert script("recipes/evaluate.sh", *arguments).stdout == output
    assert {path.parent for path in times if path.stat().st_mtime_ns != times[path]} == {lost.parent}
    assert lost.read_text() == before


def test_fine_tuning_by_folds(evaluated, tmp_path, monkeypatch):
    """Two folds; each is predicted by a model that was trained on the other."""
    (folder, arguments, _), seen = evaluated, []
    task = load_task(folder / "labelled" / "kind")
    task.folds = task.folds % 2
    encoder = Encoder(str(folder / "mlm-1.pt"), str(arguments[arguments.index("--data") + 1]))
    load = fine_tuning.load_task

    def spy(model_file):
        fold, (tuned, model) = len(seen), load(model_file)
        (head,) = model.classification_heads.values()
        assert type(head) is POOLING["mean"]
        texts = [task.texts[i] for i in np.flatnonzero(task.folds == fold)]
        trained = (Path(tuned.cfg.labelled) / "train.tsv").read_text().splitlines()[1:]
        assert not {line.split("\t")[0] for line in trained} & set(texts) and len(trained) + len(texts) == 150
        predicted = hub.from_pretrained(model_file, data=encoder.data).predict(texts)
        seen.append([task.labels.index(max(row, key=row.get)) for row in predicted])
        return tuned, model

    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setattr(fine_tuning, "load_task", spy)
    path = fine_tuning.fine_tune(Jobs(), "mlm-1", encoder, task, str(tmp_path), "mean")
    record, kinds = outcomes.read(path)
    (outcome,) = kinds.values()
    for fold, predicted in enumerate(seen):
        assert outcome.answers[0, task.folds == fold].tolist() == predicted
    assert record["kinds"] == ["fine-tuned-mean"] and len(seen) == 2
    assert fine_tuning.fine_tune(None, "mlm-1", encoder, task, str(tmp_path), "mean") == path  # nothing is left to do


def test_fine_tuning_is_reported_beside_the_probes(evaluated, tmp_path, monkeypatch):
    """With a stand-in for the training itself: it takes the outcomes of `<s>` in the last layer."""
    folder, arguments, _ = evaluated

    def stand_in(jobs, name, encoder, task, dest, pooling):
        path, first = outcomes.record_path(tmp_path, name, task.name), load(folder, name, task.name)[1]["first"]
        last = dict(answers=first.answers[-1:], layers=np.zeros(5, np.int64))
        outcomes.save(path, name, task, {f"fine-tuned-{pooling}": last}, {})
        return path

    monkeypatch.setattr(evaluate_program, "fine_tune", stand_in)
    evaluate_program.evaluate(Jobs(), [*map(str, arguments), "--fine-tune", "mean"])
    text = (folder / "out" / "evaluation.md").read_text()
    rows = rows_of(text, "Fine-tuned on the mean of tokens")
    assert list(rows)[2:] == MODELS
    expected = load(folder, "mlm-2", "kind")[1]["first"].score(outcomes.LAST)
    assert float(rows["mlm-2"][0]) == pytest.approx(expected, abs=0.006)
    assert "mean over tasks, fine-tuned on the mean of tokens" in rows_of(text, "mae_lm minus mlm")


def test_what_is_wrong_is_said_in_one_line(evaluated, tmp_path):
    folder, arguments, _ = evaluated

    def refused(message, *more):
        with pytest.raises((UsageError, MissingFileError), match=message) as error:
            evaluate_program.evaluate(Jobs(), [*map(str, arguments), *map(str, more)])
        assert "\n" not in str(error.value)

    refused("--names a b: expected 4 different names", "--names", "a", "b")
    refused("mae_lm-SEED and other-SEED with one seed, found mlm-1", "--compare", "mae_lm", "other")
    missing = ["--checkpoint", *(tmp_path / f"{name}.pt" for name in MODELS)]
    refused("mlm-1.pt: not found, expected a checkpoint", *missing)
    refused("dict.txt: not found", "--data", tmp_path)
    refused("--tasks mood: .* has no folder of that name", "--tasks", "mood")
    swapped = ["--names", "mae_lm-1", "mlm-1", "mae_lm-2", "mlm-2"]
    refused("with different options: checkpoint or vocabulary differs", *swapped)
    record = folder / "out" / "records" / "mlm-1" / "kind" / "frozen.npz"
    record.write_bytes(record.read_bytes()[:100])
    refused("frozen.npz: damaged")
    record.with_suffix(".json").write_text('{"model": "mlm-1", "task": []}')
    refused("frozen.json: task: found a list, expected a text; .* should be a record of recipes/evaluate.sh")
    done = script("recipes/evaluate.sh", *arguments[: arguments.index("--labelled")], "--tasks", "mood", status=1)
    assert "invalid choice: 'mood' (choose from" in done.stdout
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: --tasks mood: not fetched (see above); give texts of your own")
