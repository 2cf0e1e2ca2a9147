"""The weights of a model under the names of Hugging Face's stock classes, or of those of modeling_mae_lm.py.

Letters in shapes: C width, F width of the feed-forward layers, H heads, N vocabulary, P positions.
"""

from dataclasses import dataclass

import torch

from ..errors import InstallationError, UsageError
from ..layers import RelativePositionBias, t5_bucket
from ..sizes import MPNET as MPNET_SIZES

BUCKETS = MPNET_SIZES[0]  # MPNetModel has no others, whatever its configuration says


@dataclass(frozen=True)
class Layout:
    """A family of classes."""

    model_type: str
    family: str


@dataclass(frozen=True)
class StockLayout(Layout):
    """A family of transformers' own classes, and how they name what they do not all name alike."""

    query: str
    key: str
    value: str
    out: str
    attention_norm: str


ROBERTA = StockLayout(
    model_type="roberta",
    family="Roberta",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    out="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
)
MPNET = StockLayout(
    model_type="mpnet",
    family="MPNet",
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    out="attention.attn.o",
    attention_norm="attention.LayerNorm",
)
CODE = Layout(model_type="mae_lm", family="MaeLm")  # modeling_mae_lm.py
LAYOUTS = {layout.model_type: layout for layout in [ROBERTA, MPNET, CODE]}
FORMATS = {"roberta": ROBERTA, "mpnet": MPNET, "code": CODE}

# What a class has beside the encoder; the families' names go in front.
MODEL, MASKED_LM = "Model", "ForMaskedLM"
SEQUENCE_CLASSIFICATION, QUESTION_ANSWERING = "ForSequenceClassification", "ForQuestionAnswering"


def mpnet_table(relative_bias):
    """The table with which MPNet's buckets give the same bias at every distance that the model's positions allow.

    Args:
        relative_bias: :class:`~maelm_fairseq.layers.RelativePositionBias`
    Returns:
        (32, H); zeros in buckets that no distance reaches
    Raises:
        ValueError: distances with different values share a bucket
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


def matching_modules(layout, kind, layers, width):
    """The modules of encoder and language-model head that are a weight and a bias in both.

    Args:
        layout: :class:`Layout`
        kind: which class of the family: `MODEL`, `MASKED_LM`, ...
        layers, width: of the encoder
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
    if kind == MASKED_LM:
        yield "lm_head.dense", "lm_head.dense", whole
        yield "lm_head.norm", "lm_head.layer_norm", whole


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
    left = model.state_dict().keys() - moved
    dropped = {part for part in ["decoder", "lm_head"] if any(key.startswith(part + ".") for key in left)}
    dropped |= {"head " + name for name in model.classification_heads if name != head}
    known = ["decoder.", "lm_head.", *(f"classification_heads.{n}." for n in model.classification_heads if n != head)]
    # The descriptions say what config.json says.
    known += ["dictionary_fingerprint", "encoder.relative_bias.description", f"classification_heads.{head}.description"]
    unknown = [key for key in left if not key.startswith(tuple(known))]
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
    width = model.cfg.encoder_embed_dim
    base = base_prefix(layout, kind)

    def move(ours, theirs, rows=slice(None)):
        for end in ["weight", "bias"]:
            found[f"{theirs}.{end}"] = weights[f"{ours}.{end}"][rows]
            moved.add(f"{ours}.{end}")

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
    for names in matching_modules(layout, kind, len(model.encoder.layers), width):
        move(*names)
    if kind == MASKED_LM:
        # The second of the two is tied to the first, but not by all versions of transformers.
        found["lm_head.bias"] = found["lm_head.decoder.bias"] = weights["lm_head.bias"]
        moved.add("lm_head.bias")
    elif kind == SEQUENCE_CLASSIFICATION:
        move(f"classification_heads.{head}.dense", "classifier.dense")
        move(f"classification_heads.{head}.out_proj", "classifier.out_proj")
    elif kind == QUESTION_ANSWERING:
        move(f"classification_heads.{head}", "qa_outputs")
    return found, moved


def kind_of(config):
    """Which class of its family config.json names: `MODEL`, `MASKED_LM`, ..."""
    return config["architectures"][0][len(LAYOUTS[config["model_type"]].family) :]


def stock_shapes(config):
    """The weights of a stock class as transformers builds it, without the untrained pooler: {name: shape}.

    Args:
        config: contents of config.json
    """
    layout, kind = LAYOUTS[config["model_type"]], kind_of(config)
    C, F, N = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    base, shapes = base_prefix(layout, kind), {}

    def linear(name, outputs, inputs=C):
        shapes[name + ".weight"], shapes[name + ".bias"] = (outputs, inputs), (outputs,)

    def norm(name):
        shapes[name + ".weight"] = shapes[name + ".bias"] = (C,)

    shapes[base + "embeddings.word_embeddings.weight"] = (N, C)
    shapes[base + "embeddings.position_embeddings.weight"] = (config["max_position_embeddings"], C)
    norm(base + "embeddings.LayerNorm")
    if layout is ROBERTA:
        shapes[base + "embeddings.token_type_embeddings.weight"] = (config["type_vocab_size"], C)
    else:
        shapes[base + "encoder.relative_attention_bias.weight"] = (BUCKETS, config["num_attention_heads"])
    for i in range(config["num_hidden_layers"]):
        layer = f"{base}encoder.layer.{i}."
        for part in [layout.query, layout.key, layout.value, layout.out]:
            linear(layer + part, C)
        norm(layer + layout.attention_norm)
        linear(layer + "intermediate.dense", F)
        linear(layer + "output.dense", C, F)
        norm(layer + "output.LayerNorm")
    if kind == MASKED_LM:
        linear("lm_head.dense", C)
        norm("lm_head.layer_norm")
        shapes["lm_head.bias"] = shapes["lm_head.decoder.bias"] = (N,)
    elif kind == SEQUENCE_CLASSIFICATION:
        linear("classifier.dense", C)
        linear("classifier.out_proj", len(config["id2label"]))
    elif kind == QUESTION_ANSWERING:
        linear("qa_outputs", 2)
    return shapes


def check_shapes(weights, config):
    """Refuses weights that are not exactly those of the class that config.json names."""
    expected, found = stock_shapes(config), {name: tuple(value.shape) for name, value in weights.items()}
    different = [
        f"{name} {found.get(name, 'missing')} instead of {expected.get(name, 'none')}"
        for name in sorted({*expected, *found})
        if expected.get(name) != found.get(name)
    ]
    if different:
        raise UsageError(f"{config['architectures'][0]} does not fit: {'; '.join(different)}")


def import_safetensors():
    """Imports `safetensors.torch`.

    Raises:
        ImportError: it is not installed
    """
    try:
        import safetensors.torch
    except ImportError as error:
        raise InstallationError(
            f"safetensors is not installed ({error}): run `pip install 'maelm_fairseq[huggingface]'`, or "
            "`pip install -e '.[huggingface]'` in the repository"
        ) from None
    return safetensors.torch


def write_weights(weights, path):
    """Writes `model.safetensors`, reads it back, and compares.

    Raises:
        ValueError: what was written is not what was read back
    """
    library = import_safetensors()
    with open(path, "wb") as stream:  # save_file would make it readable for its owner only
        stream.write(library.save(weights, metadata={"format": "pt"}))
    written = library.load_file(path)
    if written.keys() != weights.keys() or any(not torch.equal(written[name], weights[name]) for name in weights):
        raise UsageError(f"{path}: what was written cannot be read back: check the disk")
