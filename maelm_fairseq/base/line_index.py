"""The index of fairseq's binarized data (MMapIndexedDataset), without fairseq: SPLIT.idx.

It has a header, the number of tokens of each line (int32), `</s>` included, and the byte at which
each line begins (int64).
"""

import os
import struct

import numpy as np

from .errors import UsageError
from .opening import open_to_read

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQ")  # magic, version, code of the type of the tokens, lines
DTYPE_OF_CODE = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64}
DTYPE_OF_CODE |= {8: np.uint16, 9: np.uint32, 10: np.uint64}
LINES_PER_READ = 1 << 22  # that are read at a time


class LineIndex:
    """The number of tokens of each line.

    Attributes:
        path: path of the index
        dtype: the type of the tokens in `.bin`
        num_tokens: their number
    Args:
        prefix: the path of the data without `.idx`
        advice: what to do about damaged files, for error messages
    Raises UsageError: it is in another format, or index and data do not have the length that the
        header implies
    """

    def __init__(self, prefix, advice="binarize again"):
        self.path = prefix + ".idx"
        self._advice = advice
        with open_to_read(self.path) as stream:
            header = stream.read(HEADER.size)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 8))
            end = stream.read()
        magic, version, code, self._num_lines = HEADER.unpack(header.ljust(HEADER.size, b"\0"))
        if (magic, version) != (MAGIC, 1) or code not in DTYPE_OF_CODE:
            raise UsageError(
                f"{self.path} is not an index of fairseq's format 'mmap', the default of "
                f"fairseq-preprocess; {advice}"
            )
        expected = HEADER.size + 12 * self._num_lines
        if size != expected:
            raise UsageError(
                f"{self.path} has {size} bytes, but its header implies {expected}: it is damaged; "
                f"{advice}"
            )
        self.dtype = np.dtype(DTYPE_OF_CODE[code])
        last_begin = int.from_bytes(end, "little") if self._num_lines else 0
        last_size = int(self.read(max(0, self._num_lines - 1)).sum()) * self.dtype.itemsize
        data_size = last_begin + last_size
        check_bytes_of_tokens(prefix, os.path.getsize(prefix + ".bin"), data_size, advice)
        self.num_tokens = data_size // self.dtype.itemsize

    def __len__(self):
        return self._num_lines

    def read(self, first, count=LINES_PER_READ):
        """The sizes of `count` lines, or of those left: int64 (lines,)."""
        count = min(count, self._num_lines - first)
        return self._column(HEADER.size + 4 * first, np.int32, count)

    def parts(self):
        """Yields the first line and the sizes of each part.

        They are compared with the offsets in the file, which say where its lines begin.

        Raises UsageError: a line has no token, not even `</s>`, or begins elsewhere than the line
            before it ends
        """
        begin = 0  # of a part, in tokens
        offsets_begin = HEADER.size + 4 * self._num_lines
        for first in range(0, self._num_lines, LINES_PER_READ):
            sizes = self.read(first)
            expected = (begin + np.cumsum(sizes) - sizes) * self.dtype.itemsize
            stored = self._column(offsets_begin + 8 * first, np.int64, len(sizes))
            wrong = np.flatnonzero((sizes < 1) | (stored != expected))
            if len(wrong):
                i = wrong[0]
                raise UsageError(
                    f"{self.path}: line {first + i + 1} has {sizes[i]} tokens from byte "
                    f"{stored[i]}, expected one or more from byte {expected[i]}: it is damaged; "
                    f"{self._advice}"
                )
            begin += int(sizes.sum())
            yield first, sizes

    def _column(self, offset, dtype, count):
        """Numbers of the file, from a byte on: int64 (count,)."""
        with open_to_read(self.path) as stream:
            stream.seek(offset)
            return np.fromfile(stream, dtype, count).astype(np.int64)


def check_bytes_of_tokens(prefix, actual, expected, advice="binarize again"):
    """Refuses a file of tokens that has another number of bytes than its index implies."""
    if actual != expected:
        raise UsageError(
            f"{prefix}.bin has {actual} bytes, but .idx implies {expected}: it is incomplete, or "
            f"the two files are of different runs; {advice}"
        )


def check_index(prefix):
    """Refuses binarized data whose index cannot be read; `prefix` as for `LineIndex`."""
    LineIndex(prefix)
