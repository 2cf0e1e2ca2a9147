"""Which items form a batch: arrays, where fairseq has a Python object for each batch."""

import functools
import zlib

import numpy as np

from ..engine import FairseqDataset


class Batches:
    """A sequence of batches, each an array of item numbers.

    Args:
        indices: (items,), item numbers
        ends: int64 (batches,), the end of each batch in `indices`
        starts: int64 (batches,), its start; None if each starts where the one before ends
    """

    def __init__(self, indices, ends, starts=None):
        self._indices, self._ends = indices, ends
        self._starts = ends - np.diff(ends, prepend=0) if starts is None else starts

    def __len__(self):
        return len(self._ends)

    def __getitem__(self, which):
        """One batch, or the sequence of those in a slice or an array."""
        start, end = self._starts[which], self._ends[which]
        return Batches(self._indices, end, start) if np.ndim(end) else self._indices[start:end]

    def shard(self, count, number):
        """Every `count`-th batch from `number` on; at the end of some shards an empty one, so that all are as long."""
        empty = np.zeros(-len(self) % count, np.int64)
        starts, ends = (np.concatenate([each, empty])[number::count] for each in (self._starts, self._ends))
        return Batches(self._indices, ends, starts)


def batch_ends(sizes, max_tokens=None, max_sentences=None, multiple=1):
    """Cuts items in order of size into batches as large as allowed: fairseq's, and its last one is never dropped.

    Args:
        sizes: (items,), tokens of each item, ascending
        max_tokens: of a batch, padding included; None for any number. A longer item forms its own batch
        max_sentences: items of a batch; None for any number
        multiple: a batch has less than so many items, or a multiple
    Returns: int64 (batches,): the end of each
    """

    def allowed(count):
        return count if count < multiple else count - count % multiple

    ends, start = [np.empty(0, np.int64)], 0
    while start < len(sizes):
        most = max_tokens // max(1, int(sizes[start])) if max_tokens else len(sizes)
        limit = max(1, min(most, max_sentences or len(sizes)))
        same = np.searchsorted(sizes, sizes[start], side="right") if max_tokens else len(sizes)
        whole = (same - start) // allowed(limit)
        if whole:  # batches of items of this size
            ends.append(start + allowed(limit) * np.arange(1, whole + 1))
        else:  # one that reaches into longer items, or to the end
            after = sizes[start : start + limit].astype(np.int64)
            fits = np.arange(1, len(after) + 1) * after <= (max_tokens or np.inf)
            ends.append(np.array([start + allowed(max(1, int(fits.sum())))]))
        start = int(ends[-1][-1])
    return np.concatenate(ends)


def batches_of_similar_length(lengths, tokens):
    """Groups rows into batches with little padding: yields index tensors, the longest rows first.

    Args:
        lengths: int64 tensor (rows,), tokens of each row
        tokens: maximum tokens of a batch, including padding; a longer row forms its own batch
    """
    order = lengths.argsort(descending=True)
    while len(order):
        size = max(1, tokens // max(1, int(lengths[order[0]])))
        yield order[:size]
        order = order[size:]


class EveryItemDataset(FairseqDataset):
    """A dataset of which every item is in a batch; `sizes` has the tokens of each item.

    Its order is drawn anew each epoch: so are its batches, and a new iterator starts new workers, which know the epoch.
    """

    epoch = 1
    can_reuse_epoch_itr_across_epochs = False

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.sizes)

    @functools.cached_property
    def checksum(self):
        """A number by which other data, or the same in another order, are recognised."""
        return zlib.crc32(self.sizes)

    def size(self, index):
        return self.sizes[index]

    num_tokens = num_tokens_vec = size

    def batch_by_size(self, indices, *args, **kwargs):
        """fairseq's batches, and one more for the items that it drops when they do not fill a multiple at the end."""
        ends = np.cumsum([len(batch) for batch in super().batch_by_size(indices, *args, **kwargs)], dtype=np.int64)
        if not len(ends) or ends[-1] < len(indices):
            ends = np.append(ends, len(indices))
        return Batches(indices, ends)
