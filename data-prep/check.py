#!/usr/bin/env python3
"""Checks prepared data: nothing was lost, a sample decodes to its text, and the counts are plausible.

Exits with status 1 if a check fails.
"""

import os

import numpy as np

import checksums
from binarized import AGAIN, EOS, UNKNOWN, Split, shard_folder
from command_line import InputError, Parser, run
from records import MANIFEST, load_json
from write_dict import all_pieces, dict_text, load_model

MAXIMUM_UNKNOWN_RATE = 0.01
BLOCK = 1 << 24  # tokens read at a time


def count_tokens(split):
    """The Checksum of all tokens, the number of unknown ones, and the number of `</s>`."""
    total, unknown, ends = checksums.EMPTY, 0, 0
    for start in range(0, len(split.tokens), BLOCK):
        block = split.tokens[start : start + BLOCK].astype(np.uint64)
        total = checksums.join(total, checksums.checksum(block))
        unknown += int((block == UNKNOWN).sum())
        ends += int((block == EOS).sum())
    return total, unknown, ends


def spells(pieces, text):
    """Whether pieces spell a text. None, an unknown piece, matches one or more characters."""
    known = [""]  # the text between unknown pieces
    for piece in pieces:
        if piece is None:
            known.append("")
        else:
            known[-1] += piece
    if len(known) == 1:
        return known[0] == text
    if not text.startswith(known[0]):
        return False
    place = len(known[0])
    for part in known[1:-1]:
        place = text.find(part, place + 1)
        if place < 0:
            return False
        place += len(part)
    return text.endswith(known[-1]) and len(text) - len(known[-1]) > place


def spelled(processor, pieces, ids):
    """The text of each fairseq id, None for an unknown one. Sequences of byte pieces become characters."""
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
    """Compares the data with the raw lines that the record contains.

    The ids of a line must be SentencePiece's, and must spell its normalised text.

    Returns:
        number of lines compared
    Raises:
        InputError: a line differs
    """
    pieces = all_pieces(processor)
    for number, line in split.record["sample"]:
        if number >= len(split.sizes):
            raise InputError(
                f"{split.prefix}.json is damaged: its sample has line {number + 1} of {len(split.sizes)}; "
                + AGAIN.format(split.prefix + ".*")
            )
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
    """Checks one split and prints its counts.

    Returns:
        the record of the split
    Raises:
        InputError: data and record disagree, there are no documents, too many pieces are unknown, or a line does not
            decode to its text
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
        ("ends of lines", ends, record["text_lines"] + record["documents"]),
        ("longest line", int(split.sizes.max()) if len(split.sizes) else 0, record["longest_line"]),
        ("checksum of the tokens", [total.sum, total.weighted], record["checksum"]),
        ("unknown tokens", unknown, record["unknown"]),
    ]
    rate = unknown / max(text_tokens, 1)
    most_frequent = "  ".join(f"{visible(piece)} ({count:,})" for piece, count in record["unknown_pieces"][:10])
    print(f"{split.prefix}:")
    print(
        f"  {documents:,} documents, {record['text_lines']:,} lines with text, {total.tokens:,} tokens including a </s>"
        " for each line and document"
    )
    print(
        f"  longest line {record['longest_line']:,} tokens; unknown {unknown:,} of {text_tokens:,} pieces,"
        f" {rate:.3%}{'; most frequent: ' + most_frequent if most_frequent else ''}"
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
            f"{split.prefix}.bin contains no documents, so complete_doc finds nothing; give text with a blank line"
            " after each document"
        )
    if rate > MAXIMUM_UNKNOWN_RATE:
        raise InputError(
            f"{split.prefix}.bin: {rate:.1%} of the pieces are unknown, expected at most {MAXIMUM_UNKNOWN_RATE:.0%}:"
            " the SentencePiece model does not fit this text; train one on similar text, with a larger --sample-lines"
            " or --vocab-size, and another --dest"
        )
    compared = decode_sample(split, processor)
    print(
        f"  complete_doc finds {documents:,} documents; {compared:,} lines drawn at random decode to their text; all"
        " tokens match their checksum"
    )
    return record


def visible(piece):
    """A piece as a terminal can show it: code points in place of characters that cannot be printed."""
    return "".join(character if character.isprintable() else f"U+{ord(character):04X}" for character in piece)


def check_folder(folder, splits):
    """Checks a folder; returns the record of each split. See `check_split` for errors."""
    processor = load_model(os.path.join(folder, "sentencepiece.model"))
    dictionary = os.path.join(folder, "dict.txt")
    with open(dictionary, encoding="utf-8", errors="replace", newline="\n") as stream:
        if stream.read() != dict_text(processor):
            raise InputError(
                f"{dictionary} is not the dictionary of the sentencepiece.model beside it; expected its pieces from id"
                " 3 on; " + AGAIN.format(folder)
            )
    return {split: check_split(folder, split, processor) for split in splits}


def check(dest, shards, wanted):
    """Checks shards and, given all of them, that together they contain every line and document of the input.

    Validation data are in shard 0. See `check_split` for errors.

    Args:
        shards, wanted: number of shards, and the numbers of those to check
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
                    f"{split}: {read[key]} {key} were read and {found} written: the shards come from different inputs;"
                    f" {AGAIN.format(dest)}"
                )
    if len(wanted) < shards:
        print(
            f"to compare the number of lines and documents with the input, finish all {shards} shards: check.py {dest}"
        )


def main():
    parser = Parser(__doc__)
    parser.add_argument("dest", metavar="DEST", help="folder that prepare.sh wrote")
    parser.add_argument("--shard", type=int, metavar="I", help="check this shard only")
    args = parser.parse_args()
    manifest = load_json(os.path.join(args.dest, "prepare.json"), MANIFEST, AGAIN.format(args.dest))
    if manifest is None:
        raise InputError(f"{args.dest} has no prepare.json; expected a folder that prepare.sh wrote")
    shards = manifest["options"]["shards"]
    if args.shard is not None and not 0 <= args.shard < shards:
        raise InputError(f"--shard {args.shard}: {args.dest} has shards 0 to {shards - 1}")
    check(args.dest, shards, range(shards) if args.shard is None else [args.shard])


if __name__ == "__main__":
    run(main)
