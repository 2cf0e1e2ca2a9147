"""fairseq's binarized data (MMapIndexedDataset), without fairseq: where they are, and how they are
written.

SPLIT.bin contains the tokens of all lines, SPLIT.idx where they are
(`maelm_fairseq.base.line_index`); SPLIT.json, written last, records what encode.py read and wrote.
"""

import hashlib
import os

import numpy as np

from ..base.line_index import DTYPE_OF_CODE, HEADER, MAGIC

BUFFER = 1 << 20  # bytes of sizes read at a time


def shard_folder(dest, shard, num_shards):
    """The folder of a shard: `dest` itself if there is only one."""
    return os.path.join(dest, f"shard{shard}") if num_shards > 1 else dest


def is_encoded(folder, split):
    """Whether a split is complete: its record is written last."""
    paths = [os.path.join(folder, split + ending) for ending in (".bin", ".idx", ".json")]
    return all(map(os.path.exists, paths))


def token_dtype(num_symbols):
    """The type of a token in .bin, by the number of symbols, `<mask>` among them.

    It is fairseq's: uint16 for fewer than 65,500 symbols, without `<mask>`.
    """
    return np.uint16 if num_symbols <= 65500 else np.uint32


def write_index(stream, sizes, dtype):
    """Writes .idx, from a binary file with the tokens of each line, int32; returns its SHA-256."""
    num_lines = sizes.seek(0, os.SEEK_END) // 4
    (code,) = (code for code, type_of_code in DTYPE_OF_CODE.items() if type_of_code is dtype)
    digest = hashlib.sha256()

    def write(part):
        stream.write(part)
        digest.update(part)

    write(HEADER.pack(MAGIC, 1, code, num_lines))
    sizes.seek(0)
    for part in iter(lambda: sizes.read(BUFFER), b""):
        write(part)
    begin = 0  # where a line begins in .bin, in bytes
    sizes.seek(0)
    for part in iter(lambda: sizes.read(BUFFER), b""):
        tokens = np.cumsum(np.frombuffer(part, np.int32), dtype=np.int64)
        ends = begin + tokens * np.dtype(dtype).itemsize
        write(np.concatenate([[begin], ends[:-1]]).astype(np.int64).tobytes())
        begin = int(ends[-1])
    return digest.hexdigest()
