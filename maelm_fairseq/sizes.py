"""Checks of a model's sizes: against each other, against the data, and against a checkpoint."""

from .errors import UsageError
from .layers import BUCKETS, T5

MPNET = (32, 128)  # buckets and maximum distance of Hugging Face's MPNet, which its configuration cannot change


def check_sizes(cfg):
    """Refuses sizes that are out of range or contradict each other."""
    width, heads = cfg.encoder_embed_dim, cfg.encoder_attention_heads
    num_buckets, max_distance = cfg.relative_position_num_buckets, cfg.relative_position_max_distance
    if cfg.encoder_layers < 1 or cfg.decoder_layers < 0:
        raise UsageError(
            f"--encoder-layers {cfg.encoder_layers} must be at least 1, "
            f"--decoder-layers {cfg.decoder_layers} at least 0"
        )
    if width % heads:
        raise UsageError(f"--encoder-attention-heads {heads} must divide --encoder-embed-dim {width}")
    if num_buckets % 2 or num_buckets < 0 or num_buckets == 2:
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
    for option in ["dropout", "attention_dropout", "decoder_dropout", "pooler_dropout"]:
        if not 0 <= getattr(cfg, option) < 1:
            raise UsageError(
                f"--{option.replace('_', '-')} {getattr(cfg, option)} must be at least 0 and less than 1: it is "
                "the share that is dropped"
            )
    for option in ["decoder_relative_bias", "relative_position_local_init"]:
        if getattr(cfg, option) and not num_buckets:
            raise UsageError(f"--{option.replace('_', '-')} needs --relative-position-num-buckets over 0")


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


def compare(checkpoint, model):
    """Refuses a checkpoint with other sizes or another vocabulary, naming each option that differs.

    Args:
        checkpoint, model: state dicts
    """

    def sizes(state):
        def shape(key, dim=0):
            return state[key].size(dim) if key in state else 0

        def described(place):
            key = "encoder.relative_bias.description"
            return int(state[key][place]) if key in state else 0

        def layers(part):
            return sum(k.startswith(part + ".layers.") and k.endswith(".ffn_norm.bias") for k in state)

        return {
            "vocabulary (dict.txt)": shape("embed_tokens.weight"),
            "--encoder-layers": layers("encoder"),
            "--encoder-embed-dim": shape("embed_tokens.weight", 1),
            "--encoder-ffn-embed-dim": shape("encoder.layers.0.ffn.0.weight"),
            "--encoder-attention-heads": shape("encoder.relative_bias.table.weight", 1),
            "--decoder-layers": layers("decoder"),
            "--max-positions": shape("encoder.embed_positions.weight") - 1,
            "--relative-position-num-buckets": shape("encoder.relative_bias.table.weight"),
            "--relative-position-buckets": BUCKETS[described(0)],
            "--relative-position-max-distance": described(1),
            "--decoder-relative-bias": shape("decoder.relative_bias.table.weight") > 0,
        }

    theirs, ours = sizes(checkpoint), sizes(model)
    different = [f"{k} {theirs[k]} in the checkpoint, {ours[k]} here" for k in ours if theirs[k] != ours[k]]
    if different:
        raise UsageError("the checkpoint has other sizes: " + "; ".join(different))
    if checkpoint["dictionary_fingerprint"] != model["dictionary_fingerprint"]:
        raise UsageError(
            "the checkpoint was trained with another dict.txt (of the same size): use the data, or the "
            "SentencePiece model and dict.txt, that it was trained with"
        )
