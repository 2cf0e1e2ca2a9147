"""The weights of a model under the names of Hugging Face's stock classes, or of those of
modeling_mae_lm.py.

Letters in shapes: C width, H heads.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..config import MPNET_SIZES
from ..heads import SequenceClassificationHead
from ..layers import RelativePositionBias, t5_bucket
from .export_kinds import ENCODER, MASKED_LM, kind_of_head

MPNET_BUCKETS = MPNET_SIZES[0]  # MPNetModel has no others, whatever its configuration says


class ClassFamily(NamedTuple):
    """A family of classes, and the module names in which they differ."""

    model_type: str
    class_prefix: str  # of the names of its classes
    query: str = ""
    key: str = ""
    value: str = ""
    out: str = ""
    attention_norm: str = ""


ROBERTA_ATTENTION = ["attention.self.query", "attention.self.key", "attention.self.value"]
ROBERTA = ClassFamily(
    "roberta", "Roberta", *ROBERTA_ATTENTION, "attention.output.dense", "attention.output.LayerNorm"
)
MPNET = ClassFamily(
    "mpnet", "MPNet", *(f"attention.attn.{part}" for part in "qkvo"), "attention.LayerNorm"
)
OWN_CLASSES = ClassFamily("mae_lm", "MaeLm")  # modeling_mae_lm.py


def mpnet_table(relative_bias):
    """The table (32, H) with which MPNet's buckets give the same bias.

    This holds at every distance between two positions. Buckets without such a distance are zero.
    The result is None if distances with different values share a bucket.
    """
    P = relative_bias.max_positions
    distance = torch.arange(1 - P, P)
    values = relative_bias.table.weight.detach()[relative_bias.bucket[distance + P]]
    bucket = torch.from_numpy(t5_bucket(distance.numpy(), *MPNET_SIZES))
    table = values.new_zeros(MPNET_BUCKETS, values.size(1))
    table[bucket] = values
    return table if table[bucket].equal(values) else None


def choose_family(model, head):
    """The first family of classes that computes exactly what the model and its head do."""
    if isinstance(head, SequenceClassificationHead) and not head.reads_first_token_alone:
        return OWN_CLASSES
    bias = model.encoder.relative_bias
    if bias is None:
        return ROBERTA
    return OWN_CLASSES if mpnet_table(bias) is None else MPNET


def choose_kind(model, family, head, masks_in_encoder):
    """The `ExportKind` that the model becomes.

    The head is a module, or None for a model without one.
    """
    if head is not None:
        return kind_of_head(head)
    is_mlm = model.decoder is None and masks_in_encoder
    can_predict = is_mlm or family is OWN_CLASSES  # stock classes have no decoder
    return MASKED_LM if model.lm_head is not None and can_predict else ENCODER


def base_prefix(family, kind):
    """What a class puts before the names of its encoder's weights."""
    return "" if kind is ENCODER else family.model_type + "."


def stock_modules(family, kind, num_layers, head_name=None):
    """The modules of encoder and head that are a weight and a bias, here and in transformers.

    The arguments are as for `weights_for_transformers`.

    Returns: {native name: list of exported names}; where there are several, the native module has
        their rows one after the other
    """
    base = base_prefix(family, kind)
    modules = {"encoder.norm": [base + "embeddings.LayerNorm"]}
    for i in range(num_layers):
        native, exported = f"encoder.layers.{i}.", f"{base}encoder.layer.{i}."
        modules[native + "attention.query"] = [exported + family.query]
        modules[native + "attention.key_value"] = [exported + family.key, exported + family.value]
        modules[native + "attention.out"] = [exported + family.out]
        modules[native + "attention_norm"] = [exported + family.attention_norm]
        modules[native + "ffn.0"] = [exported + "intermediate.dense"]
        modules[native + "ffn.1"] = [exported + "output.dense"]
        modules[native + "ffn_norm"] = [exported + "output.LayerNorm"]
    for native, exported in kind.head_modules.items():
        modules[native.format(head_name)] = [exported]
    return modules


def weights_for_transformers(model, family, kind, head_name=None):
    """The weights of a class of transformers or of modeling_mae_lm.py.

    Args:
        model: `model.MaeLmModel`
        family: `ClassFamily`
        kind: `ExportKind`
        head_name: our name of the head, for the classes that have one
    Returns:
        {name: tensor}, contiguous copies
        the names of the model's weights that the class does not have, a set
    """
    remaining = dict(model.state_dict())
    convert = weights_of_own_classes if family is OWN_CLASSES else weights_of_stock_classes
    converted = convert(model, remaining, family, kind, head_name)
    copies = {name: value.detach().clone().contiguous() for name, value in converted.items()}
    return copies, set(remaining)


def weights_of_own_classes(model, remaining, family, kind, head_name):
    """Takes the weights of a class of modeling_mae_lm.py out of `remaining`.

    That is {native name: tensor}. Returns: {exported name: tensor}
    """
    base = base_prefix(family, kind)
    prefixes = {part: base + part for part in ["embed_tokens.", "encoder."]}
    if kind is MASKED_LM:
        prefixes.update({part: part for part in ["decoder.", "lm_head."]})
    else:
        for native, exported in kind.head_modules.items():
            prefixes[native.format(head_name) + "."] = exported + "."
    for name, module in model.named_modules():
        if isinstance(module, RelativePositionBias):
            remaining[name + ".bucket"] = module.bucket
    converted = {}
    for native, exported in prefixes.items():
        for name in [name for name in remaining if name.startswith(native)]:
            converted[exported + name[len(native) :]] = remaining.pop(name)
    if kind is MASKED_LM:
        converted["lm_head.decoder.bias"] = converted.pop("lm_head.bias")
    return converted


def weights_of_stock_classes(model, remaining, family, kind, head_name):
    """Takes the weights of a class of transformers out of `remaining`, {native name: tensor}.

    Returns: {exported name: tensor}
    """
    base = base_prefix(family, kind)
    embeddings = base + "embeddings."
    positions = remaining.pop("encoder.embed_positions.weight")
    converted = {
        embeddings + "word_embeddings.weight": remaining.pop("embed_tokens.weight"),
        # In transformers, positions begin one row later.
        embeddings + "position_embeddings.weight": F.pad(positions, (0, 0, 1, 0)),
    }
    if family is ROBERTA:
        types = positions.new_zeros(2, positions.size(1))
        converted[embeddings + "token_type_embeddings.weight"] = types
    else:
        table = mpnet_table(model.encoder.relative_bias)
        converted[base + "encoder.relative_attention_bias.weight"] = table
        del remaining["encoder.relative_bias.table.weight"]
    modules = stock_modules(family, kind, len(model.encoder.layers), head_name)
    for native, exported_names in modules.items():
        for end in ["weight", "bias"]:
            parts = remaining.pop(f"{native}.{end}").chunk(len(exported_names))
            for exported, part in zip(exported_names, parts):
                converted[f"{exported}.{end}"] = part
    if kind is MASKED_LM:
        # The second of the two is tied to the first, but not by all versions of transformers.
        bias = remaining.pop("lm_head.bias")
        converted["lm_head.bias"] = bias
        converted["lm_head.decoder.bias"] = bias
    return converted
