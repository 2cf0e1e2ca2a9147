#!/usr/bin/env python3
"""Checks prepared data: nothing was lost, a sample decodes to its text, and the counts are plausible.

Exits with status 1 if a check fails.
"""

import command_line
from binarized import AGAIN, UNKNOWN, Split, add_to_checksum, fairseq_ids, shard_folder
from maelm_fairseq.base.errors import UsageError, run
from pieces import load_vocabulary
from records import read_manifest

MAXIMUM_UNKNOWN_RATE = 0.01
BLOCK = 1 << 24  # tokens read at a time


def count_tokens(split):
    """The checksum of all tokens, and the number of unknown ones."""
    checksum, unknown = [0, 0], 0
    for start in range(0, len(split.tokens), BLOCK):
        block = split.tokens[start : start + BLOCK]
        checksum = add_to_checksum(checksum, start, block)
        unknown += int((block == UNKNOWN).sum())
    return checksum, unknown


def same(where, fix, **counts):
    """Compares counts, each (found, expected), with what was recorded."""
    for name, (found, expected) in counts.items():
        if found != expected:
            raise UsageError(f"{where}: {name}: found {found}, expected {expected} as recorded; {fix}")


def check_split(folder, name, processor):
    """Checks one split, prints its counts, and returns its record.

    Raises:
        UsageError: data and record disagree, there are no documents, too many pieces are unknown, or a line does not
            decode to its text
    """
    split = Split(folder, name)
    record, data = split.record, split.prefix + ".bin"
    checksum, unknown = count_tokens(split)
    separators = split.sizes == 1
    documents, lines = int((separators[1:] & ~separators[:-1]).sum()), int((~separators).sum())
    pieces = len(split.tokens) - len(split.sizes)
    rate = unknown / max(pieces, 1)
    most_frequent = "  ".join(f"{printable(piece)} ({count:,})" for piece, count in record.unknown_pieces[:10])
    print(
        f"{split.prefix}:\n  {documents:,} documents, {record.text_lines:,} lines with text, {len(split.tokens):,}"
        f" tokens including a </s> for each line and document\n  longest line {record.longest_line:,} tokens; unknown"
        f" {unknown:,} of {pieces:,} pieces, {rate:.3%}{'; most frequent: ' * bool(most_frequent)}{most_frequent}"
    )
    found = {"text_lines": (lines, record.text_lines), "documents": (documents, record.documents)}
    same(data, split.again, **found, checksum=(checksum, record.checksum))
    if rate > MAXIMUM_UNKNOWN_RATE:
        raise UsageError(
            f"{data}: {rate:.1%} of the pieces are unknown, expected at most {MAXIMUM_UNKNOWN_RATE:.0%}: the"
            " SentencePiece model does not fit this text; train one on similar text, with a larger --sample-lines or"
            " --vocab-size, and another --dest"
        )
    for number, line in record.sample:
        ids = split.line(number) if 0 <= number < len(split.sizes) else None
        if ids != fairseq_ids(processor.encode(line.encode("utf-8", "replace"))):
            raise UsageError(f"{data}: line {number + 1} does not decode to its text, {line[:200]!r}; {split.again}")
    print(
        f"  complete_doc finds {documents:,} documents; {len(record.sample):,} lines drawn at random decode to their"
        " text; all tokens match their checksum"
    )
    return record


def printable(piece):
    """A piece as a terminal can show it: code points in place of characters that cannot be printed."""
    return "".join(character if character.isprintable() else f"U+{ord(character):04X}" for character in piece)


def check(dest, shards, selected):
    """Checks shards and, given all of them, that together they contain every line and document of the input.

    Validation data are in shard 0. See `check_split` for errors.

    Args:
        shards, selected: number of shards, and the numbers of those to check
    """
    records = {"train": [], "valid": []}
    for shard in selected:
        folder = shard_folder(dest, shard, shards)
        processor = load_vocabulary(folder)
        for split in ["train", "valid"] if shard == 0 else ["train"]:
            records[split].append(check_split(folder, split, processor))
    for split, parts in records.items():
        if len(parts) == (shards if split == "train" else 1):
            read = parts[0].input
            print(
                f"{split}: {read.lines:,} lines read = {read.text_lines:,} with text + {read.blank_lines:,} blank +"
                f" {read.lines_normalised_to_nothing:,} that normalise to nothing; {read.documents:,} documents"
            )
            written = {name: sum(getattr(part, name) for part in parts) for name in ("text_lines", "documents")}
            fix = f"the shards come from different inputs; {AGAIN.format(dest)}"
            same(f"{split}, all shards", fix, **{name: (n, getattr(read, name)) for name, n in written.items()})
    if len(selected) < shards:
        print(
            f"to compare the number of lines and documents with the input, finish all {shards} shards: check.py {dest}"
        )


def main():
    parser = command_line.parser(__doc__)
    parser.add_argument("dest", metavar="DEST", help="folder that prepare.sh wrote")
    dest = parser.parse_args().dest
    shards = read_manifest(dest).options.shards
    check(dest, shards, range(shards))


if __name__ == "__main__":
    run(main)
