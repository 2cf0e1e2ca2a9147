"""Streams: which rows of a layer's input attend to which.

Letters in shapes: B sequences, H heads.
"""

from typing import NamedTuple, Optional

import torch


class Stream(NamedTuple):
    """Consecutive rows of a layer's input that attend to the same rows, which are always its first."""

    queries: int  # how many rows
    keys: int  # how many they attend to
    bias: Optional[torch.Tensor]  # of their attention logits, broadcasts to (B, H, queries, keys); None for none

    def last(self, count):
        """The last `count` rows of the stream."""
        bias = self.bias
        if bias is not None and bias.size(2) > 1:
            bias = bias[:, :, bias.size(2) - count :]
        return Stream(count, self.keys, bias)


def last_of(streams, count):
    """Of streams one after another, those of the last `count` rows; without empty ones, if any is not."""
    chosen = []
    for stream in reversed(streams):
        rows = min(count, stream.queries)
        count -= rows
        chosen.insert(0, stream.last(rows))
    return [stream for stream in chosen if stream.queries] or chosen[-1:]
