"""Streams: which rows of a layer's input attend to which.

Letters in shapes: B sequences, H heads.
"""

from typing import NamedTuple, Optional

import torch


class Stream(NamedTuple):
    """Consecutive rows of a layer's input that attend to the same rows, always the first ones."""

    queries: int  # how many rows
    keys: int  # how many they attend to
    # Added to their attention logits; broadcasts to (B, H, queries, keys). None: nothing is added.
    bias: Optional[torch.Tensor]

    def last(self, count):
        """The last `count` rows of the stream."""
        bias = self.bias
        if bias is not None and bias.size(2) > 1:
            bias = bias[:, :, bias.size(2) - count :]
        return Stream(count, self.keys, bias)


def last_of(streams, count):
    """The parts of consecutive streams that make up their last `count` rows.

    Streams without rows are left out, but one is kept if all are empty.
    """
    chosen = []
    for stream in reversed(streams):
        rows = min(count, stream.queries)
        count -= rows
        chosen.insert(0, stream.last(rows))
    with_rows = [stream for stream in chosen if stream.queries]
    return with_rows or chosen[-1:]
