"""Exports to Hugging Face: what is written, and what is refused."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from tokenizers import Tokenizer

from conftest import PYTHON, TINY, prepare, succeed
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
    three_values,
    write_checkpoint,
)
from maelm_fairseq.heads import MeanClassificationHead, SpanHead
from maelm_fairseq.huggingface import export as program
from maelm_fairseq.huggingface.config import MODELING_FILE
from maelm_fairseq.huggingface.tokenizer import check_tokenizer, sample_lines
from maelm_fairseq.huggingface.tokenizer import reference as reference_tokens
from maelm_fairseq.huggingface.weights import mpnet_table
from maelm_fairseq.layers import RelativePositionBias
from maelm_fairseq.vocabulary import load_dictionary

# The shortest distances of T5's buckets 9 to 15: 8 times powers of the square root of two, rounded up.
T5_BOUNDARIES = [12, 16, 23, 32, 46, 64, 91]


def t5_bucket(distance):
    """T5's bucket of a distance, written a second time without floating point."""
    n = abs(distance)
    return (16 if distance > 0 else 0) + (n if n < 8 else 8 + sum(n >= boundary for boundary in T5_BOUNDARIES))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare_labelled(tmp_path_factory.mktemp("text"))


def layer_names(layer, query, key, value, out, norm):
    """Names of a layer's weights, with shapes."""
    parts = {query: (C, C), key: (C, C), value: (C, C), out: (C, C), norm: (C,)}
    parts.update({"intermediate.dense": (F, C), "output.dense": (C, F), "output.LayerNorm": (C,)})
    found = {}
    for part, shape in parts.items():
        found[f"{layer}.{part}.weight"], found[f"{layer}.{part}.bias"] = shape, shape[:1]
    return found


IN_ROBERTA = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
IN_ROBERTA += ["attention.output.LayerNorm"]
IN_MPNET = ["attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm"]


def expected_shapes(case, N):
    """Names and shapes of the weights of a case's class, as transformers documents them."""
    mpnet, base = case.startswith("mpnet"), "mpnet." if case.startswith("mpnet") else "roberta."
    stock_class = CASES[case][0]
    base = "" if stock_class.endswith("tModel") or stock_class == "RobertaModel" else base
    shapes = {
        "embeddings.word_embeddings.weight": (N, C),
        "embeddings.position_embeddings.weight": (P + 2, C),
        "embeddings.LayerNorm.weight": (C,),
        "embeddings.LayerNorm.bias": (C,),
    }
    if mpnet:
        shapes["encoder.relative_attention_bias.weight"] = (32, H)
    else:
        shapes["embeddings.token_type_embeddings.weight"] = (2, C)
    for i in range(2):
        shapes.update(layer_names(f"encoder.layer.{i}", *(IN_MPNET if mpnet else IN_ROBERTA)))
    shapes = {base + name: shape for name, shape in shapes.items()}
    if "mlm" in case:
        shapes.update({"lm_head.dense.weight": (C, C), "lm_head.dense.bias": (C,), "lm_head.layer_norm.weight": (C,)})
        shapes.update({"lm_head.layer_norm.bias": (C,), "lm_head.bias": (N,), "lm_head.decoder.bias": (N,)})
    outputs = {"topic": 3, "score": 1}.get(case.split("-")[-1])
    if outputs:
        shapes.update({"classifier.dense.weight": (C, C), "classifier.dense.bias": (C,)})
        shapes.update({"classifier.out_proj.weight": (outputs, C), "classifier.out_proj.bias": (outputs,)})
    if "answers" in case:
        shapes.update({"qa_outputs.weight": (2, C), "qa_outputs.bias": (2,)})
    return shapes


STOCK_CASES = [case for case in CASES if not case.startswith("code")]


@pytest.mark.parametrize("case", STOCK_CASES)
def test_names_shapes_and_configuration(case, data, tmp_path):
    N = len(load_dictionary(data))
    model = make(case, data, tmp_path).model
    config, weights = read(tmp_path / case)
    assert {name: tuple(value.shape) for name, value in weights.items()} == expected_shapes(case, N)
    assert all(value.dtype == torch.float32 for value in weights.values())
    assert config["architectures"] == [CASES[case][0]] and config["model_type"] == case.split("-")[0]
    expected = dict(
        vocab_size=N, hidden_size=C, num_hidden_layers=2, num_attention_heads=H, intermediate_size=F,
        hidden_act="gelu", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, max_position_embeddings=P + 2,
        layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    assert expected.items() <= config.items()
    if "topic" in case:
        assert config["id2label"] == {"0": "bad", "1": "fair", "2": "good"}
        assert config["label2id"] == {"bad": 0, "fair": 1, "good": 2}
        assert config["problem_type"] == "single_label_classification"
    if "score" in case:
        assert len(config["id2label"]) == 1 and config["problem_type"] == "regression"
    (positions,) = [value for name, value in weights.items() if "position_embeddings" in name]
    assert positions[0].eq(0).all() and positions[1:].equal(model.encoder.embed_positions.weight)
    if case == "mpnet-t5":
        table = weights["encoder.relative_attention_bias.weight"]
        assert table[1:16].equal(model.encoder.relative_bias.table.weight[1:16]) and table[16].eq(0).all()
    if case == "mpnet-no-bias":
        assert weights["encoder.relative_attention_bias.weight"].eq(0).all()


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("code")])
def test_the_modeling_file_and_its_configuration(case, data, tmp_path):
    model = make(case, data, tmp_path).model
    config, weights = read(tmp_path / case)
    assert (tmp_path / case / MODELING_FILE).read_text() == (Path(program.__file__).parent / MODELING_FILE).read_text()
    classes = set(re.findall(r"^class (\w+)\(", (tmp_path / case / MODELING_FILE).read_text(), re.M))
    for auto_class, name in config["auto_map"].items():
        module, _, name = name.partition(".")
        assert module + ".py" == MODELING_FILE and name in classes, auto_class
    assert ("AutoModelForMaskedLM" in config["auto_map"]) == (model.lm_head is not None)
    assert config["model_type"] == "mae_lm" and config["max_position_embeddings"] == P
    assert config["mask_token_id"] == len(load_dictionary(data)) - 1
    sizes = sum(value.numel() for value in model.parameters())
    assert sum(value.numel() for name, value in weights.items() if not name.endswith(".bucket")) == sizes
    for name in ["topic", "score", "narrow"]:
        if case == f"code-{name}":
            assert len(config["id2label"]) == (1 if name == "score" else 3)
            assert config["classifier_size"] == (8 if name == "narrow" else C)


def test_the_tokenizer_is_written_into_the_folder(data, tmp_path):
    for case, runs in [("roberta", False), ("roberta-answers", True)]:
        make(case, data, tmp_path)
        tokenizer = Tokenizer.from_file(str(tmp_path / case / "tokenizer.json"))
        assert check_tokenizer(tokenizer, reference_tokens(data, runs), sample_lines(data), runs) > 200
        config = json.loads((tmp_path / case / "tokenizer_config.json").read_text())
        assert config["model_max_length"] == P


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
    printed = capsys.readouterr().out
    assert printed.startswith(f"written: {tmp_path}/new/encoder, a RobertaModel")
    written, compared = printed.splitlines()
    assert written.endswith("; left out: decoder, lm_head")
    assert compared == "features not compared with transformers, which is not installed here"
    assert os.listdir(tmp_path / "new") == ["encoder"]
    files = list((tmp_path / "new" / "encoder").iterdir())
    assert len(files) >= 3 and len({file.stat().st_mode for file in files}) == 1
    card = (tmp_path / "new" / "encoder" / "README.md").read_text()
    documents = json.loads((data / "train.json").read_text())["documents"]
    assert f"- Data: {documents:,} documents, " in card and "- Updates: 4\n" in card
    assert "`mask_prob` 0.15" in card and re.search(r"- Validation loss: \d\.\d+ bits per predicted token\n", card)


def test_modules_of_other_objectives_are_left_out_and_named(data, tmp_path):
    def discriminator(state):
        state["model"]["discriminator.weight"] = torch.zeros(2)

    checkpoint = write_checkpoint(tmp_path / "run", data, discriminator, **NO_BIAS)
    assert program.export(checkpoint, data, tmp_path / "new").dropped == ["decoder", "lm_head", "discriminator"]


def test_one_of_several_heads(data, tmp_path):
    heads = {"topic": classifier(), "answers": SpanHead(C)}
    checkpoint = write_checkpoint(tmp_path / "run", data, heads=heads, **NO_BIAS, **FINE_TUNED)
    done = program.export(checkpoint, data, tmp_path / "new", head="answers")
    assert done[:2] == ("RobertaForQuestionAnswering", ["head topic"])


@pytest.mark.parametrize(
    "case",
    ["roberta", "roberta-mlm", "roberta-shared", "mpnet-t5-topic", "roberta-score", "mpnet-t5-answers", "code"]
    + ["code-shared", "code-topic"],
)
def test_the_model_card(case, data, tmp_path):
    make(case, data, tmp_path)
    card = (tmp_path / case / "README.md").read_text(encoding="utf-8")
    _, metadata, text = card.split("---\n", 2)
    metadata = yaml.safe_load(metadata)
    kind = case.replace("-shared", "").split("-")[-1]
    pipelines = {
        "roberta": "feature-extraction", "mlm": "fill-mask", "code": "fill-mask", "answers": "question-answering",
    }  # fmt: skip
    assert metadata["library_name"] == "transformers"
    assert metadata["pipeline_tag"] == pipelines.get(kind, "text-classification")
    assert "license" not in metadata and "# license:" in card
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    ast.parse(code)
    assert len(code.strip().split("\n")) <= 10 and f'"{case}"' in code and str(tmp_path) not in card
    assert "- Optimization: `lr` 0.001\n" in card and "- Updates: 1,234\n" in card and "Validation loss: 5.125" in card
    assert ("pooler is untrained" in card) == (kind == "roberta")
    assert ("Its decoder is the encoder's last layers (1 of 2): " in card) == (case == "code-shared")
    assert ("`share_decoder_layers` True" in card) == ("shared" in case)
    assert ("fills no masks" in card) == (kind not in ["mlm", "code"])
    assert ("trust_remote_code=True" in code) == case.startswith("code")
    assert f", {P} positions, " in card and f"up to {P} tokens" in card
    assert ("`bad`, `fair`, `good`" in card) == (kind == "topic")
    assert "{" not in text.replace(code, "")


def bias_with(buckets=None, num_buckets=32):
    bias = RelativePositionBias(num_buckets, 128, H, P)
    if buckets is not None:
        bias.bucket = torch.tensor([buckets(distance) for distance in range(-P, P + 1)])
    return bias


def by_distance(table, distance):
    return table[t5_bucket(distance)]


def test_a_bias_is_taken_over_distance_by_distance():
    constant = bias_with()
    constant.table.weight.data[:] = constant.table.weight.data[0]
    for bias in [bias_with(t5_bucket), bias_with(num_buckets=4), constant]:
        table = mpnet_table(bias)
        for distance in range(1 - P, P):
            expected = bias.table.weight[bias.bucket[distance + P]]
            assert table[t5_bucket(distance)].equal(expected)


@pytest.mark.parametrize("distance, other", [(100, 91), (-12, -13), (33, 32), (-159, -91)])
def test_a_single_distance_that_differs_is_found(distance, other):
    def almost(each):
        return 16 if each == distance else t5_bucket(each)  # no distance has T5's bucket 16

    # The shorter of the two is taken as right.
    first, second = sorted([distance, other], key=abs)
    if abs(distance) < abs(other):
        first, second = distance, other
    with pytest.raises(ValueError, match=rf"distance {second} differs from that at distance {first} by up to \d"):
        mpnet_table(bias_with(almost))


def test_distances_that_no_text_has_do_not_matter():
    mpnet_table(bias_with(lambda distance: 16 if abs(distance) == P else t5_bucket(distance)))


REFUSED = {  # options of write_checkpoint, arguments of export, message
    "bias, mpnet": ({}, dict(format="mpnet"), "^--format mpnet does not hold .* distance -9 differs from .* -8 by up"),
    "bias, roberta": (
        dict(change=three_values), dict(format="roberta"),
        "^--format roberta does not hold .*: the model has a relative position bias, but .*; use --format auto$",
    ),
    "no head": (NO_BIAS, dict(head="topic"), "^--head topic: the checkpoint has no head"),
    "wrong head": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": classifier()}}, dict(head="nosuch"),
        "^--head nosuch: no such head, the checkpoint has: topic$",
    ),
    "several heads": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": classifier(), "answers": SpanHead(C)}}, {},
        "^the checkpoint has the heads topic, answers: choose one with --head$",
    ),
    "a head for the mean": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": MeanClassificationHead(C, 3, C, 0.0)}}, {},
        r"^head 'topic' \(MeanClassificationHead\) has no class: it cannot be exported$",
    ),
    "inner width": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": classifier(inner=8)}}, dict(format="roberta"),
        "^--format roberta does .*: head 'topic' has an inner layer of 8, .* as wide as the encoder, 16; use --format",
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


def test_folders_refused(data, tmp_path):
    checkpoint = write_checkpoint(tmp_path / "run", data, **NO_BIAS)
    with pytest.raises(ValueError, match=f"^{tmp_path}/run: exists already; remove it or choose another --dest$"):
        program.export(checkpoint, data, tmp_path / "run")
    other = prepare(tmp_path)
    lines = (other / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (other / "dict.txt").write_text("".join(lines[::-1]), encoding="utf-8")
    with pytest.raises(ValueError, match="sentencepiece.model: its .* pieces differ from those of the dict.txt"):
        program.export(checkpoint, other, tmp_path / "new")
    (other / "sentencepiece.model").unlink()
    with pytest.raises(FileNotFoundError, match="sentencepiece.model: not found; only vocabularies of data-prep"):
        program.export(checkpoint, other, tmp_path / "new")
    wider = write_checkpoint(tmp_path / "wider", data, lambda state: state["model"].update(other_vocabulary))
    with pytest.raises(ValueError, match="checkpoint_last.pt: trained with another dict.txt"):
        program.export(wider, data, tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="nosuch.pt: not found"):
        program.export(tmp_path / "nosuch.pt", data, tmp_path / "new")
    topic = write_checkpoint(tmp_path / "topic", data, heads={"topic": classifier()}, **NO_BIAS, **FINE_TUNED)
    (data / "label").rename(tmp_path / "label")
    try:
        with pytest.raises(FileNotFoundError, match="label/dict.txt: not found, expected the names of the head's 3"):
            program.export(topic, data, tmp_path / "new")
    finally:
        (tmp_path / "label").rename(data / "label")
    assert not (tmp_path / "new").exists()


other_vocabulary = {"dictionary_fingerprint": torch.tensor(1)}


def test_safetensors_is_missing(data, tmp_path, monkeypatch):
    checkpoint = write_checkpoint(tmp_path / "run", data, **NO_BIAS)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ImportError, match=r"safetensors is not installed .*: run `pip install 'maelm_fairseq\[hugg"):
        program.export(checkpoint, data, tmp_path / "new")


def test_nothing_is_left_when_it_fails(data, tmp_path, monkeypatch):
    checkpoint = write_checkpoint(tmp_path / "run", data, **NO_BIAS)

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(program, "model_card", fail)
    with pytest.raises(OSError, match="disk full"):
        program.export(checkpoint, data, tmp_path / "new")
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize(
    "options, message",
    [
        ("--data data --dest new", "the following arguments are required: --checkpoint (--help lists the options)"),
        ("--checkpoint nosuch.pt --data data --dest new", "nosuch.pt: not found, expected a checkpoint (a .pt file)"),
    ],
)
def test_errors_are_one_line(options, message, tmp_path):
    done = subprocess.run(
        [PYTHON, "-m", "maelm_fairseq.huggingface.export", *options.split()],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, f"error: {message}\n")
