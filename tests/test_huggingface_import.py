"""Imports of RoBERTa encoders: from stock fairseq and from transformers, what they compute, and what is refused."""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import sentencepiece
import torch
from fairseq.models.roberta import RobertaModel
from omegaconf import OmegaConf

import naive
from conftest import (
    PYTHON,
    ROOT,
    SCRIPTS_ENVIRONMENT,
    TRANSFORMERS,
    documents,
    hydra,
    prepare,
    succeed,
    text_of,
)
from maelm_fairseq import compat, hub
from maelm_fairseq.huggingface import export
from maelm_fairseq.huggingface import import_roberta as program
from maelm_fairseq.vocabulary import load_dictionary

C, F, H, P, LAYERS = 16, 24, 2, 160, 2
OPTIMIZATION = [
    "--optimizer", "adam", "--lr", 1e-3, "--batch-size", 8, "--max-update", 3, "--cpu", "--num-workers", 0, "--seed", 1,
    "--no-epoch-checkpoints",
]  # fmt: skip
STOCK = [
    "--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta", "--encoder-layers", LAYERS,
    "--encoder-embed-dim", C, "--encoder-ffn-embed-dim", F, "--encoder-attention-heads", H, "--max-positions", P,
    "--tokens-per-sample", 32,
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    """Data prepared with a model as XLM-R's, Unigram, and with pieces for bytes."""
    folder = tmp_path_factory.mktemp("unigram")
    for split, seed in [("train", 1), ("valid", 2)]:
        (folder / f"{split}.txt").write_text(text_of(documents(60, seed)), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "train.txt"), model_prefix=str(folder / "unigram"), vocab_size=330, model_type="unigram",
        byte_fallback=True, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    command = [ROOT / "data-prep" / "prepare.sh", "--spm-model", folder / "unigram.model", "--dest", folder / "data"]
    command += ["--train", folder / "train.txt", "--valid", folder / "valid.txt"]
    subprocess.run(list(map(str, command)), env=SCRIPTS_ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    return folder / "data"


def scramble(weights):
    """Gives a state dict random weights, in place; of tensors that share values, both get the same."""
    generator = torch.Generator().manual_seed(7)
    for name, value in weights.items():
        if name.endswith("lm_head.weight"):
            value.copy_(weights["encoder.sentence_encoder.embed_tokens.weight"])
        elif not name.endswith("version"):
            norm = "norm" in name and name.endswith("weight")
            value.copy_(torch.randn(value.shape, generator=generator) * 0.3 + float(norm))


@pytest.fixture(scope="module")
def stock(data, tmp_path_factory):
    """A checkpoint that stock fairseq wrote, with random weights."""
    folder = tmp_path_factory.mktemp("stock")
    succeed("fairseq-train", data, *STOCK, *OPTIMIZATION, "--save-dir", folder, "--disable-validation")
    state = compat.load_checkpoint(folder / "checkpoint_last.pt")
    scramble(state["model"])
    torch.save(state, folder / "checkpoint_last.pt")
    return folder


def stock_model(weights, options, dictionary):
    """fairseq's RoBERTa."""
    options = argparse.Namespace(**options)
    model = RobertaModel.build_model(options, SimpleNamespace(source_dictionary=dictionary))
    if weights is not None:
        model.load_state_dict(weights)
    for module in model.modules():
        if hasattr(module, "activation_fn"):
            module.activation_fn = torch.nn.functional.gelu  # fairseq's rounds to float32
    return model.eval()


def random_tokens(dictionary):
    """(4, P), padded at the end."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.full((4, P), dictionary.pad())
    for i, length in enumerate([P, 3, 101, 47]):
        tokens[i, :length] = torch.randint(3, len(dictionary), (length,), generator=generator)
        tokens[i, 0], tokens[i, length - 1] = dictionary.bos(), dictionary.eos()
    return tokens


@torch.no_grad()
def computed(checkpoint, data, tokens, dtype):
    """Features and logits of our model at the tokens that are no padding."""
    model = hub.from_pretrained(checkpoint, data).model.to(dtype)
    features = model.forward_encoder(tokens)[tokens.ne(1)]
    return features, model.lm_head(features, model.embed_tokens.weight)


@torch.no_grad()
def assert_computes_the_same(checkpoint, data, model):
    """Compares an imported checkpoint with fairseq's model."""
    tokens = random_tokens(load_dictionary(data))
    for dtype, tolerance in [(torch.float64, 1e-12), (torch.float32, 1e-4)]:
        model.to(dtype)
        expected = [model(tokens, features_only=only)[0][tokens.ne(1)] for only in [True, False]]
        for ours, theirs in zip(computed(checkpoint, data, tokens, dtype), expected):
            difference = float((ours - theirs).abs().max())
            print(f"{dtype}: {difference:.2g} of {float(theirs.abs().max()):.2g}")
            assert difference < tolerance


BIASES = {
    "absent": {},
    "authors": dict(relative_position_num_buckets=8, relative_position_max_distance=16),
    "t5": dict(relative_position_num_buckets=32, relative_position_buckets="t5", decoder_relative_bias=True),
    "local": dict(
        relative_position_num_buckets=32,
        decoder_relative_bias=True,
        relative_position_local_init=True,
    ),
}


@pytest.mark.parametrize("bias", BIASES)
def test_stock_fairseq(bias, stock, data, tmp_path):
    dest = tmp_path / "new" / "checkpoint.pt"
    source, _ = program.import_roberta(stock, data, dest, **BIASES[bias])
    assert source.dropped == [] and os.listdir(dest.parent) == [dest.name]
    state = compat.load_checkpoint(stock / "checkpoint_last.pt")
    model = stock_model(state["model"], vars(state["cfg"]["model"]), load_dictionary(data))
    assert_computes_the_same(dest, data, model)
    ours = compat.load_checkpoint(dest)["model"]
    assert sum(key.endswith("ffn_norm.bias") and key.startswith("decoder") for key in ours) == 4
    if bias != "absent":
        assert ours["encoder.relative_bias.table.weight"].eq(0).all()
    decoder_bias = ours.get("decoder.relative_bias.table.weight")
    assert (decoder_bias is not None) == (bias in ["t5", "local"])
    if decoder_bias is not None:  # sharp preferences, or BERT's small random numbers
        assert (float(decoder_bias.min()) < -10) == (bias == "local")


def test_what_other_versions_of_fairseq_write(stock, data, tmp_path):
    """A configuration of omegaconf; copies of weights."""
    state = compat.load_checkpoint(stock / "checkpoint_last.pt")
    for part in ["in_proj_weight", "out_proj_bias", "fc1_weight"]:
        state["model"][f"encoder.sentence_encoder.layers.1.{part}"] = torch.zeros(2)
    options = vars(state["cfg"]["model"])
    known = {name: value for name, value in options.items() if name.startswith("encoder_") or name == "dropout"}
    state["cfg"] = OmegaConf.create({"model": {**known, "dropout": 0.25}, "task": {"data": str(data)}})
    torch.save(state, tmp_path / "stock.pt")
    source, cfg = program.import_roberta(tmp_path / "stock.pt", data, tmp_path / "new.pt")
    assert source.dropped == []
    assert (cfg.encoder_layers, cfg.dropout, cfg.max_positions) == (LAYERS, 0.25, P)


def old_names(weights):
    """A state dict as fairseq's releases of RoBERTa and XLM-R have it."""
    found = {}
    for name, value in weights.items():
        name = name.replace("encoder.", "decoder.", 1).replace("layernorm_embedding", "emb_layer_norm")
        if "self_attn.q_proj" in name:
            parts = [weights[name.replace("decoder.", "encoder.", 1).replace("q_proj", f"{p}_proj")] for p in "qkv"]
            found[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        elif not any(part in name for part in ["k_proj", "v_proj", "version"]):
            found[name] = value
    return found


def test_an_old_release_with_a_unigram_model(unigram, tmp_path):
    dictionary = load_dictionary(unigram)
    options = dict(encoder_layers=LAYERS, encoder_embed_dim=C, encoder_ffn_embed_dim=F, encoder_attention_heads=H)
    options.update(max_positions=P, arch="roberta_base", task="multilingual_masked_lm", data="nowhere")
    model = stock_model(None, options, dictionary)
    scramble(model.state_dict())
    state = {"model": old_names(model.state_dict()), "args": argparse.Namespace(**options), "extra_state": {}}
    for name in ["classification_heads.topic.dense.weight", "classification_heads.topic.out_proj.bias"]:
        state["model"][name] = torch.zeros(2)
    folder = tmp_path / "xlmr"
    folder.mkdir()
    torch.save(state, folder / "model.pt")
    shutil.copy(unigram / "dict.txt", folder)
    shutil.copy(unigram / "sentencepiece.model", folder / "sentencepiece.bpe.model")
    source, _ = program.import_roberta(folder, unigram, tmp_path / "new.pt")
    assert source.dropped == ["classification_heads.topic"]
    assert_computes_the_same(tmp_path / "new.pt", unigram, model)
    text = "kan 李 <mask> lopo"
    model = hub.from_pretrained(tmp_path / "new.pt", unigram)
    assert model.decode(model.encode(text)) == text and len(model.fill_mask(text)) == 1


def call(monkeypatch, capsys, *arguments):
    """Runs the program in this process; returns the lines that it printed."""
    monkeypatch.setattr(sys, "argv", ["import", *map(str, arguments)])
    program.main()
    return capsys.readouterr().out.splitlines()


CONTINUED = {
    "decoder": dict(decoder_layers=1, relative_position_num_buckets=32, decoder_relative_bias=True),
    "shared": dict(decoder_layers=2, relative_position_num_buckets=32, share_decoder_layers=True),
    "mlm": dict(decoder_layers=0, relative_position_num_buckets=0),
}


@pytest.mark.parametrize("case", CONTINUED)
def test_pretraining_continues_by_the_command_that_is_printed(case, stock, data, tmp_path, monkeypatch, capsys):
    options, dest = [], tmp_path / "new.pt"
    for name, value in CONTINUED[case].items():
        options += ["--" + name.replace("_", "-"), *([] if value is True else [value])]
    printed = call(monkeypatch, capsys, "--checkpoint", stock, "--data", data, "--dest", dest, *options)
    assert printed[0] == (
        f"written: {dest}; exactly as in {stock}/checkpoint_last.pt: the encoder and the language-model head"
    )
    assert printed[1].startswith("new: the decoder (1 layers);" if case == "decoder" else "new: nothing;")
    command = shlex.split(printed[-1])
    slow = ["--lr", 1e-12, "--max-update", 1]
    output = succeed(*command, *OPTIMIZATION, *slow, "--save-dir", tmp_path / "legacy")
    assert f"Loaded checkpoint {dest} (epoch 1 @ 0 updates)" in output
    model = {"_name": "mae_lm_base", "encoder_layers": LAYERS, "encoder_embed_dim": C, "encoder_ffn_embed_dim": F}
    model.update(encoder_attention_heads=H, max_positions=P, **CONTINUED[case])
    arguments = hydra(tmp_path, data, model, lr=[1e-12], max_update=1)
    fraction = ["+task.encoder_mask_fraction=1"] if case == "mlm" else []
    succeed("fairseq-hydra-train", *arguments, f"checkpoint.finetune_from_model={dest}", *fraction, cwd=tmp_path)
    imported = compat.load_checkpoint(dest)
    assert imported["cfg"]["task"]["encoder_mask_fraction"] == (case == "mlm")
    assert CONTINUED[case].items() <= imported["cfg"]["model"].items()
    for folder in ["legacy", "hydra"]:
        continued = compat.load_checkpoint(tmp_path / folder / "checkpoint_last.pt")
        assert continued["cfg"]["model"]["share_decoder_layers"] == (case == "shared")
        assert continued["optimizer_history"][-1]["num_updates"] == 1
        assert continued["model"].keys() == imported["model"].keys()
        for name, value in imported["model"].items():
            torch.testing.assert_close(continued["model"][name], value, rtol=0, atol=1e-6, msg=f"{folder} {name}")


def for_naive(weights):
    """The weights of fairseq's RoBERTa, by the names that naive.py knows."""
    names = {
        "sentence_encoder.embed_tokens": "embed_tokens", "sentence_encoder.": "", "layernorm_embedding": "norm",
        "self_attn_layer_norm": "attention_norm", "final_layer_norm": "ffn_norm", "self_attn.q_proj": "attention.query",
        "self_attn.out_proj": "attention.out", "fc1": "ffn.0", "fc2": "ffn.1", "lm_head.layer_norm": "lm_head.norm",
        "encoder.lm_head": "lm_head", "encoder.embed_tokens": "embed_tokens",
    }  # fmt: skip
    found = {}
    for name, value in weights.items():
        if "k_proj" in name:
            value = torch.cat([value, weights[name.replace("k_proj", "v_proj")]])
            name = name.replace("self_attn.k_proj", "attention.key_value")
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        found[name] = value.double()
    found["encoder.embed_positions.weight"] = found["encoder.embed_positions.weight"][1:]  # two rows without position
    return found


@pytest.mark.parametrize("layers", [1, LAYERS])
def test_shared_layers_predict_by_the_imported_weights(layers, stock, data, tmp_path):
    program.import_roberta(stock, data, tmp_path / "new.pt", decoder_layers=layers, share_decoder_layers=True)
    ours = hub.from_pretrained(tmp_path / "new.pt", data).model.double()
    tokens = random_tokens(load_dictionary(data))[:1]
    masked = torch.arange(P) % 5 == 3
    positions = torch.arange(P)[None]
    logits = ours(tokens[:, ~masked], positions[:, ~masked], positions[:, masked], num_predicted=int(masked.sum()))
    loss = torch.nn.functional.cross_entropy(logits[0], tokens[0, masked], reduction="sum")
    weights = for_naive(compat.load_checkpoint(stock / "checkpoint_last.pt")["model"])
    seen = tokens.masked_fill(masked, naive.NOT_SEEN)
    settings = dict(heads=H, pad=1, mask=ours.mask, max_distance=0, shared=layers)
    expected = naive.loss(weights, tokens, seen, masked[None], **settings)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


@pytest.fixture(scope="module")
def exported(stock, data, tmp_path_factory):
    """A folder of transformers' RobertaForMaskedLM, with the SentencePiece model put into it."""
    folder = tmp_path_factory.mktemp("exported")
    program.import_roberta(stock, data, folder / "mlm.pt", decoder_layers=0)
    assert export.export(folder / "mlm.pt", data, folder / "roberta")[:2] == ("RobertaForMaskedLM", [])
    shutil.copy(data / "sentencepiece.model", folder / "roberta")
    return folder / "roberta"


def test_there_and_back(exported, stock, data, tmp_path):
    card = (exported / "README.md").read_text()
    assert "pretrained by masked language modelling elsewhere" in card and "checkpoint_last.pt" in card
    assert "MAE-LM" not in card and "Updates" not in card and "documents" not in card
    theirs = compat.load_checkpoint(stock / "checkpoint_last.pt")["model"]
    weights = safetensors.torch.load_file(exported / "model.safetensors")
    parts = {
        "embeddings.word_embeddings.weight": "embed_tokens.weight",
        "embeddings.LayerNorm.bias": "layernorm_embedding.bias",
        "encoder.layer.1.attention.self.key.weight": "layers.1.self_attn.k_proj.weight",
        "encoder.layer.0.attention.self.value.bias": "layers.0.self_attn.v_proj.bias",
        "encoder.layer.1.output.dense.weight": "layers.1.fc2.weight",
    }
    for name, other in parts.items():
        assert weights["roberta." + name].equal(theirs["encoder.sentence_encoder." + other])
    positions = weights["roberta.embeddings.position_embeddings.weight"]
    assert positions[1:].equal(theirs["encoder.sentence_encoder.embed_positions.weight"][1:])
    program.import_roberta(exported, data, tmp_path / "again.pt", decoder_layers=0)
    first, again = (compat.load_checkpoint(p) for p in [exported.parent / "mlm.pt", tmp_path / "again.pt"])
    assert first["model"].keys() == again["model"].keys()
    assert all(first["model"][name].equal(again["model"][name]) for name in first["model"])
    assert first["cfg"] == again["cfg"]


def test_an_encoder_without_head_and_with_token_types(exported, data, tmp_path, monkeypatch, capsys):
    def base(config, weights):
        for name in [name for name in weights if name.startswith("lm_head.")]:
            del weights[name]
        for name in list(weights):
            weights[name[len("roberta.") :]] = weights.pop(name)
        weights["pooler.dense.weight"] = torch.zeros(C, C)
        weights["embeddings.position_ids"] = torch.arange(P)
        weights["embeddings.token_type_embeddings.weight"] += torch.arange(C) / 8

    folder = copy(exported, tmp_path / "base", base)
    arguments = ["--checkpoint", folder, "--data", data, "--dest", tmp_path / "new.pt", "--decoder-layers", 2]
    written, new, *_ = call(monkeypatch, capsys, *arguments)
    assert written.endswith(f"exactly as in {folder}: the encoder")
    assert new == "new: the decoder (2 layers) and the language-model head, which the source lacks; left out: pooler"
    shared = dict(decoder_layers=1, share_decoder_layers=True)
    program.import_roberta(folder, data, tmp_path / "shared.pt", **shared)
    done = export.export(tmp_path / "shared.pt", data, tmp_path / "code", format="code")
    assert done[:2] == ("MaeLmModel", ["lm_head"])  # which is new
    first = compat.load_checkpoint(exported.parent / "mlm.pt")["model"]
    ours = compat.load_checkpoint(tmp_path / "new.pt")["model"]
    assert not ours["lm_head.dense.weight"].equal(first["lm_head.dense.weight"])
    for name in first:
        if name == "encoder.embed_positions.weight":
            assert ours[name][0].eq(0).all() or ours[name][0].equal(first[name][0])
            torch.testing.assert_close(ours[name][1:], first[name][1:] + torch.arange(C) / 8)
        elif not name.startswith("lm_head."):
            assert ours[name].equal(first[name]), name


def test_the_seed_decides_what_is_new(stock, data, tmp_path):
    states = []
    before = torch.get_rng_state()
    for i, seed in enumerate([1, 1, 2]):
        program.import_roberta(stock, data, tmp_path / f"{i}.pt", seed=seed, decoder_layers=1)
        states.append(compat.load_checkpoint(tmp_path / f"{i}.pt")["model"])
    assert torch.get_rng_state().equal(before)
    differing = {name for name in states[0] if not states[0][name].equal(states[2][name])}
    assert all(states[0][name].equal(states[1][name]) for name in states[0])
    assert differing and all(name.startswith("decoder.") for name in differing)


def test_the_effective_rank_of_an_import(stock, data, tmp_path):
    program.import_roberta(stock, data, tmp_path / "new.pt")
    command = [PYTHON, "-m", "maelm_fairseq.effective_rank", "--checkpoint", tmp_path / "new.pt", "--data", data]
    command += ["--dest", tmp_path / "rank"]
    subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


# What is refused.


def copy(exported, folder, change=None):
    """A copy of a folder of transformers after change(config, weights)."""
    shutil.copytree(exported, folder)
    config = json.loads((folder / "config.json").read_text())
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    if change is not None:
        change(config, weights)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    return folder


def refused(path, data, tmp_path, message, **options):
    with pytest.raises(ValueError, match=message) as error:
        program.import_roberta(path, data, tmp_path / "new.pt", **options)
    assert "\n" not in str(error.value) and not (tmp_path / "new.pt").exists()


LM_HEAD, ENCODER = "encoder.lm_head.", "encoder.sentence_encoder."
OF_FAIRSEQ = {  # change of options, change of weights, message
    "pre-LN": (dict(encoder_normalize_before=True), None, r"encoder_normalize_before True: .* \(pre-LN\)"),
    "pre-LN weights": (
        {}, lambda w: w.update({ENCODER + "layer_norm.weight": torch.ones(C)}),
        r"unknown: encoder\.sentence_encoder\.layer_norm\.weight$",
    ),
    "no norm": (dict(layernorm_embedding=False), None, "layernorm_embedding False: expected a LayerNorm after"),
    "activation": (dict(activation_fn="relu"), None, "activation_fn relu: expected gelu$"),
    "scaled": (dict(no_scale_embedding=False), None, "no_scale_embedding False: the embeddings are scaled"),
    "untied option": (dict(untie_weights_roberta=True), None, "untie_weights_roberta True: the language-model head"),
    "untied": (
        {}, lambda w: w.update({LM_HEAD + "weight": w[LM_HEAD + "weight"] + 1}), "head has an embedding of its own",
    ),
    "no head": (
        {}, lambda w: [w.pop(k) for k in list(w) if k.startswith(LM_HEAD)], "it has no language-model head; give a",
    ),
    "half a head": (
        {}, lambda w: w.pop(LM_HEAD + "layer_norm.bias"), r"configuration; missing: lm_head\.layer_norm\.bias$",
    ),
    "a layer less": (dict(encoder_layers=1), None, r"unknown: encoder\.layer\.1\..* and 13 more$"),
    "a layer more": (dict(encoder_layers=3), None, r"missing: encoder\.layer\.2\..* and 13 more$"),
    "width": (dict(encoder_ffn_embed_dim=8), None, r"of another shape: .*intermediate\.dense\.bias \(24,\) instead of"),
    "more": ({}, lambda w: w.update({"quant_noise.weight": torch.ones(1)}), r"unknown: quant_noise\.weight$"),
    "sinusoids": (
        {}, lambda w: w.pop(ENCODER + "embed_positions.weight"), r"missing: embeddings\.position_embeddings\.weight$",
    ),
    "no options": (None, None, "its configuration does not give encoder_layers, encoder_attention_heads, e"),
    "heads": (dict(encoder_attention_heads=3), None, "^--encoder-attention-heads 3 must divide --encoder-embed-dim"),
    "not RoBERTa": ({}, lambda w: w.pop(ENCODER + "embed_tokens.weight"), "not a checkpoint of fairseq's roberta"),
    "rows": (
        {},
        lambda w: w.update({name: value[:-1] for name, value in w.items() if len(value) == 102}),
        r"embeddings of 101 symbols, but the vocabulary of .* has 102 \(with special symbols and <mask>",
    ),
    "no tensors": ({}, lambda w: w.update(more="text"), "not the weights of a model, which are tensors$"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_FAIRSEQ)
def test_fairseq_refused(name, stock, data, tmp_path):
    options, change, message = OF_FAIRSEQ[name]
    state = compat.load_checkpoint(stock / "checkpoint_last.pt")
    if options is None:
        state["cfg"] = None
    else:
        vars(state["cfg"]["model"]).update(options)
    if change is not None:
        change(state["model"])
    torch.save(state, tmp_path / "stock.pt")
    refused(tmp_path / "stock.pt", data, tmp_path, message)


def untie(config, weights):
    weights["lm_head.decoder.weight"] = weights["roberta.embeddings.word_embeddings.weight"] + 1


def set_(**options):
    return lambda config, weights: config.update(options)


OF_TRANSFORMERS = {  # change of config and weights, message
    "pre-LN": (set_(model_type="xlm-roberta-xl"), r"xlm-roberta-xl: its LayerNorms are .* \(pre-LN\)"),
    "model": (set_(model_type="xmod"), "config.json: model_type xmod, expected roberta or xlm-roberta or camembert$"),
    "activation": (set_(hidden_act="gelu_new"), "hidden_act gelu_new: expected gelu$"),
    "epsilon": (set_(layer_norm_eps=1e-6), "layer_norm_eps 1e-06: expected 1e-5"),
    "default epsilon": (lambda c, w: c.pop("layer_norm_eps"), "layer_norm_eps 1e-12: expected 1e-5"),
    "relative": (set_(position_embedding_type="relative_key"), "position_embedding_type relative_key: expected abs"),
    "padding": (set_(pad_token_id=0), "pad_token_id 0: expected 1$"),
    "ends": (set_(bos_token_id=0, eos_token_id=1), r"bos_token_id 0 and eos_token_id 1, expected 0 and 2 \(XLM-R\) or"),
    "causal": (set_(is_decoder=True), "is_decoder True: expected an encoder$"),
    "rows of CamemBERT": (set_(bos_token_id=5, eos_token_id=6), "embeddings of 99 symbols, but the vocabulary of"),
    "token types": (
        lambda c, w: w["roberta.embeddings.token_type_embeddings.weight"][1].add_(1),
        "its token types have different embeddings, expected one or equal ones$",
    ),
    "untied": (untie, "the language-model head has an embedding of its own"),
    "untied by option": (set_(tie_word_embeddings=False), "tie_word_embeddings False: the language-model head has an"),
    "two biases": (lambda c, w: w["lm_head.bias"].add_(1), r"lm_head.bias and lm_head.decoder.bias differ"),
    "missing": (lambda c, w: w.pop("roberta.embeddings.LayerNorm.bias"), "missing: embeddings.LayerNorm.bias$"),
    "unknown": (lambda c, w: w.update(adapter=torch.ones(1)), "unknown: adapter$"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_transformers_refused(name, exported, data, tmp_path):
    change, message = OF_TRANSFORMERS[name]
    refused(copy(exported, tmp_path / "theirs", change), data, tmp_path, message)


def test_folders_refused(exported, stock, data, unigram, tmp_path):
    refused(exported, unigram, tmp_path, "prepared with another SentencePiece model than .*roberta/sentencepiece.model")
    refused(stock, unigram, tmp_path, r"dict.txt: not the vocabulary of .*: 102 symbols and \d+, the first that differ")
    refused(exported / "config.json", data, tmp_path, "config.json: a file of a transformers model; give the folder")
    refused(exported.parent / "mlm.pt", data, tmp_path, "a checkpoint of MAE-LM needs no import: give it to --finetune")
    refused(data, data, tmp_path, "expected config.json .* or checkpoint_best.pt or .* or model.pt, found dict.txt, ")
    with pytest.raises(FileNotFoundError, match="nosuch.pt: not found"):
        program.import_roberta(tmp_path / "nosuch.pt", data, tmp_path / "new.pt")

    folder = copy(exported, tmp_path / "theirs")
    (folder / "sentencepiece.model").write_text("nothing")
    refused(folder, data, tmp_path, "theirs/sentencepiece.model: not a SentencePiece model")
    (folder / "sentencepiece.model").unlink()
    refused(folder, data, tmp_path, "no SentencePiece model: put the one it was trained with there as sentencepiece")
    (folder / "merges.txt").touch()
    refused(folder, data, tmp_path, r"a byte-level BPE \(vocab.json, merges.txt\) cannot be imported")
    (folder / "vocab.txt").touch()
    refused(folder, data, tmp_path, r"a WordPiece vocabulary \(vocab.txt\) cannot be imported")
    shutil.copy(data / "sentencepiece.model", folder / "spiece.model")
    (folder / "model.safetensors").write_text("nothing")
    refused(folder, data, tmp_path, "model.safetensors: cannot be read .* expected a complete file of transformers")
    (folder / "model.safetensors").unlink()
    refused(folder, data, tmp_path, "theirs: expected model.safetensors or pytorch_model.bin beside config.json$")
    (folder / "pytorch_model.bin").write_text("nothing")
    refused(folder, data, tmp_path, "pytorch_model.bin: cannot be read .* expected a complete file of transformers")
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors.index.json")
    refused(folder, data, tmp_path, r"the weights are in several files \(model.safetensors.index.json\); save them in")


def test_vocabularies_refused(stock, data, tmp_path):
    state = compat.load_checkpoint(stock / "checkpoint_last.pt")
    state["cfg"]["task"]["data"] = vars(state["cfg"]["model"])["data"] = "nowhere"
    torch.save(state, tmp_path / "stock.pt")
    refused(tmp_path / "stock.pt", data, tmp_path, "stock.pt: its vocabulary is unknown: put beside it the dict.txt or")
    lines = (data / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "dict.txt").write_text("".join(lines[:-1]), encoding="utf-8")
    refused(tmp_path / "stock.pt", data, tmp_path, r"101 symbols and 102, .* differ are '<mask>' and .* \(100\)")
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(data / "dict.txt", bare)
    refused(stock, bare, tmp_path, "bare/sentencepiece.model: not found, expected data prepared by data-prep/")


def test_destinations_and_sizes_refused(stock, data, tmp_path):
    (tmp_path / "old.pt").touch()
    with pytest.raises(ValueError, match="old.pt: exists already; remove it or choose another --dest$"):
        program.import_roberta(stock, data, tmp_path / "old.pt")
    refused(stock, data, tmp_path, "--relative-position-num-buckets 7 must be even", relative_position_num_buckets=7)
    refused(stock, data, tmp_path, "--decoder-relative-bias needs --relative-position-n", decoder_relative_bias=True)
    only_encoder = dict(relative_position_num_buckets=32, relative_position_local_init=True)
    refused(stock, data, tmp_path, "^--relative-position-local-init needs --decoder-relative-bias: ", **only_encoder)
    refused(stock, data, tmp_path, "--decoder-layers -1 must be at least 0", decoder_layers=-1)
    refused(stock, data, tmp_path, "--decoder-layers 4 must be from 1 to --encoder-layers 2", share_decoder_layers=True)


@pytest.mark.parametrize(
    "options, message",
    [
        ("--data data --dest new.pt", "the following arguments are required: --checkpoint (--help lists the options)"),
        ("--checkpoint no.pt --data data --dest new.pt", "no.pt: not found, expected a checkpoint (a .pt file)"),
    ],
)
def test_errors_are_one_line(options, message, tmp_path):
    done = subprocess.run(
        [PYTHON, "-m", "maelm_fairseq.huggingface.import_roberta", *options.split()],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, f"error: {message}\n")


# The same with transformers, in environments of their own.

SIZES = dict(
    hidden_size=C, intermediate_size=F, num_attention_heads=H, num_hidden_layers=LAYERS, layer_norm_eps=1e-5,
    max_position_embeddings=P + 2, pad_token_id=1,
)  # fmt: skip
XLM_R, CAMEMBERT = dict(bos_token_id=0, eos_token_id=2), dict(bos_token_id=5, eos_token_id=6)
CASES = {  # class, configuration, format
    "xlm-roberta": ("XLMRobertaForMaskedLM", dict(XLM_R, type_vocab_size=1), "safetensors"),
    "roberta": ("RobertaForMaskedLM", dict(XLM_R, type_vocab_size=2), "bin"),
    "xlm-roberta-base": ("XLMRobertaModel", dict(XLM_R, type_vocab_size=1), "safetensors"),
    "camembert": ("CamembertForMaskedLM", dict(CAMEMBERT, type_vocab_size=1), "safetensors"),
    "camembert-bin": ("CamembertModel", dict(CAMEMBERT, type_vocab_size=1), "bin"),
}


@pytest.fixture(scope="module")
def made(unigram, tmp_path_factory):
    """For each interpreter the folder that tests/huggingface_sources.py filled."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(unigram / "sentencepiece.model"))
    tokens = random_tokens(load_dictionary(unigram))
    # CamembertTokenizer: <s> and </s> are 5 and 6, SentencePiece's ids are 4 less.
    special = torch.tensor([5, 1, 6, 3])
    rows = {"roberta": tokens, "camembert": torch.where(tokens < 4, special[tokens.clamp(max=3)], tokens - 1 + 4)}
    more = {"roberta": 2, "camembert": 5}
    cases, inputs = {}, {}
    for name, (stock_class, config, file_format) in CASES.items():
        kind = "camembert" if "camembert" in name else "roberta"
        config = {**SIZES, **config, "vocab_size": pieces.get_piece_size() + more[kind]}
        cases[name] = {"class": stock_class, "config": config, "format": file_format}
        inputs[name] = rows[kind].tolist()
    found = {}
    for interpreter in TRANSFORMERS:
        folder = tmp_path_factory.mktemp("transformers")
        (folder / "cases.json").write_text(json.dumps(cases))
        (folder / "tokens.json").write_text(json.dumps(inputs))
        script = Path(__file__).parent / "huggingface_sources.py"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run([interpreter, script, folder], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        (folder / "version").write_text(done.stdout.splitlines()[-1])
        for i, name in enumerate(CASES):
            names = ["sentencepiece.bpe.model", "spiece.model", "sentencepiece.model"]
            shutil.copy(unigram / "sentencepiece.model", folder / name / names[i % 3])
        found[interpreter] = folder
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("interpreter", TRANSFORMERS)
def test_transformers_computes_the_same(interpreter, case, made, unigram, tmp_path):
    folder = made[interpreter]
    tokens = random_tokens(load_dictionary(unigram))
    expected = np.load(folder / f"{case}.npz")
    real = tokens.ne(1)
    for bias in ["absent", "t5"]:
        dest = tmp_path / f"{bias}.pt"
        source, _ = program.import_roberta(folder / case, unigram, dest, **BIASES[bias])
        assert source.has_head == ("logits" in expected) == ("MaskedLM" in CASES[case][0])
        assert source.dropped == ([] if source.has_head else ["pooler"])
        for dtype, tolerance in [(torch.float64, 1e-12), (torch.float32, 1e-4)]:
            features, logits = computed(dest, unigram, tokens, dtype)
            pairs = {"features": (features, expected["features"][real])}
            if source.has_head:
                theirs = torch.from_numpy(expected["logits"])[real]
                rows = [5, 1, 6, 3, *range(7, theirs.size(1))] if "camembert" in case else slice(None)
                pairs["logits"] = logits, theirs[:, rows].numpy()
            for what, (ours, theirs) in pairs.items():
                difference = np.abs(ours.double().numpy() - theirs).max()
                version = (folder / "version").read_text()
                print(f"transformers {version} {case}, bias {bias}, {what}, {dtype}: {difference:.2g}")
                assert difference < tolerance, (what, dtype)


def test_a_new_decoder_is_not_exported(stock, data, tmp_path):
    program.import_roberta(stock, data, tmp_path / "imported.pt")
    done = export.export(tmp_path / "imported.pt", data, tmp_path / "code", format="code")
    assert done[:2] == ("MaeLmModel", ["decoder", "lm_head"])
    assert "AutoModelForMaskedLM" not in (tmp_path / "code" / "config.json").read_text()
    program.import_roberta(stock, data, tmp_path / "shared.pt", decoder_layers=1, share_decoder_layers=True)
    done = export.export(tmp_path / "shared.pt", data, tmp_path / "shared", format="code")
    assert done[:2] == ("MaeLmForMaskedLM", [])
