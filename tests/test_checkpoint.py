"""Finding, refusing and loading checkpoints, also those of version 0.2.0 and other objectives."""

import logging
import os
from collections import OrderedDict
from dataclasses import asdict

import pytest
import torch

from conftest import TINY, VALIDATE, succeed
from maelm_fairseq.checkpoints import reading, sections
from maelm_fairseq.checkpoints.building import find_checkpoint_file, load_model
from maelm_fairseq.heads import SpanHead
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import FINGERPRINT, fingerprint, load_dictionary
from small_models import ONE_LAYER
from vocabularies import dictionary

DICTIONARY = dictionary("a", "b")


def state_of(**sizes):
    """What fairseq would save of a new model, as far as this package reads it."""
    torch.manual_seed(1)
    cfg = MaeLmConfig(**{**ONE_LAYER, **sizes})
    model = MaeLmModel(cfg, DICTIONARY, needs_lm_head=True)
    model.register_classification_head("topic", num_classes=3)
    model.register_head("answers", SpanHead(cfg.encoder_embed_dim))
    task = {"encoder_mask_fraction": 0.0, "effective_rank_tokens": 0}
    return {
        "model": model.state_dict(),
        "cfg": {"model": asdict(cfg), "task": task},
        "task_state": {FINGERPRINT: fingerprint(DICTIONARY)},
    }


def save(state, path):
    torch.save(state, path)
    return path


def test_a_run_of_version_0_2_validates_and_resumes(data, tmp_path):
    """Such a run saved options without a value.

    It also saved the vocabulary's fingerprint and the kind of relative bias among the weights.
    """
    options = [data, *TINY, "--optimizer", "torch_adamw", "--save-dir", tmp_path]
    succeed("fairseq-train", *options, "--max-update", 2)
    path = tmp_path / "checkpoint_last.pt"
    state = reading.read_torch_file(path)
    assert all(weight.is_floating_point() for weight in state["model"].values())
    state["model"][FINGERPRINT] = torch.tensor(state["task_state"].pop(FINGERPRINT))
    state["model"]["encoder.relative_bias.description"] = torch.tensor([0, 128])
    state["cfg"]["model"]["relative_position_bins"] = None
    state["cfg"]["task"]["log_effective_rank"] = None
    save(state, path)
    assert load_model(path, load_dictionary(data)).cfg.relative_position_num_buckets == 32
    validate = [data, *VALIDATE, "--path", path, "--log-format", "json"]
    assert '"valid_loss"' in succeed("fairseq-validate", *validate)
    assert "Loaded checkpoint" in succeed("fairseq-train", *options, "--max-update", 3)
    assert reading.read_torch_file(path)["optimizer_history"][-1]["num_updates"] == 3


def test_averages_of_checkpoints(data, tmp_path):
    """As fairseq's average_checkpoints.py writes them.

    They have the means of the weights, and everything else from the last checkpoint.
    """
    options = ["--save-interval-updates", 2, "--max-update", 3, "--save-dir", tmp_path]
    succeed("fairseq-train", data, *TINY, *options)
    earlier = reading.read_torch_file(tmp_path / "checkpoint_1_2.pt")
    last = reading.read_torch_file(tmp_path / "checkpoint_last.pt")
    means = {}
    for name, weight in earlier["model"].items():
        means[name] = (weight + last["model"][name]) / 2
    averaged = save({**last, "model": means}, tmp_path / "average.pt")
    assert load_model(averaged, load_dictionary(data)).lm_head.bias.equal(means["lm_head.bias"])
    succeed("fairseq-validate", data, *VALIDATE, "--path", averaged)


def test_fairseq_gets_plain_values_and_known_options_alone():
    task = OrderedDict(_name="mae_lm", data="folder", mask_prob=0.3, log_effective_rank=None)
    vars(task)["_name"] = "another"
    state = {"model": {}, "cfg": {"task": task, "model": {"_name": "roberta"}}}
    assert sections.sanitized_for_fairseq({**state, "other": 1}, "model.pt") == {
        "model": {},
        "cfg": {"task": {"_name": "mae_lm", "data": "folder", "mask_prob": 0.3}},
        "components": {"criterion": None, "optimizer": None, "lr_scheduler": None},
        "max_update": None,
    }
    state["cfg"] = {"task": {"_name": "mae_lm", "mask_prob": "0.3"}}
    message = "model.pt: task: mask_prob: found '0.3', expected a number"
    with pytest.raises(ValueError, match=message):
        sections.sanitized_for_fairseq(state, "model.pt")


def test_fine_tuning_takes_the_encoder_and_the_heads_that_fit(caplog):
    caplog.set_level(logging.INFO)
    weights = state_of()["model"]
    weights["detection_head.weight"] = torch.ones(2)
    torch.manual_seed(2)
    encoder = MaeLmModel(MaeLmConfig(**ONE_LAYER), DICTIONARY, needs_lm_head=False)
    encoder.register_classification_head("topic", num_classes=3)
    encoder.register_classification_head("new", num_classes=4)
    # This head has 3 outputs, and that of the checkpoint has 2.
    encoder.register_head("answers", torch.nn.Linear(ONE_LAYER["encoder_embed_dim"], 3))
    own = {key: value.clone() for key, value in encoder.state_dict().items()}
    encoder.load_state_dict(dict(weights), strict=True)
    for key, value in encoder.state_dict().items():
        is_new = key.startswith(("classification_heads.new.", "classification_heads.answers."))
        assert torch.equal(value, own[key] if is_new else weights[key]), key
    for part in ["decoder", "detection_head", "lm_head"]:
        assert f"{part} of the checkpoint is not used" in caplog.text
    for name in ["new", "answers"]:
        assert f"classification_heads.{name} is newly initialised" in caplog.text


def test_shared_decoder_layers_are_those_of_the_encoder(tmp_path, caplog):
    """Fine-tuning takes the encoder, and an MLM can be continued with shared layers."""
    caplog.set_level(logging.INFO)
    state = state_of(share_decoder_layers=True)
    shared = load_model(save(state, tmp_path / "shared.pt"), DICTIONARY)
    assert not shared.training
    assert shared.decoder is None
    assert shared.lm_head is not None
    assert shared.state_dict().keys() == state["model"].keys()
    encoder = MaeLmModel(shared.cfg, DICTIONARY, needs_lm_head=False)
    encoder.load_state_dict(dict(state["model"]), strict=True)
    assert "lm_head of the checkpoint is not used" in caplog.text
    shared.load_state_dict(state_of(decoder_layers=0)["model"], strict=True)


def test_a_folder_means_its_best_checkpoint_or_else_its_last(tmp_path):
    message = "expected checkpoint_best.pt or checkpoint_last.pt, found nothing"
    with pytest.raises(FileNotFoundError, match=message):
        find_checkpoint_file(tmp_path)
    for name in ["other.pt", "checkpoint_last.pt", "checkpoint_best.pt"]:
        (tmp_path / name).touch()
        if name != "other.pt":
            assert find_checkpoint_file(tmp_path) == os.path.join(tmp_path, name)
        assert find_checkpoint_file(tmp_path / name) == tmp_path / name
    # Of a fine-tuning recipe's run, it is the one whose scores are reported.
    for record, name in [("{}", "last"), ('{"checkpoint": "checkpoint_best.pt"}', "best")]:
        (tmp_path / "scores.json").write_text(record)
        expected = os.path.join(tmp_path, f"checkpoint_{name}.pt")
        assert find_checkpoint_file(tmp_path) == expected
