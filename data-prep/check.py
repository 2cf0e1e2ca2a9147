#!/usr/bin/env python3
"""Checks prepared data: that nothing was lost, that it decodes to the text, and that its numbers make sense.

Exit status 1 where one is bad.
"""

import os
import struct

import numpy as np

import counts
from command_line import InputError, Parser, run
from encode import DTYPE_CODES, EOS, INDEX_MAGIC, shard_folder
from write_dict import all_pieces, dict_text, load_model

UNKNOWN = 3  # fairseq's id of `<unk>`
MAXIMUM_UNKNOWN_RATE = 0.01
BLOCK = 1 << 24  # tokens read at a time
DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}
AGAIN = "remove {} and run prepare.sh again"


class Split:
    """The binarized data of a split, read without fairseq: `tokens` of all lines, `sizes` and `starts` of the lines.

    Raises:
        InputError: a file is missing, not an index of fairseq's, or shorter than its index says
    """

    def __init__(self, folder, name):
        self.prefix = os.path.join(folder, name)
        self.record = counts.load(self.prefix + ".json")
        for path in [self.prefix + ending for ending in (".bin", ".idx", ".json")]:
            if not os.path.exists(path):
                raise InputError(f"{path} does not exist; the preparation was not finished: run prepare.sh again")
        with open(self.prefix + ".idx", "rb") as stream:
            header = stream.read(26)
            magic, code, lines = (
                (header[:9], header[17], struct.unpack("<Q", header[18:])[0]) if len(header) == 26 else (b"", 0, 0)
            )
            if magic != INDEX_MAGIC or code not in DTYPES:
                raise InputError(
                    f"{self.prefix}.idx is not an index of fairseq-preprocess; " + AGAIN.format(self.prefix + ".*")
                )
            self.sizes = np.fromfile(stream, dtype=np.int32, count=lines)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])
        expected = int(self.starts[-1]) * np.dtype(DTYPES[code]).itemsize
        found = os.path.getsize(self.prefix + ".bin")
        if len(self.sizes) != lines or found != expected:
            raise InputError(
                f"{self.prefix}.bin has {found} bytes, its index tells of {expected}; "
                + AGAIN.format(self.prefix + ".*")
            )
        self.tokens = (
            np.memmap(self.prefix + ".bin", dtype=DTYPES[code], mode="r") if expected else np.zeros(0, DTYPES[code])
        )

    def line(self, number):
        """Ids of a line, without its `</s>`."""
        return self.tokens[self.starts[number] : self.starts[number + 1] - 1].tolist()


def count_tokens(split):
    """Checksum of all tokens, and how many are unknown and how many `</s>`."""
    total, unknown, ends = counts.EMPTY, 0, 0
    for start in range(0, len(split.tokens), BLOCK):
        block = split.tokens[start : start + BLOCK].astype(np.uint64)
        total = counts.join(total, counts.checksum(block))
        unknown += int((block == UNKNOWN).sum())
        ends += int((block == EOS).sum())
    return total, unknown, ends


def spells(pieces, text):
    """Whether pieces spell a text. An unknown one, None, stands for one or more characters."""
    runs, gaps = [""], []
    for piece in pieces:
        if piece is None:
            gaps.append(1)
            runs.append("")
        else:
            runs[-1] += piece
    if not gaps:
        return runs[0] == text
    if not text.startswith(runs[0]):
        return False
    place = len(runs[0])
    for run_ in runs[1:-1]:
        place = text.find(run_, place + 1)
        if place < 0:
            return False
        place += len(run_)
    return text.endswith(runs[-1]) and len(text) - len(runs[-1]) > place


def spelled(processor, pieces, ids):
    """Text of each fairseq id, None for an unknown one. Runs of byte pieces become characters."""
    out, pending = [], b""
    for number in ids:
        if number != UNKNOWN and processor.is_byte(number - 1):
            pending += bytes([int(pieces[number - 1][3:5], 16)])
            continue
        if pending:
            out.append(pending.decode("utf-8", "replace"))
            pending = b""
        out.append(None if number == UNKNOWN else pieces[number - 1])
    return out + ([pending.decode("utf-8", "replace")] if pending else [])


def decode_sample(split, processor):
    """Compares the record's sample of raw lines with the data.

    The ids must be SentencePiece's for the line, and must spell its normalised text.

    Returns:
        lines compared
    Raises:
        InputError: a line differs
    """
    pieces = all_pieces(processor)
    for number, line in split.record["sample"]:
        found = split.line(number)
        expected = [UNKNOWN if piece == 0 else piece + 1 for piece in processor.encode(line)]
        if found != expected or not spells(spelled(processor, pieces, found), processor.normalize(line)):
            raise InputError(
                "{}.bin: line {} does not decode to its text: found {!r}, expected {!r}; ".format(
                    split.prefix,
                    number + 1,
                    "".join(text or "<unk>" for text in spelled(processor, pieces, found))[:200],
                    line[:200],
                )
                + AGAIN.format(split.prefix + ".*")
            )
    return len(split.record["sample"])


def check_split(folder, name, processor):
    """Checks one split and prints its numbers.

    Returns:
        the record of the split
    Raises:
        InputError: data and record disagree, no documents, too many unknown pieces, or text that does not come back
    """
    split = Split(folder, name)
    record = split.record
    total, unknown, ends = count_tokens(split)
    separators = split.sizes == 1
    documents = int((separators[1:] & ~separators[:-1]).sum())
    text_tokens = total.tokens - len(split.sizes)
    pairs = [
        ("lines with text", int((~separators).sum()), record["text_lines"]),
        ("documents", documents, record["documents"]),
        ("blank lines between documents", int(separators.sum()), record["documents"]),
        ("tokens", total.tokens, record["tokens"]),
        ("lines' ends", ends, record["text_lines"] + record["documents"]),
        ("longest line", int(split.sizes.max()) if len(split.sizes) else 0, record["longest_line"]),
        ("checksum of the tokens", [total.sum, total.weighted], record["checksum"]),
        ("unknown tokens", unknown, record["unknown"]),
    ]
    rate = unknown / max(text_tokens, 1)
    commonest = "  ".join(f"{visible(piece)} ({count:,})" for piece, count in record["unknown_pieces"][:10])
    print(f"{split.prefix}:")
    print(
        f"  {documents:,} documents, {record['text_lines']:,} lines with text, {total.tokens:,} tokens with a </s> for"
        " each line and document"
    )
    print(
        f"  longest line {record['longest_line']:,} tokens; unknown {unknown:,} of {text_tokens:,} pieces,"
        f" {rate:.3%}{'; commonest: ' + commonest if commonest else ''}"
    )
    for what, found, expected in pairs:
        if found != expected:
            if what == "unknown tokens":
                what = "unknown tokens (a wrong dict.txt?)"
            raise InputError(
                f"{split.prefix}.bin: {what}: found {found}, expected {expected} as encode.py recorded; "
                + AGAIN.format(split.prefix + ".*")
            )
    if not documents:
        raise InputError(
            f"{split.prefix}.bin holds no documents: complete_doc finds nothing; give text with a blank line after each"
            " document"
        )
    if rate > MAXIMUM_UNKNOWN_RATE:
        raise InputError(
            "{}.bin: {:.1%} of the pieces are unknown, expected at most {:.0%}: the SentencePiece model does not fit"
            " this text; train it on such text, with a larger --sample-lines or --vocab-size, in another --dest".format(
                split.prefix, rate, MAXIMUM_UNKNOWN_RATE
            )
        )
    compared = decode_sample(split, processor)
    print(
        f"  complete_doc finds {documents:,} documents; {compared:,} lines drawn at random decode to their text; all"
        " tokens are as encoded"
    )
    return record


def visible(piece):
    """A piece that a terminal shows: control and private characters by number."""
    return "".join(character if character.isprintable() else f"U+{ord(character):04X}" for character in piece)


def check_folder(folder, splits):
    """Checks a folder; returns its records by split. See `check_split` for errors."""
    processor = load_model(os.path.join(folder, "sentencepiece.model"))
    dictionary = os.path.join(folder, "dict.txt")
    with open(dictionary, encoding="utf-8", newline="\n") as stream:
        if stream.read() != dict_text(processor):
            raise InputError(
                f"{dictionary} is not the dictionary of the sentencepiece.model beside it; expected its pieces from id"
                " 3 on; " + AGAIN.format(folder)
            )
    return {split: check_split(folder, split, processor) for split in splits}


def check(dest, shards, wanted):
    """Checks shards (numbers `wanted` of `shards`), and that all lines and documents of the input are in them.

    Validation data lie in shard 0. See `check_split` for errors.
    """
    records = [
        check_folder(shard_folder(dest, shard, shards), ["train", "valid"] if shard == 0 else ["train"])
        for shard in wanted
    ]
    for split in ("train", "valid"):
        parts = [record[split] for record in records if split in record]
        if not parts or (split == "train" and len(parts) < shards):
            continue
        read = parts[0]["input"]
        print(
            "{}: {:,} lines read = {:,} with text + {:,} blank + {:,} that normalise to nothing; {:,} documents".format(
                split,
                read["lines"],
                read["text_lines"],
                read["blank_lines"],
                read["lines_normalised_to_nothing"],
                read["documents"],
            )
        )
        for key in ("text_lines", "documents"):
            found = sum(part[key] for part in parts)
            if found != read[key]:
                raise InputError(
                    f"{split}: {read[key]} {key} were read and {found} written; the shards are of different inputs: "
                    + AGAIN.format(dest)
                )
    if len(wanted) < shards:
        print(f"lines and documents are reconciled with the input when all {shards} shards are there: check.py {dest}")


def main():
    parser = Parser(__doc__)
    parser.add_argument("dest", metavar="DEST", help="folder that prepare.sh wrote")
    parser.add_argument("--shard", type=int, metavar="I", help="check this shard only")
    args = parser.parse_args()
    manifest = counts.load(os.path.join(args.dest, "prepare.json"))
    if manifest is None:
        raise InputError(f"{args.dest} holds no prepare.json; expected a folder that prepare.sh wrote")
    shards = manifest["options"]["shards"]
    if args.shard is not None and not 0 <= args.shard < shards:
        raise InputError(f"--shard {args.shard}: {args.dest} has shards 0 to {shards - 1}")
    check(args.dest, shards, range(shards) if args.shard is None else [args.shard])


if __name__ == "__main__":
    run(main)
