"""Which items form a batch: arrays, where fairseq has a Python object for each batch."""

import functools
import zlib

import numpy as np

from ..fairseq_api import FairseqDataset


class BatchIndices:
    """A sequence of batches, each an array of item numbers.

    Args:
        indices: (items,), item numbers
        ends: int64 (batches,), the end of each batch in `indices`
        starts: int64 (batches,), its start; None if each batch starts where the previous one ends
    """

    def __init__(self, indices, ends, starts=None):
        self._indices = indices
        self._ends = ends
        self._starts = ends - np.diff(ends, prepend=0) if starts is None else starts

    def __len__(self):
        return len(self._ends)

    def __getitem__(self, key):
        """One batch, or the sequence of those in a slice or an array."""
        start = self._starts[key]
        end = self._ends[key]
        if np.ndim(end):
            return BatchIndices(self._indices, end, start)
        return self._indices[start:end]

    def shard(self, count, number):
        """Every `count`-th batch from `number` on.

        Where batches do not divide evenly, the shorter shards end in an empty batch, so that all
        shards have the same length.
        """
        empty = np.zeros(-len(self) % count, np.int64)
        starts = np.concatenate([self._starts, empty])[number::count]
        ends = np.concatenate([self._ends, empty])[number::count]
        return BatchIndices(self._indices, ends, starts)


def batch_ends(sizes, max_tokens=None, max_sentences=None, multiple=1):
    """Cuts items in order of size into batches that are as large as allowed.

    These are fairseq's batches, but the last one is never dropped.

    Args:
        sizes: (items,), tokens of each item, ascending
        max_tokens: of a batch, padding included; None for any number. A longer item forms its own
            batch
        max_sentences: items of a batch; None for any number
        multiple: a batch has either fewer items than this, or a multiple of it
    Returns: int64 (batches,): the end of each
    """

    def allowed(count):
        return count if count < multiple else count - count % multiple

    ends = [np.empty(0, np.int64)]
    start = 0
    while start < len(sizes):
        max_rows = len(sizes)
        end_of_size = len(sizes)
        if max_tokens:
            max_rows = max_tokens // max(1, int(sizes[start]))
            end_of_size = np.searchsorted(sizes, sizes[start], side="right")
        limit = max(1, min(max_rows, max_sentences or len(sizes)))
        whole = (end_of_size - start) // allowed(limit)
        if whole:  # batches of items of this size
            ends.append(start + allowed(limit) * np.arange(1, whole + 1))
        else:  # one batch that reaches into longer items, or to the end
            following = sizes[start : start + limit].astype(np.int64)
            padded = np.arange(1, len(following) + 1) * following
            fitting = int((padded <= (max_tokens or np.inf)).sum())
            ends.append(np.array([start + allowed(max(1, fitting))]))
        start = int(ends[-1][-1])
    return np.concatenate(ends)


def batches_of_similar_length(lengths, max_tokens):
    """Groups rows into batches with little padding: yields index tensors, the longest rows first.

    Args:
        lengths: int64 tensor (rows,), tokens of each row
        max_tokens: maximum tokens of a batch, including padding; a longer row forms its own batch
    """
    order = lengths.argsort(descending=True)
    while len(order):
        size = max(1, max_tokens // max(1, int(lengths[order[0]])))
        yield order[:size]
        order = order[size:]


class EveryItemDataset(FairseqDataset):
    """A dataset of which every item is in a batch; `sizes` has the tokens of each item.

    The order of the items is drawn anew each epoch, and so are the batches. Each epoch has a new
    iterator with new workers, which therefore know the epoch.
    """

    epoch = 1
    can_reuse_epoch_itr_across_epochs = False

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.sizes)

    @functools.cached_property
    def checksum(self):
        """A checksum that changes if the data change, or their order."""
        return zlib.crc32(self.sizes)

    def size(self, index):
        return self.sizes[index]

    num_tokens = num_tokens_vec = size

    def batch_by_size(self, indices, *args, **kwargs):
        """fairseq's batches, and one more for the items at the end that it drops.

        It drops them where they do not fill a multiple of the required batch size.
        """
        batches = super().batch_by_size(indices, *args, **kwargs)
        ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
        if not len(ends) or ends[-1] < len(indices):
            ends = np.append(ends, len(indices))
        return BatchIndices(indices, ends)
