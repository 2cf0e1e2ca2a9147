"""How much memory of a GPU pretraining takes, and which batch fits; in fp16 or with bf16-autocast.

The formula counts what a forward pass keeps for the backward pass. tests/test_gpu_memory.py compares it with what was
measured (benchmarks/RESULTS.md).
"""

GIB = 2**30
BYTES_PER_WEIGHT = 20  # a half and its gradient, a float32 copy, its gradient and two moments
BYTES_PER_LOGIT = 16  # a half, a float32, its log-softmax, and their gradients
MARGIN, CONTEXT = 1.25, 1.5 * GIB  # measured batches were of 32 sequences only; what CUDA takes


def bytes_needed(model, task, vocabulary, batch):
    """Approximate memory of an update, with micro-batches of `batch` full blocks.

    Args:
        model: `config.MaeLmConfig`
        task: `task.MaeLmTaskConfig`
        vocabulary: number of symbols
        batch: sequences
    """
    C, F, H = model.encoder_embed_dim, model.encoder_ffn_embed_dim, model.encoder_attention_heads
    T = task.tokens_per_sample
    predicted = task.mask_prob * T
    seen = T - predicted * (1 - task.encoder_mask_fraction)
    shared = model.share_decoder_layers
    own_layers = 0 if shared else model.decoder_layers
    masks_in_encoder = model.decoder_layers * (T - seen) if shared else 0
    rows = model.encoder_layers * seen + masks_in_encoder + own_layers * T
    # Of a row of a layer, in halves: inputs of both norms and of four products, queries, keys, values and what was
    # attended to, input and output of GELU. Two masks of dropout take a byte a number.
    kept = rows * (2 * (8 * C + 2 * F) + 2 * C)
    bias = 0
    if model.relative_position_num_buckets:  # in halves, and so is its gradient
        attended = seen * seen + (T - seen) * T * shared + T * T * bool(own_layers and model.decoder_relative_bias)
        bias = 2 * 2 * H * attended
    logits = BYTES_PER_LOGIT * predicted * vocabulary
    layers = model.encoder_layers + own_layers
    weights = layers * (4 * C * C + 2 * C * F + 9 * C + F) + (vocabulary + 2 * model.max_positions) * C + C * C
    return BYTES_PER_WEIGHT * weights + batch * (kept + bias + logits)


def largest_batch(model, task, vocabulary, memory, sequences):
    """The largest power of two that divides `sequences` and fits `memory`, in bytes; 1 if none fits."""
    batch = 1
    while sequences % (2 * batch) == 0:
        if MARGIN * bytes_needed(model, task, vocabulary, 2 * batch) + CONTEXT > memory:
            break
        batch *= 2
    return batch
