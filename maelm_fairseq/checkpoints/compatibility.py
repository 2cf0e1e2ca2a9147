"""What a checkpoint says of its model, and whether that is the model it is to be loaded into."""

from dataclasses import replace

import torch

from ..base.errors import UsageError
from ..base.settings import option
from ..base.typed_values import typed
from ..config import MaeLmConfig
from ..vocabulary import FINGERPRINT, fingerprint

# Of the encoder: these must be the same wherever its weights are used.
ENCODER = ["encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "max_positions"]
ENCODER += ["relative_position_num_buckets", "relative_position_max_distance", "relative_position_buckets"]
ENCODER += ["layer_norm_eps"]
# A resumed run must not change these either.
OTHERS = ["decoder_layers", "share_decoder_layers", "decoder_relative_bias", "classification_pooling"]


def model_configuration(weights, options, path):
    """The configuration of the model of a checkpoint; sizes are those of its weights, whatever the options say.

    Of the options, {name: value}, unknown ones are ignored.

    Returns: `config.MaeLmConfig`
    Raises ValueError: an option has a value of another type
    """
    cfg = typed(MaeLmConfig, options, f"{path}: model")

    def size(key, dimension=0):
        return weights[key].size(dimension) if key in weights and weights[key].dim() > dimension else 0

    def layers(part):
        return sum(key.startswith(part + ".layers.") and key.endswith(".ffn_norm.bias") for key in weights)

    sizes = {
        "encoder_layers": layers("encoder"),
        "encoder_embed_dim": size("embed_tokens.weight", 1),
        "encoder_ffn_embed_dim": size("encoder.layers.0.ffn.0.weight"),
        "max_positions": size("encoder.embed_positions.weight") - 1,
        "relative_position_num_buckets": size("encoder.relative_bias.table.weight"),
    }
    if sizes["relative_position_num_buckets"]:
        sizes["encoder_attention_heads"] = size("encoder.relative_bias.table.weight", 1)
    if "lm_head.bias" in weights and not cfg.share_decoder_layers:
        sizes["decoder_layers"] = layers("decoder")
        sizes["decoder_relative_bias"] = "decoder.relative_bias.table.weight" in weights
    return replace(cfg, **sizes)


def check_vocabulary(state, dictionary, path):
    """Refuses a checkpoint, from `building.as_checkpoint`, that was trained with another dictionary."""
    if state["task_state"][FINGERPRINT] != fingerprint(dictionary):
        symbols = len(state["model"]["embed_tokens.weight"])
        raise UsageError(
            f"{path}: trained with another dict.txt: that has {symbols:,} symbols and this one {len(dictionary):,}, "
            "with special symbols and <mask>, and they or their order differ; use the one it was trained with"
        )


def compare_configurations(theirs, ours, names, path):
    """Refuses a checkpoint of another model, naming each option that differs, of those in `names`.

    The attributes of `theirs` are the options of the checkpoint, those of `ours` of the model to load it into.
    """
    pairs = [(name, getattr(theirs, name), getattr(ours, name)) for name in names]
    different = [f"{option(name)} {a} in the checkpoint, {b} here" for name, a, b in pairs if str(a) != str(b)]
    if different:
        raise UsageError(f"{path}: the checkpoint is of another model: {'; '.join(different)}")


def check_weights(weights, own, path):
    """Refuses weights that are not a model's own, by name and shape, or are not finite; both are state dicts.

    Returns: the weights in the model's precision
    """
    for name, weight in weights.items():
        if not weight.is_floating_point():
            raise UsageError(f"{path}: weight {name!r} contains {weight.dtype}; use an earlier checkpoint")
    weights = {name: weight.to(own[name].dtype) if name in own else weight for name, weight in weights.items()}
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise UsageError(
                f"{path}: weight {name!r} contains NaN or infinity: its training diverged; use an earlier checkpoint"
            )
    theirs, ours = ({name: tuple(weight.shape) for name, weight in each.items()} for each in (weights, own))
    for name in {**ours, **theirs}:
        if theirs.get(name) != ours.get(name):
            raise UsageError(
                f"{path}: damaged, or of another version: weight {name!r} has the shape {theirs.get(name, 'none')}, "
                f"expected {ours.get(name, 'none')}"
            )
    return weights
