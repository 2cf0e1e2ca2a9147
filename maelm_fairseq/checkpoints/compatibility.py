"""What a checkpoint says of its model, and whether that is the model to load it into."""

from dataclasses import replace

import torch

from ..base.errors import UsageError
from ..base.option_fields import option_name
from ..base.typed_values import as_type
from ..config import MaeLmConfig
from ..state_dicts import has_lm_head, weight_shapes
from ..vocabulary import FINGERPRINT, fingerprint

# Options of the encoder: these must be the same wherever its weights are used.
ENCODER_OPTIONS = [
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "max_positions",
    "relative_position_num_buckets",
    "relative_position_max_distance",
    "relative_position_buckets",
    "layer_norm_eps",
]
# A resumed run must not change these either.
OPTIONS_FIXED_ON_RESUME = [
    "decoder_layers",
    "share_decoder_layers",
    "decoder_relative_bias",
    "classification_pooling",
]


def model_configuration(weights, options, path):
    """The configuration of the model of a checkpoint.

    Its sizes are taken from the weights, whatever the options say.

    Args:
        weights: {name: tensor}
        options: {name: value}, of which unknown ones are ignored
        path: path of the checkpoint, for the message
    Returns: `config.MaeLmConfig`
    Raises UsageError: an option has a value of another type
    """
    cfg = as_type(MaeLmConfig, options, f"{path}: model")

    def size(key, dimension=0):
        if key not in weights or weights[key].dim() <= dimension:
            return 0
        return weights[key].size(dimension)

    def layers(part):
        keys = [key for key in weights if key.startswith(part + ".layers.")]
        return sum(key.endswith(".ffn_norm.bias") for key in keys)

    sizes = {
        "encoder_layers": layers("encoder"),
        "encoder_embed_dim": size("embed_tokens.weight", 1),
        "encoder_ffn_embed_dim": size("encoder.layers.0.ffn.0.weight"),
        "max_positions": size("encoder.embed_positions.weight") - 1,
        "relative_position_num_buckets": size("encoder.relative_bias.table.weight"),
    }
    if sizes["relative_position_num_buckets"]:
        sizes["encoder_attention_heads"] = size("encoder.relative_bias.table.weight", 1)
    if has_lm_head(weights) and not cfg.share_decoder_layers:
        sizes["decoder_layers"] = layers("decoder")
        sizes["decoder_relative_bias"] = "decoder.relative_bias.table.weight" in weights
    return replace(cfg, **sizes)


def check_vocabulary(checkpoint, dictionary, path):
    """Refuses a checkpoint that was trained with another dictionary.

    `checkpoint` is what `building.upgraded_checkpoint` returned.
    """
    if checkpoint["task_state"][FINGERPRINT] != fingerprint(dictionary):
        symbols = len(checkpoint["model"]["embed_tokens.weight"])
        raise UsageError(
            f"{path}: trained with another dict.txt, of {symbols:,} symbols with special ones and "
            f"<mask>; this one has {len(dictionary):,}, and the symbols or their order differ; use "
            "the dict.txt that it was trained with"
        )


def check_configuration(saved, cfg, names, path):
    """Refuses a checkpoint of another model; the error says which options differ.

    Args:
        saved: the options of the checkpoint, {name: value}
        cfg: options of the model to load it into, as attributes
        names: names of the options that are compared
        path: path of the checkpoint
    """
    different = []
    for name in names:
        in_checkpoint = saved[name]
        here = getattr(cfg, name)
        if str(in_checkpoint) != str(here):
            different.append(f"{option_name(name)} {in_checkpoint} in the checkpoint, {here} here")
    if different:
        raise UsageError(
            f"{path}: the checkpoint is of another model: {'; '.join(different)}; give the "
            "checkpoint's options, or use another checkpoint or folder"
        )


def check_weights(weights, model_weights, path):
    """Refuses weights of a checkpoint that a model cannot have.

    Args:
        weights: a state dict
        model_weights: the state dict of the model
        path: path of the checkpoint
    Raises:
        UsageError: they differ from the model's own in name or shape, are not floating-point
            numbers, or are not finite in the precision of the model
    """
    for name, weight in weights.items():
        if not weight.is_floating_point():
            raise UsageError(
                f"{path}: weight {name!r} contains {weight.dtype}; use an earlier checkpoint"
            )
    for name, weight in weights.items():
        dtype = model_weights[name].dtype if name in model_weights else weight.dtype
        if not torch.isfinite(weight.to(dtype)).all():
            raise UsageError(
                f"{path}: weight {name!r} contains NaN or infinity: its training diverged; use an "
                "earlier checkpoint"
            )
    shapes = weight_shapes(weights)
    model_shapes = weight_shapes(model_weights)
    for name in {**model_shapes, **shapes}:
        shape = shapes.get(name, "none")
        expected = model_shapes.get(name, "none")
        if shape != expected:
            raise UsageError(
                f"{path}: damaged, or written by another version: weight {name!r} has the "
                f"shape {shape}, expected {expected}"
            )
