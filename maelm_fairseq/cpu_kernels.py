"""Faster kernels for the CPU; on a GPU, and compiled, each function and module here is PyTorch's own.

Three drop-in replacements: scaled dot-product attention, dropout, and a linear layer behind a GELU. To understand the
model, read them as their PyTorch counterparts.

Letters in shapes: B sequences, Q queries, T keys, H heads, D width of a head.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CHUNK_SIZE = 2**20  # attention weights computed at a time, approximately: few enough to stay in the cache


def applies_to(x):
    """Whether these kernels take the place of PyTorch's: on the CPU, unless torch.compile makes kernels."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def scaled_dot_product_attention(query, key_value, bias=None, dropout=0.0):
    """softmax(q k^T / sqrt(D) + bias) v.

    Args:
        query: (B, Q, H, D)
        key_value: (B, T, 2, H, D), keys before values
        bias: broadcasts to (B, H, Q, T); None for none
        dropout: probability of dropping an attention weight
    Returns:
        (B, Q, H, D)
    """
    learned = bias is not None and bias.requires_grad
    if applies_to(query) and (learned or dropout or query.dtype == torch.bfloat16):
        bias = query.new_zeros(()) if bias is None else bias
        shape = (query.size(0), query.size(2), query.size(1), key_value.size(1))
        return ChunkedAttention.apply(query, key_value, bias.expand(shape), dropout)
    q, k, v = (x.transpose(1, 2) for x in [query, *key_value.unbind(2)])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout).transpose(1, 2)


class ChunkedAttention(torch.autograd.Function):
    """Attention with dropout and a gradient for the bias, a few matrices of weights at a time.

    PyTorch's fused CPU kernel supports neither; its fallback writes every (B, H, Q, T) to memory several times, in
    float32 even for bfloat16. In bfloat16 chunks are faster than the fused kernel, too. The backward pass recomputes
    the weights.
    """

    @staticmethod
    def forward(ctx, query, key_value, bias, dropout):
        ctx.dropout = dropout
        keep = random_mask(bias.shape, 1 - dropout) if dropout else None
        ctx.save_for_backward(query, key_value, bias, keep)
        key, value = key_value.unbind(2)
        attended = torch.empty_like(query)
        for chunk in chunks(bias.shape):
            weights = softmax(read_chunk(query, chunk), read_chunk(key, chunk), bias[chunk].flatten(0, 1))
            if dropout:
                weights *= keep[chunk].flatten(0, 1)
            write_chunk(attended, chunk, weights @ read_chunk(value, chunk))
        return attended.div_(1 - dropout) if dropout else attended

    @staticmethod
    def backward(ctx, gradient):
        query, key_value, bias, keep = ctx.saved_tensors
        if ctx.dropout:
            gradient = gradient / (1 - ctx.dropout)
        key, value = key_value.unbind(2)
        d_query, d_key_value = torch.empty_like(query), torch.empty_like(key_value)
        d_key, d_value = d_key_value.unbind(2)
        d_bias = torch.empty(bias.shape, dtype=bias.dtype) if ctx.needs_input_grad[2] else None
        for chunk in chunks(bias.shape):
            q, k, v, g = (read_chunk(x, chunk) for x in (query, key, value, gradient))
            weights = softmax(q, k, bias[chunk].flatten(0, 1))
            d_weights = g @ v.transpose(1, 2)
            dropped = weights
            if ctx.dropout:
                kept = keep[chunk].flatten(0, 1)
                d_weights *= kept
                dropped = weights * kept
            write_chunk(d_value, chunk, dropped.transpose(1, 2) @ g)
            d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            if d_bias is not None:
                d_bias[chunk] = d_scores.view_as(d_bias[chunk])
            write_chunk(d_query, chunk, d_scores @ k)
            write_chunk(d_key, chunk, d_scores.transpose(1, 2) @ q)
        scale = query.size(-1) ** -0.5
        d_key *= scale
        return d_query.mul_(scale), d_key_value, d_bias, None


def chunks(shape):
    """Indices that split (B, H, Q, T) into chunks of similar size: several sequences, or several heads of one."""
    B, H, Q, T = shape
    size = max(1, H * Q * T)  # there may be no queries: nothing is predicted
    sequences = max(1, CHUNK_SIZE // size)
    heads = math.ceil(H / math.ceil(size / CHUNK_SIZE))
    for b in range(0, B, sequences):
        for h in range(0, H, heads):
            yield slice(b, b + sequences), slice(h, h + heads)


def read_chunk(x, chunk):
    """(B, T, H, D) -> the chunk's (b h, T, D)."""
    return x.transpose(1, 2)[chunk].flatten(0, 1)


def write_chunk(x, chunk, values):
    """Writes (b h, T, D) to the chunk's place in (B, T, H, D)."""
    into = x.transpose(1, 2)[chunk]
    into.copy_(values.view(into.shape))


def softmax(q, k, bias):
    """(n, Q, D), (n, T, D), (n, Q, T) -> attention weights (n, Q, T)."""
    return torch.baddbmm(bias, q, k.transpose(1, 2), alpha=q.size(-1) ** -0.5).softmax(-1)


def random_mask(shape, probability):
    """A bool tensor whose elements are true with a probability, to within 2^-16; seeded by PyTorch's generator.

    16 bits of a fast generator for each element cost less than PyTorch's random numbers.
    """
    count = shape.numel()
    generator = np.random.Generator(np.random.SFC64(torch.randint(2**63 - 1, ()).item()))
    bits = torch.from_numpy(generator.integers(-(2**63), 2**63, count // 4 + 1)).view(torch.int16)[:count]
    limit = round(probability * 2**16) - 2**15 - 1
    return (bits <= min(limit, 2**15 - 1)).view(shape)  # no number is higher


class Dropout(nn.Dropout):
    """:class:`torch.nn.Dropout`, on the CPU with :func:`random_mask`."""

    def forward(self, x):
        if self.training and self.p and applies_to(x):
            return x * random_mask(x.shape, 1 - self.p) / (1 - self.p)
        return super().forward(x)


class GeluLinear(nn.Linear):
    """linear(gelu(x)); on the CPU the backward pass recomputes the GELU, a fifth of a layer's activation memory."""

    def forward(self, x):
        if applies_to(x):
            return RecomputedGeluLinear.apply(x, self.weight, self.bias)
        return super().forward(F.gelu(x))


class RecomputedGeluLinear(torch.autograd.Function):
    """linear(gelu(x)) that keeps x alone for the backward pass."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.linear(F.gelu(x), weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        d_x = torch.ops.aten.gelu_backward(gradient @ weight.to(gradient.dtype), x)
        d_weight = rows.t() @ F.gelu(x).flatten(0, -2)
        return d_x, d_weight.to(weight.dtype), rows.sum(0).to(weight.dtype)
