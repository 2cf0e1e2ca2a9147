"""fairseq's binarized data (MMapIndexedDataset): where they are, and how they are written and read without fairseq.

SPLIT.bin contains the tokens of all lines; SPLIT.idx a header, the number of tokens in each line (int32), and the byte
of SPLIT.bin at which each line begins (int64). SPLIT.json, written last, records what encode.py read and wrote.
"""

import os
import shutil
import struct

import numpy as np

from command_line import InputError
from records import SPLIT, load_json

EOS = 2  # id of `</s>`, in SentencePiece and in fairseq
UNKNOWN = 3  # fairseq's id of `<unk>`
INDEX_MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQ")  # magic, version, code of the type, lines
DTYPE_CODES = {np.uint16: 8, np.uint32: 9}  # fairseq's
DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}
BUFFER = 1 << 20  # bytes of sizes read at a time
AGAIN = "remove {} and run prepare.sh again"


def shard_folder(dest, shard, shards):
    """The folder of a shard: `dest` itself if there is only one."""
    return os.path.join(dest, f"shard{shard}") if shards > 1 else dest


def is_encoded(folder, split):
    """Whether a split is complete: its record is written last."""
    return all(os.path.exists(os.path.join(folder, split + ending)) for ending in (".bin", ".idx", ".json"))


def token_dtype(pieces):
    """The type of a token in .bin: fairseq uses 16 bits for dictionaries of less than 65,500 entries, with <pad>."""
    return np.uint16 if pieces + 1 < 65500 else np.uint32


def write_index(stream, sizes, dtype):
    """Writes .idx.

    Args:
        stream: the binary file to write
        sizes: a binary file with the tokens of each line as int32
        dtype: of a token in .bin
    """
    lines = sizes.seek(0, os.SEEK_END) // 4
    stream.write(HEADER.pack(INDEX_MAGIC, 1, DTYPE_CODES[dtype], lines))
    sizes.seek(0)
    shutil.copyfileobj(sizes, stream)
    sizes.seek(0)
    begin = 0
    for part in iter(lambda: sizes.read(BUFFER), b""):
        ends = begin + np.cumsum(np.frombuffer(part, np.int32), dtype=np.int64) * np.dtype(dtype).itemsize
        stream.write(np.concatenate([[begin], ends[:-1]]).astype(np.int64).tobytes())
        begin = int(ends[-1])


class Split:
    """Reads the data of a split.

    Attributes:
        record: contents of SPLIT.json
        tokens: (tokens,) of all lines, memory-mapped
        sizes, starts: (lines,) and (lines + 1,) tokens of each line, and its first token
    Raises:
        InputError: a file is missing, damaged, or does not have the length that the index implies
    """

    def __init__(self, folder, name):
        self.prefix = os.path.join(folder, name)
        self.record = load_json(self.prefix + ".json", SPLIT, AGAIN.format(self.prefix + ".*"))
        for path in [self.prefix + ending for ending in (".bin", ".idx", ".json")]:
            if not os.path.exists(path):
                raise InputError(f"{path} does not exist: the preparation was not finished; run prepare.sh again")
        self.sizes, self.starts, dtype = self.read_index()
        expected = int(self.starts[-1]) * np.dtype(dtype).itemsize
        found = os.path.getsize(self.prefix + ".bin")
        if found != expected:
            raise InputError(
                f"{self.prefix}.bin has {found} bytes, but .idx implies {expected}; " + AGAIN.format(self.prefix + ".*")
            )
        self.tokens = np.memmap(self.prefix + ".bin", dtype=dtype, mode="r") if expected else np.zeros(0, dtype)

    def read_index(self):
        """Reads .idx: the sizes, the starts, and the type of a token."""
        path = self.prefix + ".idx"
        with open(path, "rb") as stream:
            header = stream.read(HEADER.size)
            magic, version, code, lines = HEADER.unpack(header.ljust(HEADER.size, b"\0"))
            if magic != INDEX_MAGIC or version != 1 or code not in DTYPES:
                raise InputError(f"{path} is not an index of fairseq-preprocess; " + AGAIN.format(self.prefix + ".*"))
            found, expected = os.path.getsize(path), HEADER.size + 12 * lines
            if found != expected:
                raise InputError(
                    f"{path} has {found} bytes, but {lines} lines take {expected}; " + AGAIN.format(self.prefix + ".*")
                )
            sizes = np.fromfile(stream, dtype=np.int32, count=lines)
            begins = np.fromfile(stream, dtype=np.int64, count=lines)
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        if (sizes < 1).any() or not np.array_equal(begins, starts[:-1] * np.dtype(DTYPES[code]).itemsize):
            raise InputError(f"{path} is damaged: lines do not follow each other; " + AGAIN.format(self.prefix + ".*"))
        return sizes, starts, DTYPES[code]

    def line(self, number):
        """Ids of a line, without its `</s>`."""
        return self.tokens[self.starts[number] : self.starts[number + 1] - 1].tolist()
