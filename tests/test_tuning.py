"""The search for settings of fine-tuning: its loop learns, levers do what they say, tables are those of records."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import few_labels
import labelled
import tuning
from classifier import FIRST, LAYERS, MEAN, Classifier, Settings, predict, rate, train
from maelm_fairseq.evaluation import votes
from maelm_fairseq.vocabulary import read_vocabulary
from measure import NATURAL
from test_small import cells
from tuning import DEFAULT, LEVERS


@pytest.fixture
def trial(pretrained, tmp_path):
    """Texts of two classes, which the letter k tells apart."""
    rows = [(" ".join(words), "with k" if "k" in " ".join(words) else "without") for words in labelled.texts(200, 1)]
    labelled.write_table(tmp_path / "train.tsv", ["sentence", "label"], rows)
    return tuning.Trial(str(tmp_path), read_vocabulary(str(pretrained[0]))[1], positions=32)


@pytest.fixture
def classifier(pretrained):
    dictionary, _ = read_vocabulary(str(pretrained[0]))
    return lambda **settings: Classifier(str(pretrained[1]), dictionary, 2, replace(Settings(), **settings))


def test_no_sentence_is_trained_on_and_scored(trial):
    assert len(trial.train) > len(trial.scored) > 20
    assert not {*trial.train} & {*trial.scored}
    batches = trial.examples.batches(trial.train, 32, np.random.default_rng(1))
    assert sorted(np.concatenate(batches)) == sorted(trial.train)
    lengths = [len(trial.examples.tokens[i]) for i in np.concatenate(trial.examples.batches(trial.scored, 7))]
    assert lengths == sorted(lengths)


def test_the_loop_learns(trial, classifier):
    torch.manual_seed(1)
    model = classifier(lr=3e-3, epochs=8, averaged=0.2)
    before = scored(model, trial)
    train(model, trial.examples, trial.train, model.settings, np.random.default_rng(1))
    assert scored(model, trial) > before + 10


def scored(model, trial):
    return tuning.score(votes.answer(predict(model, trial.examples, trial.scored)), trial)


def test_few_labels_train_encoder_and_bag_of_words_alike(pretrained, trial, tmp_path):
    """On other examples than those that are scored."""
    data, checkpoint = pretrained
    labelled.write_table(tmp_path / "dev.tsv", ["sentence", "label"], [("kan", "with k"), ("lo", "without")])
    few = few_labels.FewLabels(str(checkpoint), data, tmp_path)
    first, again = (few.draw(8, repeat) for repeat in (0, 0))
    assert first == again
    assert {*first} == {"fine-tuned", "bag of words", votes.TOGETHER}
    assert first["bag of words"] > 60


def test_the_rate_rises_and_falls_to_zero():
    rates = [rate(update, 100, 0.1) for update in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:11] == [1, 1]
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == 0
    assert rate(0, 100, 0) == 1


def test_heads_read_what_the_settings_say(classifier):
    tokens = torch.tensor([[0, 5, 6, 2, 1]])
    absent = tokens.eq(1)
    hidden = [torch.randn(1, 5, 4) for _ in range(3)]
    encoded = hidden[-1]
    found = {pooling: classifier(pooling=pooling).pooled(encoded, hidden, absent) for pooling in [FIRST, MEAN, LAYERS]}
    torch.testing.assert_close(found[FIRST], encoded[:, 0])
    torch.testing.assert_close(found[MEAN], encoded[:, 1:4].mean(1))
    torch.testing.assert_close(found[LAYERS], sum(each[:, 1:4].mean(1) for each in hidden) / 3)


def test_lower_layers_have_lower_rates(classifier):
    groups = classifier(layer_decay=0.5).groups()
    layers = len(classifier().encoder.layers)
    assert [*groups] == [0.5 ** (layers + 1), *(0.5**below for below in range(layers, 0, -1)), 1]
    assert sum(len(weights) for weights in groups.values()) == len(list(classifier().parameters()))
    assert [*classifier().groups()] == [1]


def test_tokens_are_left_out_in_training_alone(classifier):
    model, tokens = classifier(dropped=0.5, dropout=0.0), torch.tensor([[0, *range(4, 20), 2]])
    model.head.dropout.p = 0
    in_training = [model.train()(tokens) for _ in range(2)]
    assert not torch.equal(*in_training)
    assert torch.equal(model.eval()(tokens), model(tokens))


def test_every_lever_is_one_of_the_settings():
    assert LEVERS[DEFAULT] == {}
    for lever, changed in LEVERS.items():
        assert (replace(Settings(), **changed) == Settings()) == (lever == DEFAULT)


def test_the_page_pairs_runs_by_encoder_and_seed(tmp_path):
    (lever, other, *_) = [lever for lever in LEVERS if lever != DEFAULT]
    for encoder, seed, score, gain in [("a-1", 1, 60, 1), ("a-1", 2, 70, 2), ("b-1", 1, 50, 6)]:
        rows = [[encoder, seed, DEFAULT, task, "accuracy", score] for task in NATURAL]
        rows += [[encoder, seed, lever, task, "accuracy", score + gain] for task in NATURAL]
        rows += [[encoder, seed, other, NATURAL[0], "accuracy", 99]]  # not finished
        tuning.write(tmp_path / f"{encoder}-{seed}.csv", rows)
    bag_of_words = [[votes.BAG_OF_WORDS, "", DEFAULT, task, "accuracy", 80] for task in NATURAL]
    tuning.write(tmp_path / "bag_of_words.csv", bag_of_words)
    page = tuning.Page(tmp_path)
    assert cells(page.defaults(), "a-1") == ["65.00"] * 7
    assert cells(page.defaults(), votes.BAG_OF_WORDS) == ["80.00"] * 7
    assert cells(page.gain_by_task(), lever) == [*["3.00"] * 7, f"{7**0.5 / 3**0.5:.2f}", "3"]
    assert cells(page.gain_by_encoder(), lever) == ["1.50", "6.00"]
    assert other not in page.gain_by_task()
