"""The compute of pretraining, so that scores can be compared at equal compute."""


def training_flops(model, size, tokens, vocabulary):
    """FLOP in the matrix products of one update on one sequence: 2 for each multiply-add.

    The backward pass costs twice as much as the forward pass.

    For T tokens, V of them in the encoder, K predicted, width C, FFN width F, L layers, D of the decoder:
        layer(q, k) = 2 q C (2 C) + 2 k C (2 C) + 4 q k C + 4 q C F     q rows computed from k rows
        encoder = L layer(V, V);   decoder = (D - 1) layer(T, T) + layer(K, T);   head = 2 K C (C + vocabulary)
    With shared decoder layers, layers cost (L - D) layer(V, V) + (D - 1) (layer(T, T) - 4 V K C) + layer(K, T): the K
    masks attend to all T rows, the others not to masks.

    Args:
        model, size: :class:`~pretraining.Model`, :class:`~pretraining.Size`
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
