"""Checkpoints that are damaged, changed by hand, or hostile: each ends in a result or in one line."""

import copy
import os
import random
import shutil
from dataclasses import asdict
from importlib.util import find_spec

import pytest
import torch

from conftest import TINY, documents, run, succeed, text_of
from maelm_fairseq import hub
from maelm_fairseq.checkpoint import load_model
from maelm_fairseq.errors import UsageError
from maelm_fairseq.huggingface.export import export
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import load_dictionary
from test_hub import write_lines, write_vocabulary

SIZES = dict(
    encoder_layers=2, decoder_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=8, encoder_attention_heads=2,
    max_positions=40, relative_position_buckets="t5",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder with a vocabulary and validation text."""
    folder = tmp_path_factory.mktemp("damaged") / "data"
    text = text_of(documents(60, 1))
    pieces = write_vocabulary(folder, text, 90)
    for split in ["train", "valid"]:
        write_lines(folder / split, text.split("\n"), pieces)
    (folder / "label").mkdir()
    (folder / "label" / "dict.txt").write_text("first 1\nsecond 1\nthird 1\n")
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    """What fairseq-train would save of a model with a decoder and two heads, without the optimizer's state."""
    torch.manual_seed(1)
    cfg = MaeLmConfig(**SIZES)
    model = MaeLmModel(cfg, load_dictionary(folder), pretraining=True)
    model.register_classification_head("topic", num_classes=3)
    model.register_span_head("answers")
    return {
        "model": model.state_dict(),
        "cfg": {
            "model": {"_name": "mae_lm", **asdict(cfg)},
            "task": {"_name": "mae_lm", "encoder_mask_fraction": 0.0, "mask_prob": 0.15},
            "optimizer": {"_name": "adam", "adam_betas": "(0.9, 0.98)"},
            "optimization": {"lr": [0.001]},
            "checkpoint": {"best_checkpoint_metric": "loss"},
        },
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 3}],
        "extra_state": {"val_loss": 3.5, "train_iterator": {"epoch": 1}},
    }


def itself():
    """A list that contains itself: pickles can."""
    made = []
    made.append(made)
    return made


VALUES = [
    None, True, 0, -1, 3, 2.5, float("nan"), float("inf"), 10**9, 10**30, "", "two", "\ud800", b"x", [], [1, "a"], {},
    {"a": 1}, {1: 2}, (), set(), torch.zeros(2), torch.tensor(3), torch.tensor([[0, 3], [1, 2]]), itself(),
]  # fmt: skip
NAMES = ["", "more", "encoder.more", "classification_heads", "classification_heads.", "classification_heads.x.weight"]
NAMES += [
    "classification_heads.keys.weight",
    "classification_heads..weight",
    "lm_head.bias",
    "model",
    "cfg",
    "_name",
    3,
]
WEIGHTS = {
    "half": lambda w: w.half(),
    "double": lambda w: w.double(),
    "integers": lambda w: w.long(),
    "bools": lambda w: w.bool(),
    "complex": lambda w: w.to(torch.complex64),
    "flat": lambda w: w.flatten(),
    "transposed": lambda w: w.t() if w.dim() == 2 else w[None],
    "longer": lambda w: torch.cat([w, w]) if w.dim() else w[None],
    "shorter": lambda w: w[:-1] if w.dim() else w,
    "empty": lambda w: w[:0] if w.dim() else w.new_zeros(0),
    "one": lambda w: w.flatten()[0] if w.numel() else w,
    "huge": lambda w: torch.zeros(1).expand(10**7, 10**5),
    "sparse": lambda w: w.to_sparse() if w.dim() else w,
    "quantized": lambda w: torch.quantize_per_tensor(w.float(), 0.1, 0, torch.qint8),
    "meta": lambda w: w.to("meta"),
    "nan": lambda w: w.masked_fill(torch.ones_like(w, dtype=torch.bool), float("nan")) if w.is_floating_point() else -w,
    "infinite": lambda w: w / 0 if w.is_floating_point() else w + 10**12,
    "random": lambda w: torch.randint_like(w, -5, 5),
    "parameter": lambda w: torch.nn.Parameter(w) if w.is_floating_point() else w,
}


def dicts_in(state):
    """The dicts within a checkpoint, itself too."""
    found = [state]
    for value in state.values():
        if isinstance(value, dict):
            found += dicts_in(value)
    return found


def mutate(state, rng):
    """Changes a checkpoint in one place, in place; returns what was done."""
    kind = rng.choice(["value", "value", "section", "weight", "weight", "weight", "remove", "add", "rename"])
    within = rng.choice([part for part in dicts_in(state) if part])
    if kind == "weight" and isinstance(state.get("model"), dict):
        name = rng.choice([n for n, w in state["model"].items() if isinstance(w, torch.Tensor)])
        how = rng.choice(sorted(WEIGHTS))
        if state["model"][name].numel() < 10**6 and state["model"][name].layout == torch.strided:
            state["model"][name] = WEIGHTS[how](state["model"][name])
        return f"{how}: {name}"
    if kind == "section" and isinstance(state.get("cfg"), dict) and isinstance(state["cfg"].get("model"), dict):
        within = state["cfg"]["model"]
    name = rng.choice(list(within))
    if kind == "remove":
        del within[name]
    elif kind == "add":
        name = rng.choice(NAMES)
        within[name] = rng.choice(VALUES)
    elif kind == "rename":
        new = rng.choice(NAMES + list(within))
        within[new] = within.pop(name)
        return f"rename {name!r} to {new!r}"
    else:
        within[name] = rng.choice(VALUES)
    return f"{kind} {name!r}: {type(within.get(name)).__name__} {ascii(within.get(name))[:40]}"


def use_hub(path, folder):
    model = hub.from_pretrained(path, folder)
    model.extract_features(["kan lon", "mipo"])
    if model.model.lm_head is not None:
        model.fill_mask("kan <mask>")


def use_model(path, folder):
    """As python -m maelm_fairseq.effective_rank, the recipes and data-prep/ do."""
    load_model(path, load_dictionary(folder)).max_positions()


def use_export(path, folder):
    export(str(path), str(folder), os.path.join(os.path.dirname(path), "exported"), head="topic")


READERS = [use_hub, use_model]
if find_spec("safetensors") and find_spec("tokenizers"):  # the extra `huggingface`
    READERS.append(use_export)


def outcome(reader, path, folder):
    """The message of a refusal, or None for a result. Any other exception passes."""
    try:
        reader(path, folder)
    except UsageError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500, error
        return str(error)
    return None


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_checkpoint_ends_in_a_result_or_in_one_line(whole, folder, tmp_path, seed):
    rng = random.Random(seed)
    refused = 0
    for number in range(20):
        state = copy.deepcopy(whole)
        done = [mutate(state, rng) for _ in range(rng.choice([1, 1, 2, 4]))]
        path = tmp_path / f"{number}.pt"
        torch.save(state, path)
        for reader in READERS:
            try:
                message = outcome(reader, path, folder)
            except Exception as error:
                raise AssertionError(f"{reader.__name__} after {done}") from error
            refused += message is not None
            shutil.rmtree(tmp_path / "exported", ignore_errors=True)
    assert refused > 10


@pytest.mark.parametrize("seed", range(5))
def test_flipped_bytes_and_cut_files_end_in_a_result_or_in_one_line(whole, folder, tmp_path, seed):
    rng = random.Random(seed)
    torch.save(whole, tmp_path / "whole.pt")
    content = (tmp_path / "whole.pt").read_bytes()
    for number in range(20):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 10, 100])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        if number % 4 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        (tmp_path / "damaged.pt").write_bytes(bytes(damaged))
        for reader in [use_hub, use_model]:
            outcome(reader, tmp_path / "damaged.pt", folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinite_weights_are_refused(whole, folder, tmp_path, value):
    for name in [
        "encoder.layers.1.ffn.0.weight",
        "decoder.layers.0.ffn.0.bias",
        "classification_heads.topic.dense.bias",
    ]:
        state = copy.deepcopy(whole)
        state["model"][name].view(-1)[-1] = value
        torch.save(state, tmp_path / "model.pt")
        for reader in READERS:
            message = outcome(reader, tmp_path / "model.pt", folder)
            assert message.startswith(
                f"{tmp_path / 'model.pt'}: weight {name!r} of the checkpoint contains NaN or infinity"
            )
    assert not (tmp_path / "exported").exists()


def test_commands_refuse_nan_weights(folder, tmp_path):
    options = [*TINY, "--tokens-per-sample", 40, "--max-positions", 40, "--num-workers", 0]
    succeed("fairseq-train", folder, *options, "--max-update", 1, "--save-dir", tmp_path / "run")
    path = tmp_path / "run" / "checkpoint_last.pt"
    state = torch.load(path, weights_only=True)
    load_model(path, load_dictionary(folder))  # nothing that fairseq writes is taken for damage
    state["model"]["encoder.layers.0.ffn.0.weight"][0, 0] = float("nan")
    torch.save(state, path)
    expected = "weight 'encoder.layers.0.ffn.0.weight' of the checkpoint contains NaN or infinity"
    rank = ["-m", "maelm_fairseq.effective_rank", "--checkpoint", path, "--data", folder, "--dest", tmp_path / "ranks"]
    for command in [
        ["fairseq-train", folder, *options, "--finetune-from-model", path, "--save-dir", tmp_path / "next"],
        ["fairseq-train", folder, *options, "--save-dir", tmp_path / "run"],
        ["python", *rank, "--tokens", 50],
    ]:
        done = run(*command)
        assert done.returncode == 1 and "Traceback" not in done.stdout
        (error,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
        assert expected in error
    assert not (tmp_path / "ranks").exists()
