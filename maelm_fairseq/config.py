"""The model's options, and their checks: against each other, and against the data."""

from dataclasses import dataclass

from .base.errors import UsageError
from .base.option_fields import check_ranges, option_name, setting
from .fairseq_api import ChoiceEnum, FairseqDataclass
from .heads import FIRST_TOKEN, HEAD_OF_POOLING
from .layers import AUTHORS, BUCKET_SCHEMES, T5


@dataclass
class MaeLmConfig(FairseqDataclass):
    """Options of the model.

    The upper limits are far above any useful size. A larger number is a typing error or a damaged
    checkpoint, and would exhaust the memory before anything else could report it.
    """

    encoder_layers: int = setting(12, "layers of the encoder", minimum=1, maximum=1000)
    encoder_embed_dim: int = setting(768, "width of encoder and decoder", minimum=1, maximum=2**16)
    encoder_ffn_embed_dim: int = setting(
        3072, "width of the feed-forward layers", minimum=1, maximum=2**18
    )
    encoder_attention_heads: int = setting(
        12, "attention heads of a layer", minimum=1, maximum=2**16
    )
    decoder_layers: int = setting(
        4,
        "layers of the decoder; 0 for an MLM, with --encoder-mask-fraction 1",
        minimum=0,
        maximum=1000,
    )
    dropout: float = setting(0.1, "dropout of the encoder", minimum=0, maximum=1, excluded=(1,))
    attention_dropout: float = setting(
        0.1, "dropout of the encoder's attention weights", minimum=0, maximum=1, excluded=(1,)
    )
    decoder_dropout: float = setting(
        0.0, "dropout and attention dropout of the decoder", minimum=0, maximum=1, excluded=(1,)
    )
    pooler_dropout: float = setting(
        0.1, "dropout of classification heads", minimum=0, maximum=1, excluded=(1,)
    )
    classification_pooling: ChoiceEnum(list(HEAD_OF_POOLING)) = setting(
        FIRST_TOKEN, "what new classification heads read: `<s>`, or the mean of the other tokens"
    )
    max_positions: int = setting(512, "number of learned positions", minimum=2, maximum=2**24)
    layer_norm_eps: float = setting(
        1e-5, "added to the variance in every layer normalisation", minimum=1e-20, maximum=0.1
    )
    relative_position_num_buckets: int = setting(
        32, "buckets of the encoder's relative bias, even; 0 for no bias", minimum=0, maximum=2**16
    )
    relative_position_max_distance: int = setting(
        128, "this and all larger distances share a bucket", minimum=0
    )
    relative_position_buckets: ChoiceEnum(BUCKET_SCHEMES) = setting(
        AUTHORS,
        "how distances share buckets: as in the authors' release, or as in T5, "
        "so that Hugging Face's MPNet classes hold the encoder exactly",
    )
    relative_position_local_init: bool = setting(
        False,
        "initialise half of the heads to attend to the left or right neighbour, "
        "instead of all with BERT's N(0, 0.02): "
        "small models on little text then learn several times faster",
    )
    share_decoder_layers: bool = setting(
        False,
        "no decoder of its own: the encoder's last --decoder-layers layers take its place; "
        "there, masks attend to tokens, but tokens never to masks",
    )
    decoder_relative_bias: bool = setting(
        False,
        "give the decoder a relative position bias of its own; shared layers have the encoder's",
    )


ARCHITECTURES = {
    "mae_lm_tiny": dict(
        encoder_layers=2,
        encoder_embed_dim=128,
        encoder_ffn_embed_dim=512,
        encoder_attention_heads=2,
        decoder_layers=1,
    ),
    "mae_lm_base": dict(),
    "mae_lm_large": dict(
        encoder_layers=24,
        encoder_embed_dim=1024,
        encoder_ffn_embed_dim=4096,
        encoder_attention_heads=16,
        relative_position_num_buckets=128,
        relative_position_max_distance=256,
    ),
}


# Buckets and maximum distance of Hugging Face's MPNet, whose configuration cannot change them.
MPNET_SIZES = (32, 128)


def check_model_options(cfg):
    """Refuses sizes that are out of range or contradict each other."""
    check_ranges(cfg, MaeLmConfig)
    width, heads = cfg.encoder_embed_dim, cfg.encoder_attention_heads
    if width % heads:
        raise UsageError(
            f"--encoder-attention-heads {heads} must divide --encoder-embed-dim {width}"
        )
    check_buckets(cfg)
    if cfg.share_decoder_layers:
        check_shared_layers(cfg)
    for name in ["decoder_relative_bias", "relative_position_local_init"]:
        if getattr(cfg, name) and not cfg.relative_position_num_buckets:
            raise UsageError(f"{option_name(name)} needs --relative-position-num-buckets over 0")


def check_buckets(cfg):
    """Refuses buckets of the relative position bias that cannot be formed."""
    num_buckets = cfg.relative_position_num_buckets
    max_distance = cfg.relative_position_max_distance
    if num_buckets % 2 or num_buckets == 2:
        raise UsageError(
            f"--relative-position-num-buckets {num_buckets} must be even and at least 4 "
            "(half for each direction), or 0 for no bias"
        )
    exact = num_buckets // 4
    if num_buckets and max_distance - 1 <= exact:
        raise UsageError(
            f"--relative-position-max-distance {max_distance} must be over {exact + 1}: "
            f"with --relative-position-num-buckets {num_buckets} distances below {exact} "
            "have a bucket each"
        )
    if str(cfg.relative_position_buckets) == T5 and (num_buckets, max_distance) != MPNET_SIZES:
        raise UsageError(
            f"--relative-position-buckets {T5} needs "
            f"--relative-position-num-buckets {MPNET_SIZES[0]} (it is {num_buckets}) and "
            f"--relative-position-max-distance {MPNET_SIZES[1]} (it is {max_distance}): "
            "MPNet has no others"
        )


def check_shared_layers(cfg):
    """Refuses options that contradict --share-decoder-layers."""
    if cfg.decoder_layers > cfg.encoder_layers:
        raise UsageError(
            f"--share-decoder-layers: --decoder-layers {cfg.decoder_layers} must be at most "
            f"--encoder-layers {cfg.encoder_layers}, of which they are the last; 0 makes an MLM"
        )
    if cfg.decoder_dropout:
        raise UsageError(
            f"--decoder-dropout {cfg.decoder_dropout} contradicts --share-decoder-layers: "
            "the layers have the --dropout and --attention-dropout of the encoder; remove it"
        )


def check_positions(length, max_positions, origin, advice, model="the model"):
    """Refuses sequences of up to `length` tokens if a model has fewer positions.

    The message says where the length comes from (`origin`), what to do (`advice`), and which model.
    """
    if length > max_positions:
        raise UsageError(f"{origin}, but {model} has {max_positions} positions: {advice}")
