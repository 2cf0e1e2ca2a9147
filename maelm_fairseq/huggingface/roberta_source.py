"""RoBERTa encoders as fairseq and transformers write them, read into one form, or refused with the reason."""

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import torch
from fairseq import utils
from omegaconf import OmegaConf

from ..checkpoint import read_pickle
from ..errors import MissingFileError, UsageError
from ..files import read_json
from .roberta_weights import CAMEMBERT_ROWS, PRE_LN, UNTIED, XLM_R_ROWS, sort_weights, stock_names
from .weights import import_safetensors

CHECKPOINTS = ["checkpoint_best.pt", "checkpoint_last.pt", "model.pt"]  # the last is what fairseq publishes
SENTENCEPIECE_MODELS = ["sentencepiece.bpe.model", "sentencepiece.model", "spiece.model"]
MODEL_TYPES = ["roberta", "xlm-roberta", "camembert"]


@dataclass
class Source:
    """A RoBERTa encoder, with its language-model head if it has one.

    Attributes:
        path: where it was read, for messages
        config: sizes and dropouts, named as in config.json of transformers
        weights: {name: float32 tensor}: exactly those of RobertaForMaskedLM, without a head of RobertaModel
        dropped: parts that were left out, such as "pooler"
        special_rows: `XLM_R_ROWS` or `CAMEMBERT_ROWS`
        model_file: the SentencePiece model, or None
        dictionary_folder: folder of fairseq's dict.txt, or None
    """

    path: str
    config: dict
    weights: dict
    dropped: list
    special_rows: tuple = XLM_R_ROWS
    model_file: Optional[str] = None
    dictionary_folder: Optional[str] = None

    @property
    def has_head(self):
        return "lm_head.bias" in self.weights


def read_source(path):
    """Reads a checkpoint of fairseq, or a folder of transformers; nothing in it is executed.

    Args:
        path: a `.pt` file, or a folder with one of `CHECKPOINTS` or with `config.json`
    Returns:
        :class:`Source`
    Raises:
        FileNotFoundError: there is none
        ValueError: it cannot be read, or computes something else than RoBERTa with a SentencePiece vocabulary
    """
    path = os.fspath(path)
    if not os.path.isdir(path):
        if path.endswith((".safetensors", ".bin", ".json")):
            raise UsageError(f"{path}: a file of a transformers model; give the folder that contains it")
        return read_fairseq(path)
    if os.path.isfile(os.path.join(path, "config.json")):
        return read_transformers(path)
    for name in CHECKPOINTS:
        if os.path.isfile(os.path.join(path, name)):
            return read_fairseq(os.path.join(path, name))
    found = ", ".join(sorted(os.listdir(path))) or "nothing"
    raise MissingFileError(f"{path}: expected config.json (transformers) or {' or '.join(CHECKPOINTS)}, found {found}")


def read_fairseq(path):
    """Reads a checkpoint of fairseq's `roberta`; see :func:`read_source`."""
    state = read_pickle(path)
    weights = state.get("model") if isinstance(state, dict) else None
    if isinstance(weights, dict) and "dictionary_fingerprint" in weights:
        raise UsageError(f"{path}: a checkpoint of MAE-LM needs no import: give it to --finetune-from-model")
    embedding = re.compile(r"(en|de)coder\.sentence_encoder\.embed_tokens\.weight")
    if not isinstance(weights, dict) or not any(map(embedding.fullmatch, map(str, weights))):
        raise UsageError(f"{path}: not a checkpoint of fairseq's roberta, which has sentence_encoder.embed_tokens")
    model, data = fairseq_options(state, path)
    check_options(path, model, FAIRSEQ_OPTIONS)
    config = {
        "num_hidden_layers": model["encoder_layers"],
        "num_attention_heads": model["encoder_attention_heads"],
        "hidden_size": model["encoder_embed_dim"],
        "intermediate_size": model["encoder_ffn_embed_dim"],
        "hidden_dropout_prob": model.get("dropout", 0.1),
        "attention_probs_dropout_prob": model.get("attention_dropout", 0.1),
    }
    weights = stock_names(weights)
    weights.setdefault("embeddings.token_type_embeddings.weight", torch.zeros(1, config["hidden_size"]))
    # fairseq 0.12.2 has in each layer a copy of its weights, such as fc1_weight of fc1.weight.
    copies = r"^encoder\.sentence_encoder\.layers\.\d+\.(?:in_proj|out_proj|fc1|fc2)_(?:weight|bias)$"
    unused = rf"^(classification_heads\.[^.]+)\.|^encoder\.sentence_encoder\.version$|{copies}"
    source = Source(path, config, *sort_weights(path, weights, config, unused))
    if not source.has_head:
        raise UsageError(f"{path}: it has no language-model head; give a checkpoint of --task masked_lm")
    folder = os.path.dirname(os.path.abspath(path))
    source.model_file = find_sentencepiece(folder)
    for candidate in [folder, *utils.split_paths(str(data or ""))[:1]]:
        if candidate and os.path.isfile(os.path.join(candidate, "dict.txt")):
            source.dictionary_folder = candidate
            break
    return source


def fairseq_options(state, path):
    """The options of the model, {name: value}, and the folder of the data, from `cfg` or from the `args` of old."""
    if state.get("args") is not None:
        model = options = plain(state["args"])
    else:
        cfg = plain(state.get("cfg"))
        model, options = plain(cfg.get("model")), plain(cfg.get("task"))
    needed = ["encoder_layers", "encoder_attention_heads", "encoder_embed_dim", "encoder_ffn_embed_dim"]
    missing = [name for name in needed if name not in model]
    if missing:
        raise UsageError(f"{path}: its configuration does not give {', '.join(missing)}; expected one of fairseq-train")
    return model, options.get("data")


def plain(options):
    """Options as a Namespace, a configuration of omegaconf, or None -> dict."""
    if isinstance(options, argparse.Namespace):
        return vars(options)
    if OmegaConf.is_config(options):
        return OmegaConf.to_container(options)
    return options if isinstance(options, Mapping) else {}


def read_transformers(folder):
    """Reads a folder of transformers; see :func:`read_source`."""
    config = read_json(os.path.join(folder, "config.json"), "the configuration of a transformers model")
    kind = config.get("model_type")
    if kind in ["xlm-roberta-xl", "roberta-prelayernorm"]:
        raise UsageError(f"{folder}: {kind}: {PRE_LN}")
    model_file = find_sentencepiece(folder)
    if model_file is None:
        raise UsageError(f"{folder}: {why_no_sentencepiece(folder)}")
    if kind not in MODEL_TYPES:
        raise UsageError(f"{folder}: config.json: model_type {kind}, expected {' or '.join(MODEL_TYPES)}")
    check_options(folder, config, TRANSFORMERS_OPTIONS)
    ends = config.get("bos_token_id", 0), config.get("eos_token_id", 2)
    known = {(rows[0], rows[2]): rows for rows in [XLM_R_ROWS, CAMEMBERT_ROWS]}
    if ends not in known:
        raise UsageError(
            f"{folder}: config.json: bos_token_id {ends[0]} and eos_token_id {ends[1]}, expected 0 and 2 (XLM-R) or "
            "5 and 6 (CamemBERT)"
        )
    sizes = {
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    }
    config = {name: config.get(name, default) for name, default in sizes.items()}
    weights, end = read_weights(folder), "embeddings.word_embeddings.weight"
    prefix = next((name[: -len(end)] for name in weights if name.endswith(end)), "")
    weights = {name[len(prefix) :] if name.startswith(prefix) else name: value for name, value in weights.items()}
    unused = r"^(pooler|classifier|qa_outputs)\.|^embeddings\.(?:position_ids|token_type_ids)$"
    return Source(folder, config, *sort_weights(folder, weights, config, unused), known[ends], model_file)


def why_no_sentencepiece(folder):
    """What to say about a folder without a SentencePiece model."""
    files = os.listdir(folder)
    if "vocab.txt" in files:
        return "a WordPiece vocabulary (vocab.txt) cannot be imported: expected a SentencePiece model"
    if "vocab.json" in files or "merges.txt" in files:
        return "a byte-level BPE (vocab.json, merges.txt) cannot be imported: expected a SentencePiece model"
    names = " or ".join(SENTENCEPIECE_MODELS)
    return f"no SentencePiece model: put the one it was trained with there as {names}"


def read_weights(folder):
    """The weights of a folder of transformers: {name: tensor}."""
    path = os.path.join(folder, "model.safetensors")
    if os.path.isfile(path):
        library = import_safetensors()
        try:
            return library.load_file(path)
        except Exception as error:  # the type depends on the version
            raise UsageError(f"{path}: cannot be read ({error}); expected a complete file of transformers") from None
    path = os.path.join(folder, "pytorch_model.bin")
    if os.path.isfile(path):
        return read_pickle(path, "transformers")
    sharded = [name for name in sorted(os.listdir(folder)) if name.endswith(".index.json")]
    if sharded:
        raise UsageError(
            f"{folder}: the weights are in several files ({sharded[0]}); save them in one: "
            'model.save_pretrained(FOLDER, max_shard_size="100GB")'
        )
    raise MissingFileError(f"{folder}: expected model.safetensors or pytorch_model.bin beside config.json")


def find_sentencepiece(folder):
    """The path of a folder's SentencePiece model, or None."""
    paths = [os.path.join(folder, name) for name in SENTENCEPIECE_MODELS]
    return next(filter(os.path.isfile, paths), None)


# Options: the default, what is expected, and what to say otherwise.
FAIRSEQ_OPTIONS = {
    "encoder_normalize_before": (False, False, PRE_LN),
    "layernorm_embedding": (True, True, "expected a LayerNorm after the embeddings, which pre-LN models lack"),
    "activation_fn": ("gelu", "gelu", "expected gelu"),
    "no_scale_embedding": (True, True, "the embeddings are scaled, expected unscaled ones"),
    "untie_weights_roberta": (False, False, UNTIED),
}
TRANSFORMERS_OPTIONS = {
    "hidden_act": ("gelu", "gelu", "expected gelu"),
    "layer_norm_eps": (1e-12, 1e-5, "expected 1e-5, as in RoBERTa and XLM-R"),
    "position_embedding_type": ("absolute", "absolute", "expected absolute"),
    "pad_token_id": (1, 1, "expected 1"),
    "is_decoder": (False, False, "expected an encoder"),
    "tie_word_embeddings": (True, True, UNTIED),
}


def check_options(path, options, table):
    """Refuses a configuration with which the model computes something else than ours."""
    for name, (default, expected, problem) in table.items():
        found = options.get(name, default)
        if found != expected:
            raise UsageError(f"{path}: {name} {found}: {problem}")
