"""The search for settings of fine-tuning: its loop, its changes, and its tables of records."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import few_labels
import labelled
import tuning
from classifier import (
    READ_FIRST,
    READ_LAYERS,
    READ_MEAN,
    Classifier,
    Settings,
    lr_ratio,
    predict_outputs,
    train_classifier,
)
from maelm_fairseq.baselines import baseline_scores, ensemble
from maelm_fairseq.metrics import argmax_or_value
from maelm_fairseq.vocabulary import load_dictionary_and_tokenizer
from measure import NATURAL_TASKS
from tables import cells
from tuning import DEFAULT, TRIED_CHANGES


@pytest.fixture
def trial(pretrained, tmp_path):
    """Texts of two classes, which the letter k tells apart."""
    rows = []
    for words in labelled.texts(200, 1):
        text = " ".join(words)
        rows.append((text, "with k" if "k" in text else "without"))
    labelled.write_table(tmp_path / "train.tsv", ["sentence", "label"], rows)
    data, _ = pretrained
    _, tokenizer = load_dictionary_and_tokenizer(str(data))
    return tuning.Trial(str(tmp_path), tokenizer, positions=32)


@pytest.fixture
def classifier(pretrained):
    """A function that makes a classifier of two classes with the settings that it is given."""
    data, checkpoint = pretrained
    dictionary, _ = load_dictionary_and_tokenizer(str(data))

    def make(**settings):
        return Classifier(str(checkpoint), dictionary, 2, replace(Settings(), **settings))

    return make


def test_no_sentence_is_trained_on_and_scored(trial):
    assert len(trial.train) > len(trial.scored) > 20
    assert not {*trial.train} & {*trial.scored}
    batches = trial.examples.batches(trial.train, 32, np.random.default_rng(1))
    assert sorted(np.concatenate(batches)) == sorted(trial.train)
    batches = trial.examples.batches(trial.scored, 7)
    lengths = [len(trial.examples.tokens[i]) for i in np.concatenate(batches)]
    assert lengths == sorted(lengths)


def test_the_loop_learns(trial, classifier):
    torch.manual_seed(1)
    model = classifier(lr=3e-3, epochs=8, averaged_share=0.2)
    before = scored(model, trial)
    train_classifier(model, trial.examples, trial.train, model.settings, np.random.default_rng(1))
    assert scored(model, trial) > before + 10


def scored(model, trial):
    outputs = predict_outputs(model, trial.examples, trial.scored)
    return tuning.score_of_part(argmax_or_value(outputs), trial)


def test_few_labels_train_encoder_and_bag_of_words_alike(pretrained, trial, tmp_path):
    """On other examples than those that are scored."""
    data, checkpoint = pretrained
    rows = [("kan", "with k"), ("lo", "without")]
    labelled.write_table(tmp_path / "dev.tsv", ["sentence", "label"], rows)
    few = few_labels.FewLabels(str(checkpoint), data, tmp_path)
    first = few.draw(8, 0)
    again = few.draw(8, 0)
    assert first == again
    assert {*first} == {"fine-tuned", "bag of words", ensemble.ENSEMBLE}
    assert first["bag of words"] > 60


def test_the_rate_rises_and_falls_to_zero():
    rates = [lr_ratio(update, 100, 0.1) for update in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:11] == [1, 1]
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == 0
    assert lr_ratio(0, 100, 0) == 1


def test_heads_read_what_the_settings_say(classifier):
    tokens = torch.tensor([[0, 5, 6, 2, 1]])
    absent = tokens.eq(1)
    hidden = [torch.randn(1, 5, 4) for _ in range(3)]
    encoded = hidden[-1]
    expected = {
        READ_FIRST: encoded[:, 0],
        READ_MEAN: encoded[:, 1:4].mean(1),
        READ_LAYERS: sum(layer[:, 1:4].mean(1) for layer in hidden) / 3,
    }
    for pooling, features in expected.items():
        pooled = classifier(pooling=pooling).pooled(hidden, absent)
        torch.testing.assert_close(pooled, features)


def test_lower_layers_have_lower_rates(classifier):
    groups = classifier(lr_layer_decay=0.5).weights_by_rate()
    layers = len(classifier().encoder.layers)
    assert [*groups] == [0.5**below for below in range(layers + 1, -1, -1)]
    assert sum(len(weights) for weights in groups.values()) == len(list(classifier().parameters()))
    assert [*classifier().weights_by_rate()] == [1]


def test_tokens_are_left_out_in_training_alone(classifier):
    model = classifier(token_dropout=0.5, dropout=0.0)
    tokens = torch.tensor([[0, *range(4, 20), 2]])
    model.head.dropout.p = 0
    in_training = [model.train()(tokens) for _ in range(2)]
    assert not torch.equal(*in_training)
    assert torch.equal(model.eval()(tokens), model(tokens))


def test_every_change_is_of_the_settings():
    assert TRIED_CHANGES[DEFAULT] == {}
    for change, changed in TRIED_CHANGES.items():
        is_unchanged = replace(Settings(), **changed) == Settings()
        assert is_unchanged == (change == DEFAULT)


def test_the_page_pairs_runs_by_encoder_and_seed(tmp_path):
    change, unfinished, *_ = [name for name in TRIED_CHANGES if name != DEFAULT]
    for encoder, seed, score, gain in [("a-1", 1, 60, 1), ("a-1", 2, 70, 2), ("b-1", 1, 50, 6)]:
        rows = [[encoder, seed, DEFAULT, task, "accuracy", score] for task in NATURAL_TASKS]
        rows += [[encoder, seed, change, task, "accuracy", score + gain] for task in NATURAL_TASKS]
        rows.append([encoder, seed, unfinished, NATURAL_TASKS[0], "accuracy", 99])
        tuning.write_trials(tmp_path / f"{encoder}-{seed}.csv", rows)
    rows = [
        [baseline_scores.BAG_OF_WORDS, "", DEFAULT, task, "accuracy", 80] for task in NATURAL_TASKS
    ]
    tuning.write_trials(tmp_path / "bag_of_words.csv", rows)
    page = tuning.Page(tmp_path)
    assert cells(page.defaults(), "a-1") == ["65.00"] * 7
    assert cells(page.defaults(), baseline_scores.BAG_OF_WORDS) == ["80.00"] * 7
    error = (7 / 3) ** 0.5  # of a mean of 3 runs, whose gains have the variance 7
    assert cells(page.gain_by_task(), change) == [*["3.00"] * 7, f"{error:.2f}", "3"]
    assert cells(page.gain_by_encoder(), change) == ["1.50", "6.00"]
    assert unfinished not in page.gain_by_task()


def test_smoothed_labels_leave_scores_of_values_as_they_are(tmp_path):
    metrics = {task: "accuracy" if "trec" in task else "pearson" for task in NATURAL_TASKS}
    rows = [["a-1", 1, DEFAULT, task, metric, 60.0] for task, metric in metrics.items()]
    classes = [task for task, metric in metrics.items() if metric == "accuracy"]
    rows += [["a-1", 1, tuning.SMOOTHED_LABELS, task, "accuracy", 63.0] for task in classes]
    tuning.write_trials(tmp_path / "a-1-1.csv", rows)
    gains = cells(tuning.Page(tmp_path).gain_by_task(), tuning.SMOOTHED_LABELS)
    assert gains[:6] == ["3.00" if task in classes else "0.00" for task in NATURAL_TASKS]
