"""Checks of a model's sizes, against each other, against the data, and against a checkpoint; and of its weights."""

import torch

from .errors import UsageError
from .layers import BUCKETS, T5

MPNET = (32, 128)  # buckets and maximum distance of Hugging Face's MPNet, which its configuration cannot change
MINIMUM = {
    "encoder_layers": 1,
    "encoder_embed_dim": 1,
    "encoder_ffn_embed_dim": 1,
    "encoder_attention_heads": 1,
    "decoder_layers": 0,
    "max_positions": 2,  # <s> and a token
    "relative_position_num_buckets": 0,
    "relative_position_max_distance": 0,
}
MAXIMUM = 2**31 - 1


def option(name):
    """The option of a field: --max-positions for max_positions."""
    return "--" + name.replace("_", "-")


def check_sizes(cfg):
    """Refuses sizes that are out of range or contradict each other."""
    for name, minimum in MINIMUM.items():
        value = getattr(cfg, name)
        if type(value) is not int or value > MAXIMUM:
            raise UsageError(f"{option(name)} {str(value)[:60]} must be a whole number, at most {MAXIMUM}")
        if value < minimum:
            raise UsageError(f"{option(name)} {value} must be at least {minimum}")
    if str(cfg.relative_position_buckets) not in BUCKETS:
        raise UsageError(
            f"--relative-position-buckets {str(cfg.relative_position_buckets)[:60]} must be {' or '.join(BUCKETS)}"
        )
    width, heads = cfg.encoder_embed_dim, cfg.encoder_attention_heads
    num_buckets, max_distance = cfg.relative_position_num_buckets, cfg.relative_position_max_distance
    if width % heads:
        raise UsageError(f"--encoder-attention-heads {heads} must divide --encoder-embed-dim {width}")
    if num_buckets % 2 or num_buckets == 2:
        raise UsageError(
            f"--relative-position-num-buckets {num_buckets} must be even and at least 4 (half for each direction), "
            "or 0 for no bias"
        )
    if num_buckets and max_distance - 1 <= num_buckets // 4:
        raise UsageError(
            f"--relative-position-max-distance {max_distance} must be over {num_buckets // 4 + 1}: with "
            f"--relative-position-num-buckets {num_buckets} distances below {num_buckets // 4} have a bucket each"
        )
    if str(cfg.relative_position_buckets) == T5 and (num_buckets, max_distance) != MPNET:
        raise UsageError(
            f"--relative-position-buckets {T5} needs --relative-position-num-buckets {MPNET[0]} (it is {num_buckets}) "
            f"and --relative-position-max-distance {MPNET[1]} (it is {max_distance}): MPNet has no others"
        )
    for name in ["dropout", "attention_dropout", "decoder_dropout", "pooler_dropout"]:
        value = getattr(cfg, name)
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise UsageError(
                f"{option(name)} {str(value)[:60]} must be at least 0 and less than 1: it is the share that is dropped"
            )
    if cfg.share_decoder_layers:
        if not 1 <= cfg.decoder_layers <= cfg.encoder_layers:
            raise UsageError(
                f"--share-decoder-layers: --decoder-layers {cfg.decoder_layers} must be from 1 to --encoder-layers "
                f"{cfg.encoder_layers}, of which they are the last"
            )
        if cfg.decoder_dropout:
            raise UsageError(
                f"--decoder-dropout {cfg.decoder_dropout} contradicts --share-decoder-layers: the layers have the "
                "--dropout and --attention-dropout of the encoder; remove it"
            )
    for name in ["decoder_relative_bias", "relative_position_local_init"]:
        if getattr(cfg, name) and not num_buckets:
            raise UsageError(f"{option(name)} needs --relative-position-num-buckets over 0")


def check_positions(length, positions, what, fix, model="the model"):
    """Refuses sequences longer than a model has positions for.

    Args:
        length: tokens of the longest
        positions: of the model
        what: for the message: which sequences, with their length
        fix: for the message: what to do
        model: for the message: which model
    """
    if length > positions:
        raise UsageError(f"{what}, but {model} has {positions} positions: {fix}")


def stored_sizes(weights):
    """The sizes that the weights of a model show: {option: size}, 0 for what is not there.

    Args:
        weights: state dict
    """

    def shape(key, dim=0):
        return weights[key].size(dim) if key in weights and weights[key].dim() > dim else 0

    def described(place):
        key = "encoder.relative_bias.description"
        return int(weights[key][place]) if shape(key) > place else 0

    def layers(part):
        return sum(k.startswith(part + ".layers.") and k.endswith(".ffn_norm.bias") for k in weights)

    return {
        "vocabulary (dict.txt)": shape("embed_tokens.weight"),
        "--encoder-layers": layers("encoder"),
        "--encoder-embed-dim": shape("embed_tokens.weight", 1),
        "--encoder-ffn-embed-dim": shape("encoder.layers.0.ffn.0.weight"),
        "--encoder-attention-heads": shape("encoder.relative_bias.table.weight", 1),
        "--decoder-layers": layers("decoder"),
        "--max-positions": shape("encoder.embed_positions.weight") - 1,
        "--relative-position-num-buckets": shape("encoder.relative_bias.table.weight"),
        "--relative-position-buckets": dict(enumerate(BUCKETS)).get(described(0), f"number {described(0)}"),
        "--relative-position-max-distance": described(1),
        "--decoder-relative-bias": shape("decoder.relative_bias.table.weight") > 0,
    }


def check_stored_sizes(weights, cfg, vocabulary):
    """Refuses weights that are not of the configuration stored beside them, before a model of its sizes is built.

    Args:
        weights: state dict
        cfg: the model's configuration
        vocabulary: number of symbols in the dictionary
    """
    shown, said = stored_sizes(weights), {"vocabulary (dict.txt)": vocabulary}
    names = ["encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "max_positions"]
    names += ["relative_position_num_buckets"] + ["decoder_layers"] * ("lm_head.bias" in weights)
    if cfg.relative_position_num_buckets:
        names.append("encoder_attention_heads")
    said.update({option(name): getattr(cfg, name) for name in names})
    if cfg.share_decoder_layers and "--decoder-layers" in said:
        said["--decoder-layers"] = 0  # of its own
    different = [f"{name} {size}, its weights {shown[name]}" for name, size in said.items() if shown[name] != size]
    if different:
        raise UsageError("damaged: its configuration says " + "; ".join(different))


def check_finite(weights):
    """Refuses a state dict that contains NaN or infinity."""
    for name, weight in weights.items():
        if weight.is_floating_point() and not torch.isfinite(weight).all():
            raise UsageError(
                f"weight {name!r} of the checkpoint contains NaN or infinity: its training diverged; use an earlier "
                "checkpoint"
            )


def compare(checkpoint, model):
    """Refuses a checkpoint with other sizes or another vocabulary, naming each option that differs.

    Args:
        checkpoint, model: state dicts
    """
    theirs, ours = stored_sizes(checkpoint), stored_sizes(model)
    for sizes in [theirs, ours]:
        sizes["--decoder-layers"] = sizes["--decoder-layers"] or "0 (or shared ones)"
    different = [f"{k} {theirs[k]} in the checkpoint, {ours[k]} here" for k in ours if theirs[k] != ours[k]]
    if different:
        raise UsageError("the checkpoint has other sizes: " + "; ".join(different))
    if checkpoint["dictionary_fingerprint"] != model["dictionary_fingerprint"]:
        raise UsageError(
            "the checkpoint was trained with another dict.txt (of the same size): use the data, or the "
            "SentencePiece model and dict.txt, that it was trained with"
        )
