"""Imports of RoBERTa encoders: from stock fairseq and from transformers, what they compute, and what is refused.

What transformers computes from an exported folder is in test_huggingface_transformers.py: here it is read back.
"""

import argparse
import json
import os
import re
import shlex
import shutil
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from fairseq.models.roberta import RobertaModel

from conftest import refuses, succeed
from maelm_fairseq import hub
from maelm_fairseq.checkpoints import reading
from maelm_fairseq.huggingface import export
from maelm_fairseq.huggingface import import_roberta as program
from maelm_fairseq.vocabulary import load_dictionary
from test_huggingface_tokenizer import vocabulary

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
def data(prepared):
    return prepared


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    """A vocabulary as XLM-R's, Unigram, with pieces for bytes."""
    folder = tmp_path_factory.mktemp("unigram") / "data"
    return vocabulary(folder, kind="unigram", byte_fallback=True, vocab_size=330)


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
    """The folder of a checkpoint that stock fairseq wrote, with random weights."""
    folder = tmp_path_factory.mktemp("stock")
    succeed("fairseq-train", data, *STOCK, *OPTIMIZATION, "--save-dir", folder, "--disable-validation")
    state = reading.read_file(folder / "checkpoint_last.pt", old=True)
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


@torch.no_grad()
def assert_computes_the_same(checkpoint, data, theirs):
    """Compares features and logits of an imported checkpoint with fairseq's model, at tokens that are no padding."""
    dictionary, generator = load_dictionary(data), torch.Generator().manual_seed(1)
    ours = hub.from_pretrained(checkpoint, data).model
    lengths = torch.tensor([P, 3, 101, 47])
    tokens = torch.randint(3, len(dictionary), (4, P), generator=generator)
    tokens[:, 0], tokens[range(4), lengths - 1] = dictionary.bos(), dictionary.eos()
    tokens.masked_fill_(torch.arange(P) >= lengths[:, None], dictionary.pad())
    real = tokens.ne(dictionary.pad())
    for dtype, tolerance in [(torch.float64, 1e-12), (torch.float32, 1e-4)]:
        features = ours.to(dtype).forward_encoder(tokens)
        logits = ours.lm_head(features, ours.embed_tokens.weight)
        assert (features - theirs.to(dtype)(tokens, features_only=True)[0])[real].abs().max() < tolerance
        assert (logits - theirs(tokens)[0])[real].abs().max() < tolerance


def test_stock_fairseq(stock, data, tmp_path):
    dest = tmp_path / "new" / "checkpoint.pt"
    bias = dict(relative_position_num_buckets=32, relative_position_buckets="t5", decoder_relative_bias=True)
    source, _ = program.import_roberta(stock, data, dest, **bias)
    assert source.dropped == [] and os.listdir(dest.parent) == [dest.name]
    state = reading.read_file(stock / "checkpoint_last.pt")
    model = stock_model(state["model"], state["cfg"]["model"], load_dictionary(data))
    assert_computes_the_same(dest, data, model)
    ours = reading.read_file(dest)["model"]
    assert ours["encoder.relative_bias.table.weight"].eq(0).all()
    assert not ours["decoder.relative_bias.table.weight"].eq(0).any()


def test_what_other_versions_of_fairseq_write(stock, data, tmp_path):
    """A configuration without what has the default; copies of weights."""
    state = reading.read_file(stock / "checkpoint_last.pt")
    state["model"]["encoder.sentence_encoder.layers.1.fc1_weight"] = torch.zeros(2)
    known = {name: value for name, value in state["cfg"]["model"].items() if name.startswith("encoder_")}
    state["cfg"] = {"model": {**known, "dropout": 0.25}, "task": {"data": str(data)}}
    torch.save(state, tmp_path / "stock.pt")
    source, cfg = program.import_roberta(tmp_path / "stock.pt", data, tmp_path / "new.pt")
    assert source.dropped == [] and (cfg.encoder_layers, cfg.dropout, cfg.max_positions) == (LAYERS, 0.25, P)


def old_names(weights):
    """A state dict as fairseq's releases of RoBERTa and XLM-R have it."""
    found = {}
    for name, value in weights.items():
        name = name.replace("encoder.", "decoder.", 1).replace("layernorm_embedding", "emb_layer_norm")
        if "self_attn.q_proj" in name:
            parts = [weights[name.replace("decoder.", "encoder.", 1).replace("q_proj", f"{p}_proj")] for p in "qkv"]
            found[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        elif not re.search("[kv]_proj|version|[.][0-9]+[.][a-z0-9_]+$", name):  # the last: fairseq 0.12.2's copies
            found[name] = value
    return found


def test_an_old_release_with_a_unigram_model(unigram, tmp_path):
    options = dict(encoder_layers=LAYERS, encoder_embed_dim=C, encoder_ffn_embed_dim=F, encoder_attention_heads=H)
    options.update(max_positions=P, arch="roberta_base", task="multilingual_masked_lm", data="nowhere")
    model = stock_model(None, options, load_dictionary(unigram))
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


def printed_by(*arguments):
    """The lines that the program prints."""
    return succeed("python", "-m", program.__name__, *arguments).splitlines()


CONTINUED = {
    "shared": dict(decoder_layers=2, relative_position_num_buckets=32, share_decoder_layers=True),
    "decoder": dict(decoder_layers=1, relative_position_num_buckets=32, decoder_relative_bias=True),
    "mlm": dict(decoder_layers=0, relative_position_num_buckets=0),
}


@pytest.mark.parametrize("case", CONTINUED)
def test_pretraining_continues_by_the_command_that_is_printed(case, stock, data, tmp_path):
    options, dest = [], tmp_path / "new.pt"
    for name, value in CONTINUED[case].items():
        options += ["--" + name.replace("_", "-"), *([] if value is True else [value])]
    printed = printed_by("--checkpoint", stock, "--data", data, "--dest", dest, *options)
    assert printed[0] == (
        f"written: {dest}; exactly as in {stock}/checkpoint_last.pt: the encoder and the language-model head"
    )
    assert printed[1].startswith("new: the decoder (1 layers);" if case == "decoder" else "new: nothing;")
    command = shlex.split(printed[-1])
    slow = ["--lr", 1e-12, "--max-update", 1]
    output = succeed(*command, *OPTIMIZATION, *slow, "--save-dir", tmp_path / "run")
    assert f"Loaded checkpoint {dest} (epoch 1 @ 0 updates)" in output
    imported = reading.read_file(dest)
    assert imported["cfg"]["task"]["encoder_mask_fraction"] == (case == "mlm")
    assert CONTINUED[case].items() <= imported["cfg"]["model"].items()
    continued = reading.read_file(tmp_path / "run" / "checkpoint_last.pt")
    assert continued["optimizer_history"][-1]["num_updates"] == 1
    assert continued["model"].keys() == imported["model"].keys()
    for name, value in imported["model"].items():
        torch.testing.assert_close(continued["model"][name], value, rtol=0, atol=1e-6, msg=name)
    if case == "shared":  # nothing is new, and all of it is exported
        assert export.export(dest, data, tmp_path / "code", format="code")[:2] == ("MaeLmForMaskedLM", [])


@pytest.fixture(scope="module")
def exported(stock, data, tmp_path_factory):
    """A folder of transformers' RobertaForMaskedLM, with the SentencePiece model put into it."""
    folder = tmp_path_factory.mktemp("exported")
    program.import_roberta(stock, data, folder / "mlm.pt", decoder_layers=0)
    assert export.export(folder / "mlm.pt", data, folder / "roberta")[:2] == ("RobertaForMaskedLM", [])
    shutil.copy(data / "sentencepiece.model", folder / "roberta")
    return folder / "roberta"


def test_there_and_back(exported, data, tmp_path):
    card = (exported / "README.md").read_text()
    assert "pretrained by masked language modelling elsewhere" in card and "checkpoint_last.pt" in card
    program.import_roberta(exported, data, tmp_path / "again.pt", decoder_layers=0)
    first, again = (reading.read_file(p) for p in [exported.parent / "mlm.pt", tmp_path / "again.pt"])
    assert first["model"].keys() == again["model"].keys() and first["cfg"] == again["cfg"]
    assert all(first["model"][name].equal(again["model"][name]) for name in first["model"])


def test_camembert_in_half_precision(exported, data, tmp_path):
    """<s> and </s> are 5 and 6, and the pieces follow."""

    def camembert(config, weights):
        config.update(model_type="camembert", bos_token_id=5, eos_token_id=6)
        for name in ["roberta.embeddings.word_embeddings.weight", "lm_head.bias", "lm_head.decoder.bias"]:
            ours = weights[name]
            weights[name] = ours.new_zeros(len(ours) + 3, *ours.shape[1:])
            weights[name][[5, 1, 6, 3, *range(7, len(ours) + 3)]] = ours
        del weights["lm_head.bias"]  # the same as the decoder's

    folder = copy(exported, tmp_path / "camembert", camembert)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({name: value.half() for name, value in weights.items()}, folder / "pytorch_model.bin")
    program.import_roberta(folder, data, tmp_path / "new.pt", decoder_layers=0)
    first, ours = (reading.read_file(p)["model"] for p in [exported.parent / "mlm.pt", tmp_path / "new.pt"])
    for name, value in first.items():
        assert ours[name].equal(value.half().float() if value.is_floating_point() else value), name


def test_an_encoder_without_head_and_with_token_types(exported, data, tmp_path):
    def base(config, weights):
        for name in list(weights):
            value = weights.pop(name)
            if not name.startswith("lm_head."):
                weights[name.removeprefix("roberta.")] = value
        weights["pooler.dense.weight"] = torch.zeros(C, C)
        weights["embeddings.position_ids"] = torch.arange(P)
        weights["embeddings.token_type_embeddings.weight"] += torch.arange(C) / 8

    folder = copy(exported, tmp_path / "base", base)
    arguments = ["--checkpoint", folder, "--data", data, "--dest", tmp_path / "new.pt", "--decoder-layers", 2]
    written, new, *_ = printed_by(*arguments)
    assert written.endswith(f"exactly as in {folder}: the encoder")
    assert new == "new: the decoder (2 layers) and the language-model head, which the source lacks; left out: pooler"
    first = reading.read_file(exported.parent / "mlm.pt")["model"]
    ours = reading.read_file(tmp_path / "new.pt")["model"]
    assert not ours["lm_head.dense.weight"].equal(first["lm_head.dense.weight"])
    positions = "encoder.embed_positions.weight"
    torch.testing.assert_close(ours[positions][1:], first[positions][1:] + torch.arange(C) / 8)
    assert all(ours[name].equal(first[name]) for name in first if "lm_head" not in name and name != positions)
    # What is new is not exported.
    done = export.export(tmp_path / "new.pt", data, tmp_path / "code", format="code")
    assert done[:2] == ("MaeLmModel", ["decoder", "lm_head"])
    assert "AutoModelForMaskedLM" not in (tmp_path / "code" / "config.json").read_text()


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


# What is refused.


def refused(path, data, tmp_path, message):
    error = (ValueError, FileNotFoundError)
    refuses(message, program.import_roberta, path, data, tmp_path / "new.pt", error=error)
    assert not (tmp_path / "new.pt").exists()


HEAD, EMBEDDING = "encoder.lm_head.weight", "encoder.sentence_encoder.embed_tokens.weight"
OF_FAIRSEQ = {  # change of options, change of weights, message
    "pre-LN": (dict(encoder_normalize_before=True), {}, "encoder_normalize_before True, expected False, as in RoBERTa"),
    "untied": ({}, {HEAD: lambda value: value + 1}, "the language-model head has an embedding of its own"),
    "a layer less": (dict(encoder_layers=1), {}, r"encoder_layers 1, expected 2, as in its weights"),
    "dropout": (dict(dropout="0.1"), {}, r"stock.pt: dropout: found '0.1', expected a number"),
    "heads": (dict(encoder_attention_heads=3), {}, r"stock.pt: --encoder-attention-heads 3 must divide"),
    "text": ({}, {HEAD: lambda value: "x"}, r"stock.pt: model: encoder.lm_head.weight: found 'x', expected a Tensor"),
    "integers": ({}, {HEAD: lambda value: value.long()}, r"lm_head.decoder.weight: found torch.int64, expected 102"),
    "NaN": ({}, {EMBEDDING: lambda value: value / 0}, r"word_embeddings.weight: found NaN or infinity, expected any x"),
    "flat": ({}, {EMBEDDING: lambda value: value[0]}, r"word_embeddings.weight: found 16, expected any x any numbers"),
    "rows": (
        {}, dict.fromkeys([HEAD, EMBEDDING, "encoder.lm_head.bias"], lambda value: value[:-1]),
        r"embeddings of 101 symbols, but the vocabulary of .* has 102 \(with special symbols and <mask>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_FAIRSEQ)
def test_fairseq_refused(name, stock, data, tmp_path):
    options, changes, message = OF_FAIRSEQ[name]
    state = reading.read_file(stock / "checkpoint_last.pt")
    state["cfg"]["model"].update(options)
    for weight, change in changes.items():
        state["model"][weight] = change(state["model"][weight])
    torch.save(state, tmp_path / "stock.pt")
    refused(tmp_path / "stock.pt", data, tmp_path, message)


def zero_rows(weights, *names):
    weights.update({name: weights[name][:0] for name in names})


EMBEDDINGS = ["roberta.embeddings.word_embeddings.weight", "lm_head.bias", "lm_head.decoder.bias"]
OF_TRANSFORMERS = {  # change of config and weights, message
    "model": (lambda c, w: c.update(model_type="xmod"), "model_type 'xmod', expected roberta or xlm-roberta or "),
    "default epsilon": (lambda c, w: c.pop("layer_norm_eps"), "layer_norm_eps 1e-12, expected 1e-05"),
    "token types": (
        lambda c, w: w["roberta.embeddings.token_type_embeddings.weight"][1].add_(1),
        "its token types have different embeddings, expected one or equal ones$",
    ),
    "no token types": (lambda c, w: zero_rows(w, "roberta.embeddings.token_type_embeddings.weight"), "its token types"),
    "missing": (lambda c, w: w.pop("lm_head.dense.bias"), "lm_head.dense.bias: found nothing, expected 16 numbers$"),
    "no bias": (
        lambda c, w: [w.pop(name) for name in ["lm_head.bias", "lm_head.decoder.bias"]],
        "lm_head.bias: found nothing, expected 102 numbers$",
    ),
    "no rows": (lambda c, w: zero_rows(w, *EMBEDDINGS), "embeddings of 0 symbols, but the vocabulary of"),
    "no positions": (
        lambda c, w: zero_rows(w, "roberta.embeddings.position_embeddings.weight"),
        "--max-positions -1 must be at least 2",
    ),
    "narrow": (
        lambda c, w: w.update({"roberta.encoder.layer.1.output.dense.weight": torch.zeros(C, F - 1)}),
        "layer.1.output.dense.weight: found 16 x 23, expected 16 x 24 numbers$",
    ),
    "unknown": (lambda c, w: w.update({"encoder.layer.x": torch.zeros(1)}), "layer.2.attention.self.query.weight"),
    **{
        f"{name} {value}": (lambda c, w, change={name: value}: c.update(change), rf"config.json: {name}{message}")
        for name, value, message in [
            ("num_hidden_layers", 10**7, " 10000000, expected 2, as in its weights$"),
            ("hidden_size", [16], " a list, expected 16"),
            ("num_attention_heads", "2", ": found '2', expected a whole number$"),
            ("hidden_dropout_prob", {}, ": found a dict, expected a number$"),
            ("model_type", [], " a list, expected roberta or"),
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_transformers_refused(name, exported, data, tmp_path):
    change, message = OF_TRANSFORMERS[name]
    refused(copy(exported, tmp_path / "theirs", change), data, tmp_path, message)


def test_folders_refused(exported, stock, data, unigram, tmp_path):
    refused(exported, unigram, tmp_path, "prepared with another vocabulary than .*roberta/sentencepiece.model")
    refused(stock, unigram, tmp_path, "dict.txt: not the vocabulary of .*; prepare the data with data-prep/prepare.sh")
    refused(exported / "config.json", data, tmp_path, "config.json: a file of a transformers model; give the folder")
    refused(exported.parent / "mlm.pt", data, tmp_path, "a checkpoint of MAE-LM needs no import: give it to --finetune")
    shutil.copytree(stock, tmp_path / "padded")  # without the dict.txt that says which symbols are behind its pieces
    state = reading.read_file(stock / "checkpoint_last.pt")
    for name in [HEAD, EMBEDDING, "encoder.lm_head.bias"]:
        state["model"][name] = torch.cat([state["model"][name]] * 2)
    state["cfg"]["task"]["data"] = "nowhere"
    torch.save(state, tmp_path / "padded" / "checkpoint_last.pt")
    shutil.copy(data / "sentencepiece.model", tmp_path / "padded")
    refused(tmp_path / "padded", data, tmp_path, "embeddings of 204 symbols, but the vocabulary of .* has 102")
    refused(data, data, tmp_path, "expected config.json .* or checkpoint_best.pt or .* or model.pt, found dict.txt, ")
    with pytest.raises(ValueError, match="roberta: exists already; remove it or choose another --dest$"):
        program.import_roberta(stock, data, exported)
    folder = copy(exported, tmp_path / "theirs")
    (folder / "sentencepiece.model").unlink()
    refused(folder, data, tmp_path, "found BPE of characters, .*, put that beside it as sentencepiece.bpe.model")
    shutil.copy(data / "sentencepiece.model", folder / "spiece.model")
    (folder / "model.safetensors").write_text("nothing")
    refused(folder, data, tmp_path, "model.safetensors: cannot be read .* expected a complete file of transformers")
