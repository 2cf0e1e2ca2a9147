"""The weights of a model under the names of Hugging Face's stock classes, or of those of modeling_mae_lm.py.

Letters in shapes: C width, H heads.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..config import MPNET as MPNET_SIZES
from ..heads import MeanClassificationHead, SequenceClassificationHead, SpanHead, TokenClassificationHead
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

# What a class has beside the encoder; the families' names go in front.
MODEL, MASKED_LM = "Model", "ForMaskedLM"
SEQUENCE_CLASSIFICATION, QUESTION_ANSWERING = "ForSequenceClassification", "ForQuestionAnswering"
TOKEN_CLASSIFICATION = "ForTokenClassification"
HEADS = {
    SequenceClassificationHead: SEQUENCE_CLASSIFICATION,
    MeanClassificationHead: SEQUENCE_CLASSIFICATION,
    TokenClassificationHead: TOKEN_CLASSIFICATION,
    SpanHead: QUESTION_ANSWERING,
}
HEAD_MODULES = {  # of a head, {} being its name, and theirs; the code keeps our names of a language-model head
    MODEL: {},
    MASKED_LM: {"lm_head.dense": "lm_head.dense", "lm_head.norm": "lm_head.layer_norm"},
    SEQUENCE_CLASSIFICATION: {f"classification_heads.{{}}.{x}": f"classifier.{x}" for x in ["dense", "out_proj"]},
    TOKEN_CLASSIFICATION: {"classification_heads.{}.out_proj": "classifier"},
    QUESTION_ANSWERING: {"classification_heads.{}": "qa_outputs"},
}


def mpnet_table(relative_bias):
    """The table (32, H) with which MPNet's buckets give the same bias at every distance that the positions allow.

    Buckets that no distance reaches are zero. None if distances with different values share a bucket.
    """
    P = relative_bias.max_positions
    distance = torch.arange(1 - P, P)
    values = relative_bias.table.weight.detach()[relative_bias.bucket[distance + P]]
    bucket = torch.from_numpy(t5_bucket(distance.numpy(), *MPNET_SIZES))
    table = values.new_zeros(BUCKETS, values.size(1))
    table[bucket] = values
    return table if table[bucket].equal(values) else None


def choose_layout(model, head):
    """The first family of classes that computes exactly what the model and its head do."""
    if isinstance(head, MeanClassificationHead):
        return CODE  # stock heads read the first token
    bias = model.encoder.relative_bias
    if bias is None:
        return ROBERTA
    return CODE if mpnet_table(bias) is None else MPNET


def choose_kind(model, layout, head, masks_in_encoder):
    """Which class of the family the model with its head, or None, becomes: `MODEL`, `MASKED_LM`, ..."""
    if head is not None:
        return HEADS[type(head)]
    mlm = model.decoder is None and masks_in_encoder
    return MASKED_LM if model.lm_head is not None and (mlm or layout is CODE) else MODEL


def base_prefix(layout, kind):
    """What a class puts before the names of its encoder."""
    return "" if kind == MODEL else layout.model_type + "."


def stock_modules(layout, kind, layers, head=None):
    """The modules of encoder and head that are a weight and a bias in both; arguments are as for `convert`.

    Returns: {our name: list of theirs}; where they have several, ours has their rows one after the other
    """
    base = base_prefix(layout, kind)
    modules = {"encoder.norm": [base + "embeddings.LayerNorm"]}
    for i in range(layers):
        ours, theirs = f"encoder.layers.{i}.", f"{base}encoder.layer.{i}."
        modules[ours + "attention.query"] = [theirs + layout.query]
        modules[ours + "attention.key_value"] = [theirs + layout.key, theirs + layout.value]
        modules[ours + "attention.out"] = [theirs + layout.out]
        modules[ours + "attention_norm"] = [theirs + layout.attention_norm]
        modules[ours + "ffn.0"] = [theirs + "intermediate.dense"]
        modules[ours + "ffn.1"] = [theirs + "output.dense"]
        modules[ours + "ffn_norm"] = [theirs + "output.LayerNorm"]
    modules.update({ours.format(head): [theirs] for ours, theirs in HEAD_MODULES[kind].items()})
    return modules


def convert(model, layout, kind, head=None):
    """The weights of a class of transformers or of modeling_mae_lm.py.

    Args:
        model: `model.MaeLmModel`
        layout: `Layout`
        kind: which class of the family: `MODEL`, `MASKED_LM`, ...
        head: our name of the head, for the classes that have one
    Returns: {name: tensor}, contiguous copies; the names of the model's weights that the class has no place for: a set
    """
    left = dict(model.state_dict())
    converted = (_code_weights if layout is CODE else _stock_weights)(model, left, layout, kind, head)
    return {name: value.detach().clone().contiguous() for name, value in converted.items()}, set(left)


def _code_weights(model, left, layout, kind, head):
    """Takes the weights of a class of modeling_mae_lm.py out of `left`, {our name: tensor}: {their name: tensor}."""
    prefixes = {part: base_prefix(layout, kind) + part for part in ["embed_tokens.", "encoder."]}
    if kind == MASKED_LM:
        prefixes.update({part: part for part in ["decoder.", "lm_head."]})
    else:
        prefixes.update({ours.format(head) + ".": theirs + "." for ours, theirs in HEAD_MODULES[kind].items()})
    for name, module in model.named_modules():
        if isinstance(module, RelativePositionBias):
            left[name + ".bucket"] = module.bucket
    converted = {}
    for ours, theirs in prefixes.items():
        for name in [name for name in left if name.startswith(ours)]:
            converted[theirs + name[len(ours) :]] = left.pop(name)
    if kind == MASKED_LM:
        converted["lm_head.decoder.bias"] = converted.pop("lm_head.bias")
    return converted


def _stock_weights(model, left, layout, kind, head):
    """Takes the weights of a class of transformers out of `left`, {our name: tensor}: {their name: tensor}."""
    base, positions = base_prefix(layout, kind), left.pop("encoder.embed_positions.weight")
    converted = {
        base + "embeddings.word_embeddings.weight": left.pop("embed_tokens.weight"),
        base + "embeddings.position_embeddings.weight": F.pad(positions, (0, 0, 1, 0)),  # theirs begin a row later
    }
    if layout is ROBERTA:
        converted[base + "embeddings.token_type_embeddings.weight"] = positions.new_zeros(2, positions.size(1))
    else:
        converted[base + "encoder.relative_attention_bias.weight"] = mpnet_table(model.encoder.relative_bias)
        del left["encoder.relative_bias.table.weight"]
    for ours, theirs in stock_modules(layout, kind, len(model.encoder.layers), head).items():
        for end in ["weight", "bias"]:
            parts = left.pop(f"{ours}.{end}").chunk(len(theirs))
            converted.update({f"{name}.{end}": part for name, part in zip(theirs, parts)})
    if kind == MASKED_LM:
        # The second of the two is tied to the first, but not by all versions of transformers.
        converted["lm_head.bias"] = converted["lm_head.decoder.bias"] = left.pop("lm_head.bias")
    return converted
