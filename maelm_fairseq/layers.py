"""The Transformer of encoder and decoder: post-LN layers, learned positions, relative position bias.

Letters in shapes: B sequences, T positions, Q positions that are computed (the last of the T), C width, H heads.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .compat import matmul_dtype
from .cpu_kernels import Dropout, GeluLinear, scaled_dot_product_attention

AUTHORS, T5 = "authors", "t5"
ALIGNMENT = 8  # of the rows of an attention bias, in numbers
BUCKETS = [AUTHORS, T5]  # checkpoints store the place in this list: only ever append to it


def relative_position_bucket(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance `p_j - p_i` in the authors' release: exact for short ones, then logarithmic.

    Args:
        distance: integers, any shape
        num_buckets: even; half of them for each direction
        max_distance: distances from this one on share a bucket
    Returns:
        int64 in [0, num_buckets - 2], of the same shape
    """
    half = num_buckets // 2
    exact = half // 2
    n = np.abs(distance)
    share = np.log(np.maximum(n, exact) / exact) / math.log((max_distance - 1) / exact)
    far = exact + np.ceil(share * (half - 1 - exact))
    m = np.where(n < exact, n, np.minimum(half - 1, far)).astype(np.int64)
    return np.sign(distance) * m + half - 1


def t5_bucket(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance in T5 (Raffel et al., 2020) and MPNet; see :func:`relative_position_bucket`.

    Returns:
        int64 in [0, num_buckets), of the same shape: 0 is distance 0, the second half is for positive distances
    """
    half = num_buckets // 2
    exact = half // 2
    n = np.abs(distance)
    share = np.log(np.maximum(n, exact) / exact) / math.log(max_distance / exact)
    far = exact + (share * (half - exact) + 1e-9).astype(np.int64)  # the logarithm may be just below a whole number
    return np.where(n < exact, n, np.minimum(half - 1, far)) + half * (distance > 0)


class RelativePositionBias(nn.Module):
    """A learned bias for each head and bucket of distances, added to the attention logits of every layer.

    Its `description`, stored with the weights, is int64 (2,): the place of `buckets` in BUCKETS, and max_distance.
    """

    def __init__(self, num_buckets: int, max_distance: int, heads: int, max_positions: int, buckets: str = AUTHORS):
        super().__init__()
        self.table = nn.Embedding(num_buckets, heads)
        self.max_positions = max_positions
        distances = np.arange(-max_positions, max_positions + 1)  # padding has position -1
        function = {AUTHORS: relative_position_bucket, T5: t5_bucket}[buckets]
        self.register_buffer(
            "bucket", torch.from_numpy(function(distances, num_buckets, max_distance)), persistent=False
        )
        self.register_buffer("description", torch.tensor([BUCKETS.index(buckets), max_distance]))

    @torch.no_grad()
    def look_at_neighbours(self):
        """Makes half of the heads prefer the left or the right neighbour, alternately and with decreasing sharpness.

        The other heads attend uniformly, as at BERT's initialisation: `<s>` must see the whole text.
        """
        num_buckets, heads = self.table.weight.shape
        head, number, half = torch.arange(heads // 2), torch.arange(num_buckets), num_buckets // 2
        offset = number - (half - 1)  # how many buckets to the right of distance 0
        if self.description[0] == BUCKETS.index(T5):
            offset = torch.where(number < half, -number, number - half)
        side, slope = 2 * (head % 2) - 1, 2.0 ** (1 - head // 2)
        self.table.weight[:, : heads // 2] = -slope * (offset[:, None] - side).abs()

    def forward(self, queries, keys):
        """Original positions (B, Q) and (B, T) -> (B, H, Q, T) bias of each query to each key."""
        # In the gradient of a bucket, the sum over pairs of positions has many small terms, which half precision would
        # lose.
        weight = self.table.weight.to(torch.promote_types(self.table.weight.dtype, torch.float32))
        by_distance = weight[self.bucket].t().contiguous()  # (H, distances)
        distance = keys[:, None, :] - queries[:, :, None] + self.max_positions
        # Gathered head by head: its backward is one index_add_ instead of a scatter of rows.
        return by_distance.index_select(1, distance.flatten()).view(-1, *distance.shape).transpose(0, 1)


class Attention(nn.Module):
    """Multi-head attention of some positions to all positions."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, bias=None, outputs=None):
        """(B, T, C), `bias` broadcasting to (B, H, Q, T) -> (B, Q, C): the last `outputs` positions, or all if None."""
        x = x.to(matmul_dtype(x))  # autocast would do so for each product
        queries = x if outputs is None else last(x, outputs)
        query = self.query(queries).unflatten(-1, (self.heads, -1))
        key_value = self.key_value(x).unflatten(-1, (2, self.heads, -1))
        dropout = self.dropout if self.training else 0.0
        attended = scaled_dot_product_attention(query, key_value, bias, dropout)
        return self.out(attended.flatten(2))


class TransformerLayer(nn.Module):
    """Post-LN layer as in BERT: attention, residual, LayerNorm, GELU FFN, residual, LayerNorm."""

    def __init__(self, width: int, ffn_width: int, heads: int, dropout: float, attention_dropout: float):
        super().__init__()
        self.attention = Attention(width, heads, attention_dropout)
        self.attention_norm = nn.LayerNorm(width)
        self.ffn = nn.Sequential(nn.Linear(width, ffn_width), GeluLinear(ffn_width, width))
        self.ffn_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x, bias=None, outputs=None):
        """(B, T, C) -> (B, Q, C): the last `outputs` positions, or all if None."""
        if outputs is not None and bias is not None and bias.size(2) > 1:
            bias = bias[:, :, bias.size(2) - outputs :]
        attended = self.attention(x, bias, outputs)
        y = self.attention_norm((x if outputs is None else last(x, outputs)) + self.dropout(attended))
        return self.ffn_norm(y + self.dropout(self.ffn(y)))


def last(x, count):
    """(B, T, C) -> (B, count, C), the last positions; `count` may be 0."""
    return x[:, x.size(1) - count :]


class Transformer(nn.Module):
    """Position embeddings, LayerNorm, dropout and layers: the encoder and the decoder.

    Args:
        layers, width, ffn_width, heads: sizes
        dropout, attention_dropout: probabilities
        max_positions: number of learned positions
        num_buckets, max_distance, buckets: of the relative position bias; 0 buckets for no bias
    """

    def __init__(
        self,
        layers,
        width,
        ffn_width,
        heads,
        dropout,
        attention_dropout,
        max_positions,
        num_buckets=0,
        max_distance=0,
        buckets=AUTHORS,
    ):
        super().__init__()
        self.embed_positions = nn.Embedding(max_positions + 1, width, padding_idx=0)
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.relative_bias = None
        if num_buckets:
            self.relative_bias = RelativePositionBias(num_buckets, max_distance, heads, max_positions, buckets)
        self.layers = nn.ModuleList(
            TransformerLayer(width, ffn_width, heads, dropout, attention_dropout) for _ in range(layers)
        )

    def forward(self, x, positions, padded: bool, outputs=None, hidden=None):
        """Runs the layers.

        Args:
            x: (B, T, C) token embeddings, or for the decoder the encoder's output
            positions: (B, T) original positions, -1 for padding
            padded: whether there is any padding; known without synchronising with the device
            outputs: number of positions at the end that the last layer computes; None for all
            hidden: a list that receives the input of the first layer and the output of each layer
        Returns:
            (B, T, C), or (B, outputs, C)
        """
        x = self.dropout(self.norm(x + self.embed_positions(positions + 1)))
        bias = self.attention_bias(positions, padded, matmul_dtype(x))
        for i, layer in enumerate(self.layers):
            if hidden is not None:
                hidden.append(x)
            x = layer(x, bias, outputs if i == len(self.layers) - 1 else None)
        if hidden is not None:
            hidden.append(x)
        return x

    def attention_bias(self, positions, padded, dtype):
        """The bias that every layer adds to its attention logits, (B, H, T, T) or (B, 1, 1, T); None for none.

        Its rows are ALIGNMENT numbers apart, or a multiple: PyTorch's memory-efficient kernel would otherwise copy the
        bias in every layer, and keep the copies for the backward pass.
        """
        T, bias = positions.size(1), None
        keys = F.pad(positions, (0, -T % ALIGNMENT))
        if self.relative_bias is not None:
            bias = self.relative_bias(positions, keys).to(dtype)
        if padded:
            padding = keys.lt(0)[:, None, None, :]
            if bias is None:
                bias = torch.zeros(padding.shape, dtype=dtype, device=padding.device)
            bias = bias.masked_fill(padding, float("-inf"))
        return None if bias is None else bias[..., :T]
