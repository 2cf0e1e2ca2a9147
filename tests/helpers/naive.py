"""The method (Meng et al., 2024) implemented a second time, as simply as possible.

The plugin is compared with it and shares nothing with it. Sequences keep their full length and
their original order. A position that the encoder does not see is not removed: it stays, and no
position may attend to it. Nothing is cut from any layer: all positions are computed, then the
predicted ones are picked.

Shared decoder layers are the paper's encoder with two more rules. The first says which positions
may attend to which (`who_sees_whom`). By the second, masked positions enter at a layer: just before
it, they are reset to what they were before all layers.

Letters in shapes: B sequences, T tokens of a sequence, K predicted positions of the batch, C width,
H heads, N vocabulary. `w` are the weights by name, as in the plugin's `state_dict()`.
"""

import math

import torch

NOT_SEEN = -1  # in `seen`, a position that the encoder does not see: masked, or padding
LAYER_NORM_EPS = 1e-5


def loss(w, tokens, seen, predicted, *, heads, pad, mask, max_distance, shared=0):
    """Cross-entropy in nats, summed over the predicted positions of all sequences.

    Args:
        w: dict of weights
        tokens: (B, T) original tokens, padded at the right
        seen: (B, T) what the encoder sees at each position: the token, another token, [MASK], or
            NOT_SEEN
        predicted: (B, T) bool
        heads: H
        pad, mask: indices of these symbols
        max_distance: D of the relative position bias
        shared: how many of the encoder's last layers are the decoder; 0 for a decoder of its own,
            or none
    Returns:
        scalar
    """
    real = tokens != pad
    masked = (seen == NOT_SEEN) & real
    if shared:
        embedded = w["embed_tokens.weight"][torch.where(masked, mask, seen.clamp(min=0))]
        attended = who_sees_whom(seen != NOT_SEEN, masked)
        late = entering(masked, shared)
        hidden = transformer(w, "encoder", embedded, attended, heads, max_distance, late)
    else:
        hidden = encoder(w, seen, heads, max_distance)
    if "decoder.norm.weight" in w:
        mask_embedding = w["embed_tokens.weight"][mask]
        hidden = torch.where(masked[:, :, None], mask_embedding, hidden)
        hidden = transformer(w, "decoder", hidden, real[:, None, :], heads, max_distance)
    log_p = torch.log_softmax(head(w, hidden[predicted]), dim=-1)  # (K, N)
    return -log_p.gather(1, tokens[predicted][:, None]).sum()


def encoder(w, seen, heads, max_distance):
    """(B, T) what is seen -> (B, T, C).

    Rows of positions that are not seen are meaningless and unused.
    """
    embedded = w["embed_tokens.weight"][seen.clamp(min=0)]
    attended = (seen != NOT_SEEN)[:, None, :]
    return transformer(w, "encoder", embedded, attended, heads, max_distance)


def who_sees_whom(visible, masked):
    """(B, T) and (B, T) bool -> (B, T, T): the positions that each position may attend to.

    All attend to the visible ones; masked positions attend to each other, too.
    """
    return visible[:, None, :] | (masked[:, :, None] & masked[:, None, :])


def entering(masked, shared):
    """The positions that enter late, and how many layers from the end: `late` of `transformer`."""
    return masked, shared


def transformer(w, part, x, attended, heads, max_distance, late=None, hidden=None):
    """Adds positions, normalizes, runs all layers.

    Args:
        part: "encoder" or "decoder"
        x: (B, T, C)
        attended: bool, broadcasts to (B, T, T): the positions that each may attend to
        late: (B, T) bool, positions that enter before one of the last layers, and the number of
            layers from there to the end
        hidden: a list that receives the input of each layer
    Returns:
        (B, T, C)
    """
    T = x.size(1)
    # Row 0 is for padding, row p + 1 for position p.
    positions = w[f"{part}.embed_positions.weight"][1 : T + 1]
    x = layer_norm(w, f"{part}.norm", x + positions)

    bias = torch.zeros(heads, T, T, dtype=x.dtype)
    if f"{part}.relative_bias.table.weight" in w:
        bias = relative_bias(w[f"{part}.relative_bias.table.weight"], T, max_distance)

    start = x
    depth = number_of_layers(w, part)
    for i in range(depth):
        if late is not None and i == depth - late[1]:
            x = torch.where(late[0][:, :, None], start, x)
        if hidden is not None:
            hidden.append(x)
        layer = f"{part}.layers.{i}"
        mixed = attention(w, f"{layer}.attention", x, attended, bias, heads)
        x = layer_norm(w, f"{layer}.attention_norm", x + mixed)
        inner = gelu(linear(w, f"{layer}.ffn.0", x))
        x = layer_norm(w, f"{layer}.ffn_norm", x + linear(w, f"{layer}.ffn.1", inner))
    return x


def number_of_layers(w, part):
    prefix = f"{part}.layers."
    return sum(name.startswith(prefix) and name.endswith(".ffn.0.weight") for name in w)


def attention(w, name, x, attended, bias, heads):
    """(B, T, C), bool that broadcasts to (B, T, T), (H, T, T) -> (B, T, C)."""
    query = linear(w, f"{name}.query", x)
    key, value = linear(w, f"{name}.key_value", x).chunk(2, dim=-1)
    size = x.size(-1) // heads
    outputs = []
    for h in range(heads):
        own = slice(h * size, (h + 1) * size)
        logits = query[..., own] @ key[..., own].transpose(1, 2) / math.sqrt(size)  # (B, T, T)
        logits = logits + bias[h]
        logits = torch.where(attended, logits, -math.inf)
        outputs.append(torch.softmax(logits, dim=-1) @ value[..., own])
    return linear(w, f"{name}.out", torch.cat(outputs, dim=-1))


def relative_bias(table, T, max_distance):
    """(num_buckets, H) -> (H, T, T): the bias of the logit of query i for key j."""
    num_buckets = table.size(0)
    buckets = torch.zeros(T, T, dtype=torch.long)
    for i in range(T):
        for j in range(T):
            buckets[i, j] = relative_position_bucket(j - i, num_buckets, max_distance)
    return table[buckets].permute(2, 0, 1)


def relative_position_bucket(r, num_buckets, max_distance):
    """The bucket of distance r = p_j - p_i."""
    half = num_buckets // 2
    exact = half // 2
    n = abs(r)
    if n < exact:
        m = n
    else:
        share = math.log(n / exact) / math.log((max_distance - 1) / exact)
        m = min(half - 1, exact + math.ceil(share * (half - 1 - exact)))
    sign = (r > 0) - (r < 0)
    return sign * m + half - 1


def t5_bucket(r, num_buckets, max_distance):
    """T5's bucket of distance r = p_j - p_i.

    Short distances have a bucket each. From there on, each bucket begins at a distance that is the
    same ratio larger than the one before.
    """
    half = num_buckets // 2
    exact = half // 2
    ratio = (max_distance / exact) ** (1 / (half - exact))
    n = abs(r)
    m = n
    if n >= exact:
        m = exact
        while m < half - 1 and n >= exact * ratio ** (m + 1 - exact) * (1 - 1e-12):
            m += 1
    return m + half * (r > 0)


def head(w, x):
    """(K, C) -> (K, N) logits by the tied token embedding."""
    x = layer_norm(w, "lm_head.norm", gelu(linear(w, "lm_head.dense", x)))
    return x @ w["embed_tokens.weight"].t() + w["lm_head.bias"]


def linear(w, name, x):
    return x @ w[f"{name}.weight"].t() + w[f"{name}.bias"]


def layer_norm(w, name, x):
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).mean(-1, keepdim=True)
    normalized = centred / torch.sqrt(variance + LAYER_NORM_EPS)
    return normalized * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2
