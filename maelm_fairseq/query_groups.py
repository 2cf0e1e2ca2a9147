"""Groups of queries: which rows of a layer's input attend to which.

Letters in shapes: B sequences, H heads.
"""

from typing import NamedTuple, Optional

import torch


class QueryGroup(NamedTuple):
    """Consecutive rows of a layer's input that attend to the same rows, always the first ones."""

    num_queries: int  # rows
    num_keys: int  # rows that they attend to
    # Added to their attention logits, unless it is None; broadcasts to
    # (B, H, num_queries, num_keys).
    bias: Optional[torch.Tensor]

    def last_queries(self, count):
        """The last `count` rows of the group."""
        bias = self.bias
        if bias is not None and bias.size(2) > 1:
            bias = bias[:, :, bias.size(2) - count :]
        return QueryGroup(count, self.num_keys, bias)


def total_queries(groups):
    """The number of rows of all groups."""
    return sum(group.num_queries for group in groups)


def last_queries_of(groups, count):
    """The parts of consecutive groups that make up their last `count` rows.

    Groups without rows are left out, but one is kept if all are empty.
    """
    chosen = []
    for group in reversed(groups):
        rows = min(count, group.num_queries)
        count -= rows
        chosen.insert(0, group.last_queries(rows))
    with_rows = [group for group in chosen if group.num_queries]
    return with_rows or chosen[-1:]
