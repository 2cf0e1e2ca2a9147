"""The arithmetic of pretraining, so that scores can be compared at equal amounts of it."""


def operations(model, size, tokens, vocabulary):
    """Operations in the matrix products of one update on one sequence: 2 for each multiply-add, three forward passes.

    benchmarks/pretrain_step.py explains the formula.

    Args:
        model, size: :class:`~pretraining.Model`, :class:`~pretraining.Size`
        tokens: of the sequence, T; on average
        vocabulary: number of symbols
    """
    T, C, F, D = tokens, size.encoder_embed_dim, size.encoder_ffn_embed_dim, model.decoder_layers
    K = model.masks.mask_prob * (T - 1)
    V = T - K * (1 - model.masks.encoder_mask_fraction)

    def layer(q, k):
        return 4 * q * C * C + 4 * k * C * C + 4 * q * k * C + 4 * q * C * F

    decoder = (D - 1) * layer(T, T) + layer(K, T) if D else 0
    return 3 * (size.encoder_layers * layer(V, V) + decoder + 2 * K * C * (C + vocabulary))
