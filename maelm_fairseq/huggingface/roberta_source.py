"""RoBERTa encoders as fairseq and transformers write them, read into one form, or refused with the reason."""

import os
import re
from dataclasses import dataclass
from typing import Optional

import torch

from ..base.errors import MissingFileError, UsageError
from ..base.files import read_json
from ..checkpoints.reading import read_file
from ..config import MaeLmConfig
from ..engine import utils
from .weights import MASKED_LM, MODEL, ROBERTA, stock_modules

CHECKPOINTS = ["checkpoint_best.pt", "checkpoint_last.pt", "model.pt"]  # the last is what fairseq publishes
SENTENCEPIECE_MODELS = ["sentencepiece.bpe.model", "sentencepiece.model", "spiece.model"]
MODEL_TYPES = ["roberta", "xlm-roberta", "camembert"]
SIZES = {  # in transformers and here; fairseq's roberta has our names
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
# What our encoder computes, by the options of fairseq and of transformers.
FAIRSEQ_OPTIONS = {
    "encoder_normalize_before": False,  # pre-LN
    "layernorm_embedding": True,
    "activation_fn": "gelu",
    "no_scale_embedding": True,
}
TRANSFORMERS_OPTIONS = {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "position_embedding_type": "absolute"}
# Rows of <s>, <pad>, </s> and <unk> in the embedding; the pieces follow after the highest, <mask> is last.
XLM_R_ROWS, CAMEMBERT_ROWS = (0, 1, 2, 3), (5, 1, 6, 3)
# Weights that are left out, with a group for what is worth telling.
UNUSED = re.compile(
    r"(classification_heads\.[^.]+|pooler|classifier|qa_outputs)\..*"
    r"|embeddings\.(?:position_ids|token_type_ids)|(?:en|de)coder\.sentence_encoder\.version"
    # fairseq 0.12.2 has in each layer a copy of its weights, such as fc1_weight of fc1.weight.
    r"|encoder\.sentence_encoder\.layers\.\d+\.(?:in_proj|out_proj|fc1|fc2)_(?:weight|bias)"
)
MODULES = {  # of fairseq's roberta, and their names in transformers
    "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings",
    "layernorm_embedding": "embeddings.LayerNorm",
    "emb_layer_norm": "embeddings.LayerNorm",  # formerly
    "segment_embeddings": "embeddings.token_type_embeddings",  # formerly
    "self_attn.q_proj": ROBERTA.query,
    "self_attn.k_proj": ROBERTA.key,
    "self_attn.v_proj": ROBERTA.value,
    "self_attn.out_proj": ROBERTA.out,
    "self_attn_layer_norm": ROBERTA.attention_norm,
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}


@dataclass
class Source:
    """A RoBERTa encoder, with its language-model head if it has one.

    Attributes:
        path: where it was read, for messages
        sizes: and dropouts, named as in :class:`~maelm_fairseq.config.MaeLmConfig`
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


def first_file(folders, names):
    """The path of the first file that exists, or None."""
    paths = [os.path.join(folder, name) for folder in folders for name in names]
    return next(filter(os.path.isfile, paths), None)


def check_options(path, options, expected):
    """Refuses a configuration with which the model computes something else than ours."""
    for name, value in expected.items():
        if options.get(name, value) != value:
            raise UsageError(f"{path}: {name} {options[name]}, expected {value}, as in RoBERTa and XLM-R")


def read_sizes(options, names):
    """{our name: size or dropout} from options {name: value}; RoBERTa's defaults, which are ours, for missing ones."""
    return {ours: options.get(theirs, getattr(MaeLmConfig, ours)) for theirs, ours in names}


def read_fairseq(path):
    """Reads a checkpoint of fairseq's `roberta`; see :func:`read_source`."""
    state = read_file(path, old=True)
    weights = state.get("model") if isinstance(state, dict) else None
    names = " ".join(map(str, weights)) if isinstance(weights, dict) else ""
    if "embed_tokens.weight encoder.embed_positions.weight" in names:
        raise UsageError(f"{path}: a checkpoint of MAE-LM needs no import: give it to --finetune-from-model")
    if "coder.sentence_encoder.embed_tokens.weight" not in names:
        raise UsageError(f"{path}: not a checkpoint of fairseq's roberta, which has sentence_encoder.embed_tokens")
    if state.get("args") is not None:  # of old
        model = task = state["args"]
    else:
        model, task = state["cfg"]["model"], state["cfg"]["task"]
    check_options(path, model, FAIRSEQ_OPTIONS)
    sizes = read_sizes(model, zip(SIZES.values(), SIZES.values()))
    weights = stock_names(weights)
    weights.setdefault("embeddings.token_type_embeddings.weight", torch.zeros(1, sizes["encoder_embed_dim"]))
    source = Source(path, sizes, *our_weights(path, weights, sizes["encoder_layers"], XLM_R_ROWS))
    folders = [os.path.dirname(os.path.abspath(path)), *utils.split_paths(str(task.get("data") or ""))[:1]]
    source.model_file = first_file(folders[:1], SENTENCEPIECE_MODELS)
    source.dict_file = first_file(folders, ["dict.txt"])
    return source


def read_transformers(folder):
    """Reads a folder of transformers; see :func:`read_source`."""
    config = read_json(os.path.join(folder, "config.json"), dict, "the configuration of a transformers model")
    model_file = first_file([folder], SENTENCEPIECE_MODELS)
    if model_file is None:
        raise UsageError(
            f"{folder}: no SentencePiece model: put the one it was trained with there as "
            f"{' or '.join(SENTENCEPIECE_MODELS)}; WordPiece and byte-level BPE cannot be imported"
        )
    if config.get("model_type") not in MODEL_TYPES:
        raise UsageError(
            f"{folder}: config.json: model_type {config.get('model_type')}, expected {' or '.join(MODEL_TYPES)}"
        )
    check_options(folder, {"layer_norm_eps": 1e-12, **config}, TRANSFORMERS_OPTIONS)  # transformers' default
    sizes = read_sizes(config, SIZES.items())
    weights = {name.removeprefix("roberta."): value for name, value in read_weights(folder).items()}
    rows = CAMEMBERT_ROWS if config.get("bos_token_id") == CAMEMBERT_ROWS[0] else XLM_R_ROWS
    return Source(folder, sizes, *our_weights(folder, weights, sizes["encoder_layers"], rows), model_file)


def read_weights(folder):
    """The weights of a folder of transformers: {name: tensor}."""
    path = os.path.join(folder, "model.safetensors")
    if os.path.isfile(path):
        import safetensors.torch

        try:
            return safetensors.torch.load_file(path)
        except Exception as error:  # the type depends on the version
            raise UsageError(f"{path}: cannot be read ({error}); expected a complete file of transformers") from None
    path = os.path.join(folder, "pytorch_model.bin")
    if os.path.isfile(path):
        return read_file(path, "transformers", old=True)
    raise MissingFileError(f"{folder}: expected model.safetensors or pytorch_model.bin, whole, beside config.json")


def stock_names(weights):
    """Weights of fairseq's `roberta` under the names of transformers, without a prefix; unknown ones as they are.

    Old releases name the encoder `decoder`, and have query, key and value in one matrix, `in_proj_weight` (3C, C).
    """
    found = {}
    for name, value in weights.items():
        joined = re.fullmatch(r"(.*self_attn)\.in_proj_(weight|bias)", name)
        if joined:
            names = [f"{joined[1]}.{part}_proj.{joined[2]}" for part in "qkv"]
            found.update(zip(map(stock_name, names), value.chunk(3)))
        else:
            found[stock_name(name)] = value
    return found


def stock_name(name):
    """The name of one weight; see :func:`stock_names`."""
    head = re.fullmatch(r"(?:en|de)coder\.(lm_head\..+)", name)
    if head:
        return "lm_head.decoder.weight" if head[1] == "lm_head.weight" else head[1]
    known = re.fullmatch(r"(?:en|de)coder\.sentence_encoder\.(?:layers\.(\d+)\.)?(.+)\.(weight|bias)", name)
    if not known or known[2] not in MODULES:
        return name
    layer = f"encoder.layer.{known[1]}." if known[1] else ""
    return f"{layer}{MODULES[known[2]]}.{known[3]}"


def our_weights(path, weights, layers, special_rows):
    """The weights of encoder and language-model head under our names.

    Args:
        path: for messages
        weights: {name: tensor}, named as in transformers without a prefix
        layers: of the encoder
        special_rows: `XLM_R_ROWS` or `CAMEMBERT_ROWS`
    Returns:
        {name: float32 tensor}, with the rows of `embed_tokens` and `lm_head.bias` in fairseq's order; what is left out
    """
    unused = {name: UNUSED.fullmatch(name) for name in weights}
    dropped = {match[1] for match in unused.values() if match and match[1]}
    left = {name: value.float() for name, value in weights.items() if not unused[name]}

    def take(name):
        if name not in left:
            raise UsageError(f"{path}: not the weights of a RoBERTa of its configuration; missing: {name}")
        return left.pop(name)

    found, has_head = {}, any(name.startswith("lm_head.") for name in left)
    for ours, theirs in stock_modules(ROBERTA, MASKED_LM if has_head else MODEL, layers).items():
        for end in ["weight", "bias"]:
            parts = [take(f"{name.removeprefix('roberta.')}.{end}") for name in theirs]
            found[f"{ours}.{end}"] = torch.cat(parts)
    embedding = take("embeddings.word_embeddings.weight")
    rows = [*special_rows, *range(max(special_rows) + 1, len(embedding))]
    found["embed_tokens.weight"] = embedding[rows]
    # One zero row in front is theirs alone; the next is that of padding.
    found["encoder.embed_positions.weight"] = positions = take("embeddings.position_embeddings.weight")[1:].clone()
    types = take("embeddings.token_type_embeddings.weight")
    if not types.equal(types[:1].expand_as(types)):
        raise UsageError(f"{path}: its token types have different embeddings, expected one or equal ones")
    positions[1:] += types[0]
    if has_head:
        # transformers may save either name of what is tied, or both.
        biases = [left.pop(name) for name in ["lm_head.bias", "lm_head.decoder.bias"] if name in left]
        found["lm_head.bias"] = biases[0][rows]
        if not left.pop("lm_head.decoder.weight", embedding).equal(embedding):
            raise UsageError(f"{path}: the language-model head has an embedding of its own, expected the encoder's")
    if left:
        raise UsageError(f"{path}: not the weights of a RoBERTa of its configuration; unknown: {min(left)}")
    return found, sorted(dropped)
