"""Binarized text cut into blocks of consecutive tokens, which are read when they are needed.

Nothing here is as large as the text, and there is no Python object for each block: the index of a
file is read in parts, and of each block only the start and the number of tokens are kept, 9 to 12
bytes.
"""

import functools
import os

import numpy as np

from ..base.errors import UsageError
from ..base.line_index import LINES_PER_READ, LineIndex, check_bytes_of_tokens
from ..base.opening import open_to_read
from ..fairseq_api import _get_slice_indices_fast, indexed_dataset


def cut_spans(spans, block_size):
    """Cuts spans longer than a block into blocks.

    Args:
        spans: int64 (n, 2), first token and one after the last
    Returns: starts, sizes: int64 (blocks,)
    """
    lengths = spans[:, 1] - spans[:, 0]
    pieces = -(-lengths // block_size)
    first_pieces = np.cumsum(pieces) - pieces
    place_in_span = np.arange(pieces.sum()) - np.repeat(first_pieces, pieces)
    starts = np.repeat(spans[:, 0], pieces) + place_in_span * block_size
    sizes = np.minimum(block_size, np.repeat(spans[:, 1], pieces) - starts)
    return starts, sizes


def line_spans(index, block_size, break_mode, at_once=LINES_PER_READ):
    """Where fairseq's break modes cut lines, except that longer lines are not cut.

    Yields int64 arrays (n, 2): the first token of each block, and the one after its last.

    Args:
        index: `line_index.LineIndex`
        break_mode: complete, complete_doc or eos
        at_once: lines read at a time, more than fit into a block
    """
    line = 0
    token = 0
    while line < len(index):
        sizes = index.read(line, at_once)
        spans = np.empty((0, 2), np.int64)
        # fairseq's function fails where there is no block.
        if break_mode != "complete_doc" or (sizes > 1).any():
            spans = _get_slice_indices_fast(sizes, break_mode, block_size, 1)
        ends = np.cumsum(sizes)
        read = len(sizes)
        lines_follow = line + read < len(index)
        if break_mode != "eos" and lines_follow and len(spans) and spans[-1, 0] > 0:
            # The last block may continue in the next lines: begin again where it begins.
            read = int(np.searchsorted(ends, spans[-1, 0], side="right"))
            spans = spans[:-1]
        yield spans + token
        line += read
        token += int(ends[read - 1])


class TokenBlocks:
    """Blocks of consecutive tokens of one binarized file.

    A line longer than a block is cut into blocks: every token is in exactly one block, except the
    `</s>` of the blank lines that separate documents in `complete_doc`.

    Args:
        prefix: path of the data without `.bin` and `.idx`
        block_size: maximum tokens of a block
        break_mode: none, complete, complete_doc or eos, as in fairseq

    Attributes:
        starts: int64 (blocks,), the first token of each block
        sizes: (blocks,), its number of tokens, of the smallest type that holds `block_size` + 1
    """

    def __init__(self, prefix: str, block_size: int, break_mode: str):
        self.prefix = prefix
        index = LineIndex(prefix)
        self._dtype = index.dtype
        self.num_lines = len(index)
        self.num_tokens = 0
        self.num_blank_lines = 0
        for _, sizes in index.parts():
            self.num_tokens += int(sizes.sum())
            self.num_blank_lines += int((sizes == 1).sum())
        self._check_length()
        self._check_text(break_mode)
        self.num_separators = self.num_blank_lines if break_mode == "complete_doc" else 0

        if break_mode == "none":
            # A single span, in which blocks start at multiples of their size.
            parts = [np.array([[0, self.num_tokens]])]
        else:
            parts = line_spans(index, block_size, break_mode)
        size_type = np.min_scalar_type(block_size + 1)
        starts = []
        sizes = []
        for spans in parts:
            part_starts, part_sizes = cut_spans(spans, block_size)
            starts.append(part_starts)
            sizes.append(part_sizes.astype(size_type))
        self.starts = np.concatenate(starts)
        self.sizes = np.concatenate(sizes)

        lost = self.num_tokens - self.num_separators - int(self.sizes.sum())
        if lost:
            raise RuntimeError(f"{prefix}: {lost} of {self.num_tokens} tokens are in no block")

    @functools.cached_property
    def _file(self):
        return open_to_read(indexed_dataset.data_file_path(self.prefix))

    def __getstate__(self):
        """The state without the open file: loader workers that are not forks open it themselves."""
        return {name: value for name, value in vars(self).items() if name != "_file"}

    def _check_length(self):
        size = os.fstat(self._file.fileno()).st_size
        check_bytes_of_tokens(self.prefix, size, self.num_tokens * self._dtype.itemsize)

    def _check_text(self, break_mode):
        if self.num_tokens == 0:
            raise UsageError(
                f"{self.prefix}.idx contains no text, expected at least one line; binarize again"
            )
        if break_mode == "complete_doc" and not self.num_blank_lines:
            raise UsageError(
                f"{self.prefix}: no blank line among {self.num_lines:,} lines, but "
                "--sample-break-mode complete_doc recognises documents by the blank line after "
                "each; keep blank lines when preparing the data (data-prep/prepare.sh does), or "
                "use --sample-break-mode complete"
            )
        if break_mode == "complete_doc" and self.num_blank_lines == self.num_lines:
            raise UsageError(
                f"{self.prefix}: all {self.num_lines:,} lines are blank; binarize again"
            )

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i) -> np.ndarray:
        """Block `i`: int64 (tokens,).

        Raises UsageError: the file has become shorter since it was opened
        """
        size = int(self.sizes[i]) * self._dtype.itemsize
        offset = int(self.starts[i]) * self._dtype.itemsize
        # Not mapped: a process that reads beyond the end of a mapped file is killed by SIGBUS.
        content = os.pread(self._file.fileno(), size, offset)
        if len(content) < size:
            self._check_length()
            raise UsageError(f"{self.prefix}.bin: block {i} cannot be read whole; check the disk")
        return np.frombuffer(content, self._dtype).astype(np.int64)

    def __str__(self):
        # Not the sum: prepare.sh reports lines of files, the last of which need not be blank.
        text_lines = self.num_lines - self.num_blank_lines
        text = (
            f"{self.prefix}: {text_lines:,} lines with text + {self.num_blank_lines:,} blank, "
            f"{self.num_tokens:,} tokens in; {len(self):,} blocks, "
            f"{int(self.sizes.sum()):,} tokens out"
        )
        if self.num_separators:
            text += ", without the </s> of blank lines, which end documents"
        return text
