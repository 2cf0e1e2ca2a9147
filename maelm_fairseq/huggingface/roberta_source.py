"""RoBERTa encoders as transformers writes them, read into our form, or refused with the reason."""

import os
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Dict

import torch

from ..base.byte_level_tokenizer import TOKENIZER_JSON
from ..base.errors import MissingFileError, UsageError
from ..base.json_files import read_json
from ..base.opening import as_usage_error
from ..base.typed_values import as_type, short_repr
from ..base.vocabulary_files import read_tokenizer
from ..checkpoints.compatibility import model_configuration
from ..checkpoints.reading import read_torch_file
from ..state_dicts import has_lm_head
from .export_kinds import ENCODER, MASKED_LM
from .weights import ROBERTA, stock_modules

MODEL_TYPES = ["roberta", "xlm-roberta", "camembert"]
SIZE_NAMES = {  # {our name: name in transformers}
    "encoder_layers": "num_hidden_layers",
    "encoder_embed_dim": "hidden_size",
    "encoder_ffn_embed_dim": "intermediate_size",
}
OPTIONS_OF_TRANSFORMERS = {  # {our name: (name in transformers, default there)}
    "encoder_attention_heads": ("num_attention_heads", 12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "layer_norm_eps": ("layer_norm_eps", 1e-12),
}
REQUIRED_OPTIONS = {  # what our encoder computes
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "pad_token_id": 1,
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
# Rows of <s>, <pad>, </s> and <unk> in the embedding. The pieces follow after the highest of these;
# <mask> is last.
XLM_R_ROWS = (0, 1, 2, 3)
CAMEMBERT_ROWS = (5, 1, 6, 3)
PEFT_CONFIG = "adapter_config.json"  # PEFT's, whose weights are added to another folder's
ANY_SIZE = None  # of a dimension of a weight
# Weights that are left out; the group is what the user is told of them.
UNUSED_WEIGHTS = re.compile(
    r"(pooler|classifier|qa_outputs)\..*|embeddings\.(?:position_ids|token_type_ids)"
)


@dataclass
class RobertaSource:
    """A RoBERTa encoder, with its language-model head if it has one."""

    path: str  # of its folder, for messages
    tokenizer: Any
    sizes: dict  # and dropouts, named as in MaeLmConfig
    weights: dict  # {name: float32 tensor}, named as here
    dropped: list  # parts that were left out, such as "pooler"
    new: list = field(default_factory=list)  # parts that were added, such as "2 words"

    @property
    def has_head(self):
        return has_lm_head(self.weights)


def read_source(folder):
    """Reads the folder of a Hugging Face model, with `config.json`, weights and vocabulary.

    Nothing in it is executed.

    Returns: `RobertaSource`
    Raises:
        FileNotFoundError: a file is missing
        UsageError: it cannot be read, or computes something other than RoBERTa
    """
    path = os.path.join(folder, "config.json")
    config = read_config(folder, path)
    original_weights = {}
    for name, value in read_weights(folder).items():
        original_weights[str(name).removeprefix("roberta.")] = value
    is_camembert = config.get("bos_token_id") == CAMEMBERT_ROWS[0]
    special_rows = CAMEMBERT_ROWS if is_camembert else XLM_R_ROWS
    weights, dropped = weights_under_our_names(path, original_weights, special_rows)
    cfg = vars(model_configuration(weights, {}, path))
    sizes = {name_there: cfg[native_name] for native_name, name_there in SIZE_NAMES.items()}
    sizes["vocab_size"] = len(original_weights["embeddings.word_embeddings.weight"])
    positions = original_weights["embeddings.position_embeddings.weight"]
    sizes["max_position_embeddings"] = len(positions)
    check_options(path, config, sizes, "its weights")
    options = {name: cfg[name] for name in SIZE_NAMES}
    for native_name, (name, default) in OPTIONS_OF_TRANSFORMERS.items():
        options[native_name] = as_type(type(default), config.get(name, default), f"{path}: {name}")
    tokenizer = read_tokenizer(folder)
    refuse_added_tokens(folder, tokenizer)
    if len(weights["embed_tokens.weight"]) > len(tokenizer.symbols):  # their number is rounded up
        dropped.append("rows of the embedding without a token")
    for name in weights.keys() & {"embed_tokens.weight", "lm_head.bias"}:
        weights[name] = weights[name][: len(tokenizer.symbols)]
    return RobertaSource(folder, tokenizer, options, weights, dropped)


def read_config(folder, path):
    """The contents of config.json, at `path` in a folder: a dict, of a model that is a RoBERTa."""
    if not os.path.isfile(path):
        if os.path.isfile(os.path.join(folder, PEFT_CONFIG)):
            raise UsageError(
                f"{folder}: found {PEFT_CONFIG}, expected whole weights: merge the adapter first, "
                "by merge_and_unload() and save_pretrained() of PEFT, and import the folder that "
                "it writes"
            )
        hint = "checkpoints of MAE-LM need no import: give them to --finetune-from-model"
        raise MissingFileError(
            f"{path}: not found, expected the folder of a Hugging Face model; {hint}"
        )
    expected = "the configuration of a transformers model"
    config = read_json(path, Dict[str, Any], expected, "download it again")
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        types = " or ".join(MODEL_TYPES)
        raise UsageError(f"{path}: model_type {short_repr(model_type)}, expected {types}")
    check_options(path, config, REQUIRED_OPTIONS, "RoBERTa and XLM-R")
    return config


def refuse_added_tokens(folder, tokenizer):
    """Refuses tokens that were added to tokenizer.json only, beside a SentencePiece model."""
    path = os.path.join(folder, TOKENIZER_JSON)
    if tokenizer.path == path or not os.path.exists(path):
        return
    contents = read_json(path, dict, "a tokenizer of transformers", "download it again")
    added = []
    for token in contents.get("added_tokens", []):
        if not token["special"] and token["content"] not in tokenizer.symbols:
            added.append(token["content"])
    if added:
        raise UsageError(
            f"{path}: found tokens that {tokenizer.path} lacks, {', '.join(added)[:200]}, expected "
            "none: their embeddings would be lost; take the model from before they were added"
        )


def check_options(path, options, expected, model):
    """Refuses options whose values are not the expected ones; missing options have these."""
    for name, value in expected.items():
        if options.get(name, value) != value:
            found = f"{path}: {name} {short_repr(options[name])}"
            raise UsageError(f"{found}, expected {short_repr(value)}, as in {model}")


def weights_under_our_names(path, weights, special_rows):
    """Weights under our names.

    Args:
        path: of their configuration, for messages
        weights: {name: tensor}, named as in transformers without a prefix
        special_rows: `XLM_R_ROWS` or `CAMEMBERT_ROWS`; `embed_tokens` and `lm_head.bias` get
            fairseq's order
    Returns: {name: float32 tensor}; the parts that were left out, a list
    """
    unused = list(filter(None, map(UNUSED_WEIGHTS.fullmatch, weights)))
    remaining = {name: weights[name] for name in weights.keys() - {match[0] for match in unused}}
    take = partial(take_weight, path, remaining)
    has_head = any(name.startswith("lm_head.") for name in remaining)
    embedding = take("embeddings.word_embeddings.weight", ANY_SIZE, ANY_SIZE)
    N, C = embedding.shape
    converted = convert_modules(path, remaining, MASKED_LM if has_head else ENCODER, C)
    # A damaged embedding may have fewer rows than the special ones; it is refused later, as no
    # vocabulary has so few symbols.
    rows = [row for row in [*special_rows, *range(max(special_rows) + 1, N)] if row < N]
    converted["embed_tokens.weight"] = embedding[rows]
    # The first row, of zeros, has no equivalent here; the next is for padding.
    positions = take("embeddings.position_embeddings.weight", ANY_SIZE, C)[1:].clone()
    types = take("embeddings.token_type_embeddings.weight", ANY_SIZE, C)
    if len(types.unique(dim=0)) != 1:
        raise UsageError(
            f"{path}: its token types have different embeddings, expected one or equal ones"
        )
    positions[1:] += types[0]
    converted["encoder.embed_positions.weight"] = positions
    if has_head:
        # The two biases are tied: transformers may save either name, or both.
        remaining.setdefault("lm_head.bias", remaining.pop("lm_head.decoder.bias", None))
        converted["lm_head.bias"] = take("lm_head.bias", N)[rows]
        tied = "lm_head.decoder.weight"
        if tied in remaining and not take(tied, N, C).equal(embedding):
            raise UsageError(
                f"{path}: the language-model head has an embedding of its own, expected the "
                "encoder's"
            )
    if remaining:
        raise UsageError(f"{path}: not the weights of a RoBERTa; unknown: {min(remaining)}")
    return converted, sorted({match[1] for match in unused if match[1]})


def convert_modules(path, remaining, kind, C):
    """Takes the weights and biases of layers and norms out of `remaining`: {our name: tensor}.

    Args:
        path: path of the configuration, for messages
        remaining: {name in transformers, without a prefix: tensor}
        kind: `MASKED_LM` or `ENCODER`
        C: width
    """
    layers = len({name.split(".")[2] for name in remaining if name.startswith("encoder.layer.")})
    # Taken from a copy: the loop below takes this bias, too.
    F = len(take_weight(path, dict(remaining), "encoder.layer.0.intermediate.dense.bias", ANY_SIZE))
    converted = {}
    for native_name, exported_names in stock_modules(ROBERTA, kind, layers).items():
        rows = F if native_name.endswith("ffn.0") else C
        columns = F if native_name.endswith("ffn.1") else C
        weight = [rows] if "norm" in native_name else [rows, columns]
        for end, shape in {"weight": weight, "bias": [rows]}.items():
            names = [f"{name.removeprefix('roberta.')}.{end}" for name in exported_names]
            parts = [take_weight(path, remaining, name, *shape) for name in names]
            converted[f"{native_name}.{end}"] = torch.cat(parts)
    return converted


def take_weight(path, weights, name, *shape):
    """Takes a weight of this shape out of `weights`, as float32; ANY_SIZE stands for any size."""
    value = weights.pop(name, None)
    found = fault_of_weight(value, shape)
    if found:
        expected = " x ".join("any" if size is ANY_SIZE else str(size) for size in shape)
        raise UsageError(
            f"{path}: not the weights of a RoBERTa: {name}: found {found}, expected {expected} "
            "numbers"
        )
    return value.float()


def fault_of_weight(value, shape):
    """What is wrong with a weight that should have this shape, in words; None if nothing is."""
    if value is None:
        return "nothing"
    if not value.is_floating_point():
        return str(value.dtype)
    if not torch.isfinite(value).all():
        return "NaN or infinity"
    is_size_right = [size in (ANY_SIZE, found) for size, found in zip(shape, value.shape)]
    if value.dim() != len(shape) or not all(is_size_right):
        return " x ".join(map(str, value.shape))
    return None


def read_weights(folder):
    """The weights of a Hugging Face model in a folder: {name: tensor}."""
    path = os.path.join(folder, "model.safetensors")
    if os.path.isfile(path):
        import safetensors.torch

        with as_usage_error(path, "a complete file of transformers", "copy or download it again"):
            return safetensors.torch.load_file(path)
    path = os.path.join(folder, "pytorch_model.bin")
    if os.path.isfile(path):
        return as_type(
            Dict[str, torch.Tensor],
            read_torch_file(path, "transformers", allow_old_format=True),
            path,
        )
    raise MissingFileError(
        f"{folder}: expected model.safetensors or pytorch_model.bin, whole, beside config.json"
    )
