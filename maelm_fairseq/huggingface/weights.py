"""The weights of a model under the names of Hugging Face's stock classes, or of those of modeling_mae_lm.py.

Letters in shapes: C width, F width of the feed-forward layers, H heads, N vocabulary, P positions.
"""

from typing import NamedTuple

import torch

from ..config import MPNET as MPNET_SIZES
from ..engine.errors import InstallationError, UsageError
from ..layers import RelativePositionBias, t5_bucket

BUCKETS = MPNET_SIZES[0]  # MPNetModel has no others, whatever its configuration says


class Layout(NamedTuple):
    """A family of classes, and how transformers' own name what they do not all name alike."""

    model_type: str
    family: str
    query: str = ""
    key: str = ""
    value: str = ""
    out: str = ""
    attention_norm: str = ""


ATTENTION = ["attention.self.query", "attention.self.key", "attention.self.value"]
ROBERTA = Layout("roberta", "Roberta", *ATTENTION, "attention.output.dense", "attention.output.LayerNorm")
MPNET = Layout("mpnet", "MPNet", *(f"attention.attn.{part}" for part in "qkvo"), "attention.LayerNorm")
CODE = Layout("mae_lm", "MaeLm")  # modeling_mae_lm.py
LAYOUTS = {layout.model_type: layout for layout in [ROBERTA, MPNET, CODE]}
FORMATS = {"roberta": ROBERTA, "mpnet": MPNET, "code": CODE}

# What a class has beside the encoder; the families' names go in front.
MODEL, MASKED_LM = "Model", "ForMaskedLM"
SEQUENCE_CLASSIFICATION, QUESTION_ANSWERING = "ForSequenceClassification", "ForQuestionAnswering"


def mpnet_table(relative_bias):
    """The table (32, H) with which MPNet's buckets give the same bias at every distance that the positions allow.

    Buckets that no distance reaches are zero. If distances with different values share a bucket, a ValueError says so.
    """
    P = relative_bias.max_positions
    distance = torch.tensor(sorted(range(1 - P, P), key=abs))
    values = relative_bias.table.weight.detach()[relative_bias.bucket[distance + P]]
    bucket = torch.from_numpy(t5_bucket(distance.numpy(), *MPNET_SIZES))
    table, shortest = values.new_zeros(BUCKETS, values.size(1)), {}
    for i, b in reversed(list(enumerate(bucket.tolist()))):
        table[b], shortest[b] = values[i], i
    different = (table[bucket] != values).any(1).nonzero().flatten().tolist()
    if different:
        i = different[0]
        j = shortest[int(bucket[i])]
        raise UsageError(
            f"its bias at distance {int(distance[i])} differs from that at distance {int(distance[j])} by up to "
            f"{float((values[i] - values[j]).abs().max()):.2g}, but MPNet has one value for both"
        )
    return table


def matching_modules(layout, kind, layers, width, head=None):
    """The modules of encoder and head that are a weight and a bias in both.

    Args:
        layout: one of transformers' own families
        kind: which class of the family: `MODEL`, `MASKED_LM`, ...
        layers, width: of the encoder
        head: our name of the head, for the classes that have one
    Yields:
        our name, theirs, and the rows of ours that theirs has: a slice
    """
    base, whole = base_prefix(layout, kind), slice(None)
    yield "encoder.norm", base + "embeddings.LayerNorm", whole
    for i in range(layers):
        ours, theirs = f"encoder.layers.{i}.", f"{base}encoder.layer.{i}."
        yield ours + "attention.query", theirs + layout.query, whole
        yield ours + "attention.key_value", theirs + layout.key, slice(0, width)
        yield ours + "attention.key_value", theirs + layout.value, slice(width, None)
        yield ours + "attention.out", theirs + layout.out, whole
        yield ours + "attention_norm", theirs + layout.attention_norm, whole
        yield ours + "ffn.0", theirs + "intermediate.dense", whole
        yield ours + "ffn.1", theirs + "output.dense", whole
        yield ours + "ffn_norm", theirs + "output.LayerNorm", whole
    heads = {
        MASKED_LM: {"lm_head.dense": "lm_head.dense", "lm_head.norm": "lm_head.layer_norm"},
        SEQUENCE_CLASSIFICATION: {
            f"classification_heads.{head}.{part}": f"classifier.{part}" for part in ["dense", "out_proj"]
        },
        QUESTION_ANSWERING: {f"classification_heads.{head}": "qa_outputs"},
    }
    for ours, theirs in heads.get(kind, {}).items():
        yield ours, theirs, whole


def base_prefix(layout, kind):
    """What a class puts in front of the names of its encoder."""
    return "" if kind == MODEL else layout.model_type + "."


def convert(model, layout, kind, head=None):
    """The weights of a class of transformers or of modeling_mae_lm.py.

    Args:
        model: :class:`~maelm_fairseq.model.MaeLmModel`
        layout: :class:`Layout`
        kind: which class of the family: `MODEL`, `MASKED_LM`, ...
        head: name of the head, for the classes that have one
    Returns:
        found: {name: tensor}, contiguous copies
        dropped: parts of the model that the class has no place for, such as "decoder"
    Raises:
        ValueError: a weight of the model is unknown
    """
    found, moved = (_code if layout is CODE else _stock)(model, layout, kind, head)
    # The descriptions say what config.json says.
    left = {key for key in model.state_dict().keys() - moved if not key.endswith(("fingerprint", ".description"))}
    parts = {part: part + "." for part in ["decoder", "lm_head"]}
    parts.update({f"head {name}": f"classification_heads.{name}." for name in model.classification_heads})
    dropped = {part for part, prefix in parts.items() if any(key.startswith(prefix) for key in left)}
    unknown = [key for key in left if not key.startswith(tuple(parts.values()))]
    if unknown:
        raise UsageError(f"weights that the export does not know: {', '.join(sorted(unknown))}")
    return {name: value.detach().clone().contiguous() for name, value in found.items()}, sorted(dropped)


def _code(model, layout, kind, head):
    """The weights of a class of modeling_mae_lm.py, {name: tensor}, and the names of the model's that it takes."""
    base = base_prefix(layout, kind)
    prefixes = {part: base + part for part in ["embed_tokens.", "encoder."]}
    if kind == MASKED_LM:
        prefixes.update({part: part for part in ["decoder.", "lm_head."]})
    elif kind != MODEL:
        names = {SEQUENCE_CLASSIFICATION: "classifier.", QUESTION_ANSWERING: "qa_outputs."}
        prefixes[f"classification_heads.{head}."] = names[kind]
    weights = model.state_dict()
    for name, module in model.named_modules():
        if isinstance(module, RelativePositionBias):
            weights[name + ".bucket"] = module.bucket
    found, moved = {}, set()
    for name, value in weights.items():
        for ours, theirs in prefixes.items():
            if name.startswith(ours):
                moved.add(name)
                if not name.endswith(".description"):
                    found[theirs + name[len(ours) :]] = value
    return found, moved


def _stock(model, layout, kind, head):
    """The weights of a class of transformers, {name: tensor}, and the names of the model's that it takes."""
    weights, found = model.state_dict(), {}
    width, base = model.cfg.encoder_embed_dim, base_prefix(layout, kind)
    moved = {"embed_tokens.weight", "encoder.embed_positions.weight"}
    positions = weights["encoder.embed_positions.weight"]
    found[base + "embeddings.word_embeddings.weight"] = weights["embed_tokens.weight"]
    found[base + "embeddings.position_embeddings.weight"] = torch.cat([positions.new_zeros(1, width), positions])
    if layout is ROBERTA:
        found[base + "embeddings.token_type_embeddings.weight"] = positions.new_zeros(2, width)
    else:
        bias, heads = model.encoder.relative_bias, model.cfg.encoder_attention_heads
        table = positions.new_zeros(BUCKETS, heads) if bias is None else mpnet_table(bias)
        found[base + "encoder.relative_attention_bias.weight"] = table
        moved.add("encoder.relative_bias.table.weight")
    for ours, theirs, rows in matching_modules(layout, kind, len(model.encoder.layers), width, head):
        for end in ["weight", "bias"]:
            found[f"{theirs}.{end}"] = weights[f"{ours}.{end}"][rows]
            moved.add(f"{ours}.{end}")
    if kind == MASKED_LM:
        # The second of the two is tied to the first, but not by all versions of transformers.
        found["lm_head.bias"] = found["lm_head.decoder.bias"] = weights["lm_head.bias"]
        moved.add("lm_head.bias")
    return found, moved


def kind_of(config):
    """Which class of its family config.json names: `MODEL`, `MASKED_LM`, ..."""
    return config["architectures"][0][len(LAYOUTS[config["model_type"]].family) :]


def import_safetensors():
    """Imports `safetensors.torch`, or says how to install it."""
    try:
        import safetensors.torch
    except ImportError as error:
        raise InstallationError(
            f"safetensors is not installed ({error}): run `pip install 'maelm_fairseq[huggingface]'`, or "
            "`pip install -e '.[huggingface]'` in the repository"
        ) from None
    return safetensors.torch


def write_weights(weights, path):
    """Writes `model.safetensors`."""
    with open(path, "wb") as stream:  # save_file would make it readable for its owner only
        stream.write(import_safetensors().save(weights, metadata={"format": "pt"}))
