"""Blocks of text to batches: masked, and collated."""

import io
import pickle

import numpy as np
import torch
from fairseq.data import FairseqDataset

from .batches import Batches, batch_ends
from .errors import UsageError
from .masking import NO_POSITION


def pad_rows(rows, value):
    """Rows of different lengths -> int64 (rows, longest), padded at the end with `value`."""
    rows = list(rows)
    batch = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for into, row in zip(batch, rows):
        into[: len(row)] = row
    return batch


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


class Batch(dict):
    """A batch that loader workers send as bytes: PyTorch would open a file and a socket for each tensor."""

    def __reduce__(self):
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = {torch.Tensor: lambda tensor: (torch.from_numpy, (tensor.numpy(),))}
        pickler.dump(dict(self))
        return pickle.loads, (stream.getvalue(),)


class MaskedBlockDataset(FairseqDataset):
    """Blocks of text with `<s>` in front, masked anew in every epoch.

    Args:
        parts: list of :class:`~maelm_fairseq.blocks.TokenBlocks`, one for each file
        masking: :class:`~maelm_fairseq.masking.Masking`
        dictionary: fairseq's, with `<mask>`
        seed: of the order of the blocks
    """

    def __init__(self, parts, masking, dictionary, seed: int):
        self.parts = parts
        self.masking = masking
        self.dictionary = dictionary
        self.seed = seed
        self.epoch = 1
        self.sizes = np.concatenate([part.sizes for part in parts]) + 1
        self._first = np.cumsum([0] + [len(part) for part in parts])

    # Batches are formed anew each epoch, and a new iterator starts new workers, which know the epoch.
    can_reuse_epoch_itr_across_epochs = False

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.sizes)

    def tokens(self, index) -> np.ndarray:
        """The block before masking, `<s>` first: int64 (T,)."""
        part = int(np.searchsorted(self._first, index, side="right")) - 1
        block = self.parts[part][index - self._first[part]]
        highest, mask = block.max(), self.masking.mask_token
        if highest >= mask and (highest >= len(self.dictionary) or mask in block):
            found = "<mask>" if mask in block else f"token {highest}"
            raise UsageError(
                f"{self.parts[part].prefix}: {found} in block {index}, expected tokens of text, below "
                f"{len(self.dictionary)}: the data were binarized with another dict.txt, or their text contains "
                "<mask>; binarize them again with this dict.txt"
            )
        return np.concatenate([[self.dictionary.bos()], block])

    def __getitem__(self, index):
        return index, self.masking(self.tokens(index), self.epoch, int(index))

    def collater(self, samples):
        """Merges items to a batch of tensors.

        Returns:
            dict: `net_input` with `src_tokens` and `positions` (B, V), `masked_positions` (B, M),
            `num_predicted` (K) and `padded` (bool); `target` (B, K). Of the rows [encoder input, masked]
            the last K are predicted. Counts exclude padding.
        """
        if not samples:
            return {}
        indices, blocks = zip(*samples)
        pad = self.dictionary.pad()

        def merge(value, *groups):
            """Pads each group by itself, so that the predicted rows stay together at the end."""
            return torch.from_numpy(np.concatenate([pad_rows(map(group, blocks), value) for group in groups], axis=1))

        tokens = merge(pad, lambda b: b.context_tokens, lambda b: b.predicted_visible_tokens)
        positions = merge(NO_POSITION, lambda b: b.context, lambda b: b.predicted_visible)
        masked = merge(NO_POSITION, lambda b: b.masked)
        target = merge(
            pad, lambda b: b.targets[: len(b.predicted_visible)], lambda b: b.targets[len(b.predicted_visible) :]
        )

        ncontext = sum(len(b.context) for b in blocks)
        npredicted = sum(len(b.targets) for b in blocks)
        return Batch(
            id=np.array(indices),  # not a tensor, which would travel to the device
            net_input={
                "src_tokens": tokens,
                "positions": positions,
                "masked_positions": masked,
                "num_predicted": target.size(1),
                "padded": tokens.numel() + masked.numel() > ncontext + npredicted,
            },
            target=target,
            nsentences=len(blocks),
            ntokens=ncontext + npredicted,
            nvisible=ncontext + sum(len(b.predicted_visible) for b in blocks),
            npredicted=npredicted,
        )

    def ordered_indices(self):
        """Short blocks first; blocks of equal length in an order drawn from (seed, epoch)."""
        numbers = np.arange(len(self), dtype=np.min_scalar_type(len(self)))
        order = np.random.default_rng([self.seed, self.epoch]).permutation(numbers)
        return order[np.argsort(self.sizes[order], kind="stable")]

    def batch_by_size(self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1):
        """fairseq's batches of `ordered_indices`, or a part of them, as :class:`~maelm_fairseq.batches.Batches`."""
        ends = batch_ends(self.sizes[indices], max_tokens, max_sentences, required_batch_size_multiple)
        return Batches(indices, ends)

    def size(self, index):
        return self.sizes[index]

    num_tokens = size
    num_tokens_vec = size
