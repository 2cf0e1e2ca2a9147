"""RoBERTa encoders as fairseq and transformers write them, read into one form, or refused with the reason."""

import os
from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

import torch
from fairseq import utils
from omegaconf import OmegaConf

from ..engine.checkpoints import read_pickle
from ..engine.errors import MissingFileError, UsageError
from ..engine.files import read_json
from .roberta_weights import CAMEMBERT_ROWS, PRE_LN, UNTIED, XLM_R_ROWS, our_weights, stock_names
from .weights import import_safetensors

CHECKPOINTS = ["checkpoint_best.pt", "checkpoint_last.pt", "model.pt"]  # the last is what fairseq publishes
SENTENCEPIECE_MODELS = ["sentencepiece.bpe.model", "sentencepiece.model", "spiece.model"]
SIZES = {  # in transformers and here
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
BASE = [12, 12, 768, 3072, 0.1, 0.1]  # where config.json leaves them out
MODEL_TYPES = ["roberta", "xlm-roberta", "camembert"]
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


@dataclass
class Source:
    """A RoBERTa encoder, with its language-model head if it has one.

    Attributes:
        path: where it was read, for messages
        sizes: and dropouts, named as in :class:`~maelm_fairseq.model.MaeLmConfig`
        weights: {name: float32 tensor}, named as ours
        dropped: parts that were left out, such as "pooler"
        model_file: the SentencePiece model, or None
        dict_file: fairseq's dict.txt, or None
    """

    path: str
    sizes: dict
    weights: dict
    dropped: list
    model_file: Optional[str] = None
    dict_file: Optional[str] = None

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
    if first_file([path], CHECKPOINTS):
        return read_fairseq(first_file([path], CHECKPOINTS))
    found = ", ".join(sorted(os.listdir(path))) or "nothing"
    raise MissingFileError(f"{path}: expected config.json (transformers) or {' or '.join(CHECKPOINTS)}, found {found}")


def read_fairseq(path):
    """Reads a checkpoint of fairseq's `roberta`; see :func:`read_source`."""
    state = read_pickle(path)
    weights = state.get("model") if isinstance(state, dict) else None
    names = " ".join(map(str, weights)) if isinstance(weights, dict) else ""
    if "dictionary_fingerprint" in names:
        raise UsageError(f"{path}: a checkpoint of MAE-LM needs no import: give it to --finetune-from-model")
    if "coder.sentence_encoder.embed_tokens.weight" not in names:
        raise UsageError(f"{path}: not a checkpoint of fairseq's roberta, which has sentence_encoder.embed_tokens")
    cfg = state.get("cfg")
    if state.get("args") is not None:  # of old
        model = options = vars(state["args"])
    else:
        cfg = OmegaConf.to_container(cfg) if OmegaConf.is_config(cfg) else cfg
        model, options = (vars(part) if isinstance(part, Namespace) else part for part in (cfg["model"], cfg["task"]))
    check_options(path, model, FAIRSEQ_OPTIONS)
    sizes = {ours: model.get(ours, default) for ours, default in zip(SIZES.values(), [*[None] * 4, 0.1, 0.1])}
    weights = stock_names(weights)
    weights.setdefault("embeddings.token_type_embeddings.weight", torch.zeros(1, sizes["encoder_embed_dim"]))
    # fairseq 0.12.2 has in each layer a copy of its weights, such as fc1_weight of fc1.weight.
    copies = r"^encoder\.sentence_encoder\.layers\.\d+\.(?:in_proj|out_proj|fc1|fc2)_(?:weight|bias)$"
    unused = rf"^(classification_heads\.[^.]+)\.|^encoder\.sentence_encoder\.version$|{copies}"
    source = Source(path, sizes, *our_weights(path, weights, sizes["encoder_layers"], XLM_R_ROWS, unused))
    folders = [os.path.dirname(os.path.abspath(path)), *utils.split_paths(str(options.get("data") or ""))[:1]]
    source.model_file = first_file(folders[:1], SENTENCEPIECE_MODELS)
    source.dict_file = first_file(folders, ["dict.txt"])
    return source


def first_file(folders, names):
    """The path of the first file that exists, or None."""
    paths = [os.path.join(folder, name) for folder in folders for name in names]
    return next(filter(os.path.isfile, paths), None)


def check_options(path, options, table):
    """Refuses a configuration with which the model computes something else than ours."""
    for name, (default, expected, problem) in table.items():
        if options.get(name, default) != expected:
            raise UsageError(f"{path}: {name} {options.get(name, default)}: {problem}")


def read_transformers(folder):
    """Reads a folder of transformers; see :func:`read_source`."""
    config = read_json(os.path.join(folder, "config.json"), "the configuration of a transformers model")
    kind = config.get("model_type")
    model_file = first_file([folder], SENTENCEPIECE_MODELS)
    if model_file is None:
        raise UsageError(
            f"{folder}: no SentencePiece model: put the one it was trained with there as "
            f"{' or '.join(SENTENCEPIECE_MODELS)}; WordPiece and byte-level BPE cannot be imported"
        )
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
    sizes = {ours: config.get(theirs, default) for (theirs, ours), default in zip(SIZES.items(), BASE)}
    weights, end = read_weights(folder), "embeddings.word_embeddings.weight"
    prefix = next((name[: -len(end)] for name in weights if name.endswith(end)), "")
    weights = {name[len(prefix) :] if name.startswith(prefix) else name: value for name, value in weights.items()}
    unused = r"^(pooler|classifier|qa_outputs)\.|^embeddings\.(?:position_ids|token_type_ids)$"
    found = our_weights(folder, weights, sizes["encoder_layers"], known[ends], unused)
    return Source(folder, sizes, *found, model_file)


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
    raise MissingFileError(f"{folder}: expected model.safetensors or pytorch_model.bin, whole, beside config.json")
