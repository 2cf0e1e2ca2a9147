#!/usr/bin/env python3
"""Checks prepared data: nothing was lost, a sample decodes to its text, and the counts are plausible.

Exits with status 1 if a check fails.
"""

import os

import command_line  # noqa: F401  finds the plugin and its packages

# isort: split
import numpy as np

from binarized import add_to_checksum, is_encoded, shard_folder
from maelm_fairseq.base.errors import Parser, UsageError, run
from maelm_fairseq.base.files import read_json, sha256
from maelm_fairseq.base.line_sizes import HEADER, LINES, LineSizes
from maelm_fairseq.base.subwords import EOS, UNKNOWN
from maelm_fairseq.base.vocabulary_files import read_subwords
from records import SplitRecord, read_manifest

AGAIN = "remove {} and run prepare.sh again"
MAXIMUM_UNKNOWN_RATE = 0.01
FEW_TOKENS = 100  # for each symbol of the vocabulary
BLOCK = 1 << 24  # tokens that are read at a time


class Split:
    """Reads the data of a split.

    Attributes:
        record: :class:`records.SplitRecord`
        again: what to do about damaged files
        sizes: (lines,) tokens of each line; begins: (lines,) its first byte; tokens: (tokens,) of all lines; all
            memory-mapped
        documents, text_lines: how many the index has
    Raises:
        UsageError: a file is missing, damaged, or does not have the length that the index implies
    """

    def __init__(self, folder, name):
        self.prefix = os.path.join(folder, name)
        self.again = AGAIN.format(self.prefix + ".*")
        if not is_encoded(folder, name):
            raise UsageError(f"{self.prefix}.* is not complete: the preparation was not finished; run prepare.sh again")
        self.record = read_json(self.prefix + ".json", SplitRecord, "the record that encode.py wrote", self.again)
        index = LineSizes(self.prefix, self.again)
        lines, item = len(index), index.dtype.itemsize
        self.sizes = mapped(index.path, np.int32, HEADER.size, lines)
        self.begins = mapped(index.path, np.int64, HEADER.size + 4 * lines, lines)
        self.tokens = mapped(self.prefix + ".bin", index.dtype, 0, index.tokens)
        self.documents = self.text_lines = tokens = 0
        after_blank = True
        for start in range(0, lines, LINES):
            sizes = index.read(start)
            ends, blank = tokens + np.cumsum(sizes), sizes == 1
            if not np.array_equal(self.begins[start : start + LINES], (ends - sizes) * item):
                raise UsageError(f"{index.path} is damaged: lines do not follow each other; {self.again}")
            if sizes.min() < 1 or ends[-1] > len(self.tokens) or (self.tokens[ends - 1] != EOS).any():
                raise UsageError(f"{index.path} is damaged: a line does not end with </s>; {self.again}")
            self.documents += int((blank & ~np.append(after_blank, blank[:-1])).sum())
            self.text_lines += int((~blank).sum())
            tokens, after_blank = int(ends[-1]), blank[-1]


def mapped(path, dtype, offset, count):
    """So many numbers at a place in a file, memory-mapped; there may be none, of which NumPy makes no map."""
    return np.memmap(path, dtype, "r", offset, count) if count else np.zeros(0, dtype)


def count_tokens(split):
    """The checksum of all tokens, and the number of unknown ones."""
    checksum, unknown = [0, 0], 0
    for start in range(0, len(split.tokens), BLOCK):
        block = split.tokens[start : start + BLOCK]
        checksum = add_to_checksum(checksum, start, block)
        unknown += int((block == UNKNOWN).sum())
    return checksum, unknown


def same(where, counts, record, fix):
    """Compares {name: count} with what was recorded."""
    for name, counted in counts.items():
        expected = getattr(record, name)
        if counted != expected:
            raise UsageError(f"{where}: {name}: found {counted}, expected {expected} as recorded; {fix}")


def check_split(folder, name, tokenizer):
    """Checks one split, prints its counts, and returns its record.

    Raises:
        UsageError: data and record disagree, there are no documents, too many pieces are unknown, or a line does not
            decode to its text
    """
    split = Split(folder, name)
    record, data = split.record, split.prefix + ".bin"
    if record.vocabulary not in (None, sha256(tokenizer.path)):
        raise UsageError(f"{tokenizer.path} is not the vocabulary of {split.prefix}.*; put that back, or {split.again}")
    checksum, unknown = count_tokens(split)
    pieces = len(split.tokens) - len(split.sizes)
    rate = unknown / max(pieces, 1)
    most_frequent = "  ".join(f"{piece!r} ({count:,})" for piece, count in record.unknown_pieces[:10])
    print(
        f"{split.prefix}:\n  {split.documents:,} documents, {record.text_lines:,} lines with text,"
        f" {len(split.tokens):,} tokens including a </s> for each line and document\n  longest line"
        f" {split.sizes.max(initial=0):,} tokens; unknown {unknown:,} of {pieces:,} pieces, {rate:.3%}"
        f"{'; most frequent: ' * bool(most_frequent)}{most_frequent}"
    )
    counts = {"text_lines": split.text_lines, "documents": split.documents, "checksum": checksum}
    same(data, counts, record, split.again)
    if rate > MAXIMUM_UNKNOWN_RATE:
        raise UsageError(
            f"{data}: {rate:.1%} of the pieces are unknown, expected at most {MAXIMUM_UNKNOWN_RATE:.0%}: the"
            " vocabulary does not fit this text; train one on similar text, with a larger --sample-lines or"
            " --vocab-size, and another --dest"
        )
    for number, line in record.sample:
        there = 0 <= number < len(split.sizes)
        first = split.begins[number] // split.tokens.itemsize if there else 0
        ids = split.tokens[first : first + split.sizes[number] - 1].tolist() if there else None
        if ids != tokenizer.encode_lines([line.encode("utf-8", "replace").decode("utf-8")])[0].tolist():
            raise UsageError(f"{data}: line {number + 1} does not decode to its text, {line[:200]!r}; {split.again}")
    print(
        f"  complete_doc finds {split.documents:,} documents; {len(record.sample):,} lines drawn at random decode to"
        " their text; all tokens match their checksum"
    )
    return record


def load_vocabulary(folder):
    """The tokenizer of a folder that prepare.sh wrote; its dict.txt must list the same symbols."""
    dictionary, tokenizer = os.path.join(folder, "dict.txt"), read_subwords(folder)
    with open(dictionary, "rb") as stream:
        if stream.read() != tokenizer.dict_text().encode():
            raise UsageError(
                f"{dictionary} is not the dictionary of the {tokenizer.file_name} beside it; expected its pieces in"
                " order; give a folder that prepare.sh wrote, or remove this one and run prepare.sh again"
            )
    return tokenizer


def check(dest, options, selected):
    """Checks shards and, given all of them, that together they contain every line and document of the input.

    Validation data are in shard 0. See `check_split` for errors.

    Args:
        options: :class:`records.Options`
        selected: numbers of the shards to check
    """
    records, shards, held_out = {"train": [], "valid": []}, options.shards, options.valid_documents
    for shard in selected:
        folder = shard_folder(dest, shard, shards)
        tokenizer = load_vocabulary(folder)
        for split in ["train", "valid"] if shard == 0 else ["train"]:
            records["train" if held_out else split].append(check_split(folder, split, tokenizer))
    for split, parts in records.items():
        if len(parts) == (shards + bool(held_out) if split == "train" else 1):
            read = parts[0].input
            of_which = f", of which {held_out:,} are held out for validation" if held_out else ""
            print(
                f"{split}: {read.lines:,} lines read = {read.text_lines:,} with text + {read.blank_lines:,} blank +"
                f" {read.lines_normalised_to_nothing:,} that normalise to nothing; {read.documents:,}"
                f" documents{of_which}"
            )
            written = {name: sum(getattr(part, name) for part in parts) for name in ("text_lines", "documents")}
            fix = f"the parts come from different inputs; {AGAIN.format(dest)}"
            same(f"{split}, all parts", written, read, fix)
            remark(split, read, sum(part.tokens for part in parts), len(tokenizer.symbols))
    if len(selected) < shards:
        print(
            f"to compare the number of lines and documents with the input, finish all {shards} shards: check.py {dest}"
        )


def remark(split, read, tokens, symbols):
    """Says of text that models hardly learn from, or blocks cross documents of, that it is so."""
    if read.documents <= read.files < read.text_lines / 10:
        print(f"{split}: no blank line between documents: blocks will cross them; put one after each if there are any")
    if split == "train" and tokens < FEW_TOKENS * symbols:
        print(f"{split}: {tokens:,} tokens are few for {symbols:,} pieces: a model learns little from them")


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("dest", metavar="DEST", help="folder that prepare.sh wrote")
    dest = parser.parse_args().dest
    options = read_manifest(dest).options
    check(dest, options, range(options.shards))


if __name__ == "__main__":
    run(main)
