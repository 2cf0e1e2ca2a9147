"""Probes of frozen features: tasks, folds, features, and nested cross-validation."""

import itertools
import random
import shutil

import numpy as np
import pytest
import torch
from scipy import stats

from conftest import documents, refuses
from labelled import write_table
from maelm_fairseq import hub
from maelm_fairseq.evaluation import features, few_shot, probes
from maelm_fairseq.evaluation.probe_tasks import (
    ProbeTask,
    assign_folds,
    hash_of_texts,
    read_probe_task,
)


def write(folder, header, **splits):
    """Writes the files of a task: {split: rows}."""
    for split, rows in splits.items():
        write_table(folder / f"{split}.tsv", header, rows)
    return str(folder)


def examples(count, seed):
    """Different texts with a class, which their first letter decides, and a value."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        (document,) = documents(1, rng.random(), lines=1)
        text = f"{' '.join(document)} {i}"
        rows.append((text, "up" if text < "m" else "down", str(len(text) / 10)))
    return rows


def made_up(classes, count=120):
    """A task with made-up features of several layers: the second one knows most."""
    random = np.random.RandomState(0)
    x = random.normal(size=(3, count, 6)).astype(np.float32) * 3 + 1
    signal = x[1, :, 0] + x[1, :, 1] * 0.5 + x[2, :, 2] * 0.3 + random.normal(size=count)
    ids = random.permutation(count).astype(np.uint64)
    labels, targets = None, signal.astype(np.float64)
    if classes:
        labels = [str(i) for i in range(classes)]
        targets = np.argsort(np.argsort(signal)) * classes // count
    texts = [str(i) for i in ids]
    return x, ProbeTask("made-up", texts, labels, targets, ids, assign_folds(targets, ids), 0)


# Tasks and folds ----------------------------------------------------------------------------------


def test_all_splits_are_read_together(tmp_path, capsys):
    header = ("sentence", "label")
    rows = [(text, label) for text, label, _ in examples(60, 1)]
    text, label = rows[0]
    of_a_rare_class = ("one of a kind", "rare")
    of_a_text_that_is_there_already = (text.upper(), label)
    dev = [*rows[40:], of_a_rare_class, of_a_text_that_is_there_already]
    secret = [(f"a text {i}", "-1") for i in range(20)]
    task = read_probe_task(write(tmp_path, header, train=rows[:40], dev=dev, test=secret))
    warning = f"{tmp_path}/test.tsv: no labels, or the same everywhere: left out"
    assert warning in capsys.readouterr().err
    assert task.texts == [(text,) for text, _ in rows]
    assert task.labels == ["down", "up"]
    assert [task.labels[target] for target in task.targets] == [label for _, label in rows]
    assert task.dropped == 2
    assert task.metric == "accuracy"


def test_folds_depend_on_texts_alone(tmp_path):
    header = ("label", "sentence")
    rows = [(label, text) for text, label, _ in examples(203, 2)]
    first = read_probe_task(write(tmp_path / "a", header, train=rows[:100], dev=rows[100:]))
    shuffled = random.Random(1).sample(rows, len(rows))
    second = read_probe_task(write(tmp_path / "b", header, train=shuffled[:9], dev=shuffled[9:]))
    assert dict(zip(first.texts, first.folds)) == dict(zip(second.texts, second.folds))
    for target in [0, 1]:
        counts = np.bincount(first.folds[first.targets == target])
        assert len(counts) == 5
        assert counts.max() - counts.min() <= 1
    # The folds are the same on every machine and with every version of the libraries.
    ids = np.array([hash_of_texts((f"text {i}",)) for i in range(10)], np.uint64)
    assert assign_folds(np.arange(10) % 2, ids).tolist() == [1, 2, 4, 0, 3, 1, 0, 3, 2, 4]


def test_the_sentences_of_a_pair_are_in_one_fold(tmp_path):
    rows = []
    for i, (text, _, _) in enumerate(examples(63, 6)):
        rows += [(f"{text} {label}", str(i), label) for label in ["right", "wrong"]]
    header = ("sentence", "pair", "label")
    task = read_probe_task(write(tmp_path, header, train=rows[:-2], dev=rows[-2:]))
    assert (task.folds[::2] == task.folds[1::2]).all()
    assert np.ptp(np.bincount(task.folds)) <= 2

    def groups_of(size):
        """The folder of 60 sentences, of which as many have the same value in the column."""
        grouped = [(text, str(i // size), label) for i, (text, _, label) in enumerate(rows[:60])]
        return write(tmp_path / str(size), header, train=grouped[:-2], dev=grouped[-2:])

    assert sorted(np.bincount(read_probe_task(groups_of(5)).folds)) == [10, 10, 10, 15, 15]
    message = "0 usable examples of 60, .* same value in a column `pair` count as one"
    refuses(message, read_probe_task, groups_of(13))


def test_values_are_spread_over_folds(tmp_path, capsys):
    rows = [(text, value) for text, _, value in examples(200, 3)]
    header = ("sentence", "label")
    task = read_probe_task(write(tmp_path, header, train=rows[:-2], dev=rows[-2:]), regression=True)
    assert task.labels is None
    assert task.metric == "100 x Pearson"
    np.testing.assert_allclose(task.targets, stats.zscore([float(value) for _, value in rows]))
    seconds = [(text, f"{1.7e9 + 60 * float(value)}") for text, value in rows]
    in_seconds = write(tmp_path / "units", header, train=seconds[:-2], dev=seconds[-2:])
    same_task = read_probe_task(in_seconds, regression=True)
    np.testing.assert_allclose(same_task.targets, task.targets, atol=1e-6)
    means = [task.targets[task.folds == fold].mean() for fold in range(5)]
    at_random = np.std(task.targets) / np.sqrt(40)
    assert np.std(means) < 0.3 * at_random
    refuses("usable examples", read_probe_task, tmp_path)
    assert "all labels are numbers: to predict values instead of classes" in capsys.readouterr().err


def test_pairs_and_what_is_wrong(tmp_path):
    header = ("sentence1", "sentence2", "label")
    rows = [(text, text[::-1], label) for text, label, _ in examples(50, 4)]
    task = read_probe_task(write(tmp_path / "pairs", header, train=rows[:-2], dev=rows[-2:]))
    assert task.texts[0] == rows[0][:2]
    # Pairs that differ only in where the first sentence ends.
    words = []
    for i in range(20):
        words += [("a", f"b c {i}", "x"), ("a b", f"c {i}", "y")]
    blank = [(*row[:2], "") for row in rows[:9]]  # A test file may be like this.
    task = read_probe_task(
        write(tmp_path / "words", header, train=words, dev=words[:1], test=blank)
    )
    assert len(task.texts) == 40
    assert task.dropped == 1
    refuses(
        "0 usable examples",
        read_probe_task,
        write(tmp_path / "few", header, train=rows[:2], dev=rows[:2]),
    )
    refuses(
        "as line 2: the label is '.*', expected a number",
        read_probe_task,
        tmp_path / "pairs",
        regression=True,
    )


# Features -----------------------------------------------------------------------------------------


def test_features_are_those_of_the_hub(pretrained):
    data, checkpoint = pretrained
    texts = [(text,) for text, _, _ in examples(40, 5)]
    texts += [("ka lo", "mi ru se"), ("",), ("kan losh " * 40,)]
    encoder = features.EncoderSource(str(checkpoint), str(data))
    computed = features.compute_features(encoder.model, texts)
    model = hub.from_pretrained(checkpoint, data=data)
    for i, text in enumerate(texts):
        tokens = model.encode(*text)
        if len(tokens) > 32:
            assert text == texts[-1]
            tokens = torch.cat([tokens[:31], tokens[-1:]])
        expected = model.extract_features(tokens, all_layers=True)
        np.testing.assert_allclose(
            computed["mean"][:, i], expected[:, 1:].mean(1), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(computed["first"][:, i], expected[:, 0], rtol=1e-4, atol=1e-5)
    assert computed["mean"].shape == (3, len(texts), 32)
    batch_of_one = features.compute_features(model, texts[:1])["mean"]
    np.testing.assert_allclose(batch_of_one, computed["mean"][:, :1], rtol=1e-4, atol=1e-5)


# Probes -------------------------------------------------------------------------------------------


def as_numbers(targets):
    """What a ridge classifier fits: a column of -1 and 1 for each class, or one for two classes."""
    if targets.dtype.kind == "f":
        return targets[:, None]
    classes = np.unique(targets)
    if len(classes) == 2:
        classes = classes[1:]
    return 2.0 * (targets[:, None] == classes) - 1


def ridge(x, y, strength):
    """Ridge regression, written a second time: the fitted function, from rows to rows of `y`."""
    center, mean = x.mean(0), y.mean(0)
    z = x - center
    weights = np.linalg.solve(z.T @ z + strength * np.eye(z.shape[1]), z.T @ (y - mean))
    return lambda rows: (rows - center) @ weights + mean


def scaled(x, rows):
    """Features, standardised by some rows."""
    return (x - x[rows].mean(0)) / x[rows].std(0)


def leave_one_out_loss(x, y, strength):
    """The mean squared error of each row by a model of all others."""
    errors = []
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        model = ridge(x[others], y[others], strength)
        errors.append((model(x[i]) - y[i]) ** 2)
    return np.mean(errors)


def naive_predictions(task, predicted):
    if not task.labels:
        return predicted[:, 0]
    if len(task.labels) == 2:
        return predicted[:, 0] > 0
    return predicted.argmax(1)


def naive_probe(x, task, strengths):
    """Cross-validation written a second time.

    Returns the predictions, the selected layers, and the losses that select them.
    """
    predictions = np.empty(x.shape[:2])
    losses = np.empty((5, len(x)))
    y = as_numbers(task.targets)
    for fold, layer in itertools.product(range(5), range(len(x))):
        test = task.folds == fold
        train = np.flatnonzero(task.folds != fold)
        z = scaled(x[layer], train)
        tried = [(leave_one_out_loss(z[train], y[train], s), s) for s in strengths]
        losses[fold, layer], strength = min(tried)
        predicted = ridge(z[train], y[train], strength)(z[test])
        predictions[layer, test] = naive_predictions(task, predicted)
    return predictions, losses.argmin(1).tolist(), losses


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_probes_select_by_leaving_one_out_inside_the_training_folds(classes, monkeypatch):
    x, task = made_up(classes)
    x = x.astype(np.float64)
    strengths = [1.0, 100.0]
    monkeypatch.setattr(probes, "RIDGE_ALPHAS", strengths)
    probed = probes.probe_all_layers(x, task)
    predictions, layers, losses = naive_probe(x, task, strengths)
    assert probed["layers"].tolist() == layers
    assert set(layers) == {1}
    np.testing.assert_allclose(probed["predictions"], predictions, atol=1e-6)
    np.testing.assert_allclose(probes.probe_layer(x[0], task)[1], losses[:, 0], rtol=1e-6)


def test_few_shot_examples_are_the_same_for_all_models_balanced_and_apart_from_what_is_tested(
    monkeypatch,
):
    x, task = made_up(3, count=200)
    rows = few_shot.training_examples(task, 8, repeat=5)
    assert np.bincount(task.targets[rows]).tolist() == [8, 8, 8]
    assert len(set(rows)) == 24
    assert set(few_shot.training_examples(task, 8, repeat=6)) != set(rows)
    most = few_shot.training_examples(task, 128, repeat=0)
    assert np.bincount(task.targets[most]).tolist() == [33, 33, 33]  # half of each
    rest = np.setdiff1d(np.arange(200), rows)
    monkeypatch.setattr(probes, "RIDGE_ALPHAS", [10.0])
    z = scaled(x[1], rows)  # Layer 1 knows most.
    y = as_numbers(task.targets)
    predicted = ridge(z[rows], y[rows], 10.0)(z[rest]).argmax(1)
    expected = 100 * (predicted == task.targets[rest]).mean()
    monkeypatch.setattr(few_shot, "SHOTS", [8])
    scores = few_shot.score_few_shot_probes(x, task, 6)
    assert scores[0, 5] == pytest.approx(expected)


def test_few_shot_scores_of_all_repeats():
    scores = few_shot.score_few_shot_probes(*made_up(0, count=150), 3)
    assert scores.shape == (3, 3)
    assert scores[2].mean() > scores[0].mean()  # The last are from more examples.


def test_tasks_without_few_shot_scores():
    _, of_too_many_classes = made_up(12, count=240)
    assert not few_shot.has_few_shot(of_too_many_classes)
    _, of_large_groups = made_up(0)
    # Such groups are left out as a whole, which could leave nothing to test on.
    of_large_groups.group_hashes = of_large_groups.group_hashes // 12
    assert not few_shot.has_few_shot(of_large_groups)


def test_few_shot_examples_of_values_are_above_and_below_the_median():
    _, task = made_up(0)
    task.targets = np.minimum(task.targets, np.median(task.targets))  # The median is the maximum.
    rows = few_shot.training_examples(task, 8, repeat=0)
    assert len(rows) == 16
    assert (task.targets[rows] == task.targets.max()).sum() == 8


def test_an_encoder_that_changes_before_it_is_loaded(pretrained, tmp_path):
    data, checkpoint = pretrained
    shutil.copy(checkpoint, tmp_path / "a.pt")
    encoder = features.EncoderSource(str(tmp_path / "a.pt"), str(data))
    state = torch.load(checkpoint, weights_only=False)
    torch.save({**state, "more": 1}, tmp_path / "a.pt")
    refuses("a.pt: has changed since this began; run the command again", lambda: encoder.model)
