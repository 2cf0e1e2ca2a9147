"""Imports of RoBERTa encoders from folders of transformers: what they compute, and what is refused.

What transformers computes from an exported folder is in test_huggingface_transformers.py: here it is read back.
"""

import json
import shlex
import shutil

import pytest
import safetensors.torch
import torch

from conftest import refuses, succeed
from huggingface_cases import MLM, NO_BIAS, C, F, P, read, write_checkpoint
from maelm_fairseq.checkpoints import reading
from maelm_fairseq.huggingface import export
from maelm_fairseq.huggingface import import_roberta as program
from test_huggingface_tokenizer import vocabulary

OPTIMIZATION = [
    "--optimizer", "adam", "--lr", 1e-12, "--batch-size", 8, "--max-update", 1, "--cpu", "--num-workers", 0,
    "--seed", 1, "--no-epoch-checkpoints",
]  # fmt: skip


@pytest.fixture(scope="module")
def exported(prepared, tmp_path_factory):
    """A folder of transformers' RobertaForMaskedLM, with the SentencePiece model put into it; beside it, its origin."""
    folder = tmp_path_factory.mktemp("exported")
    checkpoint = write_checkpoint(folder, prepared, **NO_BIAS, **MLM, dropout=0.25)
    assert export.export(checkpoint, prepared, folder / "roberta")[:2] == ("RobertaForMaskedLM", [])
    shutil.copy(prepared / "sentencepiece.model", folder / "roberta" / "sentencepiece.bpe.model")
    return folder / "roberta"


def printed_by(*arguments):
    """The lines that the program prints."""
    return succeed("python", "-m", program.__name__, *arguments).splitlines()


CONTINUED = {
    "shared": ["--decoder-layers", 2, "--share-decoder-layers"],
    "decoder": ["--decoder-layers", 1],
    "mlm": ["--decoder-layers", 0],
}


@pytest.mark.parametrize("case", CONTINUED)
def test_pretraining_continues_by_the_command_that_is_printed(case, exported, prepared, tmp_path):
    dest = tmp_path / "new.pt"
    printed = printed_by("--checkpoint", exported, "--data", prepared, "--dest", dest, *CONTINUED[case])
    assert printed[0] == f"written: {dest}; exactly as in {exported}: the encoder and the language-model head"
    assert printed[1].startswith("new: the decoder (1 layers);" if case == "decoder" else "new: nothing;")
    command = shlex.split(printed[-1])
    output = succeed(*command, *OPTIMIZATION, "--save-dir", tmp_path / "run")
    assert f"Loaded checkpoint {dest} (epoch 1 @ 0 updates)" in output
    imported = reading.read_file(dest)
    assert imported["cfg"]["task"]["encoder_mask_fraction"] == (case == "mlm")
    model = imported["cfg"]["model"]
    assert (model["decoder_layers"], model["share_decoder_layers"]) == (CONTINUED[case][1], case == "shared")
    continued = reading.read_file(tmp_path / "run" / "checkpoint_last.pt")
    assert continued["optimizer_history"][-1]["num_updates"] == 1
    assert continued["model"].keys() == imported["model"].keys()
    for name, value in imported["model"].items():
        torch.testing.assert_close(continued["model"][name], value, rtol=0, atol=1e-6, msg=name)
    if case == "shared":  # nothing is new, and all of it is exported
        assert export.export(dest, prepared, tmp_path / "code", format="code")[:2] == ("MaeLmForMaskedLM", [])


def test_there_and_back(exported, prepared, tmp_path):
    source, cfg = program.import_roberta(exported, prepared, tmp_path / "new.pt", decoder_layers=0)
    assert source.dropped == [] and (cfg.dropout, cfg.encoder_attention_heads, cfg.max_positions) == (0.25, 2, P)
    first, ours = (reading.read_file(p)["model"] for p in [exported.parent / "checkpoint_last.pt", tmp_path / "new.pt"])
    assert first.keys() == ours.keys() and all(first[name].equal(ours[name]) for name in first)
    export.export(tmp_path / "new.pt", prepared, tmp_path / "again")
    for name in ["config.json", "model.safetensors"]:
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes()
    card = (tmp_path / "again" / "README.md").read_text()
    assert "pretrained by masked language modelling elsewhere" in card and "imported from `roberta`, unchanged" in card


def test_camembert_in_half_precision(exported, prepared, tmp_path):
    """<s> and </s> are 5 and 6, and the pieces follow."""

    def camembert(config, weights):
        config.update(model_type="camembert", bos_token_id=5, eos_token_id=6, vocab_size=config["vocab_size"] + 3)
        for name in ["roberta.embeddings.word_embeddings.weight", "lm_head.bias", "lm_head.decoder.bias"]:
            ours = weights[name]
            weights[name] = ours.new_zeros(len(ours) + 3, *ours.shape[1:])
            weights[name][[5, 1, 6, 3, *range(7, len(ours) + 3)]] = ours
        del weights["lm_head.bias"]  # the same as the decoder's

    folder = copy(exported, tmp_path / "camembert", camembert)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({name: value.half() for name, value in weights.items()}, folder / "pytorch_model.bin")
    program.import_roberta(folder, prepared, tmp_path / "new.pt", decoder_layers=0)
    first, ours = (reading.read_file(p)["model"] for p in [exported.parent / "checkpoint_last.pt", tmp_path / "new.pt"])
    for name, value in first.items():
        assert ours[name].equal(value.half().float() if value.is_floating_point() else value), name


def test_an_encoder_without_head_and_with_token_types(exported, prepared, tmp_path):
    def base(config, weights):
        for name in list(weights):
            value = weights.pop(name)
            if not name.startswith("lm_head."):
                weights[name.removeprefix("roberta.")] = value
        weights["pooler.dense.weight"] = torch.zeros(C, C)
        weights["embeddings.position_ids"] = torch.arange(P)
        weights["embeddings.token_type_embeddings.weight"] += torch.arange(C) / 8

    folder = copy(exported, tmp_path / "base", base)
    arguments = ["--checkpoint", folder, "--data", prepared, "--dest", tmp_path / "new.pt", "--decoder-layers", 2]
    written, new, *_ = printed_by(*arguments)
    assert written.endswith(f"exactly as in {folder}: the encoder")
    assert new == "new: the decoder (2 layers) and the language-model head, which the source lacks; left out: pooler"
    first = reading.read_file(exported.parent / "checkpoint_last.pt")["model"]
    ours = reading.read_file(tmp_path / "new.pt")["model"]
    assert not ours["lm_head.dense.weight"].equal(first["lm_head.dense.weight"])
    positions = "encoder.embed_positions.weight"
    torch.testing.assert_close(ours[positions][1:], first[positions][1:] + torch.arange(C) / 8)
    assert all(ours[name].equal(first[name]) for name in first if "lm_head" not in name and name != positions)
    # What is new is not exported.
    done = export.export(tmp_path / "new.pt", prepared, tmp_path / "code", format="code")
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


def refused(path, prepared, tmp_path, message):
    error = (ValueError, FileNotFoundError)
    refuses(message, program.import_roberta, path, prepared, tmp_path / "new.pt", error=error)
    assert not (tmp_path / "new.pt").exists()


def changed(change, *names):
    """A change of the weights with these names, to change(weight)."""
    return lambda config, weights: weights.update({name: change(weights[name]) for name in names})


EMBEDDINGS = ["roberta.embeddings.word_embeddings.weight", "lm_head.bias", "lm_head.decoder.bias"]
REFUSED = {  # change of config and weights, message
    "model": (lambda c, w: c.update(model_type="xmod"), "model_type 'xmod', expected roberta or xlm-roberta or "),
    "epsilon": (lambda c, w: c.update(layer_norm_eps=0), "--layer-norm-eps 0.0 must be from 1e-20 to 0.1$"),
    "token types": (lambda c, w: w["roberta.embeddings.token_type_embeddings.weight"][1].add_(1),
     "its token types have different embeddings, expected one or equal ones$"),
    "no token types": (changed(lambda w: w[:0], "roberta.embeddings.token_type_embeddings.weight"), "its token types"),
    "missing": (lambda c, w: w.pop("lm_head.dense.bias"), "lm_head.dense.bias: found nothing, expected 16 numbers$"),
    "no bias": (lambda c, w: [w.pop(name) for name in ["lm_head.bias", "lm_head.decoder.bias"]],
     "lm_head.bias: found nothing, expected 102 numbers$"),
    "untied": (lambda c, w: w.update({"lm_head.decoder.weight": w[EMBEDDINGS[0]] + 1}),
     "the language-model head has an embedding of its own, expected the encoder's$"),
    "integers": (changed(torch.Tensor.long, EMBEDDINGS[0]), "word_embeddings.weight: found torch.int64, expected any"),
    "NaN": (changed(lambda w: w / 0, EMBEDDINGS[0]), "word_embeddings.weight: found NaN or infinity, expected any x"),
    "flat": (changed(lambda w: w[0], EMBEDDINGS[0]), "word_embeddings.weight: found 16, expected any x any numbers"),
    "rows": (changed(lambda w: w[:-1], *EMBEDDINGS), "config.json: vocab_size 102, expected 101, as in its weights$"),
    "no positions": (changed(lambda w: w[:0], "roberta.embeddings.position_embeddings.weight"),
     "max_position_embeddings 162, expected 0, as in its weights$"),
    "of another vocabulary": (lambda c, w: [c.update(vocab_size=101), changed(lambda w: w[:-1], *EMBEDDINGS)(c, w)],
     r"embeddings of 101 symbols, but the vocabulary of .* has 102 \(with special symbols and <mask>"),
    "narrow": (lambda c, w: w.update({"roberta.encoder.layer.1.output.dense.weight": torch.zeros(C, F - 1)}),
     "layer.1.output.dense.weight: found 16 x 23, expected 16 x 24 numbers$"),
    "heads": (lambda c, w: c.update(num_attention_heads=3), "--encoder-attention-heads 3 must divide"),
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


@pytest.mark.parametrize("name", REFUSED)
def test_configurations_and_weights_refused(name, exported, prepared, tmp_path):
    change, message = REFUSED[name]
    refused(copy(exported, tmp_path / "theirs", change), prepared, tmp_path, message)


@pytest.mark.parametrize("change, epsilon", [(lambda config, _: config.pop("layer_norm_eps"), 1e-12), (None, 1e-5)])
def test_the_epsilon_is_the_models_own(change, epsilon, exported, prepared, tmp_path):
    """That of transformers unless the configuration has another."""
    folder, checkpoint = copy(exported, tmp_path / "theirs", change), tmp_path / "new.pt"
    _, cfg = program.import_roberta(folder, prepared, checkpoint)
    assert cfg.layer_norm_eps == epsilon
    printed = shlex.join(program.training_options(cfg, str(checkpoint)))
    assert ("--layer-norm-eps 1e-12" in printed) == (epsilon == 1e-12)
    export.export(checkpoint, prepared, tmp_path / "again")
    assert read(tmp_path / "again")[0]["layer_norm_eps"] == epsilon


def test_folders_refused(exported, prepared, tmp_path):
    other = vocabulary(tmp_path / "unigram", kind="unigram", byte_fallback=True, vocab_size=330)
    refused(exported, other, tmp_path, "prepared with another vocabulary than .*roberta/sentencepiece.bpe.model")
    for path in [exported.parent / "checkpoint_last.pt", prepared, exported / "config.json"]:
        refused(path, prepared, tmp_path, "config.json: not found, expected a folder of transformers; .*need no import")
    with pytest.raises(ValueError, match="roberta: exists already; remove it or choose another --dest$"):
        program.import_roberta(exported, prepared, exported)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    refused(adapter, prepared, tmp_path, "found adapter_config.json, expected whole weights: merge the adapter first")
    folder = copy(exported, tmp_path / "theirs")
    made = json.loads((folder / "tokenizer.json").read_text())
    word = {**made["added_tokens"][0], "id": 102, "content": "cytokine", "special": False}
    (folder / "tokenizer.json").write_text(json.dumps({**made, "added_tokens": [*made["added_tokens"], word]}))
    refused(
        folder, prepared, tmp_path, "found tokens that .*bpe.model lacks, cytokine, expected none: their embeddings"
    )
    (folder / "sentencepiece.bpe.model").unlink()
    refused(folder, prepared, tmp_path, "found BPE of characters, .*, put that beside it as sentencepiece.bpe.model")
    shutil.copy(prepared / "sentencepiece.model", folder / "spiece.model")
    (folder / "model.safetensors").write_text("nothing")
    refused(folder, prepared, tmp_path, "model.safetensors: cannot be read .* expected a complete file of transformers")
