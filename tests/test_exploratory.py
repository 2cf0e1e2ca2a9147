"""Exploratory analyses: scores of checkpoints and of the decoder, correlations; the cost of an update."""

import json
import os
import sys

import numpy as np
import pytest
import torch
from scipy import stats

import exploratory
import measure_cost
import probe_checkpoints
from conftest import SCRIPTS_ENVIRONMENT
from evaluation.features import compute
from evaluation.labelled_tasks import load_task
from maelm_fairseq import hub
from maelm_fairseq.base.errors import UsageError
from test_comparison import TINY, write_tasks


@torch.no_grad()
def test_the_features_of_the_decoder_are_means_over_real_tokens(pretrained):
    """Each text alone, without padding."""
    data, checkpoint = pretrained
    model, texts = hub.from_pretrained(checkpoint, data=data), ["kan lon", "mish sepo kan lon rupo"]
    computed = compute(probe_checkpoints.Decoder(model), texts)["mean"]
    assert len(computed) == 1 + len(model.model.decoder.layers)
    for text, features in zip(texts, computed[-1]):
        tokens = model.encode(text)[None]
        decoded = model.model.decoder(model.model.forward_encoder(tokens), torch.arange(tokens.size(1))[None], False)
        np.testing.assert_allclose(features, decoded[0, 1:].mean(0), atol=1e-5)
    model.model.decoder = None
    with pytest.raises(UsageError, match="--decoder: the model has no decoder of its own"):
        probe_checkpoints.Decoder(model)


def test_scores_are_recorded_and_not_measured_again(pretrained, tmp_path, monkeypatch, capsys):
    data, checkpoint = pretrained
    folder = write_tasks(tmp_path / "tasks")
    arguments = ["--checkpoint", checkpoint, "--data", data, "--labelled", folder, "--plan", "tiny"]
    arguments += ["--records", tmp_path / "records", "--names"]
    monkeypatch.setattr(probe_checkpoints, "MADE", ("trec",))
    for more in (["mae_lm-1-2"], ["mae_lm-1", "--decoder"]):
        monkeypatch.setattr(sys, "argv", ["probe_checkpoints.py", *map(str, [*arguments, *more])])
        probe_checkpoints.main()
    kept = json.loads((tmp_path / "records" / "tiny" / "later-scores.json").read_text())
    assert {name: list(scores) for name, scores in kept.items()} == {
        "mae_lm-1-2": list(TINY.tasks),
        "mae_lm-1-decoder": ["trec"],
    }
    task = load_task(str(folder / "trec"))
    assert kept["mae_lm-1-2"]["trec"] == probe_checkpoints.score(hub.from_pretrained(checkpoint, data=data), task)
    capsys.readouterr()
    probe_checkpoints.main()
    assert not capsys.readouterr().out


def test_the_cost_of_an_update_is_recorded(prepared, tmp_path, monkeypatch):
    options = ["--data", prepared, "--plan", "tiny", "--records", tmp_path, "--rounds", 1, "--updates", 4]
    monkeypatch.setattr(sys, "argv", ["measure_cost.py", *map(str, options)])
    monkeypatch.setattr(os, "environ", SCRIPTS_ENVIRONMENT)
    record, machines = tmp_path / "tiny" / "cost.json", ["other", measure_cost.machine()]
    record.parent.mkdir()
    record.write_text(json.dumps([dict(machine=name) for name in machines]))
    measure_cost.main()
    measured = json.loads(record.read_text())
    assert [each["machine"] for each in measured] == machines
    models = measured[-1]["models"]
    assert list(models) == ["mlm", "shared_long", "mae_lm"] and models["mlm"]["ratio"] == 1
    assert all(each["seconds"] > 0 and each["memory_mib"] > 10 for each in models.values())


def test_a_correlation_is_within_groups_and_weighted():
    rng = np.random.default_rng(1)
    groups, (x, y) = np.repeat([0, 1, 2], 10), rng.normal(size=(2, 30))
    one, weights = np.zeros(30, int), rng.integers(0, 3, size=30)
    assert exploratory.correlation(x, y, one, np.ones(30)) == pytest.approx(stats.pearsonr(x, y)[0])
    repeated = stats.pearsonr(np.repeat(x, weights), np.repeat(y, weights))[0]
    assert exploratory.correlation(x, y, one, weights) == pytest.approx(repeated)
    moved = exploratory.correlation(x + 9 * groups, y - 5 * groups, groups, weights)
    assert moved == pytest.approx(exploratory.correlation(x, y, groups, weights))
    assert np.isnan(exploratory.correlation(x, y, np.arange(30), np.ones(30)))
