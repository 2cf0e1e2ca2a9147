"""Imports of RoBERTa encoders from folders of transformers: what they compute, and what is refused.

Here, an exported folder is read back; test_huggingface_transformers.py has what transformers
computes from it.
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
from vocabularies import vocabulary

OPTIMIZATION = [
    "--optimizer", "adam", "--lr", 1e-12, "--batch-size", 8, "--max-update", 1,
    "--cpu", "--num-workers", 0, "--seed", 1, "--no-epoch-checkpoints",
]  # fmt: skip

WORDS = "roberta.embeddings.word_embeddings.weight"
EMBEDDINGS = [WORDS, "lm_head.bias", "lm_head.decoder.bias"]
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"
POSITIONS = "roberta.embeddings.position_embeddings.weight"
DENSE = "roberta.encoder.layer.1.output.dense.weight"


@pytest.fixture(scope="module")
def exported(prepared, tmp_path_factory):
    """A folder of transformers' RobertaForMaskedLM, which also has the SentencePiece model.

    The checkpoint that was exported is beside it.
    """
    folder = tmp_path_factory.mktemp("exported")
    checkpoint = write_checkpoint(folder, prepared, **NO_BIAS, **MLM, dropout=0.25)
    dest = folder / "roberta"
    assert export.export(checkpoint, prepared, dest)[:2] == ("RobertaForMaskedLM", [])
    shutil.copy(prepared / "sentencepiece.model", dest / "sentencepiece.bpe.model")
    return dest


def weights_of(checkpoint):
    return reading.read_torch_file(checkpoint)["model"]


def weights_before_export(exported):
    return weights_of(exported.parent / "checkpoint_last.pt")


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
    options = ["--checkpoint", exported, "--data", prepared, "--dest", dest, *CONTINUED[case]]
    printed = printed_by(*options)
    parts = "the encoder and the language-model head"
    assert printed[0] == f"written: {dest}; exactly as in {exported}: {parts}"
    new = "the decoder (1 layers)" if case == "decoder" else "nothing"
    assert printed[1].startswith(f"new: {new};")
    command = shlex.split(printed[-1])
    output = succeed(*command, *OPTIMIZATION, "--save-dir", tmp_path / "run")
    assert f"Loaded checkpoint {dest} (epoch 1 @ 0 updates)" in output
    imported = reading.read_torch_file(dest)
    assert imported["cfg"]["task"]["encoder_mask_fraction"] == (case == "mlm")
    model = imported["cfg"]["model"]
    assert model["decoder_layers"] == CONTINUED[case][1]
    assert model["share_decoder_layers"] == (case == "shared")
    continued = reading.read_torch_file(tmp_path / "run" / "checkpoint_last.pt")
    assert continued["optimizer_history"][-1]["num_updates"] == 1
    assert continued["model"].keys() == imported["model"].keys()
    for name, value in imported["model"].items():
        torch.testing.assert_close(continued["model"][name], value, rtol=0, atol=1e-6, msg=name)
    if case == "shared":  # nothing is new, and all of it is exported
        done = export.export(dest, prepared, tmp_path / "code", format="code")
        assert done[:2] == ("MaeLmForMaskedLM", [])


def test_there_and_back(exported, prepared, tmp_path):
    new = tmp_path / "new.pt"
    source, cfg = program.import_roberta(exported, prepared, new, decoder_layers=0)
    assert source.dropped == []
    sizes = (cfg.dropout, cfg.encoder_attention_heads, cfg.max_positions)
    assert sizes == (0.25, 2, P)
    first = weights_before_export(exported)
    ours = weights_of(new)
    assert first.keys() == ours.keys()
    for name, value in first.items():
        assert value.equal(ours[name]), name
    export.export(new, prepared, tmp_path / "again")
    for name in ["config.json", "model.safetensors"]:
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes()
    card = (tmp_path / "again" / "README.md").read_text()
    assert "pretrained by masked language modelling elsewhere" in card
    assert "imported from `roberta`, unchanged" in card


def test_camembert_in_half_precision(exported, prepared, tmp_path):
    """<s> and </s> are 5 and 6, and the pieces follow."""

    def camembert(config, weights):
        config.update(model_type="camembert", bos_token_id=5, eos_token_id=6)
        config["vocab_size"] += 3
        for name in EMBEDDINGS:
            ours = weights[name]
            weights[name] = ours.new_zeros(len(ours) + 3, *ours.shape[1:])
            weights[name][[5, 1, 6, 3, *range(7, len(ours) + 3)]] = ours
        del weights["lm_head.bias"]  # the same as the decoder's

    folder = copy(exported, tmp_path / "camembert", camembert)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves = {name: value.half() for name, value in weights.items()}
    torch.save(halves, folder / "pytorch_model.bin")
    program.import_roberta(folder, prepared, tmp_path / "new.pt", decoder_layers=0)
    ours = weights_of(tmp_path / "new.pt")
    for name, value in weights_before_export(exported).items():
        expected = value.half().float() if value.is_floating_point() else value
        assert ours[name].equal(expected), name


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
    dest = tmp_path / "new.pt"
    options = ["--checkpoint", folder, "--data", prepared, "--dest", dest]
    written, new, *_ = printed_by(*options, "--decoder-layers", 2)
    assert written.endswith(f"exactly as in {folder}: the encoder")
    parts = "the decoder (2 layers) and the language-model head"
    assert new == f"new: {parts}, which the source lacks; left out: pooler"
    first = weights_before_export(exported)
    ours = weights_of(dest)
    dense = "lm_head.dense.weight"
    assert not ours[dense].equal(first[dense])
    positions = "encoder.embed_positions.weight"
    # The embedding of the first token type is added to every position.
    expected = first[positions][1:] + torch.arange(C) / 8
    torch.testing.assert_close(ours[positions][1:], expected)
    for name, value in first.items():
        if "lm_head" not in name and name != positions:
            assert ours[name].equal(value), name
    # What is new is not exported.
    done = export.export(dest, prepared, tmp_path / "code", format="code")
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


def configured(**options):
    """A change of the configuration."""
    return lambda config, weights: config.update(options)


def added(name, make):
    """A change: one more weight, make(weights)."""
    return lambda config, weights: weights.update({name: make(weights)})


def without(*names):
    """A change: the weights with these names are missing."""
    return lambda config, weights: [weights.pop(name) for name in names]


def move_second_token_type(config, weights):
    weights[TOKEN_TYPES][1].add_(1)


def drop_last_symbol(config, weights):
    config["vocab_size"] = 101
    changed(lambda weight: weight[:-1], *EMBEDDINGS)(config, weights)


# {name: (change of config and weights, message)}
REFUSED = {
    "model": (
        configured(model_type="xmod"),
        "model_type 'xmod', expected roberta or xlm-roberta or ",
    ),
    "epsilon": (
        configured(layer_norm_eps=0),
        "--layer-norm-eps 0.0 must be from 1e-20 to 0.1$",
    ),
    "token types": (
        move_second_token_type,
        "its token types have different embeddings, expected one or equal ones$",
    ),
    "no token types": (
        changed(lambda weight: weight[:0], TOKEN_TYPES),
        "its token types",
    ),
    "missing": (
        without("lm_head.dense.bias"),
        "lm_head.dense.bias: found nothing, expected 16 numbers$",
    ),
    "no bias": (
        without("lm_head.bias", "lm_head.decoder.bias"),
        "lm_head.bias: found nothing, expected 102 numbers$",
    ),
    "untied": (
        added("lm_head.decoder.weight", lambda weights: weights[WORDS] + 1),
        "the language-model head has an embedding of its own, expected the encoder's$",
    ),
    "integers": (
        changed(torch.Tensor.long, WORDS),
        "word_embeddings.weight: found torch.int64, expected any",
    ),
    "NaN": (
        changed(lambda weight: weight / 0, WORDS),
        "word_embeddings.weight: found NaN or infinity, expected any x",
    ),
    "flat": (
        changed(lambda weight: weight[0], WORDS),
        "word_embeddings.weight: found 16, expected any x any numbers",
    ),
    "rows": (
        changed(lambda weight: weight[:-1], *EMBEDDINGS),
        "config.json: vocab_size 102, expected 101, as in its weights$",
    ),
    "no positions": (
        changed(lambda weight: weight[:0], POSITIONS),
        "max_position_embeddings 162, expected 0, as in its weights$",
    ),
    "of another vocabulary": (
        drop_last_symbol,
        "embeddings of 101 symbols, but the vocabulary of .* has 102 "
        r"\(with special symbols and <mask>",
    ),
    "narrow": (
        added(DENSE, lambda weights: torch.zeros(C, F - 1)),
        "layer.1.output.dense.weight: found 16 x 23, expected 16 x 24 numbers$",
    ),
    "heads": (
        configured(num_attention_heads=3),
        "--encoder-attention-heads 3 must divide",
    ),
    "unknown": (
        added("encoder.layer.x", lambda weights: torch.zeros(1)),
        "layer.2.attention.self.query.weight",
    ),
    "num_hidden_layers 10000000": (
        configured(num_hidden_layers=10**7),
        "config.json: num_hidden_layers 10000000, expected 2, as in its weights$",
    ),
    "hidden_size [16]": (
        configured(hidden_size=[16]),
        "config.json: hidden_size a list, expected 16",
    ),
    "num_attention_heads 2": (
        configured(num_attention_heads="2"),
        "config.json: num_attention_heads: found '2', expected an integer$",
    ),
    "hidden_dropout_prob {}": (
        configured(hidden_dropout_prob={}),
        "config.json: hidden_dropout_prob: found a dict, expected a number$",
    ),
    "model_type []": (
        configured(model_type=[]),
        "config.json: model_type a list, expected roberta or",
    ),
}


def drop_epsilon(config, weights):
    del config["layer_norm_eps"]


@pytest.mark.parametrize("name", REFUSED)
def test_configurations_and_weights_refused(name, exported, prepared, tmp_path):
    change, message = REFUSED[name]
    refused(copy(exported, tmp_path / "theirs", change), prepared, tmp_path, message)


@pytest.mark.parametrize("change, epsilon", [(drop_epsilon, 1e-12), (None, 1e-5)])
def test_the_epsilon_is_the_models_own(change, epsilon, exported, prepared, tmp_path):
    """That of transformers unless the configuration has another."""
    folder = copy(exported, tmp_path / "theirs", change)
    checkpoint = tmp_path / "new.pt"
    _, cfg = program.import_roberta(folder, prepared, checkpoint)
    assert cfg.layer_norm_eps == epsilon
    printed = shlex.join(program.training_options(cfg, str(checkpoint)))
    assert ("--layer-norm-eps 1e-12" in printed) == (epsilon == 1e-12)
    export.export(checkpoint, prepared, tmp_path / "again")
    assert read(tmp_path / "again")[0]["layer_norm_eps"] == epsilon


def test_folders_refused(exported, prepared, tmp_path):
    other = vocabulary(tmp_path / "unigram", kind="unigram", byte_fallback=True, vocab_size=330)
    fault = "prepared with another vocabulary than .*roberta/sentencepiece.bpe.model"
    refused(exported, other, tmp_path, fault)
    fault = "config.json: not found, expected the folder of a Hugging Face model; .*need no import"
    for path in [exported.parent / "checkpoint_last.pt", prepared, exported / "config.json"]:
        refused(path, prepared, tmp_path, fault)
    fault = "roberta: exists already; remove it or choose another --dest$"
    with pytest.raises(ValueError, match=fault):
        program.import_roberta(exported, prepared, exported)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    fault = "found adapter_config.json, expected whole weights: merge the adapter first"
    refused(adapter, prepared, tmp_path, fault)
    folder = copy(exported, tmp_path / "theirs")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    word = {**tokenizer["added_tokens"][0], "id": 102, "content": "cytokine", "special": False}
    tokenizer["added_tokens"].append(word)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    fault = "found tokens that .*bpe.model lacks, cytokine, expected none: their embeddings"
    refused(folder, prepared, tmp_path, fault)
    (folder / "sentencepiece.bpe.model").unlink()
    fault = "found BPE of characters, .*, put that beside it as sentencepiece.bpe.model"
    refused(folder, prepared, tmp_path, fault)
    shutil.copy(prepared / "sentencepiece.model", folder / "spiece.model")
    (folder / "model.safetensors").write_text("nothing")
    fault = "model.safetensors: cannot be read .* expected a complete file of transformers"
    refused(folder, prepared, tmp_path, fault)
