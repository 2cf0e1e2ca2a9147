"""The Transformer of encoder and decoder.

It has post-LN layers, learned positions and a relative position bias.

Letters in shapes: B sequences, T positions, Q positions with an output (the last of the T),
M masks that enter before a later layer, C width, H heads.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .cpu_kernels import Dropout, grouped_attention
from .precision import matmul_dtype
from .query_groups import QueryGroup, last_queries_of, total_queries

# The choices of --relative-position-buckets.
AUTHORS = "authors"
T5 = "t5"
BUCKET_SCHEMES = [AUTHORS, T5]

BIAS_ROW_MULTIPLE = 8  # elements; see `RelativePositionBias`


def authors_bucket(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance `p_j - p_i`: exact for short ones, then logarithmic.

    As in the authors' release, github.com/yumeng5/MAE-LM, but independent of the number of
    positions.

    Args:
        distance: integers, any shape
        num_buckets: even; half of them for each direction
        max_distance: distances from this one on share a bucket
    Returns: int64 in [0, num_buckets - 2], of the same shape
    """
    half = num_buckets // 2
    exact = half // 2
    size = np.abs(distance)
    log_share = np.log(np.maximum(size, exact) / exact) / math.log((max_distance - 1) / exact)
    far = exact + np.ceil(log_share * (half - 1 - exact))
    offset = np.where(size < exact, size, np.minimum(half - 1, far)).astype(np.int64)
    return np.sign(distance) * offset + half - 1


def t5_bucket(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance in T5 (Raffel et al., 2020) and MPNet.

    The arguments are those of `authors_bucket`.

    Returns: int64 in [0, num_buckets), of the same shape: 0 is distance 0, the second half is for
        positive distances
    """
    half = num_buckets // 2
    exact = half // 2
    size = np.abs(distance)
    log_share = np.log(np.maximum(size, exact) / exact) / math.log(max_distance / exact)
    # The logarithm may be just below an integer.
    far = exact + (log_share * (half - exact) + 1e-9).astype(np.int64)
    return np.where(size < exact, size, np.minimum(half - 1, far)) + half * (distance > 0)


BUCKET_FUNCTIONS = {AUTHORS: authors_bucket, T5: t5_bucket}


class RelativePositionBias(nn.Module):
    """A learned bias for each head and bucket of distances.

    It is added to the attention logits of every layer.
    """

    def __init__(
        self,
        num_buckets: int,
        max_distance: int,
        num_heads: int,
        max_positions: int,
        scheme: str = AUTHORS,
    ):
        super().__init__()
        self.table = nn.Embedding(num_buckets, num_heads)
        self.max_positions = max_positions
        self.scheme = scheme
        distances = np.arange(-max_positions, max_positions + 1)  # padding has position -1
        bucket = BUCKET_FUNCTIONS[scheme](distances, num_buckets, max_distance)
        self.register_buffer("bucket", torch.from_numpy(bucket), persistent=False)

    @torch.no_grad()
    def init_local_heads(self):
        """Makes half of the heads prefer the left or the right neighbour, alternately.

        The preference weakens with each successive pair of heads. The other heads attend
        uniformly, as at BERT's initialisation: `<s>` must see the whole text.
        """
        num_buckets, num_heads = self.table.weight.shape
        half = num_buckets // 2
        head = torch.arange(num_heads // 2)
        bucket = torch.arange(num_buckets)
        offset = bucket - (half - 1)  # how many buckets to the right of distance 0
        if self.scheme == T5:
            offset = torch.where(bucket < half, -bucket, bucket - half)
        side = 2 * (head % 2) - 1
        slope = 2.0 ** (1 - head // 2)
        self.table.weight[:, : num_heads // 2] = -slope * (offset[:, None] - side).abs()

    def forward(self, query_positions, key_positions):
        """Original positions (B, Q) and (B, T) -> (B, H, Q, T) bias of each query to each key."""
        # The gradient of a bucket sums many small terms over pairs of positions, which half
        # precision would lose.
        weight = self.table.weight.to(torch.promote_types(self.table.weight.dtype, torch.float32))
        by_distance = weight[self.bucket].t().contiguous()  # (H, distances)
        distance = key_positions[:, None, :] - query_positions[:, :, None] + self.max_positions
        # Gathered head by head: its backward is one index_add_ instead of a scatter of rows.
        bias = by_distance.index_select(1, distance.flatten())
        return bias.view(len(by_distance), *distance.shape).transpose(0, 1)


class Attention(nn.Module):
    """Multi-head attention in which each group of rows attends to a prefix of the input.

    All have the same projections.
    """

    def __init__(self, width: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.head_width = width // num_heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, groups):
        """(B, T, C) -> (B * Q, C) for the groups of the last Q rows, in their order."""
        B, T, C = x.shape
        Q = total_queries(groups)
        x = x.to(matmul_dtype(x))  # autocast would do so for each product
        queries = self.query(last_rows(x, Q).flatten(0, 1))
        key_value = self.key_value(x.flatten(0, 1))
        queries = queries.view(B, Q, self.num_heads, self.head_width)
        key_value = key_value.view(B, T, 2, self.num_heads, self.head_width)
        dropout = self.dropout if self.training else 0.0
        attended = grouped_attention(queries, key_value, groups, dropout)
        return self.out(attended.reshape(B * Q, C))


class TransformerLayer(nn.Module):
    """Post-LN layer as in BERT: attention, residual, LayerNorm, GELU FFN, residual, LayerNorm."""

    def __init__(
        self,
        width: int,
        ffn_width: int,
        num_heads: int,
        dropout: float,
        attention_dropout: float,
        eps: float,
    ):
        super().__init__()
        self.attention = Attention(width, num_heads, attention_dropout)
        self.attention_norm = nn.LayerNorm(width, eps)
        self.ffn = nn.ModuleList([nn.Linear(width, ffn_width), nn.Linear(ffn_width, width)])
        self.ffn_norm = nn.LayerNorm(width, eps)
        self.dropout = Dropout(dropout)

    def forward(self, x, groups):
        """(B, T, C) -> (B, Q, C) for the groups of the last Q rows, in their order.

        In between, the rows of all sequences are one dimension: PyTorch would flatten the input of
        each linear layer, and a GPU would wait for it.
        """
        B, _, C = x.shape
        Q = total_queries(groups)
        attended = self.attention(x, groups)
        y = self.attention_norm(last_rows(x, Q).flatten(0, 1) + self.dropout(attended))
        expand, contract = self.ffn
        z = contract(F.gelu(expand(y)))
        return self.ffn_norm(y + self.dropout(z)).view(B, Q, C)


def last_rows(x, count):
    """(B, T, C) -> (B, count, C), the last positions; `count` may be 0."""
    return x if count == x.size(1) else x[:, x.size(1) - count :]


class Masks(NamedTuple):
    """Rows that enter a Transformer before its last layers.

    They attend to all rows; the other rows do not attend to them.
    """

    embedded: torch.Tensor  # (B, M, C)
    positions: torch.Tensor  # (B, M), -1 for padding
    num_layers: int  # how many of the last layers they pass


class Transformer(nn.Module):
    """Position embeddings, LayerNorm, dropout and layers: the encoder and the decoder.

    Settings shared by encoder and decoder come from `config.MaeLmConfig`.
    """

    def __init__(self, cfg, num_layers, dropout, attention_dropout, relative_bias=True):
        super().__init__()
        width = cfg.encoder_embed_dim
        num_heads = cfg.encoder_attention_heads
        num_buckets = cfg.relative_position_num_buckets
        self.embed_positions = nn.Embedding(cfg.max_positions + 1, width, padding_idx=0)
        self.norm = nn.LayerNorm(width, cfg.layer_norm_eps)
        self.dropout = Dropout(dropout)
        self.relative_bias = None
        if num_buckets and relative_bias:
            max_distance = cfg.relative_position_max_distance
            buckets = str(cfg.relative_position_buckets)
            self.relative_bias = RelativePositionBias(
                num_buckets, max_distance, num_heads, cfg.max_positions, buckets
            )
        ffn_width = cfg.encoder_ffn_embed_dim
        sizes = (width, ffn_width, num_heads, dropout, attention_dropout, cfg.layer_norm_eps)
        self.layers = nn.ModuleList(TransformerLayer(*sizes) for _ in range(num_layers))

    def forward(
        self, x, positions, has_padding: bool, num_output_rows=None, masks=None, all_layers=False
    ):
        """Runs the layers.

        Args:
            x: (B, T, C) token embeddings, or for the decoder the encoder's output
            positions: (B, T) original positions, -1 for padding
            has_padding: whether there is any padding; known without synchronising with the device
            num_output_rows: number of rows at the end that the last layer computes; None for all
            masks: `Masks`, which follow the T rows; None for none
            all_layers: return a list, the input of the first layer and the output of each
        Returns: (B, T, C), with masks (B, T + M, C), or (B, num_output_rows, C); or a list
        """
        dtype = matmul_dtype(x)
        x = self.embed_input(x, positions)
        groups = [self.query_group(positions, positions, has_padding, dtype)]
        mask_layer = None if masks is None else len(self.layers) - masks.num_layers
        hidden_states = []
        for i, layer in enumerate(self.layers):
            if i == mask_layer:
                x = torch.cat([x, self.embed_input(masks.embedded, masks.positions)], dim=1)
                keys = torch.cat([positions, masks.positions], dim=1)
                groups.append(self.query_group(masks.positions, keys, has_padding, dtype))
            if all_layers:
                hidden_states.append(x)
            if num_output_rows is not None and i == len(self.layers) - 1:
                groups = last_queries_of(groups, num_output_rows)
            x = layer(x, groups)
        if all_layers:
            return [*hidden_states, x]
        return x

    def embed_input(self, x, positions):
        """(B, T, C) rows at original positions (B, T) -> (B, T, C), the input of a layer."""
        return self.dropout(self.norm(x + self.embed_positions(positions + 1)))

    def query_group(self, query_positions, key_positions, has_padding, dtype):
        """The `QueryGroup` of rows at positions (B, Q) that attend to rows at positions (B, T).

        Its bias is (B, H, Q, T) or (B, 1, 1, T). In memory, its rows are padded to a multiple of
        BIAS_ROW_MULTIPLE elements: PyTorch's memory-efficient kernel would otherwise copy the bias
        in every layer, and keep the copies for the backward pass.
        """
        T = key_positions.size(1)
        key_positions = F.pad(key_positions, (0, -T % BIAS_ROW_MULTIPLE))
        bias = None
        if self.relative_bias is not None:
            bias = self.relative_bias(query_positions, key_positions).to(dtype)
        if has_padding:
            padding = key_positions.lt(0)[:, None, None, :]
            if bias is None:
                bias = torch.zeros(padding.shape, dtype=dtype, device=padding.device)
            bias = bias.masked_fill(padding, float("-inf"))
        if bias is not None:
            bias = bias[..., :T]
        return QueryGroup(query_positions.size(1), T, bias)
