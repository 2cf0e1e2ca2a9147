"""The blocks of a large file, stored beside it: one process of a machine finds them, all map them."""

import logging
import os
import shutil
from collections import namedtuple

import numpy as np

from ..base.files import atomic_folder, one_at_a_time, read_json, save_json

logger = logging.getLogger(__name__)

FIELDS = ["index", "tokens", "blank_lines", "blocks"]


class Blocks(namedtuple("Blocks", "starts sizes tokens blank_lines")):
    """The blocks of a file: int64 (blocks,) first tokens, (blocks,) numbers of tokens; its tokens and blank lines."""


class StoredBlocks:
    """The folder of a file's blocks, 9 to 12 bytes each.

    Args:
        folder: path
        index: path of the file's `.idx`, by whose size and time its blocks are told from those of another
        size_type: NumPy type of the blocks' sizes
    """

    def __init__(self, folder, index, size_type):
        self.folder, self._index, self._size_type = folder, index, size_type

    def read(self):
        """Maps the stored :class:`Blocks`; None if there are none of this index, or their files are damaged."""
        try:
            record = read_json(self._path("blocks.json"), dict, "stored blocks")
            if record["index"] != self._identity():
                return None
            starts = self._map("starts.bin", np.int64, record["blocks"])
            sizes = self._map("sizes.bin", self._size_type, record["blocks"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return Blocks(starts, sizes, record["tokens"], record["blank_lines"])

    def read_or_find(self, find):
        """The stored blocks, mapped. The first process of a machine that needs them finds and stores them.

        Args:
            find: function that returns the :class:`Blocks`
        Returns:
            :class:`Blocks`, not mapped if they could not be stored
        """
        with one_at_a_time(self._index):
            stored = self.read()
            if stored is not None:
                return stored
            found = find()
            try:
                self._write(found)
            except OSError as error:  # another machine was faster just now, or the disk is full
                logger.info(f"{self.folder}: {error.strerror}")
        return self.read() or found

    def _write(self, blocks):
        """Stores blocks, unless another machine has by now."""
        if self.read() is not None:
            return
        shutil.rmtree(self.folder, ignore_errors=True)  # of another index
        with atomic_folder(self.folder) as partial:
            blocks.starts.tofile(os.path.join(partial, "starts.bin"))
            blocks.sizes.tofile(os.path.join(partial, "sizes.bin"))
            record = [self._identity(), blocks.tokens, blocks.blank_lines, len(blocks.sizes)]
            save_json(dict(zip(FIELDS, record)), os.path.join(partial, "blocks.json"))

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _identity(self):
        status = os.stat(self._index)
        return [status.st_size, status.st_mtime_ns]

    def _map(self, name, dtype, blocks):
        if os.path.getsize(self._path(name)) != blocks * np.dtype(dtype).itemsize:
            raise ValueError(f"{self._path(name)} is incomplete")
        return np.asarray(np.memmap(self._path(name), dtype, "r"))
