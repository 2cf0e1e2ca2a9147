"""What the experiments pretrain: models, sizes and text, as options of fairseq-train; and their compute."""

from dataclasses import dataclass, fields

from maelm_fairseq.config import option
from maelm_fairseq.masking import MaskSettings


def options_of(config):
    """The fields of a dataclass as options: [--mask-prob, 0.15, ...]; a true boolean as its flag alone."""
    options = []
    for each in fields(config):
        value = getattr(config, each.name)
        if not isinstance(value, bool):
            options += [option(each.name), value]
        elif value:
            options.append(option(each.name))
    return options


@dataclass(frozen=True)
class Model:
    """What distinguishes one pretrained model from another of the same size."""

    name: str  # in the names of runs
    title: str  # in tables and figures
    decoder_layers: int  # 0 for none
    masks: MaskSettings  # what is predicted, and what the encoder sees of it
    relative_position_bias: bool = True  # of encoder and decoder, with heads that attend to neighbours at first
    shared: bool = False  # whether the decoder's layers are the encoder's last ones

    def options(self):
        """The options of fairseq-train that make this model: list of strings and numbers."""
        options = ["--relative-position-num-buckets", 0]
        if self.relative_position_bias:
            options = [*["--decoder-relative-bias"] * (not self.shared), "--relative-position-local-init"]
        options += ["--share-decoder-layers"] * self.shared
        return ["--decoder-layers", self.decoder_layers, *options_of(self.masks), *options]


@dataclass(frozen=True)
class Size:
    """The size of the encoder."""

    encoder_layers: int
    encoder_embed_dim: int
    encoder_ffn_embed_dim: int
    encoder_attention_heads: int


@dataclass(frozen=True)
class Text:
    """How the text is cut into blocks and batches."""

    tokens_per_sample: int
    batch_size: int
    vocab_size: int = 8000  # where the program prepares the text itself


def training_flops(model, size, tokens, vocabulary):
    """FLOP in the matrix products of one update on one sequence: 2 for each multiply-add.

    The backward pass costs twice as much as the forward pass.

    For T tokens, V of them in the encoder, K predicted, width C, FFN width F, L layers, D of the decoder:
        layer(q, k) = 2 q C (2 C) + 2 k C (2 C) + 4 q k C + 4 q C F     q rows computed from k rows
        encoder = L layer(V, V);   decoder = (D - 1) layer(T, T) + layer(K, T);   head = 2 K C (C + vocabulary)
    With shared decoder layers, layers cost (L - D) layer(V, V) + (D - 1) (layer(T, T) - 4 V K C) + layer(K, T): the K
    masks attend to all T rows, the others not to masks.

    Args:
        model, size: :class:`Model`, :class:`Size`
        tokens: of the sequence, T; on average
        vocabulary: number of symbols
    """
    T, C, F, D = tokens, size.encoder_embed_dim, size.encoder_ffn_embed_dim, model.decoder_layers
    K = model.masks.mask_prob * (T - 1)
    V = T - K * (1 - model.masks.encoder_mask_fraction)

    def layer(q, k, pairs):
        """A layer that computes q rows from k rows, with attention between so many pairs of rows."""
        return 4 * q * C * C + 4 * k * C * C + 4 * pairs * C + 4 * q * C * F

    forward = 2 * K * C * (C + vocabulary)
    if model.shared:
        masks = (T - V) * T
        forward += (size.encoder_layers - D) * layer(V, V, V * V) + (D - 1) * layer(T, T, V * V + masks)
        forward += layer(K, T, masks + (K - (T - V)) * V)
    else:
        forward += size.encoder_layers * layer(V, V, V * V)
        forward += (D - 1) * layer(T, T, T * T) + layer(K, T, K * T) if D else 0
    return 3 * forward
