"""Exports to Hugging Face: what is written, and what is refused."""

import ast
import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml
from tokenizers import Tokenizer

from conftest import TINY, succeed
from huggingface_cases import (
    CASES,
    FINE_TUNED,
    NO_BIAS,
    C,
    F,
    H,
    P,
    classifier,
    make,
    prepare_labelled,
    read,
    write_checkpoint,
)
from maelm_fairseq.data.vocabulary import load_dictionary
from maelm_fairseq.heads import SpanHead
from maelm_fairseq.huggingface import export as program
from maelm_fairseq.huggingface.config import MODELING_FILE
from maelm_fairseq.huggingface.tokenizer import check_tokenizer, sample_lines
from maelm_fairseq.huggingface.tokenizer import reference as reference_tokens
from maelm_fairseq.huggingface.weights import mpnet_table
from maelm_fairseq.layers import RelativePositionBias

# The shortest distances of T5's buckets 9 to 15: 8 times powers of the square root of two, rounded up.
T5_BOUNDARIES = [12, 16, 23, 32, 46, 64, 91]


def t5_bucket(distance):
    """T5's bucket of a distance, written a second time without floating point."""
    n = abs(distance)
    return (16 if distance > 0 else 0) + (n if n < 8 else 8 + sum(n >= boundary for boundary in T5_BOUNDARIES))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare_labelled(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("case", ["roberta-mlm", "roberta-topic", "roberta-score", "mpnet-t5"])
def test_names_shapes_and_configuration(case, data, tmp_path):
    model = make(case, data, tmp_path).model
    config, weights = read(tmp_path / case)
    assert config["architectures"] == [CASES[case][0]] and config["model_type"] == case.split("-")[0]
    expected = dict(
        vocab_size=len(load_dictionary(data)), hidden_size=C, num_hidden_layers=2, num_attention_heads=H,
        intermediate_size=F, hidden_act="gelu", max_position_embeddings=P + 2, layer_norm_eps=1e-5, pad_token_id=1,
        bos_token_id=0, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    assert expected.items() <= config.items()
    if "topic" in case:
        assert config["id2label"] == {"0": "bad", "1": "fair", "2": "good"}
        assert config["problem_type"] == "single_label_classification"
    if "score" in case:
        assert len(config["id2label"]) == 1 and config["problem_type"] == "regression"
    (positions,) = [value for name, value in weights.items() if "position_embeddings" in name]
    assert positions[0].eq(0).all() and positions[1:].equal(model.encoder.embed_positions.weight)


@pytest.mark.parametrize("case", ["code", "code-shared-all", "code-narrow"])
def test_the_modeling_file_and_its_configuration(case, data, tmp_path):
    model = make(case, data, tmp_path).model
    config, weights = read(tmp_path / case)
    code = (tmp_path / case / MODELING_FILE).read_text()
    assert code == (Path(program.__file__).parent / MODELING_FILE).read_text()
    classes = {f"{MODELING_FILE[:-3]}.{name}" for name in re.findall(r"^class (\w+)\(", code, re.M)}
    assert set(config["auto_map"].values()) <= classes
    assert ("AutoModelForMaskedLM" in config["auto_map"]) == (model.lm_head is not None)
    assert config["max_position_embeddings"] == P and config["mask_token_id"] == len(load_dictionary(data)) - 1
    sizes = sum(value.numel() for value in model.parameters())
    assert sum(value.numel() for name, value in weights.items() if not name.endswith(".bucket")) == sizes
    if case == "code-narrow":
        assert len(config["id2label"]) == 3 and config["classifier_size"] == 8


def test_the_tokenizer_is_written_into_the_folder(data, tmp_path):
    for case, runs in [("roberta", False), ("code-answers", True)]:
        make(case, data, tmp_path)
        tokenizer = Tokenizer.from_file(str(tmp_path / case / "tokenizer.json"))
        assert check_tokenizer(tokenizer, reference_tokens(data, runs), sample_lines(data), runs) > 200
        assert json.loads((tmp_path / case / "tokenizer_config.json").read_text())["model_max_length"] == P


def test_a_tokenizer_that_differs_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr("maelm_fairseq.huggingface.tokenizer.reference", lambda *_: lambda a, b=None: [0, 2])
    with pytest.raises(ValueError, match="tokenizer"):
        make("roberta", data, tmp_path)
    assert not (tmp_path / "roberta").exists()


def test_the_program_exports_a_trained_model(data, tmp_path, monkeypatch, capsys):
    arguments = [*TINY, "--relative-position-num-buckets", 0, "--save-dir", tmp_path / "run"]
    succeed("fairseq-train", data, *arguments)
    options = ["--checkpoint", tmp_path / "run", "--data", data, "--dest", tmp_path / "new" / "encoder"]
    monkeypatch.setattr(sys, "argv", ["export", *map(str, options)])
    program.main()
    written, compared = capsys.readouterr().out.splitlines()
    assert written.startswith(f"written: {tmp_path}/new/encoder, a RobertaModel")
    assert written.endswith("; left out: decoder, lm_head") and compared.startswith("features not compared")
    assert os.listdir(tmp_path / "new") == ["encoder"]
    assert len({file.stat().st_mode for file in (tmp_path / "new" / "encoder").iterdir()}) == 1
    card = (tmp_path / "new" / "encoder" / "README.md").read_text()
    documents = json.loads((data / "train.json").read_text())["documents"]
    assert f"- Data: {documents:,} documents, " in card and "- Updates: 4\n" in card
    assert "`mask_prob` 0.15" in card and re.search(r"- Validation loss: \d\.\d+\n", card)


def test_one_of_several_heads_and_what_is_left_out(data, tmp_path):
    def discriminator(state):
        state["model"]["discriminator.weight"] = torch.zeros(2)

    heads = {"topic": classifier(), "answers": SpanHead(C)}
    checkpoint = write_checkpoint(tmp_path / "run", data, discriminator, heads=heads, **NO_BIAS, **FINE_TUNED)
    done = program.export(checkpoint, data, tmp_path / "new", head="answers")
    assert done[:2] == ("RobertaForQuestionAnswering", ["head topic", "discriminator"])


@pytest.mark.parametrize("case, pipeline", [
    ("roberta", "feature-extraction"), ("roberta-mlm", "fill-mask"), ("roberta-score", "text-classification"),
    ("mpnet-t5-answers", "question-answering"), ("code-shared", "fill-mask"), ("code-narrow", "text-classification"),
])  # fmt: skip
def test_the_model_card(case, pipeline, data, tmp_path):
    make(case, data, tmp_path)
    card = (tmp_path / case / "README.md").read_text(encoding="utf-8")
    _, metadata, text = card.split("---\n", 2)
    assert yaml.safe_load(metadata)["pipeline_tag"] == pipeline
    assert "license:" in card and "$" not in card
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    ast.parse(code)
    assert f'"{case}"' in code and str(tmp_path) not in card
    assert ("pooler is untrained" in card) == (case == "roberta")
    assert ("`share_decoder_layers` True" in card) == ("shared" in case)
    assert ("fills no masks" in card) == (pipeline != "fill-mask")
    assert ("trust_remote_code=True" in code) == case.startswith("code")
    assert f", {P} positions, " in card and ("`bad`, `fair`, `good`" in card) == (case == "code-narrow")


def bias_with(buckets=None, num_buckets=32):
    bias = RelativePositionBias(num_buckets, 128, H, P)
    if buckets is not None:
        bias.bucket = torch.tensor([buckets(distance) for distance in range(-P, P + 1)])
    return bias


def test_a_bias_is_taken_over_distance_by_distance():
    for bias in [bias_with(t5_bucket), bias_with(num_buckets=4)]:
        table = mpnet_table(bias)
        for distance in range(1 - P, P):
            assert table[t5_bucket(distance)].equal(bias.table.weight[bias.bucket[distance + P]])
    # One distance that differs is found: none has T5's bucket 16.
    with pytest.raises(ValueError, match=r"distance 100 differs from that at distance 91 by up to \d"):
        mpnet_table(bias_with(lambda distance: 16 if distance == 100 else t5_bucket(distance)))


REFUSED = {  # options of write_checkpoint, arguments of export, message
    "bias": ({}, dict(format="mpnet"), "^--format mpnet does not hold .* distance -9 differs from .* -8 by up"),
    "several heads": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": classifier(), "answers": SpanHead(C)}}, {},
        "^the checkpoint has the heads topic, answers: choose one with --head$",
    ),
    "labels": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": classifier(4)}}, {},
        r"label/dict.txt: 3 labels \(bad, fair, good\), but the head has 4 classes: give with --data",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, data, tmp_path):
    options, arguments, message = REFUSED[name]
    checkpoint = write_checkpoint(tmp_path / "run", data, **options)
    with pytest.raises(ValueError, match=message) as error:
        program.export(checkpoint, data, tmp_path / "new", **arguments)
    assert "\n" not in str(error.value) and os.listdir(tmp_path) == ["run"]


def test_folders_refused(data, tmp_path, monkeypatch):
    checkpoint = write_checkpoint(tmp_path / "run", data, **NO_BIAS)
    with pytest.raises(ValueError, match="run: exists already; remove it or choose another --dest$"):
        program.export(checkpoint, data, tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="dict.txt: not found"):
        program.export(checkpoint, tmp_path, tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="nosuch.pt: not found"):
        program.export(tmp_path / "nosuch.pt", data, tmp_path / "new")

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(program, "model_card", fail)
    with pytest.raises(OSError, match="disk full"):
        program.export(checkpoint, data, tmp_path / "new")
    assert os.listdir(tmp_path) == ["run"]
