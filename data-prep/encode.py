"""Encodes raw text into binarized data with worker processes; document i goes to shard i mod N.

The folder of each shard gets SPLIT.bin and SPLIT.idx, byte for byte what fairseq-preprocess would write for the pieces
(a line of text is `pieces </s>`, and a single `</s>` follows each document), and then the record SPLIT.json.
"""

import multiprocessing
import os
import signal
import tempfile
import threading
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain

import numpy as np

from binarized import EOS, add_to_checksum, fairseq_ids, shard_folder, token_dtype, write_index
from command_line import progress_bar
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write, save_json
from pieces import load_model
from raw_text import Reservoir, fingerprint, not_utf8, read_lines
from records import Read, SplitRecord

CHUNK = 1 << 20  # bytes of text that a worker encodes at a time
SAMPLE_LINES, SAMPLE_BYTES = 500, 50000  # lines kept for check.py, and the length of the longest line that can be kept
UNKNOWN_PIECES = 20  # the most frequent ones are recorded
FILE_END = b"\n"  # cannot be a line: lines come without their ends


# In the workers ----------------------------------------------------------------------------------------------------


class Encoder:
    """Encodes chunks in a worker process.

    Args:
        model: path of the SentencePiece model
    """

    def __init__(self, model):
        self.processor = load_model(model)
        pieces = self.processor.get_piece_size()
        self.fairseq_ids = np.array(fairseq_ids(range(pieces)), dtype=token_dtype(pieces))
        self.fairseq_ids[EOS] = EOS

    def encode(self, chunk):
        """Encodes a chunk of text.

        Args:
            chunk: lines as UTF-8 bytes, joined by newlines
        Returns:
            tokens: (tokens,) fairseq's ids, with a `</s>` after each line
            sizes: int32 (lines,) tokens of each line
            unknown: Counter of the unknown pieces
        """
        lines = chunk.decode("utf-8").split("\n")
        encoded = self.processor.encode(lines, num_threads=1)
        unknown = Counter()
        for line, ids in zip(lines, encoded):
            if 0 in ids:
                pieces = self.processor.encode(line, out_type=str)
                unknown.update(piece for piece, number in zip(pieces, ids) if number == 0)
            ids.append(EOS)
        flat = self.fairseq_ids[np.fromiter(chain.from_iterable(encoded), dtype=np.int64)]
        sizes = np.fromiter(map(len, encoded), dtype=np.int32, count=len(encoded))
        return flat, sizes, unknown


def start_worker(model):
    global encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the main process, too, with which this one ends
    encoder = Encoder(model)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent():
    """Ends this worker when the main process is killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


def encode_chunk(chunk):
    return encoder.encode(chunk)


# In the main process -----------------------------------------------------------------------------------------------


class BlankLines:
    """Recognises lines without text: white space only, or characters that the model normalises to nothing."""

    def __init__(self, model):
        self.processor = load_model(model)
        self.visible = {}
        self.visible_bytes = frozenset(byte for byte in range(33, 127) if self.is_visible(chr(byte)))

    def is_visible(self, character):
        """Whether the model encodes the character as anything."""
        if character not in self.visible:
            self.visible[character] = bool(self.processor.encode(character))
        return self.visible[character]

    def kind(self, line):
        """Classifies a line (bytes): `text`, `blank` or `nothing` (normalised away).

        Fast for lines that start with a visible ASCII character.
        """
        if not line:
            return "blank"
        if line[0] in self.visible_bytes:
            return "text"
        text = line.decode("utf-8").strip()
        if not text:
            return "blank"
        return "text" if self.is_visible(text[0]) or self.processor.encode(text) else "nothing"


class Shard:
    """Collects the lines of one shard and writes them once they are encoded.

    Args:
        tokens, sizes: binary files to write: all tokens, and the int32 number of tokens of each line
        record: :class:`SplitRecord` to keep; `finish` completes it
    """

    def __init__(self, tokens, sizes, record):
        self.tokens, self.sizes, self.record = tokens, sizes, record
        self.lines, self.size = [], 0
        self.unknown, self.sample = Counter(), Reservoir(SAMPLE_LINES)

    def add(self, line):
        """Adds a line of text (bytes), or `b""` for the end of a document."""
        self.lines.append(line)
        self.size += len(line) + 1
        if not line:
            self.record.documents += 1
        else:
            if len(line) <= SAMPLE_BYTES:
                self.sample.add((self.record.text_lines + self.record.documents, line))
            self.record.text_lines += 1

    def take_chunk(self):
        """The lines added since the last call, joined by newlines."""
        chunk, self.lines, self.size = b"\n".join(self.lines), [], 0
        return chunk

    def write(self, tokens, sizes, unknown):
        """Writes what `Encoder.encode` returned."""
        self.tokens.write(tokens.tobytes())
        self.sizes.write(sizes.tobytes())
        self.record.checksum = add_to_checksum(self.record.checksum, self.record.tokens, tokens)
        self.record.tokens += len(tokens)
        self.record.unknown += sum(unknown.values())
        self.record.longest_line = max(self.record.longest_line, int(sizes.max()))
        self.unknown.update(unknown)
        if len(self.unknown) > 100000:  # keeps memory bounded: drops the rare ones
            self.unknown = Counter(dict(self.unknown.most_common(10000)))

    def finish(self):
        """The record, complete."""
        self.record.unknown_pieces = self.unknown.most_common(UNKNOWN_PIECES)
        self.record.sample = [(number, line.decode("utf-8")) for number, line in sorted(self.sample.items)]
        return self.record


def encode(paths, fingerprints, dest, split, model, workers, shards=1, selected=(0,)):
    """Encodes files; the memory needed does not depend on their size.

    Args:
        paths: files of raw text; the end of a file ends a document
        fingerprints: of the files; if they have changed in the end, nothing is written
        dest, split: where to write: `dest/[shardI/]split.bin`, `split.idx` and `split.json`
        model: path of the SentencePiece model
        workers: number of worker processes
        shards, selected: number of shards, and the numbers of those to write
    Raises:
        UsageError: fewer documents than shards, text that is not UTF-8, a corrupt gzip file, a file that changed, or a
            killed worker
    """
    read, kinds = Read(len(paths), 0, 0, 0, 0, 0), Counter()
    blank_lines = BlankLines(model)
    dtype = token_dtype(blank_lines.processor.get_piece_size())
    pending = deque()
    with ExitStack() as stack:
        bar = stack.enter_context(progress_bar("encode " + split, sum(map(os.path.getsize, paths))))
        out = {}
        for number in selected:
            folder = shard_folder(dest, number, shards)
            os.makedirs(folder, exist_ok=True)
            tokens = stack.enter_context(atomic_write(os.path.join(folder, split + ".bin"), "wb"))
            sizes = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            out[number] = Shard(tokens, sizes, SplitRecord(read, number, shards, 0, 0, 0, [0, 0], 0, [], 0, []))
        pool = ProcessPoolExecutor(workers, initializer=start_worker, initargs=(model,))

        def write_oldest():
            shard, result = pending.popleft()
            shard.write(*result.result())

        def submit(shard):
            pending.append((shard, pool.submit(encode_chunk, shard.take_chunk())))
            if len(pending) > 2 * workers + 2:
                write_oldest()

        try:
            inside = False
            shard = None
            for line in read_lines(paths, bar, FILE_END):
                kind = "end" if line is FILE_END else blank_lines.kind(line)
                kinds[kind] += 1
                if kind == "text" and not inside:
                    shard = out.get(read.documents % shards)
                    read.documents += 1
                if shard and (inside or kind == "text"):
                    shard.add(line if kind == "text" else b"")
                    if shard.size > CHUNK:
                        submit(shard)
                inside = kind == "text"
            for shard in out.values():
                if shard.lines:
                    submit(shard)
            while pending:
                write_oldest()
        except UnicodeDecodeError:
            raise not_utf8(paths) from None
        except BrokenProcessPool:
            raise UsageError("a worker was killed (out of memory?); run again with fewer --workers") from None
        pool.shutdown()
        for path, before in zip(paths, fingerprints):
            if fingerprint(path) != before:
                raise UsageError(
                    f"file {path} changed while it was being read; run again when it is complete, with another --dest"
                    " if this one is refused"
                )
        if read.documents < shards:
            fix = "use fewer --shards" if shards > 1 else "give files with text"
            found = f"{', '.join(paths)}: found {read.documents} documents (separated by blank lines)"
            raise UsageError(f"{found}, expected at least {shards}; {fix}")
        for number, shard in out.items():
            with atomic_write(os.path.join(shard_folder(dest, number, shards), split + ".idx"), "wb") as stream:
                write_index(stream, shard.sizes, dtype)
    lines = [kinds[kind] for kind in ("text", "blank", "nothing")]
    read.lines, (read.text_lines, read.blank_lines, read.lines_normalised_to_nothing) = sum(lines), lines
    for number, shard in out.items():
        save_json(asdict(shard.finish()), os.path.join(shard_folder(dest, number, shards), split + ".json"))
