"""Checkpoints: finding, refusing and loading them, those from before version 0.2.0 and of other objectives too."""

import logging
import os
from dataclasses import asdict

import pytest
import torch
from fairseq.data import Dictionary

from conftest import PLUGIN, TINY, succeed
from maelm_fairseq import compat
from maelm_fairseq.checkpoint import find_checkpoint, load_model, read_checkpoint
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import load_dictionary

SIZES = dict(encoder_layers=1, decoder_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=8, max_positions=9)


@pytest.fixture(scope="module")
def dictionary():
    made = Dictionary()
    for symbol in ["a", "b", "<mask>"]:
        made.add_symbol(symbol)
    return made


def state_of(dictionary, pretraining=True, **sizes):
    """What fairseq would save of a new model, as far as this package reads it."""
    torch.manual_seed(1)
    cfg = MaeLmConfig(**{**SIZES, "encoder_attention_heads": 2, **sizes})
    model = MaeLmModel(cfg, dictionary, pretraining)
    model.register_classification_head("topic", num_classes=3)
    model.register_span_head("answers")
    task = {"encoder_mask_fraction": 0.0, "effective_rank_tokens": 0, "log_effective_rank": None}
    return {"model": model.state_dict(), "cfg": {"model": asdict(cfg), "task": task}}


def save(state, path):
    torch.save(state, path)
    return path


def before_version_0_2(state):
    """Gives a checkpoint the names that earlier versions wrote."""
    cfg = state["cfg"]
    for former, current in compat.FORMER_NAMES.items():
        for part in [cfg["model"], cfg["task"]]:
            if current in part:
                part[former] = part.pop(current)
    state["model"] = {key: value for key, value in state["model"].items() if not key.endswith(".description")}
    for record in state.get("optimizer_history", []):
        record["optimizer_name"] = record["optimizer_name"].replace("TorchAdamW", "FusedAdam")
    if "optimizer" in cfg:
        cfg["optimizer"]["_name"] = "fused_adam"
    return state


def test_a_model_is_built_with_its_sizes_and_heads(dictionary, tmp_path):
    state = state_of(dictionary, relative_position_num_buckets=8)
    model = load_model(save(state, tmp_path / "model.pt"), dictionary)
    assert not model.training and model.cfg.relative_position_num_buckets == 8
    assert model.state_dict().keys() == state["model"].keys()
    for key, value in model.state_dict().items():
        assert torch.equal(value, state["model"][key]), key


def test_models_from_before_version_0_2_load(dictionary, tmp_path):
    new = state_of(dictionary, relative_position_num_buckets=8)
    old = before_version_0_2(state_of(dictionary, relative_position_num_buckets=8))
    assert (
        "relative_position_bins" in old["cfg"]["model"] and len(old["model"]) == len(new["model"]) - 3
    )  # descriptions
    model = load_model(save(old, tmp_path / "old.pt"), dictionary)
    assert model.cfg.relative_position_num_buckets == 8
    assert model.state_dict().keys() == new["model"].keys()
    for key, value in model.state_dict().items():
        assert torch.equal(value, new["model"][key]), key


def test_runs_from_before_version_0_2_resume_and_validate(data, tmp_path):
    new = ["--optimizer", "torch_adamw", "--relative-position-num-buckets", 16, "--effective-rank-tokens", 100]
    old = ["--optimizer", "fused_adam", "--relative-position-bins", 16, "--log-effective-rank", 100]
    succeed("fairseq-train", data, *TINY, *new, "--max-update", 2, "--save-dir", tmp_path)
    path = tmp_path / "checkpoint_last.pt"
    state = compat.load_checkpoint(path)
    assert state["model"]["encoder.relative_bias.table.weight"].shape == (16, 2)
    save(before_version_0_2(state), path)
    assert load_model(path, load_dictionary(data)).cfg.relative_position_num_buckets == 16
    validated = succeed(
        "fairseq-validate", data, "--user-dir", PLUGIN, "--task", "mae_lm", "--cpu", "--batch-size", 8, "--path", path,
        "--log-format", "json",
    )  # fmt: skip
    assert '"valid_loss"' in validated
    for updates, options in [(3, old), (4, [*new, "--optimizer", "fused_adam"])]:
        printed = succeed("fairseq-train", data, *TINY, *options, "--max-update", updates, "--save-dir", tmp_path)
        assert "Loaded checkpoint" in printed and '"valid_rank_mask_tokens"' in printed
        assert compat.load_checkpoint(path)["optimizer_history"][-1]["num_updates"] == updates


def test_modules_of_another_objective_are_not_needed(dictionary, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    state = state_of(dictionary)
    plain = load_model(save(state, tmp_path / "plain.pt"), dictionary)
    state["model"]["detection_head.weight"] = torch.ones(2)
    with_more = load_model(save(state, tmp_path / "more.pt"), dictionary)
    assert with_more.state_dict().keys() == plain.state_dict().keys()
    assert "not used: detection_head" in caplog.text


def test_fine_tuning_takes_the_encoder_alone(dictionary, caplog):
    caplog.set_level(logging.INFO)
    weights = state_of(dictionary)["model"]
    weights["detection_head.weight"] = torch.ones(2)
    torch.manual_seed(2)
    encoder = MaeLmModel(MaeLmConfig(**SIZES, encoder_attention_heads=2), dictionary, pretraining=False)
    encoder.register_classification_head("topic", num_classes=3)
    encoder.register_classification_head("new", num_classes=4)
    new = encoder.classification_heads["new"].out_proj.weight.clone()
    encoder.load_state_dict(dict(weights), strict=True)
    for key, value in encoder.state_dict().items():
        if not key.startswith("classification_heads.new."):
            assert torch.equal(value, weights[key]), key
    assert torch.equal(encoder.classification_heads["new"].out_proj.weight, new)
    assert "not used: decoder, detection_head, lm_head" in caplog.text


def test_shared_decoder_layers_are_those_of_the_encoder(dictionary, tmp_path, caplog):
    """Fine-tuning takes the encoder; an MLM can be continued so, a decoder of its own is refused."""
    caplog.set_level(logging.INFO)
    state = state_of(dictionary, share_decoder_layers=True)
    shared = load_model(save(state, tmp_path / "shared.pt"), dictionary)
    assert shared.decoder is None and shared.lm_head is not None and shared.state_dict().keys() == state["model"].keys()
    MaeLmModel(shared.cfg, dictionary, pretraining=False).load_state_dict(dict(state["model"]), strict=True)
    assert "not used: lm_head" in caplog.text
    shared.load_state_dict(state_of(dictionary, decoder_layers=0)["model"], strict=True)
    with pytest.raises(ValueError, match=r"--decoder-layers 1 in the checkpoint, 0 \(or shared ones\) here$"):
        shared.load_state_dict(state_of(dictionary)["model"])
    state["model"] = state_of(dictionary)["model"]
    with pytest.raises(ValueError, match="damaged: its configuration says --decoder-layers 0, its weights 1"):
        load_model(save(state, tmp_path / "both.pt"), dictionary)


def test_a_surplus_or_missing_weight_of_the_encoder_is_an_error(dictionary, tmp_path):
    for change in [
        lambda weights: weights.pop("encoder.layers.0.ffn.0.bias"),
        lambda weights: weights.update({"encoder.more": torch.ones(1)}),
        lambda weights: weights.update({"encoder.layers.0.ffn.0.bias": torch.ones(3)}),
    ]:
        state = state_of(dictionary)
        change(state["model"])
        with pytest.raises(ValueError, match="model.pt: damaged: .*encoder.(more|layers.0.ffn.0.bias)") as raised:
            load_model(save(state, tmp_path / "model.pt"), dictionary)
        assert "\n" not in str(raised.value)


def test_a_folder_means_its_best_checkpoint_or_else_its_last(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected checkpoint_best.pt or checkpoint_last.pt, found nothing"):
        find_checkpoint(tmp_path)
    for name in ["other.pt", "checkpoint_last.pt", "checkpoint_best.pt"]:
        (tmp_path / name).touch()
        if name != "other.pt":
            assert find_checkpoint(tmp_path) == os.path.join(tmp_path, name)
        assert find_checkpoint(tmp_path / name) == tmp_path / name


class Executed:
    """What a hostile checkpoint would run on being read."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("kind", ["nosuch", "text", "part", "empty", "hostile", "another", "list"])
def test_what_is_no_checkpoint_is_refused_and_executes_nothing(kind, dictionary, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.pt"
    if kind == "text":
        path.write_text("not a checkpoint\n")
    elif kind == "part":
        whole = save(state_of(dictionary), path).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "empty":
        path.touch()
    elif kind != "nosuch":
        another = {"model": {"weight": torch.zeros(2)}, "cfg": {"model": {}}}
        save({"hostile": {"model": Executed()}, "another": another, "list": [1, 2]}[kind], path)
    foreign, unreadable = "not a checkpoint of MAE-LM", "cannot be read as a checkpoint"
    message = {
        "nosuch": "not found",
        "text": unreadable,
        "part": "damaged: its end is missing",
        "empty": "damaged: it is empty",
        "hostile": unreadable,
        "another": foreign,
        "list": foreign,
    }
    error = FileNotFoundError if kind == "nosuch" else ValueError
    with pytest.raises(error, match="model.pt: " + message[kind]) as raised:
        read_checkpoint(path)
    assert "\n" not in str(raised.value) and not (tmp_path / "executed").exists()


def test_another_dictionary_is_refused(dictionary, tmp_path):
    path = save(state_of(dictionary), tmp_path / "model.pt")
    for symbols, size in [("ba", 7), ("abc", 8)]:
        other = Dictionary()
        for symbol in [*symbols, "<mask>"]:
            other.add_symbol(symbol)
        with pytest.raises(ValueError, match=f"another dict.txt, of 7 symbols where this one has {size}"):
            load_model(path, other)
