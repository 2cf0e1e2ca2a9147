"""Checkpoints of small random models, and what the export to Hugging Face makes of each."""

import json
import shutil
from dataclasses import asdict

import safetensors.torch
import tokenizers
import torch

from conftest import script
from maelm_fairseq import hub
from maelm_fairseq.base.tokenizer import MASK, SPECIAL_SYMBOLS
from maelm_fairseq.heads import (
    MeanClassificationHead,
    SequenceClassificationHead,
    SpanHead,
    TokenClassificationHead,
)
from maelm_fairseq.huggingface import export as program
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import FINGERPRINT, fingerprint, load_dictionary

P, C, F, H = 160, 16, 24, 2


def write_checkpoint(folder, data, change=None, heads=None, task=None, pretraining=True, **options):
    """Writes a checkpoint of a small random model, as fairseq would; returns its path."""
    torch.manual_seed(3)
    sizes = dict(
        encoder_layers=2,
        encoder_embed_dim=C,
        encoder_ffn_embed_dim=F,
        encoder_attention_heads=H,
        decoder_layers=1,
        max_positions=P,
    )
    cfg = MaeLmConfig(**{**sizes, **options})
    dictionary = load_dictionary(data)
    model = MaeLmModel(cfg, dictionary, pretraining)
    for name, head in (heads or {}).items():
        model.register_head(name, head)
    for name, parameter in model.named_parameters():
        mean = float("norm" in name and name.endswith("weight"))
        deviation = 1 if "table" in name else 0.3
        parameter.data.normal_(mean, deviation)
    own_task = {"_name": "mae_lm", "encoder_mask_fraction": 0.0, "mask_prob": 0.15}
    state = {
        "model": model.state_dict(),
        "cfg": {
            "model": {**asdict(cfg), "_name": "mae_lm_tiny"},
            "task": {**own_task, "data": str(data), **(task or {})},
            "checkpoint": {"best_checkpoint_metric": "loss"},
        },
        "task_state": {
            FINGERPRINT: fingerprint(dictionary),
            "unigram_bits": 9.5,
            "labels": ["bad", "fair", "good"],
        },
        "optimizer_history": [{"num_updates": 1234}],
        "extra_state": {"val_loss": 5.125},
    }
    if change is not None:
        change(state)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "checkpoint_last.pt"
    torch.save(state, path)
    return path


def classifier(outputs=3):
    return SequenceClassificationHead(C, outputs, 0.1)


def three_values(state):
    """A change: the relative bias has one value for each direction, and one for distance 0."""
    table = state["model"]["encoder.relative_bias.table.weight"]
    middle = len(table) // 2 - 1
    table[:middle] = table[0].clone()
    table[middle + 1 :] = table[-1].clone()


def entity_labels(state):
    """A change: of three tags, two are of entities, in BIOES."""
    state["task_state"]["labels"] = ["E-PER", "O", "S-LOC"]


NO_BIAS = dict(relative_position_num_buckets=0)
T5_BUCKETS = dict(relative_position_buckets="t5")
MLM = dict(decoder_layers=0, task={"encoder_mask_fraction": 1.0})
EPSILON = dict(layer_norm_eps=0.01)  # large, so that every layer without it shows
SHARED = dict(share_decoder_layers=True)
FINE_TUNED_TASK = {"_name": "sentence_prediction", "encoder_mask_fraction": None, "mask_prob": None}
FINE_TUNED = dict(pretraining=False, task=FINE_TUNED_TASK)
HEADS = {
    "topic": classifier,
    "mean": lambda: MeanClassificationHead(C, 3, 0.1),
    "score": lambda: classifier(1),
    "tags": lambda: TokenClassificationHead(C, 3, 0.1),
    "span": lambda: SpanHead(C),
}
# What becomes of which model: {case: (class, options of write_checkpoint, arguments of export)}.
CASES = {
    "roberta": ("RobertaModel", NO_BIAS, {}),
    "roberta-mlm": ("RobertaForMaskedLM", {**NO_BIAS, **MLM}, {}),
    "roberta-topic": ("RobertaForSequenceClassification", {**FINE_TUNED, **NO_BIAS}, {}),
    "roberta-score": ("RobertaForSequenceClassification", {**FINE_TUNED, **NO_BIAS}, {}),
    "roberta-tags": ("RobertaForTokenClassification", {**FINE_TUNED, **NO_BIAS}, {}),
    "roberta-epsilon": ("RobertaForMaskedLM", {**NO_BIAS, **MLM, **EPSILON}, {}),
    "mpnet-t5": ("MPNetModel", T5_BUCKETS, {}),
    "mpnet-t5-tags": (
        "MPNetForTokenClassification",
        dict(**FINE_TUNED, **T5_BUCKETS, change=entity_labels),
        {},
    ),
    "mpnet-t5-span": ("MPNetForQuestionAnswering", {**FINE_TUNED, **T5_BUCKETS}, {}),
    "mpnet-mlm": ("MPNetForMaskedLM", dict(MLM, change=three_values), {}),
    "code": ("MaeLmForMaskedLM", {}, {}),
    "code-t5": (
        "MaeLmForMaskedLM",
        dict(T5_BUCKETS, decoder_relative_bias=True, decoder_layers=2),
        dict(format="code"),
    ),
    "code-epsilon": ("MaeLmForMaskedLM", EPSILON, {}),
    "code-masks-seen": ("MaeLmForMaskedLM", dict(task={"encoder_mask_fraction": 1.0}), {}),
    "code-shared": ("MaeLmForMaskedLM", SHARED, {}),
    "code-shared-all": (
        "MaeLmForMaskedLM",
        dict(SHARED, **T5_BUCKETS, decoder_layers=2),
        dict(format="code"),
    ),
    "code-mean": (
        "MaeLmForSequenceClassification",
        {**FINE_TUNED, **NO_BIAS, "classification_pooling": "mean"},
        {},
    ),
    "code-score": ("MaeLmForSequenceClassification", FINE_TUNED, {}),
    "code-tags": ("MaeLmForTokenClassification", FINE_TUNED, {}),
    "code-span": ("MaeLmForQuestionAnswering", FINE_TUNED, {}),
}


def byte_level_roberta(folder, lines):
    """A folder like that of `roberta-base`, but small and with random weights.

    Its vocabulary of byte-level BPE is trained on the lines.

    Returns:
        the folder; `folder`/data, prepared with its vocabulary; the hub's model with these weights
    """
    theirs = folder / "roberta-bytes"
    theirs.mkdir(parents=True)
    write_byte_level_vocabulary(theirs, lines)
    data = folder / "data"
    text = theirs / "text.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["--vocabulary", theirs, "--dest", data, "--train", text, "--valid", text]
    script("data-prep/prepare.sh", *options)
    checkpoint = write_checkpoint(folder / "checkpoint", data, **NO_BIAS, **MLM)
    program.export(checkpoint, data, folder / "exported")
    for name in ["config.json", "model.safetensors"]:
        shutil.copy(folder / "exported" / name, theirs)
    config = json.loads((theirs / "config.json").read_text())
    config["tokenizer_class"] = "RobertaTokenizer"
    (theirs / "config.json").write_text(json.dumps(config))
    settings = {"tokenizer_class": "RobertaTokenizer", "model_max_length": P}
    (theirs / "tokenizer_config.json").write_text(json.dumps(settings))
    return theirs, data, hub.from_pretrained(checkpoint, data)


def write_byte_level_vocabulary(folder, lines):
    """Writes tokenizer.json, and the same as vocab.json and merges.txt."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        lines, vocab_size=420, special_tokens=SPECIAL_SYMBOLS, show_progress=False
    )
    tokenizer.add_special_tokens([tokenizers.AddedToken(MASK, lstrip=True, normalized=False)])
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    vocabulary = {**model["vocab"], MASK: len(model["vocab"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    # Versions of `tokenizers` write a merge as a text or as a list.
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    merges_file = "\n".join(["#version: 0.2", *merges, ""])
    (folder / "merges.txt").write_text(merges_file, encoding="utf-8")


def changed_vocabulary(theirs, folder, change):
    """A folder with a copy of a tokenizer.json after change(its contents)."""
    file = json.loads((theirs / "tokenizer.json").read_text(encoding="utf-8"))
    change(file)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    return folder


def add_special_token(file):
    """A change of a tokenizer.json: a special token of one's own, [DRUG]."""
    number = len(file["model"]["vocab"]) + 1
    own = {**file["added_tokens"][0], "id": number, "content": "[DRUG]", "special": True}
    file["added_tokens"].append(own)


def head_of(case):
    """The head of a case, or None."""
    name = case.split("-")[-1]
    return name if name in HEADS else None


def make(case, data, folder):
    """Exports the model of a case into `folder`/case; returns the hub's model."""
    class_name, options, arguments = CASES[case]
    head = head_of(case)
    heads = {head: HEADS[head]()} if head else {}
    checkpoint = write_checkpoint(folder / "checkpoints" / case, data, heads=heads, **options)
    assert program.export(checkpoint, data, folder / case, **arguments)[0] == class_name
    return hub.from_pretrained(checkpoint, data)


def read(folder):
    """Contents of config.json and model.safetensors."""
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    return json.loads((folder / "config.json").read_text()), weights
