"""recipes/evaluate.sh from end to end, on tiny models and tasks; its records and tables."""

import io
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from conftest import documents, refuses, script
from labelled import write_table
from maelm_fairseq import hub
from maelm_fairseq.base.errors import UsageError, one_line
from maelm_fairseq.base.provenance import sha256
from maelm_fairseq.baselines import bag_of_words_model
from maelm_fairseq.checkpoints import reading
from maelm_fairseq.evaluation import options
from maelm_fairseq.evaluation import program as evaluate_program
from maelm_fairseq.evaluation.model_record import ModelRecord
from maelm_fairseq.evaluation.probe_tasks import read_probe_task
from maelm_fairseq.evaluation.report import Report
from maelm_fairseq.precision import is_fast_in_bfloat16
from tables import rows_of

MODELS = ["mlm-1", "mae_lm-1", "mlm-2", "mae_lm-2"]
TASKS = ["kind", "length"]
BASELINES = ["bag of words", "most frequent class"]
BY_LAYER = "By layer, mean over tasks, mean of tokens"


def with_noise(weights, seed):
    torch.manual_seed(seed)
    noisy = dict(weights)
    for name, weight in weights.items():
        if name.endswith("weight"):
            noisy[name] = weight + 0.1 * torch.randn(weight.shape)
    return noisy


def write_tasks(folder):
    """Writes the task `kind`, with two classes, and `length`, with numbers."""
    texts = sorted({line for document in documents(120, 7) for line in document})[:150]
    tasks = {
        "kind": [(text, "long" if len(text) > 30 else "short") for text in texts],
        "length": [(text[::-1], str(len(text))) for text in texts],
    }
    for task, rows in tasks.items():
        write_table(folder / task / "train.tsv", ["sentence", "label"], rows[:100])
        write_table(folder / task / "dev.tsv", ["sentence", "label"], rows[100:])


@pytest.fixture(scope="module")
def evaluated(pretrained, tmp_path_factory):
    """A folder in which two arms of two seeds were evaluated on two tasks.

    Their weights are those of one checkpoint with noise. With the folder come the arguments of the
    command, and what it printed.
    """
    data, checkpoint = pretrained
    folder = tmp_path_factory.mktemp("evaluated")
    state = reading.read_torch_file(checkpoint)
    for seed, name in enumerate(MODELS):
        weights = with_noise(state["model"], seed)
        torch.save({**state, "model": weights}, folder / f"{name}.pt")
    write_tasks(folder / "labelled")
    arguments = [
        "--checkpoint", *(folder / f"{name}.pt" for name in MODELS),
        "--data", data, "--dest", folder / "out", "--labelled", folder / "labelled",
        "--tasks", "kind", "length", "--regression", "length",
        "--few-shot-repeats", 2, "--side-by-side", "--compare", "mae_lm", "mlm",
    ]  # fmt: skip
    return folder, arguments, script("recipes/evaluate.sh", *arguments).stdout


def load(folder, model):
    return ModelRecord(str(folder / "out" / f"{model}.npz"))


def score_in(record, task):
    """The score of the chosen layers, from the answers in a record: its value and its metric."""
    with np.load(record) as arrays:
        targets = arrays[f"{task}/targets"]
        layers = arrays[f"{task}/mean/layers"][arrays[f"{task}/folds"]]
        answers = arrays[f"{task}/mean"][layers, np.arange(150)]
    if task == "length":
        return 100 * np.corrcoef(answers, targets)[0, 1], "100 x Pearson"
    return 100 * np.mean(answers == targets), "accuracy"


def test_records_agree_with_the_tables(evaluated):
    folder, _, output = evaluated
    text = (folder / "out" / "evaluation.md").read_text()
    table = pd.read_csv(folder / "out" / "scores.csv")
    primary = rows_of(text, "Score")
    assert list(primary)[2:] == [*MODELS, *BASELINES]
    assert primary["model"] == ["kind", "length", "mean"]
    of_means = table[table.feature == "mean"]
    for model in MODELS:
        scores = []
        for task in TASKS:
            value, metric = score_in(folder / "out" / f"{model}.npz", task)
            scores.append(value)
            assert f"{model}, {task}: {metric} {value:.2f}" in output
            rows = of_means[(of_means.model == model) & (of_means.task == task)]
            assert rows.layer.tolist() == ["0", "1", "2", "last", "chosen"]
            assert set(rows.metric) == {metric}
            assert rows.value.iloc[-1] == pytest.approx(value, abs=1e-3)
            assert rows.value.iloc[-2] == rows.value.iloc[-3]
        shown = [float(cell) for cell in primary[model]]
        assert shown == pytest.approx([*scores, np.mean(scores)], abs=0.01)


def test_secondary_tables(evaluated):
    folder, _, _ = evaluated
    text = (folder / "out" / "evaluation.md").read_text()
    table = pd.read_csv(folder / "out" / "scores.csv")
    smallest = r"kind: 150 examples, .*few-shot probes have at most \d\d? of its smallest class"
    assert re.search(smallest, text)
    few = table[(table.model == MODELS[-1]) & (table.feature == "128 examples per class")].value
    shown = [float(cell) for cell in rows_of(text, "128 examples per class")[MODELS[-1]]]
    assert shown == pytest.approx([*few, few.mean()], abs=0.006)
    assert rows_of(text, BY_LAYER)["model"] == ["layer 0", "layer 1", "layer 2"]
    for title in ["`<s>`", "Layers side by side", "By layer, mean over tasks, mean", "Last layer"]:
        assert list(rows_of(text, title))[2:] == [*MODELS, *BASELINES]


def test_what_needs_no_encoder_is_scored_on_the_same_folds(evaluated):
    folder, _, output = evaluated
    text = (folder / "out" / "evaluation.md").read_text()
    task = read_probe_task(str(folder / "labelled" / "kind"))
    counts = bag_of_words_model.NgramCounts(task.texts)
    correct = []
    for fold in range(5):
        train = np.flatnonzero(task.folds != fold)
        test = np.flatnonzero(task.folds == fold)
        predicted = bag_of_words_model.train_and_predict(counts, task.targets, train, test)
        correct += list(predicted == task.targets[test])
    rows = rows_of(text, "Score")
    assert float(rows["bag of words"][0]) == pytest.approx(100 * np.mean(correct), abs=0.006)
    most_frequent = 100 * np.bincount(task.targets).max() / 150
    assert float(rows["most frequent class"][0]) == pytest.approx(most_frequent, abs=2)
    assert float(rows["most frequent class"][1]) == 0  # A constant has no correlation.
    assert rows_of(text, BY_LAYER)["bag of words"][:1] == rows["bag of words"][2:]
    score = rows["bag of words"][0]
    assert f"\nbag of words, kind: accuracy {score} (no encoder)\n" in output
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
    interval = f"{difference:+.2f} ({low:+.2f} to {high:+.2f}, over 2 seeds)"
    assert f"\nmae_lm minus mlm, mean over tasks: {interval}\n" in output
    table = pd.read_csv(folder / "out" / "scores.csv")
    for title, layer in [("mean", "chosen"), ("mean, last layer", "last")]:
        of_layer = table[(table.feature == "mean") & (table.layer == layer)]
        mean = of_layer.groupby("model").value.mean()
        differences = np.array([mean[f"mae_lm-{seed}"] - mean[f"mlm-{seed}"] for seed in [1, 2]])
        center = differences.mean()
        width = stats.t.ppf(0.975, 1) * differences.std(ddof=1) / 2**0.5
        expected = [center, center - width, center + width]
        assert [float(cell) for cell in rows[title][:3]] == pytest.approx(expected, abs=0.006)
    assert {"kind", "length", "mean, `<s>`", "mean, 8 examples per class"} < set(rows)


@pytest.fixture
def three_records(evaluated):
    """Records of three models, in which the task `kind` is called `imdb`."""
    records = [load(evaluated[0], model) for model in MODELS[:3]]
    for record in records:
        arrays = record.arrays.items()
        record.arrays = {key.replace("kind/", "imdb/"): array for key, array in arrays}
    return records


def test_one_seed_is_compared_over_examples_only_and_what_is_secondary_is_in_no_mean(
    three_records,
):
    report = Report(three_records, ["imdb", "length"], secondary=["imdb"])
    text = report.text([("mae_lm", "mlm")])
    how = "over seeds, or where there is one, over examples, for these two models only"
    assert f"95% intervals {how}" in text
    scores = list(rows_of(text, "Score").values())[2:]
    assert [mean for _, _, mean in scores] == [length for _, length, _ in scores]
    rows = rows_of(text, "mae_lm minus mlm")
    assert rows["mean"] == rows["length"]
    assert rows["mean"] != rows["imdb"]
    assert rows["mean"][-2:] == ["1", "1"]

    mlm, mae_lm, _ = three_records
    targets = mlm.arrays["imdb/targets"]
    assert mae_lm.arrays["imdb/targets"].tolist() == targets.tolist()
    mlm_correct = mlm.predictions("imdb", "mean") == targets
    mae_lm_correct = mae_lm.predictions("imdb", "mean") == targets
    width = 1.96 * 100 * (mae_lm_correct.astype(float) - mlm_correct).std() / 150**0.5
    difference, low, high = map(float, rows["imdb"][:3])
    assert difference - low == pytest.approx(width, rel=0.1)
    assert high - difference == pytest.approx(width, rel=0.1)


def test_tasks_without_few_shot_scores_are_left_out_of_their_table(evaluated):
    """They have a score of the most frequent class, from all examples."""
    folder, *_ = evaluated
    records = [load(folder, name) for name in MODELS]
    baselines = [load(folder, name) for name in BASELINES]
    for record in [*records, *baselines]:
        record.arrays.pop("kind/few_shot", None)
    report = Report(records, ["kind", "length"], baselines=baselines)
    frame = report.scores("8 examples per class")
    assert [*frame.columns] == ["length", "mean"]
    assert {*frame.index} == {*MODELS, *BASELINES}
    assert len(report.differences(("mae_lm", "mlm"), "8 examples per class"))


def test_what_two_arms_do_not_share_is_not_compared(three_records):
    arms = ("mae_lm", "mlm")
    arrays = three_records[0].arrays
    report = Report(three_records, ["imdb", "length"], secondary=["imdb"])
    del arrays["length/side_by_side"]
    without = Report(three_records, ["imdb", "length"])
    assert not len(without.differences(arms, "side_by_side"))
    arrays["length/targets"] = arrays["length/targets"][::-1]
    message = "mae_lm-1 and mlm-1: evaluated on different examples of length"
    refuses(message, report.differences, arms)


def test_the_same_command_resumes(evaluated):
    folder, arguments, output = evaluated
    files = {path: path.read_bytes() for path in (folder / "out").glob("*.npz")}
    times = {path: path.stat().st_mtime_ns for path in files}
    assert {path.stem for path in files} == {*MODELS, *BASELINES}
    record = load(folder, "mlm-2")
    kept = {}
    for key, array in record.arrays.items():
        if not key.startswith("kind/first"):
            kept[key] = array
    np.savez(record.path, **kept)
    assert script("recipes/evaluate.sh", *arguments).stdout == output
    assert [path.stem for path in times if path.stat().st_mtime_ns != times[path]] == ["mlm-2"]
    assert {path: path.read_bytes() for path in files} == files


def test_default_names_tell_models_apart():
    paths = ["a.pt", "runs/mlm/checkpoint_best.pt", "runs/mae_lm/checkpoint_best.pt", "b.v1/"]
    names = [options.default_name(path) for path in paths]
    assert names == ["a", "mlm", "mae_lm", "b.v1"]


@pytest.fixture
def refused(evaluated):
    """A function: checks that the program refuses changed options with a message in one line."""
    _, arguments, _ = evaluated

    def check(message, *changed):
        options = {}
        for word in map(str, [*arguments, *changed]):
            if word.startswith("--"):
                values = options[word] = []
            else:
                values.append(word)
        words = []
        for name, values in options.items():
            words += [name, *values]
        with pytest.raises((UsageError, FileNotFoundError)) as error:
            evaluate_program.main(words, "recipes/evaluate.sh", "no_fetcher.py")
        assert re.search(message, one_line(error.value))

    return check


def test_what_is_wrong_is_said_in_one_line(evaluated, refused, tmp_path):
    folder, _, _ = evaluated
    refused("--names: found a b, expected 4 different names", "--names", "a", "b")
    refused(
        "mae_lm-SEED and other-SEED with one seed, such as mae_lm-1 and",
        "--compare",
        "mae_lm",
        "other",
    )
    missing = ["--checkpoint", *(tmp_path / f"{name}.pt" for name in MODELS)]
    refused("mlm-1.pt: not found", *missing)
    refused("dict.txt: not found", "--data", tmp_path)
    message = "labelled/mood: expected train.tsv, found: no such folder"
    refused(message, "--tasks", "mood", "--regression", "mood")
    for name in ["../mlm", "/mlm", " ", ".", "a|b", "a\nb", "a" * 300, "mean"]:
        refused("--names .*: expected", "--names", name, *MODELS[1:])
    message = "--names bag of words: the name is reserved, for a baseline or a column"
    refused(message, "--names", "bag of words", *MODELS[1:])
    refused("--tasks 'sub/kind': expected a name", "--tasks", "sub/kind")
    encoder = {"encoder", "embed_tokens"}
    state = reading.read_torch_file(folder / "mlm-1.pt")
    weights = {
        name: state["model"][name] for name in state["model"] if name.split(".")[0] in encoder
    }
    torch.save({**state, "model": weights}, tmp_path / "tuned.pt")
    write_table(tmp_path / "pairs.tsv", ["good", "bad"], [("kan", "lo")])
    message = "tuned.pt: found a fine-tuned model, which predicts no masked tokens; --pairs needs"
    models = [tmp_path / "tuned.pt", *(folder / f"{name}.pt" for name in MODELS[1:])]
    refused(message, "--checkpoint", *models, "--pairs", tmp_path / "pairs.tsv")
    tasks_in = options.tasks_in
    for place, found in {"none": "nothing", "pairs.tsv": "a file"}.items():
        message = f"--labelled {tmp_path}/{place}: found {found}, expected a folder with TASK/train"
        refuses(message, tasks_in, f"{tmp_path}/{place}")
    message = "labelled/kind: found no TASK/train.tsv; give the"
    refuses(message, tasks_in, f"{folder}/labelled/kind")
    assert tasks_in(str(folder / "labelled")) == TASKS
    refused("--regression typo: expected some of --tasks, kind length", "--regression", "typo")
    message = "--few-shot-repeats: expected an integer from 0 to 2147483647, found '-1'"
    refused(message, "--few-shot-repeats", "-1")
    refused("--compare mlm mlm: expected two different arms", "--compare", "mlm", "mlm")
    (tmp_path / "evaluation.md").write_text("somebody's")
    refused("evaluation.md: exists already; remove it or choose another --dest", "--dest", tmp_path)
    swapped = ["--names", "mae_lm-1", "mlm-1", "mae_lm-2", "mlm-2"]
    refused("with different options: checkpoint or vocabulary differs", *swapped)


def test_an_encoder_that_was_fine_tuned_on_a_task_is_not_evaluated_on_it(
    evaluated, refused, tmp_path
):
    folder, arguments, _ = evaluated
    checkpoint = tmp_path / "tuned.pt"
    state = reading.read_torch_file(arguments[1])
    train_file = sha256(folder / "labelled/kind/train.tsv")
    # Then it was fine-tuned on something else.
    files = {"train_file": "0" * 64, "earlier_train_files": [train_file]}
    state["task_state"] = {**state["task_state"], **files}
    torch.save(state, checkpoint)
    others = [folder / f"{name}.pt" for name in MODELS[1:]]
    changed = ["--checkpoint", checkpoint, *others, "--dest", tmp_path / "out"]
    fault = "tuned.pt: it was fine-tuned on .*kind/train.tsv, which it would be evaluated on; give"
    refused(fault, *changed)
    assert not list(tmp_path.glob("out/*.npz"))


def test_damaged_records_are_refused(evaluated, refused):
    folder, _, _ = evaluated
    record = folder / "out" / "mlm-1.npz"
    whole = record.read_bytes()
    arrays = load(folder, "mlm-1").arrays
    for damaged in [
        {},
        {"other": [1]},
        {**arrays, "kind/mean": 1},
        {**arrays, "kind/mean/origin": "{broken"},
        {**arrays, "kind/mean/origin": "[1]"},
        {**arrays, "more/pairs": [1.0]},
    ]:
        np.savez(record, **damaged)
        refused("mlm-1.npz: cannot be read")
    array_file = io.BytesIO()
    np.save(array_file, np.zeros(3))
    for content in [array_file.getvalue(), whole[:100], b""]:
        record.write_bytes(content)
        refused("mlm-1.npz: cannot be read")
    record.write_bytes(whole)


def test_files_of_another_origin_are_refused_and_kept(evaluated, refused, tmp_path):
    folder, _, _ = evaluated
    copy = tmp_path / "copy"
    for name, message in {
        "scores.csv": "scores.csv: the first line is 'mine', expected 'model,task,feature,",
        "evaluation.md": "evaluation.md: the first line is 'mine', expected '# Evaluation'",
        "notes.npz": "notes.npz: cannot be read .*, expected the record of an evaluation; move",
        "bag of words.npz": "bag of words.npz: cannot be read",
    }.items():
        shutil.copytree(folder / "out", copy)
        (copy / name).write_text("mine\n")
        before = {path: path.read_bytes() for path in copy.iterdir()}
        refused(message, "--dest", copy)
        (copy / name).unlink()
        (copy / name).mkdir()
        refused(f"found a folder called {name}|{name}: found a folder", "--dest", copy)
        (copy / name).rmdir()
        del before[copy / name]
        assert {path: path.read_bytes() for path in copy.iterdir()} == before
        shutil.rmtree(copy)


def test_a_task_that_is_not_fetched(evaluated):
    _, arguments, _ = evaluated
    options = [*arguments[: arguments.index("--labelled")], "--tasks", "mood"]
    done = script("recipes/evaluate.sh", *options, status=1)
    assert "invalid choice: 'mood' (choose from" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: --tasks mood: not fetched (see above); give texts of your own")


def good_lines():
    """30 lines of more than three words."""
    lines = {line for document in documents(30, 9) for line in document}
    return sorted(line for line in lines if len(line.split()) > 3)[:30]


def backwards(line):
    return " ".join(reversed(line.split()))


def correctness(model, good, bad):
    """1 if the model prefers the good line, 0 if it prefers the bad one, 0.5 if they are equal."""
    if good == bad:
        return 0.5
    return float(model.score(good)[0] < model.score(bad)[0])


def test_minimal_pairs(evaluated, pretrained, tmp_path):
    folder, arguments, _ = evaluated
    good = good_lines()
    bad = [*good[:2], *map(backwards, good[2:])]  # The first two pairs are ties.
    groups = ["|short" if len(line.split()) < 7 else "from" for line in good]
    groups[2] = ""  # This pair is in no group.
    rows = ["\t".join(row) for row in zip(groups, bad, good)]
    (tmp_path / "made.tsv").write_text("\n".join(["group\tbad\tgood", *rows, ""]))
    options = [*arguments[: arguments.index("--labelled")], "--pairs", tmp_path / "made.tsv"]
    options[options.index("--dest") + 1] = tmp_path / "out"
    options += ["--compare", "mae_lm", "mlm"]
    texts = []
    for _ in range(2):  # The second time, the scores come from the records.
        printed = script("recipes/evaluate.sh", *options).stdout
        texts.append((tmp_path / "out" / "evaluation.md").read_text())
    advice = "give the model another name in --names"
    if is_fast_in_bfloat16("cpu"):
        printed_error = script("recipes/evaluate.sh", *options, "--bf16-autocast", status=1).stderr
        assert f"precision was not given and is bfloat16; {advice}" in printed_error
    first, text = texts
    assert rows_of(text, "Minimal pairs: made") == rows_of(first, "Minimal pairs: made")
    assert "Score" not in text
    assert "of one seed, for these two models only; of more, over seeds, too." in text
    assert "with 95% intervals over pairs, within groups; by chance, 50% are right." in text
    table = pd.read_csv(tmp_path / "out" / "scores.csv").set_index(["model", "feature"]).value
    shown = rows_of(text.replace("\\|", ""), "Minimal pairs: made")
    decisions = {}
    for column, name in enumerate(MODELS):
        model = hub.from_pretrained(folder / f"{name}.pt", pretrained[0])
        correct = np.array([correctness(model, *pair) for pair in zip(good, bad)])
        decisions[name] = correct
        share, low, high, count = map(float, shown[name])
        assert share == pytest.approx(100 * correct.mean(), abs=0.01)
        assert low < share < high
        assert count == 30
        interval = f"({low:.2f} to {high:.2f}) of 30 pairs"
        assert f"{name}, made: {share:.2f}% {interval} decided correctly" in printed
        assert table[name, "pairs"] == pytest.approx(share, abs=0.01)
        for group in ["from", "|short"]:
            expected = 100 * correct[np.array(groups) == group].mean()
            assert float(shown[group.strip("|")][column]) == pytest.approx(expected, abs=0.01)
            assert table[name, f"pairs: {group}"] == pytest.approx(expected, abs=0.01)
            assert shown[group.strip("|")][-1] == str(groups.count(group))
    gaps = [decisions[f"mae_lm-{seed}"] - decisions[f"mlm-{seed}"] for seed in [1, 2]]
    row = rows_of(text, "mae_lm minus mlm")["made"]
    difference, low, high, *counts = map(float, row)
    assert difference == pytest.approx(100 * np.mean(gaps), abs=0.01)
    assert low <= difference <= high
    differing = np.count_nonzero(np.any(gaps, axis=0))
    assert counts == [2, 30, differing]
    interval = f"({low:+.2f} to {high:+.2f}, over pairs, within groups and 2 seeds)"
    line = f"mae_lm minus mlm, made: {difference:+.2f} points {interval}; "
    assert f"\n{line}decided differently: {differing} of 30 pairs\n" in printed


def write_paradigm(folder, term, paradigm, pairs):
    """Writes a file of BLiMP."""
    text = ""
    for good, bad in pairs:
        sentences = {"sentence_good": good, "sentence_bad": bad}
        text += json.dumps({**sentences, "linguistics_term": term, "UID": paradigm}) + "\n"
    (folder / f"{paradigm}.jsonl").write_text(text)


def test_a_folder_of_blimp_is_decided_like_a_table(evaluated, tmp_path):
    """The same pairs in both forms; groups are terms and their paradigms."""
    _, arguments, _ = evaluated
    lines = good_lines()
    paradigms = {"islands/a": lines[:8], "islands/b": lines[8:20], "agreement/c": lines[20:]}
    (tmp_path / "folder").mkdir()
    rows = []
    for group, good in paradigms.items():
        pairs = [(line, backwards(line)) for line in good]
        rows += [(*pair, group) for pair in pairs]
        write_paradigm(tmp_path / "folder", *group.split("/"), pairs)
    write_table(tmp_path / "table.tsv", ["good", "bad", "group"], rows)
    options = [*arguments[: arguments.index("--labelled")], "--dest", tmp_path / "out"]
    options += ["--pairs", tmp_path / "folder", tmp_path / "table.tsv"]
    script("recipes/evaluate.sh", *options)
    text = (tmp_path / "out" / "evaluation.md").read_text()
    shown = rows_of(text, "Minimal pairs: folder")
    assert shown == rows_of(text, "Minimal pairs: table")
    assert "with 95% intervals over 3 paradigms, the groups TERM/UID;" in text
    assert shown["group"] == [*MODELS, "pairs"]
    terms = ["agreement", "agreement/c", "islands", "islands/a", "islands/b"]
    assert [name for name in shown if name in terms] == terms
    scores = pd.read_csv(tmp_path / "out" / "scores.csv")
    scores = scores.set_index(["model", "task", "feature"]).value[MODELS[0], "folder"]
    assert list(scores.index) == ["pairs", *(f"pairs: {term}" for term in terms)]
    for term in terms:
        assert float(shown[term][0]) == pytest.approx(scores[f"pairs: {term}"], abs=0.006)
    paradigm_shares = [scores["pairs: islands/a"], scores["pairs: islands/b"]]
    assert scores["pairs: islands"] == pytest.approx(np.average(paradigm_shares, weights=[8, 12]))
