"""Batches in arrays are those of fairseq's lists."""

import numpy as np
import pytest
from fairseq.data import data_utils

from maelm_fairseq.data.batches import Batches, WholeDataset, batch_ends

LIMITS = [(None, 8, 8), (None, 16, 8), (None, 5, 1), (None, 12, 8), (40, None, 8), (64, 5, 1), (200, 24, 8), (63, 9, 4)]


def fairseq_batches(sizes, indices, tokens, sentences, multiple):
    """fairseq's, and what it drops at the end."""
    batches = data_utils.batch_by_size(indices, None, sizes[indices].astype(np.int64), tokens, sentences, multiple)
    left = indices[sum(map(len, batches)) :]
    return [batch.tolist() for batch in [*batches, left] if len(batch)]


class Items(WholeDataset):
    """Items of given sizes."""

    def __init__(self, sizes):
        self.sizes = sizes

    def num_tokens_vec(self, indices):
        return self.sizes[indices]


@pytest.mark.parametrize("tokens, sentences, multiple", LIMITS)
def test_ends_are_those_of_fairseq_and_nothing_is_lost(tokens, sentences, multiple):
    rng = np.random.default_rng(1)
    for count in [1, 7, 8, 9, 60, 400, 401]:
        for most in [2, 5, 40]:
            sizes = rng.integers(1, most + 1, count).astype(np.uint8)
            ordered, mixed = np.argsort(sizes, kind="stable"), rng.permutation(count)
            ours = Batches(ordered, batch_ends(sizes[ordered], tokens, sentences, multiple))
            whole = Items(sizes).batch_by_size(mixed, tokens, sentences, multiple)
            for indices, batches in [(ordered, ours), (mixed, whole)]:
                expected = fairseq_batches(sizes, indices, tokens, sentences, multiple)
                assert [batch.tolist() for batch in batches] == expected
                assert np.concatenate(list(batches)).tolist() == indices.tolist()


def test_no_items_and_items_that_are_too_long():
    assert batch_ends(np.empty(0, np.uint8), 10, 3, 8).tolist() == []
    assert batch_ends(np.array([3, 3, 20, 30]), 6, None, 8).tolist() == [2, 3, 4]
