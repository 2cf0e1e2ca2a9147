"""The weights of a model under the names of Hugging Face's stock classes, or of those of
modeling_mae_lm.py.

Letters in shapes: C width, H heads.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..config import MPNET_SIZES as MPNET_SIZES
from ..heads import (
    MeanClassificationHead,
    SequenceClassificationHead,
    SpanHead,
    TokenClassificationHead,
)
from ..layers import RelativePositionBias, t5_bucket

MPNET_BUCKETS = MPNET_SIZES[0]  # MPNetModel has no others, whatever its configuration says


class Layout(NamedTuple):
    """A family of classes, and their names of the modules that transformers does not name alike."""

    model_type: str
    family: str
    query: str = ""
    key: str = ""
    value: str = ""
    out: str = ""
    attention_norm: str = ""


ROBERTA_ATTENTION = ["attention.self.query", "attention.self.key", "attention.self.value"]
ROBERTA = Layout(
    "roberta", "Roberta", *ROBERTA_ATTENTION, "attention.output.dense", "attention.output.LayerNorm"
)
MPNET = Layout(
    "mpnet", "MPNet", *(f"attention.attn.{part}" for part in "qkvo"), "attention.LayerNorm"
)
CODE = Layout("mae_lm", "MaeLm")  # modeling_mae_lm.py

# The suffixes of the names of classes, by what they have besides the encoder: the class
# `ROBERTA.family + MASKED_LM` is RobertaForMaskedLM.
MODEL = "Model"
MASKED_LM = "ForMaskedLM"
SEQUENCE_CLASSIFICATION = "ForSequenceClassification"
QUESTION_ANSWERING = "ForQuestionAnswering"
TOKEN_CLASSIFICATION = "ForTokenClassification"
SUFFIX_OF_HEAD = {
    SequenceClassificationHead: SEQUENCE_CLASSIFICATION,
    MeanClassificationHead: SEQUENCE_CLASSIFICATION,
    TokenClassificationHead: TOKEN_CLASSIFICATION,
    SpanHead: QUESTION_ANSWERING,
}
# The modules of a head, {name here: exported name}; {} is our name of the head. A language-model
# head keeps its names in modeling_mae_lm.py.
HEAD_MODULES = {
    MODEL: {},
    MASKED_LM: {"lm_head.dense": "lm_head.dense", "lm_head.norm": "lm_head.layer_norm"},
    SEQUENCE_CLASSIFICATION: {
        "classification_heads.{}.dense": "classifier.dense",
        "classification_heads.{}.out_proj": "classifier.out_proj",
    },
    TOKEN_CLASSIFICATION: {"classification_heads.{}.out_proj": "classifier"},
    QUESTION_ANSWERING: {"classification_heads.{}": "qa_outputs"},
}


def mpnet_table(relative_bias):
    """The table (32, H) with which MPNet's buckets give the same bias.

    They do so at every distance that the positions allow. Buckets that no distance reaches are
    zero. The result is None if distances with different values share a bucket.
    """
    P = relative_bias.max_positions
    distance = torch.arange(1 - P, P)
    values = relative_bias.table.weight.detach()[relative_bias.bucket[distance + P]]
    bucket = torch.from_numpy(t5_bucket(distance.numpy(), *MPNET_SIZES))
    table = values.new_zeros(MPNET_BUCKETS, values.size(1))
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


def choose_suffix(model, layout, head, masks_in_encoder):
    """The suffix of the class that the model becomes: `MODEL`, `MASKED_LM`, ...

    The head is None for a model without one.
    """
    if head is not None:
        return SUFFIX_OF_HEAD[type(head)]
    is_mlm = model.decoder is None and masks_in_encoder
    can_predict = is_mlm or layout is CODE  # stock classes have no decoder
    return MASKED_LM if model.lm_head is not None and can_predict else MODEL


def base_prefix(layout, suffix):
    """What a class puts before the names of its encoder."""
    return "" if suffix == MODEL else layout.model_type + "."


def stock_modules(layout, suffix, layers, head=None):
    """The modules of encoder and head that are a weight and a bias, here and in transformers.

    The arguments are as for `weights_for_transformers`.

    Returns: {name here: list of exported names}; where there are several, the module here has their
        rows one after the other
    """
    base = base_prefix(layout, suffix)
    modules = {"encoder.norm": [base + "embeddings.LayerNorm"]}
    for i in range(layers):
        own, exported = f"encoder.layers.{i}.", f"{base}encoder.layer.{i}."
        modules[own + "attention.query"] = [exported + layout.query]
        modules[own + "attention.key_value"] = [exported + layout.key, exported + layout.value]
        modules[own + "attention.out"] = [exported + layout.out]
        modules[own + "attention_norm"] = [exported + layout.attention_norm]
        modules[own + "ffn.0"] = [exported + "intermediate.dense"]
        modules[own + "ffn.1"] = [exported + "output.dense"]
        modules[own + "ffn_norm"] = [exported + "output.LayerNorm"]
    modules.update({own.format(head): [exported] for own, exported in HEAD_MODULES[suffix].items()})
    return modules


def weights_for_transformers(model, layout, suffix, head=None):
    """The weights of a class of transformers or of modeling_mae_lm.py.

    Args:
        model: `model.MaeLmModel`
        layout: `Layout`
        suffix: of the class's name: `MODEL`, `MASKED_LM`, ...
        head: our name of the head, for the classes that have one
    Returns:
        {name: tensor}, contiguous copies
        the names of the model's weights that the class has no place for, a set
    """
    left = dict(model.state_dict())
    take = _code_weights if layout is CODE else _stock_weights
    converted = take(model, left, layout, suffix, head)
    copies = {name: value.detach().clone().contiguous() for name, value in converted.items()}
    return copies, set(left)


def _code_weights(model, left, layout, suffix, head):
    """Takes the weights of a class of modeling_mae_lm.py out of `left`, {name here: tensor}.

    Returns: {exported name: tensor}
    """
    prefixes = {part: base_prefix(layout, suffix) + part for part in ["embed_tokens.", "encoder."]}
    if suffix == MASKED_LM:
        prefixes.update({part: part for part in ["decoder.", "lm_head."]})
    else:
        for own, exported in HEAD_MODULES[suffix].items():
            prefixes[own.format(head) + "."] = exported + "."
    for name, module in model.named_modules():
        if isinstance(module, RelativePositionBias):
            left[name + ".bucket"] = module.bucket
    converted = {}
    for own, exported in prefixes.items():
        for name in [name for name in left if name.startswith(own)]:
            converted[exported + name[len(own) :]] = left.pop(name)
    if suffix == MASKED_LM:
        converted["lm_head.decoder.bias"] = converted.pop("lm_head.bias")
    return converted


def _stock_weights(model, left, layout, suffix, head):
    """Takes the weights of a class of transformers out of `left`, {name here: tensor}.

    Returns: {exported name: tensor}
    """
    base = base_prefix(layout, suffix)
    embeddings = base + "embeddings."
    positions = left.pop("encoder.embed_positions.weight")
    converted = {
        embeddings + "word_embeddings.weight": left.pop("embed_tokens.weight"),
        # In transformers, positions begin one row later.
        embeddings + "position_embeddings.weight": F.pad(positions, (0, 0, 1, 0)),
    }
    if layout is ROBERTA:
        types = positions.new_zeros(2, positions.size(1))
        converted[embeddings + "token_type_embeddings.weight"] = types
    else:
        table = mpnet_table(model.encoder.relative_bias)
        converted[base + "encoder.relative_attention_bias.weight"] = table
        del left["encoder.relative_bias.table.weight"]
    for own, exported in stock_modules(layout, suffix, len(model.encoder.layers), head).items():
        for end in ["weight", "bias"]:
            parts = left.pop(f"{own}.{end}").chunk(len(exported))
            for name, part in zip(exported, parts):
                converted[f"{name}.{end}"] = part
    if suffix == MASKED_LM:
        # The second of the two is tied to the first, but not by all versions of transformers.
        bias = left.pop("lm_head.bias")
        converted["lm_head.bias"] = bias
        converted["lm_head.decoder.bias"] = bias
    return converted
