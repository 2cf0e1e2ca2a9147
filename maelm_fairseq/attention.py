"""Scaled dot-product attention, on the CPU by parts where PyTorch has no fast kernel.

Letters in shapes: B sequences, Q queries, T keys, H heads, D width of a head.
"""

import math

import torch
import torch.nn.functional as F

from .dropout import draw

PART = 2**20  # attention weights of a part, about: so few stay in the cache


def attend(query, key_value, bias=None, dropout=0.0):
    """softmax(q k^T / sqrt(D) + bias) v.

    Args:
        query: (B, Q, H, D)
        key_value: (B, T, 2, H, D), keys before values
        bias: broadcasts to (B, H, Q, T); None for none
        dropout: probability with which an attention weight is dropped
    Returns:
        (B, Q, H, D)
    """
    learned = bias is not None and bias.requires_grad
    if query.device.type == "cpu" and (learned or dropout or query.dtype == torch.bfloat16):
        bias = query.new_zeros(()) if bias is None else bias
        shape = (query.size(0), query.size(2), query.size(1), key_value.size(1))
        return AttentionByParts.apply(query, key_value, bias.expand(shape), dropout)
    q, (k, v) = query.transpose(1, 2), key_value.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout).transpose(1, 2)


class AttentionByParts(torch.autograd.Function):
    """:func:`attend` with a gradient for the bias, and dropout: a few matrices of weights at a time, twice.

    PyTorch's kernel for the CPU knows neither: what it does instead writes every (B, H, Q, T) to memory several
    times, those of bfloat16 in float32; and in bfloat16 it is the slower one without them, too. The backward pass
    computes the weights again.
    """

    @staticmethod
    def forward(ctx, query, key_value, bias, dropout):
        ctx.dropout = dropout
        keep = draw(bias.shape, 1 - dropout) if dropout else None
        ctx.save_for_backward(query, key_value, bias, keep)
        key, value = key_value.unbind(2)
        attended = torch.empty_like(query)
        for part in parts(bias.shape):
            weights = softmax(take(query, part), take(key, part), bias[part].flatten(0, 1))
            if dropout:
                weights *= keep[part].flatten(0, 1)
            put(attended, part, weights @ take(value, part))
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
        for part in parts(bias.shape):
            q, k, v, g = (take(x, part) for x in (query, key, value, gradient))
            weights = softmax(q, k, bias[part].flatten(0, 1))
            d_weights = g @ v.transpose(1, 2)
            dropped = weights
            if ctx.dropout:
                kept = keep[part].flatten(0, 1)
                d_weights *= kept
                dropped = weights * kept
            put(d_value, part, dropped.transpose(1, 2) @ g)
            d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            if d_bias is not None:
                d_bias[part] = d_scores.view_as(d_bias[part])
            put(d_query, part, d_scores @ k)
            put(d_key, part, d_scores.transpose(1, 2) @ q)
        scale = query.size(-1) ** -0.5
        d_key *= scale
        return d_query.mul_(scale), d_key_value, d_bias, None


def parts(shape):
    """Indices that cut (B, H, Q, T) into parts: some sequences, or some heads of one, about equally many."""
    B, H, Q, T = shape
    sequences = max(1, PART // (H * Q * T))
    heads = math.ceil(H / math.ceil(H * Q * T / PART))
    for b in range(0, B, sequences):
        for h in range(0, H, heads):
            yield slice(b, b + sequences), slice(h, h + heads)


def take(x, part):
    """(B, T, H, D) -> the part's (b h, T, D)."""
    return x.transpose(1, 2)[part].flatten(0, 1)


def put(x, part, values):
    """Writes (b h, T, D) to the part's place in (B, T, H, D)."""
    into = x.transpose(1, 2)[part]
    into.copy_(values.view(into.shape))


def softmax(q, k, bias):
    """(n, Q, D), (n, T, D), (n, Q, T) -> the attention's weights (n, Q, T)."""
    return torch.baddbmm(bias, q, k.transpose(1, 2), alpha=q.size(-1) ** -0.5).softmax(-1)
