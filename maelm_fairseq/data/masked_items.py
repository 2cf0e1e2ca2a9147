"""From blocks of text to batches: masking and collating."""

import functools
import zlib

import numpy as np

from ..base.errors import UsageError
from ..masking import collate
from .batching import BatchIndices, EveryItemDataset, batch_ends
from .picklable_batch import PicklableBatch

BLOCKS_PER_READ = 1 << 14  # blocks of a sample that are read at a time
CHECKSUM_BLOCKS = 64  # blocks whose tokens are in the checksum of the data


class MaskedBlockDataset(EveryItemDataset):
    """Blocks of text with `<s>` prepended, masked anew in every epoch.

    `parts` is a list of `blocks.TokenBlocks`, one for each file; `seed` is that of the order of the
    blocks.
    """

    def __init__(self, parts, masking, dictionary, seed: int):
        self.parts = parts
        self.masking = masking
        self.dictionary = dictionary
        self.seed = seed
        self.sizes = np.concatenate([part.sizes for part in parts]) + 1
        self._first = np.cumsum([0] + [len(part) for part in parts])

    def tokens(self, index) -> np.ndarray:
        """The block before masking, `<s>` first: int64 (T,)."""
        part_index = int(np.searchsorted(self._first, index, side="right")) - 1
        part = self.parts[part_index]
        block = part[index - self._first[part_index]]
        highest = block.max()
        mask = self.masking.mask_id
        if highest >= mask and (highest >= len(self.dictionary) or mask in block):
            symbol = "<mask>" if mask in block else f"token {highest}"
            raise UsageError(
                f"{part.prefix}: {symbol} in block {index}, expected tokens of text, below "
                f"{len(self.dictionary)}: the data were binarized with another dict.txt, or their "
                "text contains <mask>; binarize them again with this dict.txt"
            )
        return np.concatenate([[self.dictionary.bos()], block])

    @functools.cached_property
    def checksum(self):
        """A checksum of the sizes of all blocks, and of the tokens of some."""
        checked = np.linspace(0, len(self) - 1, CHECKSUM_BLOCKS).astype(np.int64)
        tokens = np.concatenate([self.tokens(index) for index in checked])
        return zlib.crc32(tokens, zlib.crc32(self.sizes))

    def evenly_spaced_blocks(self, limit):
        """Yields lists of blocks without `<s>`, every n-th of the text, so that they have about
        `limit` tokens."""
        step = -(-int(self.sizes.sum()) // limit)
        chosen = range(0, len(self), step)
        for start in range(0, len(chosen), BLOCKS_PER_READ):
            yield [self.tokens(index)[1:] for index in chosen[start : start + BLOCKS_PER_READ]]

    def token_counts(self, limit):
        """How often each symbol but `<s>` occurs in `evenly_spaced_blocks`: int64 (N,)."""
        counts = np.zeros(len(self.dictionary), np.int64)
        for blocks in self.evenly_spaced_blocks(limit):
            counts += np.bincount(np.concatenate(blocks), minlength=len(counts))
        return counts

    def __getitem__(self, index):
        return index, self.masking(self.tokens(index), self.epoch, int(index))

    def collater(self, samples):
        """Merges items to a batch of tensors.

        Returns: dict: `net_input`, a `masking.MaskedBatch` as a dict; `target` (B, K). Counts
        exclude padding.
        """
        if not samples:
            return {}
        indices, blocks = zip(*samples)
        inputs, target = collate(blocks, self.dictionary.pad())
        nvisible = sum(len(block.context) + len(block.predicted_visible) for block in blocks)
        return PicklableBatch(
            id=np.array(indices),  # not a tensor, which would travel to the device
            net_input=inputs._asdict(),
            target=target,
            nsentences=len(blocks),
            ntokens=nvisible + sum(len(block.masked) for block in blocks),
            nvisible=nvisible,
            npredicted=sum(len(block.targets) for block in blocks),
        )

    def ordered_indices(self):
        """Short blocks first; blocks of equal length in an order drawn from (seed, epoch)."""
        numbers = np.arange(len(self), dtype=np.min_scalar_type(len(self)))
        order = np.random.default_rng([self.seed, self.epoch]).permutation(numbers)
        return order[np.argsort(self.sizes[order], kind="stable")]

    def batch_by_size(
        self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1
    ):
        """fairseq's batches of `ordered_indices`, or of some of them: `batching.BatchIndices`."""
        sizes = self.sizes[indices]
        ends = batch_ends(sizes, max_tokens, max_sentences, required_batch_size_multiple)
        return BatchIndices(indices, ends)
