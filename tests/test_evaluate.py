"""recipes/evaluate.sh from end to end, on tiny models and tasks; its records and tables."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import PYTHON, ROOT, SCRIPTS_ENVIRONMENT, TINY, documents, prepare, succeed
from maelm_fairseq import hub
from maelm_fairseq.engine.errors import MissingFileError, UsageError
from maelm_fairseq.heads import POOLING

sys.path.insert(0, str(ROOT / "recipes"))
import evaluate as evaluate_program  # noqa: E402
from evaluation import fine_tuning, outcomes, statistics  # noqa: E402
from evaluation.features import Encoder  # noqa: E402
from evaluation.report import Report  # noqa: E402
from evaluation.tasks import Source, load_task  # noqa: E402


def evaluate(*arguments, check=True):
    """Runs the recipe; returns the finished process."""
    done = subprocess.run(
        [str(ROOT / "recipes" / "evaluate.sh"), *map(str, arguments)], env=SCRIPTS_ENVIRONMENT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert not check or done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A folder in which two arms of two seeds were evaluated on two tasks; and the arguments."""
    folder = tmp_path_factory.mktemp("evaluated")
    data, checkpoints = prepare(folder), []
    for name in ["mlm-1", "mae_lm-1", "mlm-2", "mae_lm-2"]:
        arm = ["--encoder-mask-fraction", 1, "--decoder-layers", 0] if name.startswith("mlm") else []
        arm += ["--seed", name[-1], "--max-update", 2, "--save-dir", folder / name]
        succeed("fairseq-train", data, *TINY, *arm)
        checkpoints.append(folder / name / "checkpoint_last.pt")
    texts = sorted({line for document in documents(120, 7) for line in document})[:150]
    for task, label in [
        ("kind", lambda text: "long" if len(text) > 30 else "short"),
        ("length", lambda t: str(len(t))),
    ]:
        (folder / "labelled" / task).mkdir(parents=True)
        rows = [f"{text if task == 'kind' else text[::-1]}\t{label(text)}\n" for text in texts]
        for split, part in [("train", rows[:100]), ("dev", rows[100:])]:
            (folder / "labelled" / task / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(part))
    arguments = [
        "--checkpoint", *checkpoints, "--names", "mlm-1", "mae_lm-1", "mlm-2", "mae_lm-2", "--data", data,
        "--labelled", folder / "labelled", "--tasks", "kind", "length", "--regression", "length", "--draws", 2,
        "--compare", "mae_lm", "mlm", "--dest", folder / "out",
    ]  # fmt: skip
    return folder, arguments, evaluate(*arguments).stdout


MODELS = ["mlm-1", "mae_lm-1", "mlm-2", "mae_lm-2"]


def load(folder, model, task):
    return outcomes.read(outcomes.record_path(str(folder / "out"), model, task))


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
        for task in ["kind", "length"]:
            record, found = load(folder, model, task)
            outcome, metric = found["mean"], record["metric"]
            assert outcome.answers.shape[1] == 150 and np.isfinite(outcome.bits).all()
            answers = outcome.answers[outcome.layers[outcome.folds], np.arange(150)]
            score = 100 * np.mean(answers == outcome.targets)
            if task == "length":
                assert metric == "100 x Pearson"
                score = 100 * np.corrcoef(answers, outcome.targets)[0, 1] if answers.std() else 0
            scores.append(score)
            assert outcome.score() == pytest.approx(score, abs=1e-3)
            assert record["scores"]["mean"]["chosen"] == pytest.approx(score, abs=1e-3)
            assert f"{model}, {task}: {metric} {score:.2f}" in output
            assert np.array(record["few_shot"]["last"]).shape == (3,)
        shown = primary[model][2].split(" ± ")
        assert float(shown[0]) == pytest.approx(np.mean(scores), abs=0.01) and float(shown[1]) > 0
    few = [load(folder, MODELS[-1], task)[0]["few_shot"]["chosen"][-1] for task in ["kind", "length"]]
    shown = [float(cell) for cell in rows_of(text, "Few-shot")[MODELS[-1]][1:]]
    assert shown == pytest.approx([*few, np.mean(few)], abs=0.006)  # the last row is that of most examples
    layers = rows_of(text, "By layer")
    assert layers["model"] == ["representation", "layer 0", "layer 1", "layer 2"]
    assert list(rows_of(text, "`<s>`"))[2:] == MODELS


def test_arms_are_compared_by_seed_and_example(evaluated):
    folder, _, output = evaluated
    rows = rows_of((folder / "out" / "evaluation.md").read_text(), "mae_lm minus mlm")
    difference, low, high, *_ = rows["**mean over tasks** (primary)"]
    assert f"\nmae_lm minus mlm, mean over tasks: {difference} ({low} to {high})\n" in output
    tasks = []
    for task in ["kind", "length"]:
        differences = [
            load(folder, f"mae_lm-{seed}", task)[1]["mean"].contributions()
            - load(folder, f"mlm-{seed}", task)[1]["mean"].contributions()
            for seed in [1, 2]
        ]
        ids = load(folder, "mlm-1", task)[1]["mean"].ids
        tasks.append(statistics.Paired(np.stack(differences), ids))
    for title, each in [("**mean over tasks** (primary)", tasks), ("kind", tasks[:1]), ("length", tasks[1:])]:
        interval = statistics.crossed_interval(each)
        shown = [float(cell) for cell in rows[title][:4]]
        assert shown == pytest.approx([interval.estimate, interval.low, interval.high, interval.error], abs=0.006)
    assert {"mean over tasks, `<s>`", "log-loss, bits"} <= set(rows)
    models = [("mae_lm-1", 1), ("mae_lm-2", 1), ("mlm-1", -1), ("mlm-2", -1)]
    last = [
        sign * load(folder, name, task)[1]["mean"].score(outcomes.LAST)
        for name, sign in models
        for task in ["kind", "length"]
    ]
    assert float(rows["mean over tasks, last layer"][0]) == pytest.approx(sum(last) / 4, abs=0.006)
    first, other = (load(folder, "mlm-1", task)[1]["mean"] for task in ["kind", "length"])
    with pytest.raises(UsageError, match="different examples"):
        outcomes.pair([first], [other])


def test_one_seed_is_compared_over_examples_only(evaluated):
    folder = evaluated[0]
    results = {name: {"kind": load(folder, name, "kind")} for name in ["mlm-1", "mae_lm-1", "mlm-2"]}
    text = Report(results, [("mae_lm", "mlm")]).text()
    assert "1 seed; intervals of 95% over these two models only" in text and "with 80% probability" not in text


def test_what_stands_apart_is_in_no_mean(evaluated):
    folder = evaluated[0]
    kind, length = (load(folder, "mlm-1", task) for task in ["kind", "length"])
    other = {task: load(folder, "mae_lm-1", name) for task, name in [("imdb", "kind"), ("own", "length")]}
    text = Report({"mlm-1": {"imdb": kind, "own": length}, "mae_lm-1": other}, [("mae_lm", "mlm")]).text()
    titles = ["Score", "Last layer", "Log-loss"]
    scores = [row for title in titles for row in list(rows_of(text, title).values())[2:]]
    assert [mean.split(" ± ")[0] for _, _, mean in scores] == [own for _, own, _ in scores]
    assert any(imdb != own for imdb, own, _ in scores)
    rows = rows_of(text, "mae_lm minus mlm")
    assert rows["**mean over tasks** (primary)"] == rows["own"] and "imdb" in rows


def test_the_same_command_resumes(evaluated):
    folder, arguments, output = evaluated
    records = sorted((folder / "out" / "records").rglob("*.*"))
    assert len(records) == len(MODELS) * 2 * 2
    times = [path.stat().st_mtime_ns for path in records]
    shutil.rmtree(folder / "out" / "features")
    lost = folder / "out" / "records" / "mlm-2" / "kind" / "frozen.json"
    before = json.loads(lost.read_text())
    lost.unlink()
    again = evaluate(*arguments).stdout
    assert again == output
    changed = [path for path, time in zip(records, times) if path.stat().st_mtime_ns != time]
    assert {path.parent for path in changed} == {lost.parent}
    assert json.loads(lost.read_text()) == before
    assert [path.name for path in (folder / "out" / "features").iterdir()] == ["mlm-2"]


def test_batches_have_one_length():
    random = np.random.default_rng(0)
    texts = ["x" * length for length in random.permutation(3000)]
    rows = np.flatnonzero(random.random(3000) < 0.8)
    order = fine_tuning.in_batches(texts, rows, np.random.default_rng(1))
    np.testing.assert_array_equal(np.sort(order), rows)
    lengths = [len(texts[i]) for i in order]
    spreads = [np.ptp(lengths[i : i + fine_tuning.BATCH_SIZE]) for i in range(0, len(rows), fine_tuning.BATCH_SIZE)]
    assert np.median(spreads) < 150 < 2500 < np.ptp(lengths[: fine_tuning.WINDOW])  # of 3,000
    again = fine_tuning.in_batches(texts, rows, np.random.default_rng(1))
    other = fine_tuning.in_batches(texts, rows, np.random.default_rng(2))
    assert np.array_equal(order, again) and not np.array_equal(order, other)


@pytest.mark.parametrize("pooling, name", [("first", "kind"), ("mean", "length")])
def test_fine_tuning_by_folds(evaluated, tmp_path, monkeypatch, pooling, name):
    """Two folds; each is predicted by a model that was trained on the other."""
    folder, seen = evaluated[0], []
    source = Source(name, regression=name == "length")
    task = load_task(source, str(folder / "labelled" / name))
    task.folds = task.folds % 2
    encoder = Encoder(str(folder / "mlm-1" / "checkpoint_last.pt"), str(folder / "data"))
    predictions = fine_tuning.predictions

    def compared(data, task, model_file):
        found = predictions(data, task, model_file)
        fold = len(seen)
        model = hub.from_pretrained(model_file, data=str(Path(data) / name))
        texts = [task.texts[i] for i in np.flatnonzero(task.folds == fold)]
        whole = [i for i, text in enumerate(texts) if len(model.encode(text)) <= 32]  # others are cut
        expected = model.predict([texts[i] for i in whole])
        if not source.regression:
            expected = [[row[label] for label in task.labels] for row in expected]
        assert len(whole) > 20
        np.testing.assert_allclose(found[whole].squeeze(), expected, rtol=1e-4, atol=1e-5)
        (head,) = model.model.classification_heads.values()
        assert type(head) is POOLING[pooling]
        trained = (Path(data).parent / "raw" / name / "train.tsv").read_text().splitlines()[1:]
        assert not {line.split("\t")[0] for line in trained} & set(texts) and len(trained) + len(texts) == 150
        seen.append(found)
        return found

    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setattr(fine_tuning, "predictions", compared)
    path = fine_tuning.fine_tune("mlm-1", encoder, task, str(tmp_path), pooling)
    record, found = outcomes.read(path)
    (outcome,) = found.values()
    answers = np.concatenate([rows[:, 0] if source.regression else rows.argmax(1) for rows in seen])
    order = np.concatenate([np.flatnonzero(task.folds == fold) for fold in [0, 1]])
    np.testing.assert_allclose(outcome.answers[0, order], answers, rtol=1e-5)
    assert np.isfinite(outcome.bits).all() and record["kinds"] == [f"fine-tuned-{pooling}"]
    monkeypatch.setattr(fine_tuning, "execute", None)  # nothing is left to do
    assert fine_tuning.fine_tune("mlm-1", encoder, task, str(tmp_path), pooling) == path


def test_fine_tuning_is_reported_beside_the_probes(evaluated, tmp_path, monkeypatch):
    """With a stand-in for the training itself: it takes the outcomes of `<s>`."""
    folder, arguments, _ = evaluated

    def stand_in(name, encoder, task, dest, pooling):
        record, found = load(folder, name, task.name)
        rows = {"answers": found["first"].answers[-1:], "bits": found["first"].bits[-1:], "layers": [0] * 5}
        arrays = {f"fine-tuned-{pooling}_{key}": value for key, value in rows.items()}
        arrays.update({key: getattr(found["first"], key) for key in ["ids", "targets", "folds"]})
        record.update(kinds=[f"fine-tuned-{pooling}"])
        path = outcomes.record_path(str(tmp_path), name, task.name, "fine-tuned")
        outcomes.save(path, record, arrays)
        return path

    monkeypatch.setattr(evaluate_program, "fine_tune", stand_in)
    evaluate_program.evaluate([*map(str, arguments), "--fine-tune", "mean"])
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
            evaluate_program.evaluate([*map(str, arguments), *map(str, more)])
        assert "\n" not in str(error.value)

    refused("2 names for 4 checkpoints", "--names", "a", "b")
    refused("'a/b' is used twice or is no name", "--names", "a/b", "b", "c", "d")
    refused("mae_lm-SEED and other-SEED with one seed, found mlm-1", "--compare", "mae_lm", "other")
    missing = ["--checkpoint", *[tmp_path / "none.pt"] * 2, "--names", "mlm-1", "mae_lm-1"]
    refused("none.pt: not found, expected a checkpoint", *missing)
    refused("dict.txt: not found, expected the vocabulary", "--data", tmp_path)
    refused("--tasks mood: .* has no folder of that name", "--tasks", "mood")
    refused("made with different checkpoint or vocabulary", "--names", "mae_lm-1", "mlm-1", "mae_lm-2", "mlm-2")
    record = folder / "out" / "records" / "mlm-1" / "kind" / "frozen.npz"
    record.write_bytes(record.read_bytes()[:100])
    refused("frozen.npz: damaged")
    checkpoint = folder / "mlm-1" / "checkpoint_last.pt"
    start = ["--checkpoint", checkpoint, "--data", folder / "data", "--dest", tmp_path / "out"]
    done = evaluate(*start, "--tasks", "mood", check=False)
    assert done.returncode == 1 and done.stderr.startswith("error: --tasks mood: expected trec, trec_fine")
