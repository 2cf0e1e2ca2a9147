"""Encodes raw text into binarized data with worker processes; document i goes to shard i mod N.

The folder of each shard gets SPLIT.bin and SPLIT.idx, byte for byte what fairseq-preprocess would
write for the pieces (a line of text is `pieces </s>`, and a single `</s>` follows each document),
and then the record SPLIT.json.
"""

import hashlib
import heapq
import os
import random
import signal
import tempfile
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict

import numpy as np

from ..base.errors import UsageError
from ..base.files import atomic_write
from ..base.json_files import save_json
from ..base.provenance import sha256
from ..base.signals import end_with_parent
from ..base.tokenizer import EOS, UNKNOWN
from ..base.vocabulary_files import read_tokenizer
from .binarized import token_dtype, write_index
from .documents import DocumentReader
from .manifest import SplitRecord, part_fingerprint
from .progress import progress_bar
from .raw_text import file_fingerprint

CHUNK_CHARACTERS = 1 << 20  # characters of text that a worker encodes at a time
SAMPLE_LINES_FOR_CHECK = 500  # lines kept for check.py
SAMPLE_LENGTH = 50000  # the characters that one of them may have
RECORDED_UNKNOWN = 20  # how many of the unknown characters are recorded


# In the workers ---------------------------------------------------------------------------------


def encode_text(tokenizer, text):
    """Encodes text.

    Args:
        text: lines joined by newlines
    Returns:
        tokens: (tokens,) fairseq's ids, with a `</s>` after each line
        sizes: int32 (lines,) tokens of each line
        unknown: Counter of the unknown characters
    """
    lines = text.split("\n")
    tokens, sizes = tokenizer.encode_plain_text(lines)
    ends = np.cumsum(sizes)
    unknown = Counter()
    lines_with_unknown = np.searchsorted(ends, np.flatnonzero(tokens == UNKNOWN), side="right")
    for i in np.unique(lines_with_unknown):
        unknown.update("".join(tokenizer.unknown_parts(lines[i])))
    dtype = token_dtype(len(tokenizer.symbols))
    return np.insert(tokens, ends, EOS).astype(dtype), sizes + 1, unknown


def start_worker(vocabulary_path):
    global tokenizer
    # Ctrl-C reaches the main process, too, and this one ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tokenizer = read_tokenizer(vocabulary_path)
    end_with_parent()


def encode_chunk(chunk):
    return encode_text(tokenizer, chunk)


# In the main process ----------------------------------------------------------------------------


class Shard:
    """Collects the lines of one shard and writes them once they are encoded.

    Args:
        tokens_file: binary file to write, of all tokens
        sizes_file: binary file to write, of the int32 number of tokens of each line
        record: `SplitRecord` to keep; `finish` completes it
    """

    def __init__(self, tokens_file, sizes_file, record):
        self.tokens_file = tokens_file
        self.sizes_file = sizes_file
        self.record = record
        self.lines = []  # which are not encoded yet
        self.size = 0  # the characters of these lines
        self.digest = hashlib.sha256()
        self.unknown = Counter()
        self.sample = []
        self.draw = random.Random(1).random

    def add(self, line):
        """Adds a line of text, or `""` for the end of a document."""
        self.lines.append(line)
        self.size += len(line) + 1
        self.record.characters += len(line)
        if not line:
            self.record.documents += 1
            return
        if len(line) <= SAMPLE_LENGTH:
            # The lines with the highest random numbers are a uniform sample.
            item = self.draw(), self.record.text_lines + self.record.documents, line
            if len(self.sample) < SAMPLE_LINES_FOR_CHECK:
                heapq.heappush(self.sample, item)
            else:
                heapq.heappushpop(self.sample, item)
        self.record.text_lines += 1

    def write(self, tokens, sizes, unknown):
        """Writes what `encode_text` returned."""
        self.tokens_file.write(tokens.tobytes())
        self.digest.update(tokens)
        self.sizes_file.write(sizes.tobytes())
        self.record.tokens += len(tokens)
        self.unknown.update(unknown)

    def finish(self):
        """The record, complete."""
        self.record.sha256["bin"] = self.digest.hexdigest()
        self.record.unknown = self.unknown.total()
        self.record.most_unknown = self.unknown.most_common(RECORDED_UNKNOWN)
        self.record.sample = sorted(item[1:] for item in self.sample)
        return self.record


class ChunkQueue:
    """Encodes the lines that shards have collected, in processes, and writes them in order.

    Args:
        workers: how many processes
        vocabulary_path: path of its file
    """

    def __init__(self, workers, vocabulary_path):
        self.max_pending = 2 * workers + 2
        self.pool = ProcessPoolExecutor(
            workers, initializer=start_worker, initargs=(vocabulary_path,)
        )
        self.pending = deque()  # (shard, the future of its encoded chunk), in order

    def submit(self, shard):
        """Sends the lines of a shard to a worker; waits for earlier ones if many are pending."""
        chunk = "\n".join(shard.lines)
        shard.lines = []
        shard.size = 0
        self.pending.append((shard, self.pool.submit(encode_chunk, chunk)))
        self._write(self.max_pending)

    def finish(self, shards):
        """Encodes and writes what is left of all shards, and ends the processes."""
        for shard in shards:
            if shard.lines:
                self.submit(shard)
        self._write(0)
        self.pool.shutdown()

    def _write(self, max_pending):
        while len(self.pending) > max_pending:
            shard, result = self.pending.popleft()
            shard.write(*result.result())


def count_documents(paths, fingerprints, vocabulary_path):
    """The number of documents in files; arguments and errors as for `encode`."""
    with progress_bar("count documents", sum(map(os.path.getsize, paths))) as bar:
        reader = DocumentReader(paths, read_tokenizer(vocabulary_path), bar.update)
        for _ in reader:
            pass
    check_input(paths, fingerprints, reader.counts)
    return reader.counts.documents


def encode(
    paths, fingerprints, folders, split, vocabulary_path, workers, num_shards=1, held_out=None
):
    """Encodes files; the memory needed does not depend on their size.

    Args:
        paths: files of raw text; the end of a file ends a document
        fingerprints: fingerprints of the files; if they have changed in the end, nothing is written
        folders: {number of a shard: its folder, where to write SPLIT.bin, SPLIT.idx and
            SPLIT.json}
        split: whose documents are encoded
        vocabulary_path: path of its file
        workers: number of worker processes
        num_shards: how many there are in all
        held_out: `HeldOut`; None: all documents are for `split`
    Raises:
        UsageError: fewer documents than shards, text that is not UTF-8, a corrupt gzip file, a file
            that changed, or a killed worker
    """
    tokenizer = read_tokenizer(vocabulary_path)
    with ExitStack() as stack:
        bar = stack.enter_context(progress_bar(f"encode {split}", sum(map(os.path.getsize, paths))))
        reader = DocumentReader(paths, tokenizer, bar.update)
        digest = sha256(vocabulary_path)
        out = {}  # {number of a shard: Shard}
        for number, folder in folders.items():
            part = part_fingerprint(split, number, num_shards, fingerprints)
            checksums = {"vocabulary": digest, "part": part}
            record = SplitRecord(reader.counts, 0, 0, 0, [], checksums)
            out[number] = open_shard(stack, folder, split, record)
        queue = ChunkQueue(workers, vocabulary_path)
        current = None  # the number of a document
        shard = None
        try:
            for document, line in reader:
                if document != current:
                    current = document
                    shard = out.get(shard_of_document(document, split, num_shards, held_out))
                if shard:
                    shard.add(line)
                    if shard.size > CHUNK_CHARACTERS:
                        queue.submit(shard)
            queue.finish(out.values())
        except BrokenProcessPool:
            raise UsageError(
                "a worker was killed (out of memory?); run again with fewer --workers"
            ) from None
        check_input(paths, fingerprints, reader.counts, num_shards)
        dtype = token_dtype(len(tokenizer.symbols))
        for number, shard in out.items():
            with atomic_write(os.path.join(folders[number], split + ".idx"), "wb") as stream:
                shard.record.sha256["idx"] = write_index(stream, shard.sizes_file, dtype)
    for number, shard in out.items():
        save_json(asdict(shard.finish()), os.path.join(folders[number], split + ".json"))


def shard_of_document(document, split, num_shards, held_out):
    """The number of the shard that a document is for; None if it is not of the split.

    Arguments as for `encode`; documents are asked for in their order.
    """
    if held_out is None:
        return document % num_shards
    split_of_document, number = held_out.assign(document)
    return number % num_shards if split_of_document == split else None


def open_shard(stack, folder, split, record):
    """A `Shard` whose files are closed with an ExitStack."""
    tokens_file = stack.enter_context(atomic_write(os.path.join(folder, split + ".bin"), "wb"))
    sizes_file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
    return Shard(tokens_file, sizes_file, record)


def check_input(paths, fingerprints, counts, num_shards=1):
    """Refuses files that changed while they were read, and too few documents."""
    for path, before in zip(paths, fingerprints):
        if file_fingerprint(path) != before:
            advice = "run again when it is complete, with another --dest if this one is refused"
            raise UsageError(f"file {path} changed while it was being read; {advice}")
    if counts.documents < num_shards:
        advice = "use fewer --shards" if num_shards > 1 else "give files with text"
        raise UsageError(
            f"{', '.join(paths)}: found {counts.documents} documents (separated by blank lines),"
            f" expected at least {num_shards}; {advice}"
        )
