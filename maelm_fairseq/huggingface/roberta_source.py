"""RoBERTa encoders as fairseq and transformers write them, read into one form, or refused with the reason."""

import os
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Dict, Optional

import torch

from ..base.errors import MissingFileError, UsageError
from ..base.files import read_json, shown, typed
from ..base.vocabulary_files import NAMES, read_subwords
from ..checkpoints.reading import read_file
from ..engine import utils
from .weights import MASKED_LM, MODEL, ROBERTA, stock_modules

CHECKPOINTS = ["checkpoint_best.pt", "checkpoint_last.pt", "model.pt"]  # the last is what fairseq publishes
MODEL_TYPES = ["roberta", "xlm-roberta", "camembert"]
OPTIONS = {  # of fairseq, and ours: (name in transformers, RoBERTa's value); the weights show those without a value
    "encoder_layers": ("num_hidden_layers", None),
    "encoder_embed_dim": ("hidden_size", None),
    "encoder_ffn_embed_dim": ("intermediate_size", None),
    "encoder_attention_heads": ("num_attention_heads", 12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
}
# What our encoder computes, by the options of fairseq and of transformers.
FAIRSEQ_OPTIONS = {
    "encoder_normalize_before": False,  # pre-LN
    "layernorm_embedding": True,
    "activation_fn": "gelu",
    "no_scale_embedding": True,
}
TRANSFORMERS_OPTIONS = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "position_embedding_type": "absolute",
    "pad_token_id": 1,
    "is_decoder": False,
    "add_cross_attention": False,
}
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
class FairseqCheckpoint:
    """The contents of a file of fairseq's; old releases have `args` in place of `cfg`."""

    model: Dict[str, torch.Tensor]
    args: Optional[Dict[str, Any]] = None
    cfg: Optional[Dict[str, Any]] = None


@dataclass
class Source:
    """A RoBERTa encoder, with its language-model head if it has one.

    Attributes:
        path: where it was read, for messages
        sizes: and dropouts, named as in :class:`~maelm_fairseq.config.MaeLmConfig`
        weights: {name: float32 tensor}, named as ours
        dropped: parts that were left out, such as "pooler"
        new: parts that were added, such as "2 words"
        model_file: the SentencePiece model or tokenizer.json, or None
        dict_file: fairseq's dict.txt, or None
    """

    path: str
    sizes: dict
    weights: dict
    dropped: list
    model_file: Optional[str] = None
    dict_file: Optional[str] = None
    new: list = field(default_factory=list)

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
        ValueError: it cannot be read, or computes something else than RoBERTa
    """
    path = os.fspath(path)
    if not os.path.isdir(path):
        if path.endswith((".safetensors", ".bin", ".json")):
            raise UsageError(f"{path}: a file of a transformers model; give the folder that contains it")
        return read_fairseq(path)
    if os.path.isfile(os.path.join(path, "config.json")):
        return read_transformers(path)
    if first_file(CHECKPOINTS, path):
        return read_fairseq(first_file(CHECKPOINTS, path))
    files = ", ".join(sorted(os.listdir(path))) or "nothing"
    raise MissingFileError(f"{path}: expected config.json (transformers) or {' or '.join(CHECKPOINTS)}, found {files}")


def first_file(names, *folders):
    """The path of the first file that exists, or None."""
    paths = [os.path.join(folder, name) for folder in folders for name in names]
    return next(filter(os.path.isfile, paths), None)


def check_options(path, options, expected, model="RoBERTa and XLM-R"):
    """Refuses options of other values than expected; those that are missing have them."""
    for name, value in expected.items():
        if options.get(name, value) != value:
            raise UsageError(f"{path}: {name} {shown(options[name])}, expected {shown(value)}, as in {model}")


def read_fairseq(path):
    """Reads a checkpoint of fairseq's `roberta`; see :func:`read_source`."""
    state = typed(FairseqCheckpoint, read_file(path, old=True), path)
    names = " ".join(map(str, state.model))
    if "embed_tokens.weight encoder.embed_positions.weight" in names:
        raise UsageError(f"{path}: a checkpoint of MAE-LM needs no import: give it to --finetune-from-model")
    if "coder.sentence_encoder.embed_tokens.weight" not in names:
        raise UsageError(f"{path}: not a checkpoint of fairseq's roberta, which has sentence_encoder.embed_tokens")
    sections = [state.args] * 2 if state.args else [(state.cfg or {}).get(part) for part in ["model", "task"]]
    model, task = (typed(Optional[Dict[str, Any]], section, path) or {} for section in sections)
    check_options(path, model, FAIRSEQ_OPTIONS)
    source = make_source(path, stock_names(state.model), XLM_R_ROWS, model)
    folder = os.path.dirname(os.path.abspath(path))
    source.model_file = first_file(NAMES, folder)
    source.dict_file = first_file(["dict.txt"], folder, *utils.split_paths(str(task.get("data") or ""))[:1])
    return source


def read_transformers(folder):
    """Reads a folder of transformers; see :func:`read_source`."""
    path = os.path.join(folder, "config.json")
    config = read_json(path, Dict[str, Any], "the configuration of a transformers model", "download it again")
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise UsageError(f"{path}: model_type {shown(model_type)}, expected {' or '.join(MODEL_TYPES)}")
    check_options(path, {"layer_norm_eps": 1e-12, **config}, TRANSFORMERS_OPTIONS)  # transformers' default
    weights = {str(name).removeprefix("roberta."): value for name, value in read_weights(folder).items()}
    rows = CAMEMBERT_ROWS if config.get("bos_token_id") == CAMEMBERT_ROWS[0] else XLM_R_ROWS
    source = make_source(path, weights, rows, config, in_transformers=True)
    tokenizer = read_subwords(folder)
    source.path, source.model_file, symbols = folder, tokenizer.path, len(tokenizer.symbols)
    if len(source.weights["embed_tokens.weight"]) > symbols:  # rounded up
        source.dropped.append("rows of the embedding without a token")
    for name in source.weights.keys() & {"embed_tokens.weight", "lm_head.bias"}:
        source.weights[name] = source.weights[name][:symbols]
    return source


def make_source(path, weights, special_rows, config, in_transformers=False):
    """A :class:`Source` of weights, whose shapes a configuration must not contradict.

    Args:
        path: of the configuration, for messages
        weights: {name: tensor}, named as in transformers without a prefix
        special_rows: `XLM_R_ROWS` or `CAMEMBERT_ROWS`; `embed_tokens` and `lm_head.bias` get fairseq's order
        config: {option: value}
        in_transformers: whether its options are named as in transformers
    """
    unused = list(filter(None, map(UNUSED.fullmatch, weights)))
    left = {name: weights[name] for name in weights.keys() - {match[0] for match in unused}}
    take = partial(take_weight, path, left)
    has_head = any(name.startswith("lm_head.") for name in left)
    layers = len({name.split(".")[2] for name in left if name.startswith("encoder.layer.")})
    embedding = take("embeddings.word_embeddings.weight", "any", "any")
    N, C = embedding.shape
    F = len(take_weight(path, dict(left), "encoder.layer.0.intermediate.dense.bias", "any"))  # only looked at here
    converted = {}
    for ours, theirs in stock_modules(ROBERTA, MASKED_LM if has_head else MODEL, layers).items():
        rows, columns = F if ours.endswith("ffn.0") else C, F if ours.endswith("ffn.1") else C
        for end, shape in {"weight": [rows] if "norm" in ours else [rows, columns], "bias": [rows]}.items():
            parts = [take(f"{name.removeprefix('roberta.')}.{end}", *shape) for name in theirs]
            converted[f"{ours}.{end}"] = torch.cat(parts)
    # Of embeddings with fewer rows than these, the number is not that of any vocabulary.
    rows = [row for row in [*special_rows, *range(max(special_rows) + 1, N)] if row < N]
    converted["embed_tokens.weight"] = embedding[rows]
    # One zero row in front is theirs alone; the next is that of padding.
    positions = take("embeddings.position_embeddings.weight", "any", C)[1:].clone()
    converted["encoder.embed_positions.weight"] = positions
    types = "embeddings.token_type_embeddings.weight"
    if types in left:  # not in fairseq
        types = take(types, "any", C)
        if len(types.unique(dim=0)) != 1:
            raise UsageError(f"{path}: its token types have different embeddings, expected one or equal ones")
        positions[1:] += types[0]
    if has_head:
        # transformers may save either name of what is tied, or both.
        left.setdefault("lm_head.bias", left.pop("lm_head.decoder.bias", None))
        converted["lm_head.bias"] = take("lm_head.bias", N)[rows]
        tied = "lm_head.decoder.weight"
        if tied in left and not take(tied, N, C).equal(embedding):
            raise UsageError(f"{path}: the language-model head has an embedding of its own, expected the encoder's")
    if left:
        raise UsageError(f"{path}: not the weights of a RoBERTa; unknown: {min(left)}")
    sizes = dict(encoder_layers=layers, encoder_embed_dim=C, encoder_ffn_embed_dim=F)
    for option, (theirs, default) in OPTIONS.items():
        name = theirs if in_transformers else option
        if default is None:
            check_options(path, config, {name: sizes[option]}, "its weights")
        else:
            sizes[option] = typed(type(default), config.get(name, default), f"{path}: {name}")
    return Source(path, sizes, converted, sorted({match[1] for match in unused if match[1]}))


def take_weight(path, weights, name, *shape):
    """Takes a weight of this shape out of `weights`, as float32; "any" stands for any size."""
    value, found, expected = weights.pop(name, None), "nothing", " x ".join(map(str, shape))
    if value is not None:
        found = " x ".join(map(str, value.shape)) if value.is_floating_point() else str(value.dtype)
        found = found if torch.isfinite(value).all() else "NaN or infinity"
    if not re.fullmatch(expected.replace("any", "[0-9]+"), found):
        raise UsageError(f"{path}: not the weights of a RoBERTa: {name}: found {found}, expected {expected} numbers")
    return value.float()


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
        return typed(Dict[str, torch.Tensor], read_file(path, "transformers", old=True), path)
    raise MissingFileError(f"{folder}: expected model.safetensors or pytorch_model.bin, whole, beside config.json")


def stock_names(weights):
    """Weights of fairseq's `roberta` under the names of transformers, without a prefix; unknown ones as they are.

    Old releases name the encoder `decoder`, and have query, key and value in one matrix, `in_proj_weight` (3C, C).
    """
    renamed = {}
    for name, value in weights.items():
        joined = re.fullmatch(r"(.*self_attn)\.in_proj_(weight|bias)", str(name))
        names = [f"{joined[1]}.{part}_proj.{joined[2]}" for part in "qkv"] if joined else [str(name)]
        renamed.update(zip(map(stock_name, names), torch.atleast_1d(value).chunk(len(names))))
    return renamed


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
