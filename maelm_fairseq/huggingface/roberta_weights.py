"""The weights of RoBERTa encoders: from the names of fairseq and of transformers to ours.

Letters in shapes: C width, N vocabulary.
"""

import re

import torch

from ..errors import UsageError
from .weights import MASKED_LM, MODEL, ROBERTA, base_prefix, matching_modules, stock_shapes

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


def sort_weights(path, weights, config, unused):
    """Separates the weights of RobertaForMaskedLM, or RobertaModel, from those that are not needed.

    Args:
        path: for messages
        weights: {name: tensor}, named as in transformers without a prefix
        config: sizes as in config.json; those that only the weights tell are added to it
        unused: a regular expression of weights that may be left out, with a group for what to call them,
            or none if nobody needs to know
    Returns:
        weights: exactly those of the class, float32
        dropped: list of names
    Raises:
        ValueError: weights are missing, unknown or of another shape, or the head is not tied to the embedding
    """
    if not all(torch.is_tensor(value) for value in weights.values()):
        raise UsageError(f"{path}: not the weights of a model, which are tensors")
    matches = {name: re.search(unused, name) for name in weights}
    dropped = {match[match.lastindex] for match in matches.values() if match and match.lastindex}
    weights = {name: value.float() for name, value in weights.items() if not matches[name]}
    head = {name: weights.pop(name) for name in list(weights) if name.startswith("lm_head.")}
    embedding = weights.get("embeddings.word_embeddings.weight", torch.empty(0, 0))
    if not torch.equal(head.pop("lm_head.decoder.weight", embedding), embedding):
        raise UsageError(f"{path}: {UNTIED}")
    tied = ["lm_head.bias", "lm_head.decoder.bias"]  # either may have been saved
    biases = [head[name] for name in tied if name in head]
    if biases:
        if not torch.equal(biases[0], biases[-1]):
            raise UsageError(f"{path}: {' and '.join(tied)} differ, expected tied ones")
        head.update(dict.fromkeys(tied, biases[0]))
    kind = MASKED_LM if head else MODEL

    def rows(name):
        return len(weights.get(f"embeddings.{name}.weight", []))

    config.update(
        architectures=[ROBERTA.family + kind],
        model_type=ROBERTA.model_type,
        vocab_size=rows("word_embeddings"),
        max_position_embeddings=rows("position_embeddings"),
        type_vocab_size=rows("token_type_embeddings"),
    )
    base, shapes = base_prefix(ROBERTA, kind), stock_shapes(config)
    check_complete(path, {**weights, **head}, {name.replace(base, "", 1): shape for name, shape in shapes.items()})
    return {**{base + name: value for name, value in weights.items()}, **head}, sorted(dropped)


def check_complete(path, weights, shapes):
    """Refuses weights that are not exactly those of the shapes {name: shape}."""
    missing = sorted(shapes.keys() - weights.keys())
    unknown = sorted(weights.keys() - shapes.keys())
    differing = [
        f"{name} {tuple(weights[name].shape)} instead of {shape}"
        for name, shape in sorted(shapes.items())
        if name in weights and tuple(weights[name].shape) != shape
    ]
    problems = [
        f"{title}: {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        for title, names in [("missing", missing), ("unknown", unknown), ("of another shape", differing)]
        if names
    ]
    if problems:
        raise UsageError(f"{path}: not the weights of a RoBERTa of its configuration; {'; '.join(problems)}")


def our_weights(source):
    """The weights of encoder and language-model head under our names.

    Args:
        source: :class:`~maelm_fairseq.huggingface.roberta_source.Source`
    Returns:
        {name: float32 tensor}, with the rows of `embed_tokens` and `lm_head.bias` in fairseq's order
    Raises:
        ValueError: there are several token types
    """
    weights, width = source.weights, source.config["hidden_size"]
    kind = MASKED_LM if source.has_head else MODEL
    base = base_prefix(ROBERTA, kind) + "embeddings."
    types = weights[base + "token_type_embeddings.weight"]
    if not torch.equal(types, types[:1].expand_as(types)):
        raise UsageError(f"{source.path}: its token types have different embeddings, expected one or equal ones")
    # One zero row in front is theirs alone; the next is that of padding.
    positions = weights[base + "position_embeddings.weight"][1:].clone()
    positions[1:] += types[0]
    rows = [*source.special_rows, *range(max(source.special_rows) + 1, source.config["vocab_size"])]
    parts = {}
    for ours, theirs, _ in matching_modules(ROBERTA, kind, source.config["num_hidden_layers"], width):
        for end in ["weight", "bias"]:
            parts.setdefault(f"{ours}.{end}", []).append(weights[f"{theirs}.{end}"])
    found = {name: torch.cat(values) for name, values in parts.items()}
    found["embed_tokens.weight"] = weights[base + "word_embeddings.weight"][rows]
    found["encoder.embed_positions.weight"] = positions
    if source.has_head:
        found["lm_head.bias"] = weights["lm_head.bias"][rows]
    return found
