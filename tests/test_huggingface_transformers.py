"""What transformers computes from exported folders, in environments of its own without this package."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from conftest import PYTHON, ROOT, TRANSFORMERS
from huggingface_cases import CASES, LABELS, NO_BIAS, H, P, head_of, make, prepare_labelled, read, write_checkpoint
from maelm_fairseq.data.vocabulary import load_dictionary


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare_labelled(tmp_path_factory.mktemp("text"))


def swap(weights, one, other):
    weights[one], weights[other] = weights[other], weights[one]


def flip(weights, name):
    weights[name] = weights[name].flip(0).contiguous()


BIAS, KEY, VALUE = "encoder.relative_attention_bias.weight", ".self.key.weight", ".self.value.weight"
MISTAKES = {  # deliberate ones, which the comparison must notice: (case, change of configuration and weights)
    "default epsilon": ("roberta", lambda c, w: c.pop("layer_norm_eps")),
    "other gelu": ("roberta", lambda c, w: c.update(hidden_act="gelu_new")),
    "positions": ("roberta", lambda c, w: flip(w, "embeddings.position_embeddings.weight")),
    "key and value": (
        "roberta", lambda c, w: swap(w, "encoder.layer.1.attention" + KEY, "encoder.layer.1.attention" + VALUE),
    ),
    "directions": ("mpnet-t5", lambda c, w: w.update({BIAS: w[BIAS].roll(16, 0)})),
    "far bucket": ("mpnet-t5", lambda c, w: w[BIAS][31].add_(torch.arange(H))),
    "output bias": ("roberta-mlm", lambda c, w: [w[n].zero_() for n in ["lm_head.bias", "lm_head.decoder.bias"]]),
    "classes": ("roberta-topic", lambda c, w: flip(w, "classifier.out_proj.weight")),
    "start and end": ("mpnet-t5-answers", lambda c, w: flip(w, "qa_outputs.weight")),
    "masks seen": ("code", lambda c, w: c.update(masks_in_encoder=True)),
    "masks not seen": ("code-masks-seen", lambda c, w: c.update(masks_in_encoder=False)),
    "no decoder": ("code", lambda c, w: c.update(decoder_layers=0)),
    "bucket": ("code", lambda c, w: w["mae_lm.encoder.relative_bias.bucket"][P + 9].add_(1)),
    "shared layers": ("code-shared", lambda c, w: c.update(decoder_layers=2)),
    "decoder's positions": ("code-t5", lambda c, w: flip(w, "decoder.embed_positions.weight")),
}  # fmt: skip


def make_mistakes(folder):
    """Adds an export with each mistake beside the right ones."""
    for name, (case, change) in MISTAKES.items():
        config, weights = read(folder / case)
        change(config, weights)
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        safetensors.torch.save_file(weights, folder / name / "model.safetensors", {"format": "pt"})
        np.savez(folder / f"{name}.npz", mistake=True, **np.load(folder / f"{case}.npz"))
        for file in (folder / case).glob("*.py"):
            shutil.copy(file, folder / name)


def logits_everywhere(model, row):
    """The logits of pretraining at all T positions, masks and others: (T, N)."""
    hidden = row.eq(model.mask) & (not model.masks_in_encoder)
    positions = torch.arange(len(row))
    seen, masked = positions[~hidden], positions[hidden]
    logits = model.model(row[seen][None], seen[None], masked[None], num_predicted=len(row), padded=False)[0]
    return logits[torch.cat([seen, masked]).argsort()]


def reference(model, tokens, case):
    """What our model computes in float64 at each text without padding: {output of transformers: array}."""
    model.model.double()
    outputs, head, T = {}, head_of(case), tokens.size(1)
    for row in tokens:
        row = row[row.ne(1)]
        with torch.no_grad():
            found = {"last_hidden_state": model.extract_features(row)}
            if head is not None:
                logits = model.model(row[None], classification_head_name=head)[0][0]
                found = {"logits": logits}
                if head == "answers":
                    found = dict(zip(["start_logits", "end_logits"], logits.unbind(-1)))
            elif model.model.lm_head is not None and (case.startswith("code") or model.masks_in_encoder):
                found = {"logits": logits_everywhere(model, row)}
        for name, values in found.items():
            outputs.setdefault(name, []).append(values)
    whole = head in ["topic", "narrow", "score"]
    return {
        name: (torch.stack(rows) if whole else torch.stack([padded(row, T) for row in rows])).numpy()
        for name, rows in outputs.items()
    }


def padded(row, length):
    """(T, ...) -> (length, ...), zeros at the end."""
    return torch.cat([row, row.new_zeros(length - len(row), *row.shape[1:])])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def models(data, folder):
    """Exports the models of all cases; returns the hub's models by case."""
    return {case: make(case, data, folder) for case in CASES}


def run_with(interpreter, script, folder):
    """Runs a script beside this file by an interpreter without this package; returns what it printed last."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["HF_HOME"] = str(folder / "huggingface")  # where transformers copies modeling files
    script = Path(__file__).parent / script
    done = subprocess.run(
        [interpreter, script, folder], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def compared(data, folder, models):
    """The results of tests/huggingface_reference.py for each interpreter."""
    generator, N = torch.Generator().manual_seed(1), len(load_dictionary(data))
    tokens = torch.full((4, P), 1)
    for i, length in enumerate([P, 3, 101, 47]):
        tokens[i, :length] = torch.randint(3, N, (length,), generator=generator)
        tokens[i, 0], tokens[i, length - 1] = 0, 2
        tokens[i, 2:length:7] = N - 1  # <mask>, also before </s>
    for case, (class_name, _, _) in CASES.items():
        auto_class = "Auto" + re.search("Model$|For.*", class_name)[0].replace("For", "ModelFor")
        expected = reference(models[case], tokens, case)
        np.savez(folder / f"{case}.npz", **{"class": auto_class}, tokens=tokens, **expected)
        if case in ["code", "code-narrow"]:
            features = {"class": "AutoModel", "last_hidden_state": models[case].extract_features(tokens).numpy()}
            np.savez(folder / f"{case}@AutoModel.npz", tokens=tokens, **features)
    make_mistakes(folder)
    return {interpreter: run_with(interpreter, "huggingface_reference.py", folder) for interpreter in TRANSFORMERS}


@pytest.mark.parametrize("interpreter", TRANSFORMERS)
def test_transformers_computes_the_same(compared, interpreter):
    found = dict(compared[interpreter])
    version = found.pop("transformers")
    for name in MISTAKES:
        assert max(found.pop(name)["differences"].values()) > 1e-9, (version, name)
    assert found.keys() == {*CASES, "code@AutoModel", "code-narrow@AutoModel"}
    for name, result in found.items():
        case, _, base = name.partition("@")
        assert result["class"] == ("MaeLmModel" if base else CASES[case][0])
        pooler = ["pooler.dense.bias", "pooler.dense.weight"]
        assert result["missing"] == (pooler if result["class"] in ["RobertaModel", "MPNetModel"] else []), name
        assert all(unused.startswith("classifier.") for unused in result["unexpected"]), name
        assert bool(result["unexpected"]) == (name == "code-narrow@AutoModel") and result["mismatched"] == []
        if head_of(case) in ["topic", "narrow"]:
            assert list(result["labels"].values()) == LABELS
        # MPNet has no sdpa in some versions; stock heads read the first column, which is padding on the left.
        assert len(result["differences"]) >= (8 if case.startswith("code") else 2)
        for what, difference in result["differences"].items():
            assert difference < (1e-12 if "float64" in what else 1e-4), (version, name, what, difference)


@pytest.mark.parametrize("interpreter", TRANSFORMERS)
def test_the_folders_are_used_as_any_others(data, folder, models, interpreter):
    texts = [line for _, line in json.loads((data / "valid.json").read_text())["sample"]][:5]
    masked = [texts[0] + " <mask> " + texts[1][:20], "<mask>.", f"<mask> {texts[2][:30]} <mask>"]
    (folder / "texts.json").write_text(json.dumps({"texts": texts, "masked": masked}))
    found = run_with(interpreter, "huggingface_use.py", folder)
    for what, difference in found["largest differences"].items():
        assert difference < (0 if "save" in what else 1e-5) + 1e-12, (found["transformers"], what)
    assert len(found["steps"]) == 6
    for what, losses in found["steps"].items():
        assert len(losses) == 2 and all(0 < loss < 100 for loss in losses), (what, losses)
    assert found["fill_mask_refused"]
    for name, filled in found["fill_mask"].items():
        model = models[name]
        model.model.float()
        expected = [row for text in masked for row in model.fill_mask(text, topk=1)]
        specials = {0, 1, 2, 3, model.mask}
        assert len(filled) == len(expected) == 4
        for probabilities, [(piece, probability)] in zip(filled, expected):
            # The hub's candidates are pieces only.
            pieces = {int(token): p for token, p in probabilities.items() if int(token) not in specials}
            best = max(pieces, key=pieces.get)
            assert piece in [model.tokenizer.decode([best]), model.dictionary[best].replace("\u2581", " ").strip()]
            assert pieces[best] / sum(pieces.values()) == pytest.approx(probability, abs=1e-6)


WITH_TRANSFORMERS = """
import sys
sys.path.append(sys.argv.pop(1))
sys.modules["torchaudio"] = None  # if installed for CUDA it does not load beside a torch for the CPU
from maelm_fairseq.engine.errors import run
from maelm_fairseq.huggingface import export

if sys.argv.pop(1) == "mistake":
    right = export.make_config
    export.make_config = lambda *arguments: dict(right(*arguments), layer_norm_eps=1e-2)
run(export.main)
"""


@pytest.mark.parametrize("interpreter", TRANSFORMERS[-1:])  # older ones need an older tokenizers
def test_the_export_compares_features_where_transformers_is_installed(data, tmp_path, interpreter):
    command = [interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    for which, options in [("mistake", NO_BIAS), ("right", {})]:
        checkpoint = write_checkpoint(tmp_path / "checkpoints" / which, data, **options)
        arguments = ["--checkpoint", checkpoint, "--data", data, "--dest", tmp_path / which]
        done = subprocess.run(
            [PYTHON, "-c", WITH_TRANSFORMERS, packages, which, *arguments], cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if which == "right":
            assert done.returncode == 0, done.stdout
            assert re.search(r"\nfeatures of 8 lines of text: equal to \S+ in transformers \d", done.stdout)
        else:
            assert done.returncode == 1 and done.stdout.count("\n") == 1, done.stdout
            assert re.match(r"error: transformers \S+ computes other features from the export \(", done.stdout)
    assert sorted(os.listdir(tmp_path)) == ["checkpoints", "right"]
