"""Binarized text to batches: blocks read from the memory map, masked, and collated."""

import io
import os
import pickle

import numpy as np
import torch
from fairseq.data import FairseqDataset, indexed_dataset

from . import compat
from .errors import UsageError

NO_POSITION = -1  # what padding has for a position


def _check_index(path):
    """Refuses an index of fairseq's whose header does not agree with its size: fairseq ends in a stack trace.

    After 9 bytes of name, 8 of version, 1 of the type of the tokens and 8 of the number of lines, there are 4 bytes of
    length and 8 of position for each line.
    """
    found = os.path.getsize(path)
    with open(path, "rb") as stream:
        header = stream.read(26)
    expected = 26 + 12 * int.from_bytes(header[18:], "little")
    if len(header) < 26 or found != expected:
        raise UsageError(f"{path} has {found} bytes, but its header implies {expected}: it is damaged; binarize again")
    start = indexed_dataset.MMapIndexedDataset.Index._HDR_MAGIC + (1).to_bytes(8, "little")
    if not header.startswith(start) or header[17] not in indexed_dataset._code_to_dtype:
        raise UsageError(f"{path} is damaged: its header is not one of fairseq's; binarize again")


class TokenBlocks:
    """Blocks of consecutive tokens of one binarized file.

    A line longer than a block is cut into blocks: every token is in exactly one block, except the `</s>` of the
    blank lines that separate documents in `complete_doc`.

    Args:
        prefix: path of the data without `.bin` and `.idx`
        block_size: maximum tokens of a block
        break_mode: none, complete, complete_doc or eos, as in fairseq
    """

    def __init__(self, prefix: str, block_size: int, break_mode: str):
        implementation = indexed_dataset.infer_dataset_impl(prefix)
        if implementation != "mmap":
            raise UsageError(
                f"{prefix}.idx is in fairseq's format {implementation!r}, expected 'mmap': "
                "binarize with `fairseq-preprocess --dataset-impl mmap`, its default"
            )
        self.prefix = prefix
        _check_index(indexed_dataset.index_file_path(prefix))
        index = indexed_dataset.MMapIndexedDataset.Index(indexed_dataset.index_file_path(prefix))
        self._dtype = index.dtype
        sizes = index.sizes.astype(np.int64)
        self.lines, self.tokens_in = len(sizes), int(sizes.sum())
        self._check(sizes, break_mode)

        spans = compat.block_spans(sizes, block_size, break_mode)
        self.starts, self.sizes = cut_spans(spans, block_size)
        self.separators = int((sizes == 1).sum()) if break_mode == "complete_doc" else 0
        lost = self.tokens_in - self.separators - int(self.sizes.sum())
        if lost:
            raise RuntimeError(f"{prefix}: {lost} of {self.tokens_in} tokens are in no block")
        self._map()

    def _check(self, sizes, break_mode):
        found = os.path.getsize(indexed_dataset.data_file_path(self.prefix))
        expected = self.tokens_in * np.dtype(self._dtype).itemsize
        if found != expected:
            raise UsageError(
                f"{self.prefix}.bin has {found} bytes, but .idx implies {expected}: "
                "it is incomplete, or the two files are of different runs; binarize again"
            )
        if self.tokens_in == 0:
            raise UsageError(f"{self.prefix}.idx contains no text, expected at least one line; binarize again")
        if break_mode == "complete_doc" and not (sizes == 1).any():
            raise UsageError(
                f"{self.prefix}: no blank line among {self.lines:,} lines, but --sample-break-mode "
                "complete_doc recognises documents by the blank line after each; keep blank lines when "
                "preparing the data (data-prep/prepare.sh does), or use --sample-break-mode complete"
            )
        if break_mode == "complete_doc" and (sizes == 1).all():
            raise UsageError(f"{self.prefix}: all {self.lines:,} lines are blank; binarize again")

    def _map(self):
        path = indexed_dataset.data_file_path(self.prefix)
        self._tokens = np.memmap(path, dtype=self._dtype, mode="r")

    def __getstate__(self):
        """Leaves out the memory map: a spawned worker opens its own instead of receiving the corpus."""
        return {name: value for name, value in vars(self).items() if name != "_tokens"}

    def __setstate__(self, state):
        vars(self).update(state)
        self._map()

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i) -> np.ndarray:
        """Block `i`: int64 (tokens,)."""
        return self._tokens[self.starts[i] : self.starts[i] + self.sizes[i]].astype(np.int64)

    def __str__(self):
        return (
            f"{self.prefix}: {self.lines:,} lines, {self.tokens_in:,} tokens in; {len(self):,} blocks, "
            f"{int(self.sizes.sum()):,} tokens out, and {self.separators:,} blank lines between documents"
        )


def cut_spans(spans, block_size):
    """Cuts spans longer than a block into blocks.

    Args:
        spans: int64 (n, 2), first token and one after the last
    Returns:
        starts, sizes: int64 (blocks,)
    """
    lengths = spans[:, 1] - spans[:, 0]
    pieces = -(-lengths // block_size)
    which = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(spans[:, 0], pieces) + which * block_size
    sizes = np.minimum(block_size, np.repeat(spans[:, 1], pieces) - starts)
    return starts, sizes


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


class WholeDataset(FairseqDataset):
    """A dataset of which every item is in a batch."""

    def batch_by_size(self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1):
        """fairseq's batches, and one more for the items that it drops when they do not fill a multiple at the end."""
        batches = super().batch_by_size(indices, max_tokens, max_sentences, required_batch_size_multiple)
        left = indices[~np.isin(indices, np.concatenate([indices[:0], *batches]))]
        return [*batches, left] if len(left) else batches


class MaskedBlockDataset(WholeDataset):
    """Blocks of text with `<s>` in front, masked anew in every epoch.

    Args:
        parts: list of :class:`TokenBlocks`, one for each file
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
            id=torch.tensor(indices),
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
        order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self))
        return order[np.argsort(self.sizes[order], kind="stable")]

    def size(self, index):
        return self.sizes[index]

    num_tokens = size
    num_tokens_vec = size
