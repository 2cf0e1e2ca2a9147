"""The weights of RoBERTa encoders: from the names of fairseq and of transformers to ours."""

import re

import torch

from ..engine.errors import UsageError
from .weights import MASKED_LM, MODEL, ROBERTA, matching_modules

PRE_LN = "its LayerNorms are in front of attention and feed-forward layers (pre-LN), expected them behind (post-LN)"
UNTIED = "the language-model head has an embedding of its own, expected that of the encoder (tied)"

# Rows of <s>, <pad>, </s> and <unk> in the embedding; the pieces follow after the highest, <mask> is last.
XLM_R_ROWS, CAMEMBERT_ROWS = (0, 1, 2, 3), (5, 1, 6, 3)

# Names of modules in fairseq and in transformers.
IN_ENCODER = {
    "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings",
    "layernorm_embedding": "embeddings.LayerNorm",
    "emb_layer_norm": "embeddings.LayerNorm",  # formerly
    "segment_embeddings": "embeddings.token_type_embeddings",  # formerly
}
IN_LAYER = {
    "self_attn.q_proj": ROBERTA.query,
    "self_attn.k_proj": ROBERTA.key,
    "self_attn.v_proj": ROBERTA.value,
    "self_attn.out_proj": ROBERTA.out,
    "self_attn_layer_norm": ROBERTA.attention_norm,
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}


def stock_names(weights):
    """Weights of fairseq's `roberta` under the names of transformers, without a prefix; unknown ones as they are.

    Old releases name the encoder `decoder`, and have query, key and value in one matrix, `in_proj_weight` (3C, C).
    """
    found = {}
    for name, value in weights.items():
        name = re.sub(r"^decoder\.", "encoder.", name)
        joined = re.fullmatch(r"(.*self_attn)\.in_proj_(weight|bias)", name)
        if joined:
            for part, third in zip("qkv", value.chunk(3)):
                found[stock_name(f"{joined[1]}.{part}_proj.{joined[2]}")] = third
        else:
            found[stock_name(name)] = value
    return found


def stock_name(name):
    """The name of one weight; see :func:`stock_names`."""
    if name == "encoder.lm_head.weight":
        return "lm_head.decoder.weight"
    if name.startswith("encoder.lm_head."):
        return name[len("encoder.") :]
    module, _, end = name.rpartition(".")
    layer = re.fullmatch(r"encoder\.sentence_encoder\.layers\.(\d+)\.(.+)", module)
    if layer and layer[2] in IN_LAYER:
        return f"encoder.layer.{layer[1]}.{IN_LAYER[layer[2]]}.{end}"
    known = IN_ENCODER.get(module[len("encoder.sentence_encoder.") :])
    return f"{known}.{end}" if known else name


def our_weights(path, weights, layers, special_rows, unused):
    """The weights of encoder and language-model head under our names.

    Args:
        path: for messages
        weights: {name: tensor}, named as in transformers without a prefix
        layers: of the encoder
        special_rows: `XLM_R_ROWS` or `CAMEMBERT_ROWS`
        unused: a regular expression of weights to leave out, with a group for what is worth telling
    Returns:
        {name: float32 tensor}, with the rows of `embed_tokens` and `lm_head.bias` in fairseq's order; what is left out
    """
    matches = {name: re.search(unused, name) for name in weights}
    dropped = {match[match.lastindex] for match in matches.values() if match and match.lastindex}
    left = {name: value.float() for name, value in weights.items() if not matches[name]}

    def take(name):
        if name not in left:
            raise UsageError(f"{path}: not the weights of a RoBERTa of its configuration; missing: {name}")
        return left.pop(name)

    has_head, parts = any(name.startswith("lm_head.") for name in left), {}
    for ours, theirs, _ in matching_modules(ROBERTA, MASKED_LM if has_head else MODEL, layers, width=0):
        for end in ["weight", "bias"]:
            parts.setdefault(f"{ours}.{end}", []).append(take(f"{theirs.removeprefix('roberta.')}.{end}"))
    found = {name: torch.cat(values) for name, values in parts.items()}
    embedding = take("embeddings.word_embeddings.weight")
    rows = [*special_rows, *range(max(special_rows) + 1, len(embedding))]
    found["embed_tokens.weight"] = embedding[rows]
    # One zero row in front is theirs alone; the next is that of padding.
    found["encoder.embed_positions.weight"] = positions = take("embeddings.position_embeddings.weight")[1:].clone()
    types = take("embeddings.token_type_embeddings.weight")
    if not torch.equal(types, types[:1].expand_as(types)):
        raise UsageError(f"{path}: its token types have different embeddings, expected one or equal ones")
    positions[1:] += types[0]
    if has_head:
        found["lm_head.bias"] = left.pop("lm_head.bias" if "lm_head.bias" in left else "lm_head.decoder.bias")[rows]
        # transformers may save either name of what is tied, or both.
        left.pop("lm_head.decoder.bias", None)
        if not torch.equal(left.pop("lm_head.decoder.weight", embedding), embedding):
            raise UsageError(f"{path}: {UNTIED}")
    if left:
        raise UsageError(f"{path}: not the weights of a RoBERTa of its configuration; unknown: {min(left)}")
    return found, sorted(dropped)
