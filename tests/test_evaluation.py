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
from maelm_fairseq.evaluation.probe_tasks import Task, deal, identity, load_task


def write(folder, header, **splits):
    """Writes the files of a task: {split: rows}."""
    for split, rows in splits.items():
        write_table(folder / f"{split}.tsv", header, rows)
    return str(folder)


def examples(count, seed):
    """Different texts with a class that a word decides, and a value."""
    rng = random.Random(seed)
    texts = {f"{' '.join(documents(1, rng.random(), lines=1)[0])} {i}": i for i in range(count)}
    return [(text, "up" if text < "m" else "down", str(len(text) / 10)) for text in texts]


def made_up(classes, count=120):
    """A task with made-up features of several layers: the second one knows most."""
    random = np.random.RandomState(0)
    x = random.normal(size=(3, count, 6)).astype(np.float32) * 3 + 1
    signal = x[1, :, 0] + x[1, :, 1] * 0.5 + x[2, :, 2] * 0.3 + random.normal(size=count)
    ids = random.permutation(count).astype(np.uint64)
    targets = np.argsort(np.argsort(signal)) * classes // count if classes else signal.astype(np.float64)
    labels = [str(i) for i in range(classes)] if classes else None
    return x, Task("made-up", [str(i) for i in ids], labels, targets, ids, deal(targets, ids), 0)


# Tasks and folds ---------------------------------------------------------------------------------------------------


def test_all_splits_are_read_together(tmp_path, capsys):
    header, rows = ("sentence", "label"), [(text, label) for text, label, _ in examples(60, 1)]
    rare = [("one of a kind", "rare"), (rows[0][0].upper(), rows[0][1])]
    secret = [(f"a text {i}", "-1") for i in range(20)]
    task = load_task(write(tmp_path, header, train=rows[:40], dev=[*rows[40:], *rare], test=secret))
    assert f"{tmp_path}/test.tsv: no labels, or the same everywhere: left out" in capsys.readouterr().err
    assert task.texts == [text for text, _ in rows] and task.labels == ["down", "up"]
    assert [task.labels[target] for target in task.targets] == [label for _, label in rows]
    assert task.dropped == 2 and task.metric == "accuracy"  # a class that is too small, a text that is there already


def test_folds_depend_on_texts_alone(tmp_path):
    header, rows = ("label", "sentence"), [(label, text) for text, label, _ in examples(203, 2)]
    first = load_task(write(tmp_path / "a", header, train=rows[:100], dev=rows[100:]))
    shuffled = random.Random(1).sample(rows, len(rows))
    second = load_task(write(tmp_path / "b", header, train=shuffled[:9], dev=shuffled[9:]))
    assert dict(zip(first.texts, first.folds)) == dict(zip(second.texts, second.folds))
    for target in [0, 1]:
        counts = np.bincount(first.folds[first.targets == target])
        assert len(counts) == 5 and counts.max() - counts.min() <= 1
    # These very folds, on every machine and with every version of the libraries.
    ids = np.array([identity(f"text {i}") for i in range(10)], np.uint64)
    assert deal(np.arange(10) % 2, ids).tolist() == [1, 2, 4, 0, 3, 1, 0, 3, 2, 4]


def test_the_sentences_of_a_pair_are_in_one_fold(tmp_path):
    rows = [(text, str(i), label) for i, (text, _, _) in enumerate(examples(63, 6)) for label in ["right", "wrong"]]
    rows = [(f"{text} {label}", pair, label) for text, pair, label in rows]
    header = ("sentence", "pair", "label")
    task = load_task(write(tmp_path, header, train=rows[:-2], dev=rows[-2:]))
    assert (task.folds[::2] == task.folds[1::2]).all() and np.ptp(np.bincount(task.folds)) <= 2
    few = {size: [(text, str(i // size), label) for i, (text, _, label) in enumerate(rows[:60])] for size in (5, 13)}
    few = {size: write(tmp_path / str(size), header, train=f[:-2], dev=f[-2:]) for size, f in few.items()}
    assert sorted(np.bincount(load_task(few[5]).folds)) == [10, 10, 10, 15, 15]
    refuses("0 usable examples of 60, .* same value in a column pair count as one", load_task, few[13])


def test_values_are_spread_over_folds(tmp_path, capsys):
    rows = [(text, value) for text, _, value in examples(200, 3)]
    header = ("sentence", "label")
    task = load_task(write(tmp_path, header, train=rows[:-2], dev=rows[-2:]), regression=True)
    assert task.labels is None and task.metric == "100 x Pearson"
    np.testing.assert_allclose(task.targets, stats.zscore([float(value) for _, value in rows]))
    seconds = [(text, f"{1.7e9 + 60 * float(value)}") for text, value in rows]
    units = load_task(write(tmp_path / "units", header, train=seconds[:-2], dev=seconds[-2:]), regression=True)
    np.testing.assert_allclose(units.targets, task.targets, atol=1e-6)
    means = [task.targets[task.folds == fold].mean() for fold in range(5)]
    assert np.std(means) < 0.3 * np.std(task.targets) / np.sqrt(40)  # closer than at random
    refuses("usable examples", load_task, tmp_path)
    assert "all labels are numbers: to predict values, add --regression" in capsys.readouterr().err


def test_pairs_and_what_is_wrong(tmp_path):
    header = ("sentence1", "sentence2", "label")
    rows = [(text, text[::-1], label) for text, label, _ in examples(50, 4)]
    task = load_task(write(tmp_path / "pairs", header, train=rows[:-2], dev=rows[-2:]))
    assert task.texts[0] == rows[0][:2]
    words = [(["a", "a b"][i % 2], f"{['b c', 'c'][i % 2]} {i // 2}", ["x", "y"][i % 2]) for i in range(40)]
    blank = [(*row[:2], "") for row in rows[:9]]  # as a test file may be
    task = load_task(write(tmp_path / "words", header, train=words, dev=words[:1], test=blank))
    assert len(task.texts) == 40 and task.dropped == 1
    refuses("0 usable examples", load_task, write(tmp_path / "few", header, train=rows[:2], dev=rows[:2]))
    refuses("as line 2: the label is '.*', expected a number", load_task, tmp_path / "pairs", regression=True)


# Features ----------------------------------------------------------------------------------------------------------


def test_features_are_those_of_the_hub(pretrained):
    data, checkpoint = pretrained
    texts = [text for text, _, _ in examples(40, 5)] + [("ka lo", "mi ru se"), "", "kan losh " * 40]
    computed = features.compute(features.Encoder(str(checkpoint), str(data)).model, texts)
    model = hub.from_pretrained(checkpoint, data=data)
    for i, text in enumerate(texts):
        tokens = model.encode(*text) if isinstance(text, tuple) else model.encode(text)
        if len(tokens) > 32:
            assert text == texts[-1]
            tokens = torch.cat([tokens[:31], tokens[-1:]])
        expected = model.extract_features(tokens, all_layers=True)
        np.testing.assert_allclose(computed["mean"][:, i], expected[:, 1:].mean(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(computed["first"][:, i], expected[:, 0], rtol=1e-4, atol=1e-5)
    assert computed["mean"].shape == (3, len(texts), 32)
    alone = features.compute(model, texts[:1])["mean"]  # a batch of one
    np.testing.assert_allclose(alone, computed["mean"][:, :1], rtol=1e-4, atol=1e-5)


# Probes ------------------------------------------------------------------------------------------------------------


def as_numbers(targets):
    """What a ridge classifier fits: a column of -1 and 1 for each class, or one for two classes."""
    classes = np.unique(targets)
    if targets.dtype.kind == "f":
        return targets[:, None]
    return 2.0 * (targets[:, None] == (classes[1:] if len(classes) == 2 else classes)) - 1


def ridge(x, y, strength):
    """Ridge regression, written a second time: the function that it fits, from rows to rows of `y`."""
    center, mean = x.mean(0), y.mean(0)
    z = x - center
    weights = np.linalg.solve(z.T @ z + strength * np.eye(z.shape[1]), z.T @ (y - mean))
    return lambda rows: (rows - center) @ weights + mean


def scaled(x, rows):
    """Features, standardised by some rows."""
    return (x - x[rows].mean(0)) / x[rows].std(0)


def naive_probe(x, task, strengths):
    """Cross-validation written a second time: answers, selected layers, and the losses that select them."""
    answers, losses = np.empty(x.shape[:2]), np.empty((5, len(x)))
    for fold, layer in itertools.product(range(5), range(len(x))):
        test, train = task.folds == fold, np.flatnonzero(task.folds != fold)
        z, y, tried = scaled(x[layer], train), as_numbers(task.targets), []
        for strength in strengths:
            models = {i: ridge(z[train[train != i]], y[train[train != i]], strength) for i in train}
            tried.append((np.mean([(model(z[i]) - y[i]) ** 2 for i, model in models.items()]), strength))
        losses[fold, layer], strength = min(tried)
        predicted = ridge(z[train], y[train], strength)(z[test])
        if not task.labels:
            answers[layer, test] = predicted[:, 0]
        else:
            answers[layer, test] = predicted[:, 0] > 0 if len(task.labels) == 2 else predicted.argmax(1)
    return answers, losses.argmin(1).tolist(), losses


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_probes_select_by_leaving_one_out_inside_the_training_folds(classes, monkeypatch):
    x, task = made_up(classes)
    x, strengths = x.astype(np.float64), [1.0, 100.0]
    monkeypatch.setattr(probes, "STRENGTHS", strengths)
    probed = probes.probe(x, task)
    answers, layers, losses = naive_probe(x, task, strengths)
    assert probed["layers"].tolist() == layers and set(layers) == {1}
    np.testing.assert_allclose(probed["answers"], answers, atol=1e-6)
    np.testing.assert_allclose(probes.probe_layer(x[0], task)[1], losses[:, 0], rtol=1e-6)


def test_few_shot_examples_are_the_same_for_all_models_balanced_and_apart_from_what_is_tested(monkeypatch):
    x, task = made_up(3, count=200)
    rows = few_shot.training_examples(task, 8, repeat=5)
    assert np.bincount(task.targets[rows]).tolist() == [8, 8, 8] and len(set(rows)) == 24
    assert set(few_shot.training_examples(task, 8, repeat=6)) != set(rows)
    most = few_shot.training_examples(task, 128, repeat=0)
    assert np.bincount(task.targets[most]).tolist() == [33, 33, 33]  # half of each
    rest = np.setdiff1d(np.arange(200), rows)
    monkeypatch.setattr(probes, "STRENGTHS", [10.0])
    z, y = scaled(x[1], rows), as_numbers(task.targets)  # of the layer that knows most
    predicted = ridge(z[rows], y[rows], 10.0)(z[rest]).argmax(1)
    expected = 100 * (predicted == task.targets[rest]).mean()
    assert few_shot.one_repeat(x, task, 8, 5) == pytest.approx(expected)


def test_few_shot_scores_of_all_repeats():
    scores = few_shot.few_shot(*made_up(0, count=150), 3)
    assert scores.shape == (3, 3) and scores[2].mean() > scores[0].mean()  # from more examples
    assert not few_shot.has_few_shot(made_up(12, count=240)[1])
    _, task = made_up(0)
    task.targets = np.minimum(task.targets, np.median(task.targets))  # the highest value is the median
    rows = few_shot.training_examples(task, 8, repeat=0)
    assert len(rows) == 16 and (task.targets[rows] == task.targets.max()).sum() == 8
    task.ids = task.ids // 12  # left out as wholes, such groups could leave nothing to test on
    assert not few_shot.has_few_shot(task)


def test_an_encoder_that_changes_before_it_is_loaded(pretrained, tmp_path):
    data, checkpoint = pretrained
    shutil.copy(checkpoint, tmp_path / "a.pt")
    encoder = features.Encoder(str(tmp_path / "a.pt"), str(data))
    state = torch.load(checkpoint, weights_only=False)
    torch.save({**state, "more": 1}, tmp_path / "a.pt")
    refuses("a.pt: has changed since this began; run the command again", lambda: encoder.model)
