"""What the weights in a checkpoint show of their model: its sizes, its vocabulary, and whether they are finite."""

import torch

from ..base.errors import UsageError
from ..layers import BUCKETS


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
