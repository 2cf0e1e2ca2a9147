"""Checks of prepared data: nothing was lost, a sample of the text gives its tokens, and the counts
are plausible."""

import hashlib
import os
from typing import NamedTuple

import numpy as np

from ..base.errors import UsageError
from ..base.json_files import read_json
from ..base.line_index import LineIndex
from ..base.opening import open_to_read
from ..base.provenance import sha256
from ..base.vocabulary_files import read_tokenizer
from .binarized import is_encoded, shard_folder
from .manifest import SplitRecord, part_fingerprint

PREPARE_AGAIN = "remove {} and run prepare.sh again"
MAX_UNKNOWN_RATE = 0.01
FEW_TOKENS = 100  # for each symbol of the vocabulary
FEW_TO_VALIDATE = 20_000
BLOCK_TOKENS = 1 << 24  # tokens that are read at a time


class TokenCounts(NamedTuple):
    """What the data of a split have."""

    documents: int
    text_lines: int
    tokens: int
    longest: int  # tokens of a line


def check_counts(location, counts, record, advice):
    """Compares {name: count} with what was recorded."""
    for name, counted in counts.items():
        expected = getattr(record, name)
        if counted != expected:
            raise UsageError(
                f"{location}: {name}: found {counted}, expected {expected} as recorded; {advice}"
            )


def check_split(folder, name, tokenizer, expected):
    """Checks one split, prints its counts, and returns its record.

    Args:
        expected: its `manifest.part_fingerprint`

    Raises:
        UsageError: data and record disagree, too many characters are unknown, or a line does not
            give its tokens
    """
    prefix = os.path.join(folder, name)
    data = prefix + ".bin"
    advice = PREPARE_AGAIN.format(f"{prefix}.bin, .idx and .json")
    if not is_encoded(folder, name):
        raise UsageError(
            f"{prefix}.* is not complete: the preparation was not finished; run prepare.sh again"
        )
    record = read_json(
        prefix + ".json", SplitRecord, "the record that data-prep/prepare.sh wrote", advice
    )
    if record.sha256.get("part", expected) != expected:
        raise UsageError(
            f"{prefix}.* are of another split, shard or text: put its own files back, or {advice}"
        )
    index = LineIndex(prefix, advice)
    tokens = np.memmap(data, index.dtype, "r") if index.num_tokens else np.zeros(0, index.dtype)
    checksums = [
        ("vocabulary", tokenizer.path, sha256(tokenizer.path)),
        ("idx", index.path, sha256(index.path)),
        ("bin", data, sha256_of_tokens(tokens)),
    ]
    check_unchanged(prefix, checksums, record, advice)
    counts = count_and_compare_lines(data, index, tokens, tokenizer, record.sample, advice)
    rate = report_counts(prefix, counts, record)
    counted = {
        "text_lines": counts.text_lines,
        "documents": counts.documents,
        "tokens": counts.tokens,
    }
    check_counts(data, counted, record, advice)
    check_unknown(data, rate)
    verdict = "all files match their SHA-256"
    if not record.sha256:
        verdict = "there are no SHA-256 to compare"
    print(
        f"  complete_doc finds {counts.documents:,} documents; {len(record.sample):,} lines drawn"
        f" at random give their tokens; {verdict}"
    )
    return record


def check_unknown(data, rate):
    """Refuses data with too large a share of unknown characters."""
    if rate > MAX_UNKNOWN_RATE:
        raise UsageError(
            f"{data}: {rate:.1%} of the characters are unknown, expected at most"
            f" {MAX_UNKNOWN_RATE:.0%}: the vocabulary does not fit this text; train one on"
            " similar text, with a larger --sample-lines or --vocab-size, and another --dest"
        )


def check_unchanged(prefix, checksums, record, advice):
    """Compares (file type, path of a file, SHA-256 of its contents) with a record."""
    for file_type, path, checksum in checksums:
        if record.sha256.get(file_type, checksum) != checksum:
            raise UsageError(
                f"{path} has changed since {prefix}.* was encoded; put it back, or {advice}"
            )


def sha256_of_tokens(tokens):
    digest = hashlib.sha256()
    for start in range(0, len(tokens), BLOCK_TOKENS):
        digest.update(tokens[start : start + BLOCK_TOKENS])
    return digest.hexdigest()


def count_and_compare_lines(data, index, tokens, tokenizer, sample, advice):
    """Counts lines and documents, and compares the tokens of a sample of lines with its text.

    Args:
        data: path of the tokens, for messages
        index: `LineIndex`
        tokens: tokens of all lines
        sample: list of (number of a line, its text)
        advice: what to do if they differ
    Returns: `TokenCounts`
    """
    num_documents = num_text_lines = longest = first = 0
    after_blank = True
    for start, sizes in index.parts():
        ends = first + np.cumsum(sizes)
        is_blank = sizes == 1
        follows_blank = np.append(after_blank, is_blank[:-1])
        num_documents += int((is_blank & ~follows_blank).sum())
        num_text_lines += int((~is_blank).sum())
        first = int(ends[-1])
        after_blank = is_blank[-1]
        longest = max(longest, int(sizes.max()))
        for number, line in sample:
            if start <= number < start + len(sizes):
                end = ends[number - start]
                ids = tokens[end - sizes[number - start] : end - 1].tolist()
                if ids != tokenizer.encode_plain_text([line])[0].tolist():
                    raise UsageError(
                        f"{data}: line {number + 1} does not have the tokens of its text,"
                        f" {line[:200]!r}; {advice}"
                    )
    return TokenCounts(num_documents, num_text_lines, len(tokens), longest)


def report_counts(prefix, counts, record):
    """Prints what a split has; returns the share of its characters that are unknown."""
    rate = record.unknown / max(record.characters, 1)
    text = (
        f"{prefix}:\n  {counts.text_lines:,} lines with text + {counts.documents:,} blank, one"
        f" after each document; {counts.tokens:,} tokens including a </s> for each\n  longest line"
        f" {counts.longest:,} tokens; unknown {record.unknown:,} of {record.characters:,}"
        f" characters, {rate:.3%}"
    )
    frequent = "  ".join(
        f"{character!r} ({count:,})" for character, count in record.most_unknown[:10]
    )
    if frequent:
        text += f"; most frequent: {frequent}"
    print(text)
    return rate


def load_checked_vocabulary(folder):
    """The tokenizer of a folder that prepare.sh wrote; its dict.txt must list the same symbols."""
    dictionary = os.path.join(folder, "dict.txt")
    tokenizer = read_tokenizer(folder)
    with open_to_read(dictionary) as stream:
        if stream.read() != tokenizer.dict_text().encode():
            raise UsageError(
                f"{dictionary} is not the dictionary of the {tokenizer.file_name} beside it;"
                " expected its pieces in order; give a folder that prepare.sh wrote, or remove this"
                " one and run prepare.sh again"
            )
    return tokenizer


def check_prepared_data(dest, manifest, selected):
    """Checks selected shards and, given all of them, that nothing is missing.

    Together they must contain every line and document of the input. Validation data are in shard 0.
    See `check_split` for errors.
    """
    num_shards = manifest.options.shards
    valid_documents = manifest.options.valid_documents
    valid_files = manifest.train if valid_documents else manifest.valid
    files = {"train": manifest.train, "valid": valid_files}
    records = {"train": [], "valid": []}  # by the files that they are of
    num_tokens = {"train": 0, "valid": 0}
    for shard in selected:
        folder = shard_folder(dest, shard, num_shards)
        tokenizer = load_checked_vocabulary(folder)
        for split in ["train", "valid"] if shard == 0 else ["train"]:
            expected = part_fingerprint(
                split, shard, 1 if split == "valid" else num_shards, files[split]
            )
            record = check_split(folder, split, tokenizer, expected)
            records["train" if valid_documents else split].append(record)
            num_tokens[split] += record.tokens
    parts_of_train = num_shards + 1 if valid_documents else num_shards
    for split, parts in records.items():
        if len(parts) == (parts_of_train if split == "train" else 1):
            check_whole(split, parts, dest, valid_documents)
            warn_of_unsuitable_text(
                split, parts[0].input, num_tokens[split], len(tokenizer.symbols)
            )
    if 0 in selected:
        warn_of_little_to_validate(num_tokens["valid"])
    if len(selected) < num_shards:
        print(
            "to compare the number of lines and documents with the input, finish all"
            f" {num_shards} shards: check.py {dest}"
        )


def check_whole(split, parts, dest, valid_documents):
    """Prints what was read, and checks that all parts together have the same text."""
    counts = parts[0].input
    text = (
        f"{split}: {counts.lines:,} lines in its files = {counts.text_lines:,} with text +"
        f" {counts.blank_lines:,} blank + {counts.lines_normalised_to_nothing:,} that normalise to"
        f" nothing; {counts.documents:,} documents"
    )
    if valid_documents:
        text += f", of which {valid_documents:,} are held out for validation"
    print(text)
    written = {}
    for name in ("text_lines", "documents"):
        written[name] = sum(getattr(record, name) for record in parts)
    advice = f"the parts come from different inputs; {PREPARE_AGAIN.format(dest)}"
    check_counts(f"{split}, all parts", written, counts, advice)


def warn_of_little_to_validate(num_tokens):
    if num_tokens < FEW_TO_VALIDATE:
        print(
            f"valid: found only {num_tokens:,} tokens, expected {FEW_TO_VALIDATE:,} or more for "
            "reliable losses and ranks; hold out more text"
        )


def warn_of_unsuitable_text(split, counts, num_tokens, vocab_size):
    """Warns of texts from which models learn hardly anything, or where blocks cross documents."""
    if counts.documents <= counts.files < counts.text_lines / 10:
        print(
            f"{split}: no blank line between documents: blocks will cross them; put one after each"
            " if there are any"
        )
    if split == "train" and num_tokens < FEW_TOKENS * vocab_size:
        print(
            f"{split}: only {num_tokens:,} tokens, too few to train a model with a vocabulary of"
            f" {vocab_size:,} pieces; use more text, or a smaller --vocab-size"
        )
