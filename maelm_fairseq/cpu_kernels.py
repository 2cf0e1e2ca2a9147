"""Faster kernels for the CPU: scaled dot-product attention, and dropout.

On a GPU, and where PyTorch compiles, each function and module here is PyTorch's own. To understand
the model, read them as their counterparts in PyTorch.

Letters in shapes: B sequences, Q queries, T keys, H heads, D width of a head.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# Approximate number of attention weights computed at a time: few enough to stay in the cache.
CHUNK_SIZE = 2**20


def use_cpu_kernels(x):
    """Whether a tensor needs the kernels here: on the CPU, unless PyTorch compiles the caller."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def grouped_attention(query, key_value, groups, dropout=0.0):
    """softmax(q k^T / sqrt(D) + bias) v for consecutive groups of queries.

    Each group attends to the first T' keys.

    Args:
        query: (B, Q, H, D), of all groups
        key_value: (B, T, 2, H, D), keys before values
        groups: list of `query_groups.QueryGroup`, whose biases broadcast to (B, H, Q', T'); the
            last one attends to all T keys
        dropout: probability of dropping an attention weight
    Returns: (B, Q, H, D)
    """
    if use_cpu_kernels(query) and needs_chunks(query, groups, dropout):
        B, _, H, _ = query.shape
        no_bias = query.new_zeros(())
        expanded = []
        for group in groups:
            bias = no_bias if group.bias is None else group.bias
            expanded.append(bias.expand(B, H, group.num_queries, group.num_keys))
        return ChunkedAttention.apply(query, key_value, dropout, *expanded)
    attended = []
    queries = [query]
    if len(groups) > 1:
        queries = query.split([group.num_queries for group in groups], dim=1)
    for group, q in zip(groups, queries):
        k, v = key_value[:, : group.num_keys].unbind(2)
        q, k, v = (x.transpose(1, 2) for x in [q, k, v])
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=group.bias, dropout_p=dropout)
        attended.append(out.transpose(1, 2))
    return attended[0] if len(attended) == 1 else torch.cat(attended, dim=1)


def needs_chunks(query, groups, dropout):
    """Whether PyTorch's fused kernel for the CPU cannot compute this attention, or is slower."""
    has_learned_bias = any(group.bias is not None and group.bias.requires_grad for group in groups)
    return has_learned_bias or dropout or query.dtype == torch.bfloat16


class ChunkedAttention(torch.autograd.Function):
    """Attention with dropout and a gradient for the biases, a few matrices of weights at a time.

    PyTorch's fused CPU kernel supports neither; its fallback writes every (B, H, Q, T) to memory
    several times, in float32 even for bfloat16. In bfloat16, chunks are also faster than the fused
    kernel. The backward pass recomputes the weights.
    """

    @staticmethod
    def forward(ctx, query, key_value, dropout, *biases):
        ctx.dropout = dropout
        keeps = [random_mask(bias.shape, 1 - dropout) for bias in biases] if dropout else []
        attended = torch.empty_like(query)
        # Copies, since strided matrices multiply several times slower.
        query = query.transpose(1, 2).contiguous()
        key_value = key_value.permute(2, 0, 3, 1, 4).contiguous()
        key, value = key_value
        ctx.save_for_backward(query, key_value, *biases, *keeps)
        for i, chunk, rows, keys in chunks_of_weights(biases):
            weights = softmax(
                gather_heads(query, rows), gather_heads(key, keys), gather_heads(biases[i], chunk)
            )
            if dropout:
                weights *= gather_heads(keeps[i], chunk)
            scatter_heads(attended, rows, weights @ gather_heads(value, keys))
        return attended.div_(1 - dropout) if dropout else attended

    @staticmethod
    def backward(ctx, gradient):
        query, key_value, *saved = ctx.saved_tensors
        learned = ctx.needs_input_grad[3:]
        biases = saved[: len(learned)]
        keeps = saved[len(learned) :]
        if ctx.dropout:
            gradient = gradient / (1 - ctx.dropout)
        gradient = gradient.transpose(1, 2).contiguous()
        key, value = key_value
        _, B, H, T, D = key_value.shape
        d_query = query.new_empty(B, query.size(2), H, D)
        d_key_value = query.new_empty(B, T, 2, H, D)
        d_key, d_value = d_key_value.unbind(2)
        d_biases = [
            torch.empty(bias.shape, dtype=bias.dtype) if is_learned else None
            for bias, is_learned in zip(biases, learned)
        ]
        # The last group comes first: it attends to all keys, so it sets what the others add to.
        for i, chunk, rows, keys in reversed(list(chunks_of_weights(biases))):
            set_or_add = torch.Tensor.copy_ if i == len(biases) - 1 else torch.Tensor.add_
            q, k, v = gather_heads(query, rows), gather_heads(key, keys), gather_heads(value, keys)
            g = gather_heads(gradient, rows)
            weights = softmax(q, k, gather_heads(biases[i], chunk))
            d_weights = g @ v.transpose(1, 2)
            dropped = weights
            if ctx.dropout:
                kept = gather_heads(keeps[i], chunk)
                d_weights *= kept
                dropped = weights * kept
            scatter_heads(d_value, keys, dropped.transpose(1, 2) @ g, set_or_add)
            d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            if d_biases[i] is not None:
                d_biases[i][chunk] = d_scores.view_as(d_biases[i][chunk])
            scatter_heads(d_query, rows, d_scores @ k)
            scatter_heads(d_key, keys, d_scores.transpose(1, 2) @ q, set_or_add)
        scale = D**-0.5
        d_key *= scale
        return d_query.mul_(scale), d_key_value, None, *d_biases


def chunks_of_weights(biases):
    """Splits the weights (B, H, Q, T) of each bias into chunks of similar size.

    A chunk has several sequences, or several heads of one sequence.

    Yields:
        number of the bias, and the chunk's indices of weights (B, H), of queries (B, H, all Q)
        and of keys (B, H, T)
    """
    start = 0
    for i, (B, H, Q, T) in enumerate(bias.shape for bias in biases):
        size = max(1, H * Q * T)  # there are no queries if nothing is predicted
        sequences = max(1, CHUNK_SIZE // size)
        heads = math.ceil(H / math.ceil(size / CHUNK_SIZE))
        for b in range(0, B, sequences):
            for h in range(0, H, heads):
                chunk = slice(b, b + sequences), slice(h, h + heads)
                yield i, chunk, (*chunk, slice(start, start + Q)), (*chunk, slice(T))
        start += Q


def gather_heads(x, index):
    """(B, H, T, D) -> the index's (b h, t, D)."""
    return x[index].flatten(0, 1)


def scatter_heads(x, index, values, how=torch.Tensor.copy_):
    """Writes (b h, t, D) to the index's place in (B, T, H, D)."""
    into = x.transpose(1, 2)[index]
    how(into, values.view(into.shape))


def softmax(q, k, bias):
    """(n, Q, D), (n, T, D), (n, Q, T) -> attention weights (n, Q, T)."""
    return torch.baddbmm(bias, q, k.transpose(1, 2), alpha=q.size(-1) ** -0.5).softmax(-1)


def random_mask(shape, probability):
    """A bool tensor whose elements are true with a probability, to within 2^-16.

    PyTorch's generator seeds a fast one, 16 bits of which for each element cost less than PyTorch's
    own random numbers.
    """
    count = shape.numel()
    seed = torch.randint(2**63 - 1, ()).item()
    generator = np.random.Generator(np.random.SFC64(seed))
    integers = generator.integers(-(2**63), 2**63, count // 4 + 1)
    bits = torch.from_numpy(integers).view(torch.int16)[:count]
    limit = round(probability * 2**16) - 2**15 - 1
    return (bits <= min(limit, 2**15 - 1)).view(shape)  # an int16 is at most 2^15 - 1


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, on the CPU with `random_mask`."""

    def forward(self, x):
        if not (self.training and self.p):
            return x
        if use_cpu_kernels(x):
            return x * random_mask(x.shape, 1 - self.p) / (1 - self.p)
        return super().forward(x)
