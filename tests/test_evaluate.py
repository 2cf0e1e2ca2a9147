"""recipes/evaluate.sh from end to end, on tiny models and tasks; its records and tables."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from conftest import documents, refuses, script
from labelled import write_table
from maelm_fairseq import hub
from maelm_fairseq.base.errors import UsageError, one_line
from maelm_fairseq.checkpoints import reading
from maelm_fairseq.evaluation import bag_of_words
from maelm_fairseq.evaluation import program as evaluate_program
from maelm_fairseq.evaluation.outcomes import Records
from maelm_fairseq.evaluation.probe_tasks import load_task
from maelm_fairseq.evaluation.report import Report

MODELS, TASKS = ["mlm-1", "mae_lm-1", "mlm-2", "mae_lm-2"], ["kind", "length"]
YARDSTICKS = ["bag of words", "most frequent class"]


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
        rows = [(text if task == "kind" else text[::-1], label(text)) for text in texts]
        for split, part in [("train", rows[:100]), ("dev", rows[100:])]:
            write_table(folder / "labelled" / task / f"{split}.tsv", ["sentence", "label"], part)
    arguments = [
        "--checkpoint", *(folder / f"{name}.pt" for name in MODELS), "--data", data, "--dest", folder / "out",
        "--labelled", folder / "labelled", "--tasks", "kind", "length", "--regression", "length",
        "--few-shot-repeats", 2, "--side-by-side", "--compare", "mae_lm", "mlm",
    ]  # fmt: skip
    return folder, arguments, script("recipes/evaluate.sh", *arguments).stdout


def load(folder, model):
    return Records(str(folder / "out" / f"{model}.npz"))


def rows_of(text, title):
    """The cells of a section's first table: {first cell: the others}."""
    section = re.split(r"^## ", text, flags=re.M)
    (lines,) = [part.splitlines()[1:] for part in section if part.startswith(title)]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[1:] for row in cells}


def test_records_agree_with_the_tables(evaluated):
    folder, _, output = evaluated
    text, table = (folder / "out" / "evaluation.md").read_text(), pd.read_csv(folder / "out" / "scores.csv")
    primary = rows_of(text, "Score")
    assert list(primary)[2:] == [*MODELS, *YARDSTICKS]
    assert primary["model"] == ["kind", "length", "mean"]
    assert re.search(r"kind: 150 examples, .*few-shot probes have at most \d\d? of its smallest class", text)
    for model in MODELS:
        scores = []
        for task in TASKS:
            with np.load(folder / "out" / f"{model}.npz") as arrays:
                layers, targets = arrays[f"{task}/mean/layers"], arrays[f"{task}/targets"]
                answers = arrays[f"{task}/mean"][layers[arrays[f"{task}/folds"]], np.arange(150)]
            value, metric = 100 * np.mean(answers == targets), "accuracy"
            if task == "length":
                value, metric = 100 * np.corrcoef(answers, targets)[0, 1], "100 x Pearson"
            scores.append(value)
            assert f"{model}, {task}: {metric} {value:.2f}" in output
            rows = table[(table.model == model) & (table.task == task) & (table.feature == "mean")]
            assert rows.layer.tolist() == ["0", "1", "2", "last", "chosen"] and set(rows.metric) == {metric}
            assert rows.value.iloc[-1] == pytest.approx(value, abs=1e-3) and rows.value.iloc[-2] == rows.value.iloc[-3]
        assert [float(cell) for cell in primary[model]] == pytest.approx([*scores, np.mean(scores)], abs=0.01)
    few = table[(table.model == MODELS[-1]) & (table.feature == "128 examples per class")].value
    shown = [float(cell) for cell in rows_of(text, "128 examples per class")[MODELS[-1]]]
    assert shown == pytest.approx([*few, few.mean()], abs=0.006)
    assert rows_of(text, "By layer, mean over tasks, mean of tokens")["model"] == ["layer 0", "layer 1", "layer 2"]
    for title in ["`<s>`", "Layers side by side", "By layer, mean over tasks, mean", "Last layer"]:
        assert list(rows_of(text, title))[2:] == [*MODELS, *YARDSTICKS]


def test_what_needs_no_encoder_is_scored_on_the_same_folds(evaluated):
    folder, _, _ = evaluated
    text = (folder / "out" / "evaluation.md").read_text()
    task = load_task(str(folder / "labelled" / "kind"))
    counts = bag_of_words.Counts([(each,) for each in task.texts])
    right = []
    for fold in range(5):
        train, test = (np.flatnonzero((task.folds == fold) == is_test) for is_test in (False, True))
        right += list(bag_of_words.predict(counts, task.targets, train, test) == task.targets[test])
    rows = rows_of(text, "Score")
    assert float(rows["bag of words"][0]) == pytest.approx(100 * np.mean(right), abs=0.006)
    assert float(rows["most frequent class"][0]) == pytest.approx(100 * np.bincount(task.targets).max() / 150, abs=2)
    assert float(rows["most frequent class"][1]) == 0  # a constant has no correlation
    assert rows_of(text, "By layer, mean over tasks, mean of tokens")["bag of words"][:1] == rows["bag of words"][2:]
    few = rows_of(text, "8 examples per class")
    assert few["bag of words"] != rows["bag of words"]
    assert few["most frequent class"][0] == rows["most frequent class"][0]
    table = pd.read_csv(folder / "out" / "scores.csv")
    features = table[(table.model == "bag of words") & (table.task == "kind")].feature
    assert {"text", "8 examples per class"} < set(features)


def test_arms_are_compared_by_seed(evaluated):
    folder, _, output = evaluated
    rows = rows_of((folder / "out" / "evaluation.md").read_text(), "mae_lm minus mlm")
    difference, low, high, *counts = map(float, rows["mean"])
    assert counts == [2, 2]
    assert f"\nmae_lm minus mlm, mean over tasks: {difference:+.2f} ({low:+.2f} to {high:+.2f})\n" in output
    table = pd.read_csv(folder / "out" / "scores.csv")
    for title, feature, layer in [("mean", "mean", "chosen"), ("mean, last layer", "mean", "last")]:
        chosen = table[(table.feature == feature) & (table.layer == layer)].groupby("model").value.mean()
        d = np.array([chosen[f"mae_lm-{seed}"] - chosen[f"mlm-{seed}"] for seed in [1, 2]])
        width = stats.t.ppf(0.975, 1) * d.std(ddof=1) / 2**0.5
        expected = [d.mean(), d.mean() - width, d.mean() + width]
        assert [float(cell) for cell in rows[title][:3]] == pytest.approx(expected, abs=0.006)
    assert {"kind", "length", "mean, `<s>`", "mean, 8 examples per class"} < set(rows)


def test_one_seed_is_compared_over_examples_only_and_what_is_secondary_is_in_no_mean(evaluated, tmp_path):
    records = [load(evaluated[0], model) for model in MODELS[:3]]
    for each in records:
        each.arrays = {key.replace("kind/", "imdb/"): array for key, array in each.arrays.items()}
    report = Report(records, ["imdb", "length"], secondary=["imdb"])
    text = report.text([("mae_lm", "mlm")])
    assert "95% intervals over seeds, or where there is one, over examples, for these two models only" in text
    scores = list(rows_of(text, "Score").values())[2:]
    assert [mean for _, _, mean in scores] == [own for _, own, _ in scores]
    rows = rows_of(text, "mae_lm minus mlm")
    assert rows["mean"] == rows["length"] != rows["imdb"] and rows["mean"][-2:] == ["1", "1"]
    ours, theirs = (each.answers("imdb", "mean") == each.arrays["imdb/targets"] for each in (records[1], records[0]))
    width = 1.96 * 100 * (ours.astype(float) - theirs).std() / 150**0.5
    difference, low, high = map(float, rows["imdb"][:3])
    assert difference - low == pytest.approx(width, rel=0.1) and high - difference == pytest.approx(width, rel=0.1)
    del records[0].arrays["length/side_by_side"]
    assert not len(Report(records, ["imdb", "length"]).differences(("mae_lm", "mlm"), "side_by_side"))
    records[0].arrays["length/targets"] = records[0].arrays["length/targets"][::-1]
    refuses("mae_lm-1 and mlm-1: evaluated on different examples of length", report.differences, ("mae_lm", "mlm"))


def test_the_same_command_resumes(evaluated):
    folder, arguments, output = evaluated
    files = {path: path.read_bytes() for path in (folder / "out").glob("*.npz")}
    times = {path: path.stat().st_mtime_ns for path in files}
    assert {path.stem for path in files} == {*MODELS, *YARDSTICKS}
    lost = load(folder, "mlm-2")
    np.savez(lost.path, **{key: array for key, array in lost.arrays.items() if not key.startswith("kind/first")})
    assert script("recipes/evaluate.sh", *arguments).stdout == output
    assert [path.stem for path in times if path.stat().st_mtime_ns != times[path]] == ["mlm-2"]
    assert {path: path.read_bytes() for path in files} == files


def test_what_is_wrong_is_said_in_one_line(evaluated, tmp_path):
    folder, arguments, _ = evaluated

    def refused(message, *instead):
        options = {}
        for word in map(str, [*arguments, *instead]):
            if word.startswith("--"):
                values = options[word] = []
            else:
                values.append(word)
        with pytest.raises((UsageError, FileNotFoundError)) as error:
            words = [word for name, values in options.items() for word in (name, *values)]
            evaluate_program.main(words, "recipes/evaluate.sh", "no_fetcher.py")
        assert re.search(message, one_line(error.value))

    refused("--names a b: expected 4 different names", "--names", "a", "b")
    refused("mae_lm-SEED and other-SEED with one seed, found mlm-1", "--compare", "mae_lm", "other")
    missing = ["--checkpoint", *(tmp_path / f"{name}.pt" for name in MODELS)]
    refused("mlm-1.pt: not found", *missing)
    refused("dict.txt: not found", "--data", tmp_path)
    refused("labelled/mood: expected train.tsv, found: no such folder", "--tasks", "mood", "--regression", "mood")
    for name in ["../mlm", "/mlm", " ", ".", "a|b", "a\nb", "a" * 300, "mean"]:
        refused("--names .*: expected", "--names", name, *MODELS[1:])
    refused("--names bag of words: every evaluation has a row", "--names", "bag of words", *MODELS[1:])
    refused("--tasks 'sub/kind': expected a name", "--tasks", "sub/kind")
    refuses("labelled/kind: found no TASK/train.tsv; give the", evaluate_program.tasks_in, f"{folder}/labelled/kind")
    assert evaluate_program.tasks_in(str(folder / "labelled")) == TASKS
    refused("--regression typo: expected some of --tasks, kind length", "--regression", "typo")
    refused("--few-shot-repeats: expected a whole number from 0 to 2147483647, found '-1'", "--few-shot-repeats", "-1")
    refused("--compare mlm mlm: expected two different arms", "--compare", "mlm", "mlm")
    (tmp_path / "evaluation.md").write_text("somebody's")
    refused("evaluation.md: exists already; remove it or choose another --dest", "--dest", tmp_path)
    swapped = ["--names", "mae_lm-1", "mlm-1", "mae_lm-2", "mlm-2"]
    refused("with different options: checkpoint or vocabulary differs", *swapped)
    record = folder / "out" / "mlm-1.npz"
    whole = record.read_bytes()
    arrays = load(folder, "mlm-1").arrays
    for damaged in [
        {}, {"other": [1]}, {**arrays, "kind/mean": 1}, {**arrays, "kind/mean/origin": "{broken"},
        {**arrays, "kind/mean/origin": "[1]"}, {**arrays, "more/pairs": [1.0]},
    ]:  # fmt: skip
        np.savez(record, **damaged)
        refused("mlm-1.npz: cannot be read")
    for save in [np.save, lambda stream, _: stream.write(whole[:100]), lambda stream, _: None]:
        with open(record, "wb") as stream:
            save(stream, np.zeros(3))
        refused("mlm-1.npz: cannot be read")
    done = script("recipes/evaluate.sh", *arguments[: arguments.index("--labelled")], "--tasks", "mood", status=1)
    assert "invalid choice: 'mood' (choose from" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: --tasks mood: not fetched (see above); give texts of your own")


def test_minimal_pairs(evaluated, pretrained, tmp_path):
    folder, arguments, _ = evaluated
    good = sorted({line for document in documents(30, 9) for line in document if len(line.split()) > 3})[:30]
    bad = [" ".join(reversed(line.split())) for line in good]
    bad[:2] = good[:2]  # a tie
    groups = ["|short" if len(line.split()) < 7 else "from" for line in good]
    groups[2] = ""  # in no group
    rows = ["group\tbad\tgood", *("\t".join(row) for row in zip(groups, bad, good)), ""]
    (tmp_path / "made.tsv").write_text("\n".join(rows))
    options = [*arguments[: arguments.index("--labelled")], "--pairs", tmp_path / "made.tsv"]
    options[options.index("--dest") + 1] = tmp_path / "out"
    text = ""
    for _ in range(2):  # the second time from the records
        script("recipes/evaluate.sh", *options)
        text, was = (tmp_path / "out" / "evaluation.md").read_text(), text
    assert rows_of(text, "Minimal pairs: made") == rows_of(was, "Minimal pairs: made") and "Score" not in text
    table = pd.read_csv(tmp_path / "out" / "scores.csv").set_index(["model", "feature"]).value
    assert "Right in percent, with 95% intervals over pairs, within groups." in text
    shown = rows_of(text.replace("\\|", ""), "Minimal pairs: made")
    for place, name in enumerate(MODELS):
        model = hub.from_pretrained(folder / f"{name}.pt", pretrained[0])
        right = [0.5 if a == b else float(model.score(a)[0] < model.score(b)[0]) for a, b in zip(good, bad)]
        share, low, high, count = map(float, shown[name])
        assert share == pytest.approx(100 * np.mean(right), abs=0.01) and low < share < high and count == 30
        assert table[name, "pairs"] == pytest.approx(share, abs=0.01)
        for group in ["from", "|short"]:
            part = float(shown[group.strip("|")][place])
            expected = 100 * np.mean([each for each, of in zip(right, groups) if of == group])
            assert part == pytest.approx(expected, abs=0.01) == table[name, f"pairs: {group}"]


def test_a_folder_of_blimp_is_decided_like_a_table(evaluated, tmp_path):
    """The same pairs in both forms; groups are terms and their paradigms."""
    _, arguments, _ = evaluated
    lines = {line for document in documents(30, 9) for line in document}
    lines = sorted(line for line in lines if len(line.split()) > 3)[:30]
    paradigms = {"islands/a": lines[:8], "islands/b": lines[8:20], "agreement/c": lines[20:]}
    (tmp_path / "folder").mkdir()
    rows = [["good", "bad", "group"]]
    for group, good in paradigms.items():
        term, paradigm = group.split("/")
        bad = [" ".join(reversed(line.split())) for line in good]
        rows += [[*pair, group] for pair in zip(good, bad)]
        names = {"linguistics_term": term, "UID": paradigm}
        written = [{"sentence_good": a, "sentence_bad": b, **names} for a, b in zip(good, bad)]
        path = tmp_path / "folder" / f"{paradigm}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in written))
    write_table(tmp_path / "table.tsv", *rows[:1], rows[1:])
    options = [*arguments[: arguments.index("--labelled")], "--dest", tmp_path / "out"]
    options += ["--pairs", tmp_path / "folder", tmp_path / "table.tsv"]
    script("recipes/evaluate.sh", *options)
    text = (tmp_path / "out" / "evaluation.md").read_text()
    shown = rows_of(text, "Minimal pairs: folder")
    assert shown == rows_of(text, "Minimal pairs: table")
    assert "with 95% intervals over 3 paradigms, the groups TERM/UID." in text
    assert shown["group"] == MODELS
    terms = ["agreement", "agreement/c", "islands", "islands/a", "islands/b"]
    assert [name for name in shown if name in terms] == terms
    scores = pd.read_csv(tmp_path / "out" / "scores.csv")
    scores = scores.set_index(["model", "task", "feature"]).value[MODELS[0], "folder"]
    assert list(scores.index) == ["pairs", *(f"pairs: {term}" for term in terms)]
    for term in terms:
        assert float(shown[term][0]) == pytest.approx(scores[f"pairs: {term}"], abs=0.006)
    paradigm_shares = [scores["pairs: islands/a"], scores["pairs: islands/b"]]
    assert scores["pairs: islands"] == pytest.approx(np.average(paradigm_shares, weights=[8, 12]))
