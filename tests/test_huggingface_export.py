"""Exports to Hugging Face's stock classes: what is written and refused, and what transformers computes from it."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from tokenizers import Tokenizer

from conftest import PYTHON, TINY, TRANSFORMERS, prepare, succeed
from maelm_fairseq import hub
from maelm_fairseq.heads import SequenceClassificationHead, SpanHead
from maelm_fairseq.huggingface import export as program
from maelm_fairseq.huggingface.tokenizer import check_tokenizer, sample_lines
from maelm_fairseq.huggingface.tokenizer import reference as reference_tokens
from maelm_fairseq.huggingface.weights import mpnet_table
from maelm_fairseq.layers import RelativePositionBias
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import load_dictionary

P, C, F, H = 160, 16, 24, 2
LABELS = ["bad", "fair", "good"]

# The shortest distances of T5's buckets 9 to 15: 8 times powers of the square root of two, rounded up.
T5_BOUNDARIES = [12, 16, 23, 32, 46, 64, 91]


def t5_bucket(distance):
    """T5's bucket of a distance, written a second time without floating point."""
    n = abs(distance)
    return (16 if distance > 0 else 0) + (n if n < 8 else 8 + sum(n >= boundary for boundary in T5_BOUNDARIES))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of prepared data that also has labels."""
    folder = prepare(tmp_path_factory.mktemp("text"))
    (folder / "label").mkdir()
    (folder / "label" / "dict.txt").write_text("".join(f"{label} 1\n" for label in LABELS))
    return folder


def write_checkpoint(folder, data, change=None, heads=None, task=None, pretraining=True, **options):
    """Writes a checkpoint of a small model with random weights, as fairseq would; returns its path."""
    torch.manual_seed(3)
    sizes = dict(encoder_layers=2, encoder_embed_dim=C, encoder_ffn_embed_dim=F, encoder_attention_heads=H)
    cfg = MaeLmConfig(**{**sizes, "decoder_layers": 1, "max_positions": P, **options})
    model = MaeLmModel(cfg, load_dictionary(data), pretraining)
    for name, head in (heads or {}).items():
        model.register_head(name, head)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(float("norm" in name and name.endswith("weight")), 1 if "table" in name else 0.3)
    state = {
        "model": model.state_dict(),
        "cfg": {
            "model": {"_name": "mae_lm_tiny", **asdict(cfg)},
            "task": {"_name": "mae_lm", "encoder_mask_fraction": 0.0, "data": str(data), **(task or {})},
            "optimization": {"lr": [0.001], "max_update": 7},
            "checkpoint": {"best_checkpoint_metric": "loss", "save_dir": str(folder)},
        },
        "optimizer_history": [{"num_updates": 1234}],
        "extra_state": {"val_loss": 5.125},
    }
    if change is not None:
        change(state)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "checkpoint_last.pt")
    return folder / "checkpoint_last.pt"


def classifier(outputs=3, inner=C):
    return SequenceClassificationHead(C, outputs, inner, 0.1)


def three_values(state):
    """A bias with one value for each direction, and one for distance 0."""
    table = state["model"]["encoder.relative_bias.table.weight"]
    middle = len(table) // 2 - 1
    table[:middle], table[middle + 1 :] = table[0].clone(), table[-1].clone()


NO_BIAS = dict(relative_position_num_buckets=0)
T5_BUCKETS = dict(relative_position_buckets="t5")
MLM = dict(decoder_layers=0, task={"encoder_mask_fraction": 1.0})
FINE_TUNED = dict(pretraining=False, task={"_name": "sentence_prediction", "encoder_mask_fraction": None})
HEADS = {"topic": classifier, "score": lambda: classifier(1), "answers": lambda: SpanHead(C)}
CASES = {  # what becomes of which model: (class, AutoModel class, options of write_checkpoint, arguments of export)
    "roberta": ("RobertaModel", "AutoModel", NO_BIAS, {}),
    "roberta-mlm": ("RobertaForMaskedLM", "AutoModelForMaskedLM", {**NO_BIAS, **MLM}, {}),
    "mpnet-t5": ("MPNetModel", "AutoModel", T5_BUCKETS, {}),
    "mpnet-three-values": ("MPNetModel", "AutoModel", dict(change=three_values), {}),
    "mpnet-four-buckets": (
        "MPNetModel", "AutoModel", dict(relative_position_num_buckets=4, relative_position_max_distance=4), {},
    ),
    "mpnet-no-bias": ("MPNetModel", "AutoModel", NO_BIAS, dict(format="mpnet")),
    "mpnet-mlm": ("MPNetForMaskedLM", "AutoModelForMaskedLM", dict(MLM, change=three_values), {}),
}  # fmt: skip
for _name, _class in {
    "topic": "ForSequenceClassification",
    "score": "ForSequenceClassification",
    "answers": "ForQuestionAnswering",
}.items():
    for _format, _family, _options in [("roberta", "Roberta", NO_BIAS), ("mpnet-t5", "MPNet", T5_BUCKETS)]:
        CASES[f"{_format}-{_name}"] = (
            _family + _class, "AutoModel" + _class, {**FINE_TUNED, **_options, "only_head": _name}, {},
        )  # fmt: skip


def make(case, data, folder):
    """Exports the model of a case into `folder`/case; returns the hub's model."""
    stock_class, _, options, arguments = CASES[case]
    options = dict(options)
    if "only_head" in options:
        options["heads"] = {name: HEADS[name]() for name in [options.pop("only_head")]}
    checkpoint = write_checkpoint(folder / "checkpoints" / case, data, **options)
    assert program.export(checkpoint, data, folder / case, **arguments)[0] == stock_class
    return hub.from_pretrained(checkpoint, data)


def read(folder):
    """Contents of config.json and model.safetensors."""
    weights = {}
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        for name in file.keys():
            weights[name] = file.get_tensor(name)
    return json.loads((folder / "config.json").read_text()), weights


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


@pytest.mark.parametrize("case", CASES)
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
    assert printed.endswith("; left out: decoder, lm_head\n") and printed.count("\n") == 1
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
    assert program.export(checkpoint, data, tmp_path / "new")[1] == ["decoder", "lm_head", "discriminator"]


def test_one_of_several_heads(data, tmp_path):
    heads = {"topic": classifier(), "answers": SpanHead(C)}
    checkpoint = write_checkpoint(tmp_path / "run", data, heads=heads, **NO_BIAS, **FINE_TUNED)
    assert program.export(checkpoint, data, tmp_path / "new", head="answers") == (
        "RobertaForQuestionAnswering", ["head topic"],
    )  # fmt: skip


@pytest.mark.parametrize("case", ["roberta", "roberta-mlm", "mpnet-t5-topic", "roberta-score", "mpnet-t5-answers"])
def test_the_model_card(case, data, tmp_path):
    make(case, data, tmp_path)
    card = (tmp_path / case / "README.md").read_text(encoding="utf-8")
    _, metadata, text = card.split("---\n", 2)
    metadata = yaml.safe_load(metadata)
    kind = case.split("-")[-1]
    pipelines = {"roberta": "feature-extraction", "mlm": "fill-mask", "answers": "question-answering"}
    assert metadata["library_name"] == "transformers"
    assert metadata["pipeline_tag"] == pipelines.get(kind, "text-classification")
    assert "license" not in metadata and "# license:" in card
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    ast.parse(code)
    assert len(code.strip().split("\n")) <= 10 and f'"{case}"' in code and str(tmp_path) not in card
    assert "- Updates: 1,234\n" in card and "Validation loss: 5.125" in card
    assert ("pooler is untrained" in card) == (kind == "roberta")
    assert ("fills no masks" in card) == (kind != "mlm")
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
    "bias, auto": ({}, {}, r"^no stock class holds this model exactly: RobertaModel has no .* distance -9 differs"),
    "bias, mpnet": ({}, dict(format="mpnet"), "^--format mpnet does not hold .* distance -9 differs from .* -8 by up"),
    "bias, roberta": (dict(change=three_values), dict(format="roberta"), "^--format roberta: .* use --format mpnet$"),
    "no head": (NO_BIAS, dict(head="topic"), "^--head topic: the checkpoint has no head"),
    "wrong head": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": classifier()}}, dict(head="nosuch"),
        "^--head nosuch: no such head, the checkpoint has: topic$",
    ),
    "several heads": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": classifier(), "answers": SpanHead(C)}}, {},
        "^the checkpoint has the heads topic, answers: choose one with --head$",
    ),
    "inner width": (
        {**NO_BIAS, **FINE_TUNED, "heads": {"topic": classifier(inner=8)}}, {},
        "^head 'topic' has an inner layer of 8, .* as wide as the encoder, 16: it cannot be exported$",
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


# The same with transformers, in environments of their own.

POOLER = ["pooler.dense.bias", "pooler.dense.weight"]


def zero(weights, *names):
    for name in names:
        weights[name].zero_()


def swap(weights, one, other):
    weights[one], weights[other] = weights[other], weights[one]


def flip(weights, name):
    weights[name] = weights[name].flip(0).contiguous()


IN_LAYER = "encoder.layer.1."
MISTAKES = {  # deliberate ones, which the comparison must notice: (case, change of configuration and weights)
    "default epsilon": ("roberta", lambda c, w: c.pop("layer_norm_eps")),
    "other gelu": ("roberta", lambda c, w: c.update(hidden_act="gelu_new")),
    "token types": ("roberta", lambda c, w: w["embeddings.token_type_embeddings.weight"][0].add_(torch.arange(C) / C)),
    "positions": ("roberta", lambda c, w: flip(w, "embeddings.position_embeddings.weight")),
    "key and value": (
        "roberta",
        lambda c, w: swap(w, IN_LAYER + "attention.self.key.weight", IN_LAYER + "attention.self.value.weight"),
    ),
    "directions": (
        "mpnet-t5",
        lambda c, w: w.update({BIAS: torch.cat([w[BIAS][16:], w[BIAS][:16]])}),
    ),
    "far bucket": ("mpnet-t5", lambda c, w: w[BIAS][31].add_(torch.arange(H))),
    "query's bias": ("mpnet-t5", lambda c, w: zero(w, IN_LAYER + "attention.attn.q.bias")),
    "output bias": ("roberta-mlm", lambda c, w: zero(w, "lm_head.bias", "lm_head.decoder.bias")),
    "classes": ("roberta-topic", lambda c, w: flip(w, "classifier.out_proj.weight")),
    "start and end": ("mpnet-t5-answers", lambda c, w: flip(w, "qa_outputs.weight")),
}
BIAS = "encoder.relative_attention_bias.weight"


def make_mistakes(folder):
    """Adds an export with each mistake beside the right ones."""
    for name, (case, change) in MISTAKES.items():
        config, weights = read(folder / case)
        change(config, weights)
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        safetensors.torch.save_file(weights, folder / name / "model.safetensors", {"format": "pt"})
        shutil.copy(folder / f"{case}.npz", folder / f"{name}.npz")


def reference(model, tokens, head):
    """What our model computes in float64 at each text without padding: {output of transformers: array}."""
    model.model.double()
    outputs = {}
    for row in tokens:
        row = row[row.ne(1)]
        with torch.no_grad():
            features = model.extract_features(row)
            found = {"last_hidden_state": features}
            if head is not None:
                logits = model.model(row[None], classification_head_name=head)[0][0]
                spans = dict(zip(["start_logits", "end_logits"], logits.unbind(-1)))
                found = spans if head == "answers" else {"logits": logits}
            elif model.model.lm_head is not None and model.model.decoder is None:
                found = {"logits": model.model.lm_head(features, model.model.embed_tokens.weight)}
        for name, values in found.items():
            outputs.setdefault(name, []).append(values.numpy())
    return {
        name: stacked(rows, tokens.size(1), name == "logits" and head is not None) for name, rows in outputs.items()
    }


def stacked(rows, length, whole):
    """Arrays (T_i, ...) padded with zeros to (B, length, ...); those of whole texts as they are."""
    if whole:
        return np.stack(rows)
    return np.stack([np.pad(row, [(0, length - len(row))] + [(0, 0)] * (row.ndim - 1)) for row in rows])


@pytest.fixture(scope="module")
def compared(data, tmp_path_factory):
    """The results of tests/huggingface_reference.py for each interpreter."""
    folder = tmp_path_factory.mktemp("exported")
    generator = torch.Generator().manual_seed(1)
    tokens = torch.full((4, P), 1)
    for i, length in enumerate([P, 3, 101, 47]):
        tokens[i, :length] = torch.randint(3, len(load_dictionary(data)), (length,), generator=generator)
        tokens[i, 0], tokens[i, length - 1] = 0, 2
    for case, (_, auto_class, _, _) in CASES.items():
        model = make(case, data, folder)
        head = case.split("-")[-1] if case.split("-")[-1] in HEADS else None
        np.savez(folder / f"{case}.npz", **{"class": auto_class}, tokens=tokens, **reference(model, tokens, head))
    make_mistakes(folder)
    found = {}
    for interpreter in TRANSFORMERS:
        script = Path(__file__).parent / "huggingface_reference.py"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run([interpreter, script, folder], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found[interpreter] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("interpreter", TRANSFORMERS)
def test_transformers_computes_the_same(compared, interpreter):
    found = dict(compared[interpreter])
    version = found.pop("transformers")
    for name in MISTAKES:
        differences = found.pop(name)["differences"].items()
        worst = max(difference for what, difference in differences if "float64" in what)
        assert worst > 1e-9, (version, name, worst)
    assert found.keys() == CASES.keys()
    for case, result in found.items():
        stock_class = CASES[case][0]
        assert result["class"] == stock_class
        assert result["missing"] == (POOLER if stock_class in ["RobertaModel", "MPNetModel"] else []), (version, case)
        assert result["unexpected"] == result["mismatched"] == [], (version, case)
        if case.endswith("topic"):
            assert list(result["labels"].values()) == LABELS
        assert len(result["differences"]) >= 2
        for what, difference in result["differences"].items():
            assert difference < (1e-12 if "float64" in what else 1e-4), (version, case, what, difference)
        for dtype in ["float64", "float32"]:
            worst = max(value for what, value in result["differences"].items() if dtype in what)
            print(f"transformers {version} {case} {dtype}: {worst:.2g}")
