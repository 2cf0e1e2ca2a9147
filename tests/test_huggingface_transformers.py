"""What transformers computes from exported folders, in environments of its own without this package."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from conftest import TRANSFORMERS
from huggingface_cases import CASES, HEADS, LABELS, C, H, P, make, prepare_labelled, read
from maelm_fairseq.vocabulary import load_dictionary


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare_labelled(tmp_path_factory.mktemp("text"))


CLASSIFIER = [f"classifier.{part}.{name}" for part in ["dense", "out_proj"] for name in ["bias", "weight"]]
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
    "masks seen": ("code", lambda c, w: c.update(masks_in_encoder=True)),
    "masks not seen": ("code-masks-seen", lambda c, w: c.update(masks_in_encoder=False)),
    "no decoder": ("code", lambda c, w: c.update(decoder_layers=0)),
    "other mask": ("code", lambda c, w: c.update(mask_token_id=c["mask_token_id"] - 1)),
    "bucket": ("code", lambda c, w: w["mae_lm.encoder.relative_bias.bucket"][P + 9].add_(1)),
    "decoder's positions": ("code-t5", lambda c, w: flip(w, "decoder.embed_positions.weight")),
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
        for file in (folder / case).glob("*.py"):
            shutil.copy(file, folder / name)


def logits_everywhere(model, row):
    """The logits of pretraining at all T positions, masks and others: (T, N)."""
    hidden = row.eq(model.mask) & (not model.masks_in_encoder)
    positions = torch.arange(len(row))
    seen, masked = positions[~hidden], positions[hidden]
    logits = model.model(row[seen][None], seen[None], masked[None], num_predicted=len(row), padded=False)[0]
    return logits[torch.cat([seen, masked]).argsort()]


def reference(model, tokens, head, code):
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
            elif model.model.lm_head is not None and (code or model.model.decoder is None):
                found = {"logits": logits_everywhere(model, row)}
        for name, values in found.items():
            outputs.setdefault(name, []).append(values.numpy())
    return {
        name: stacked(rows, tokens.size(1), name == "logits" and head is not None) for name, rows in outputs.items()
    }


def padded_features(model, tokens):
    """The encoder's features in float64, zeros at padding: (B, T, C)."""
    return model.extract_features(tokens).numpy()


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
        tokens[i, 2:length:7] = len(load_dictionary(data)) - 1  # <mask>, also before </s>
    for case, (_, auto_class, _, _) in CASES.items():
        model = make(case, data, folder)
        head = case.split("-")[-1] if case.split("-")[-1] in HEADS else None
        code = case.startswith("code")
        expected = reference(model, tokens, head, code)
        np.savez(folder / f"{case}.npz", **{"class": auto_class}, tokens=tokens, **expected)
        if case in ["code", "code-topic"]:
            features = {"last_hidden_state": padded_features(model, tokens)}
            np.savez(folder / f"{case}@AutoModel.npz", **{"class": "AutoModel"}, tokens=tokens, **features)
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
    assert found.keys() == {*CASES, "code@AutoModel", "code-topic@AutoModel"}
    for case, result in found.items():
        case, _, base = case.partition("@")
        class_name = "MaeLmModel" if base else CASES[case][0]
        assert result["class"] == class_name
        assert result["missing"] == (POOLER if class_name in ["RobertaModel", "MPNetModel"] else []), (version, case)
        unused = CLASSIFIER if base and case == "code-topic" else []
        assert (result["unexpected"], result["mismatched"]) == (unused, []), (version, case)
        if case.endswith("topic"):
            assert list(result["labels"].values()) == LABELS
        # MPNet has no sdpa in some versions; stock heads read the first column, which is padding on the left.
        assert len(result["differences"]) >= (8 if case.startswith("code") else 2)
        for what, difference in result["differences"].items():
            assert difference < (1e-12 if "float64" in what else 1e-4), (version, case, what, difference)
        for dtype in ["float64", "float32"]:
            worst = max(value for what, value in result["differences"].items() if dtype in what)
            print(f"transformers {version} {case} {dtype}: {worst:.2g}")
