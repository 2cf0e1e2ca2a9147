"""Checks of prepared data: nothing was lost, a sample of the text gives its tokens, and the counts are plausible."""

import hashlib
import os

import numpy as np

from ..base.errors import UsageError
from ..base.json_files import read_json
from ..base.line_sizes import LineSizes
from ..base.opening import opened
from ..base.provenance import sha256
from ..base.vocabulary_files import read_subwords
from .binarized import is_encoded, shard_folder
from .records import SplitRecord, part

AGAIN = "remove {} and run prepare.sh again"
MAXIMUM_UNKNOWN_RATE = 0.01
FEW_TOKENS = 100  # for each symbol of the vocabulary
FEW_TO_VALIDATE = 20_000
BLOCK = 1 << 24  # tokens that are read at a time


def same(where, counts, record, fix):
    """Compares {name: count} with what was recorded."""
    for name, counted in counts.items():
        expected = getattr(record, name)
        if counted != expected:
            raise UsageError(f"{where}: {name}: found {counted}, expected {expected} as recorded; {fix}")


def check_split(folder, name, tokenizer, expected):
    """Checks one split, prints its counts, and returns its record.

    Args:
        expected: its `records.part`

    Raises:
        UsageError: data and record disagree, too many characters are unknown, or a line does not give its tokens
    """
    prefix = os.path.join(folder, name)
    data, again = prefix + ".bin", AGAIN.format(prefix + ".*")
    if not is_encoded(folder, name):
        raise UsageError(f"{prefix}.* is not complete: the preparation was not finished; run prepare.sh again")
    record = read_json(prefix + ".json", SplitRecord, "the record that encode.py wrote", again)
    index = LineSizes(prefix, again)
    if record.sha256.get("part", expected) != expected:
        raise UsageError(f"{prefix}.* are of another split, shard or text: put its own files back, or {again}")
    tokens = np.memmap(data, index.dtype, "r") if index.tokens else np.zeros(0, index.dtype)
    digest = hashlib.sha256()
    for start in range(0, len(tokens), BLOCK):
        digest.update(tokens[start : start + BLOCK])
    for kind, path, found in [
        ("vocabulary", tokenizer.path, sha256(tokenizer.path)),
        ("idx", index.path, sha256(index.path)),
        ("bin", data, digest.hexdigest()),
    ]:
        if record.sha256.get(kind, found) != found:
            raise UsageError(f"{path} has changed since {prefix}.* was encoded; put it back, or {again}")
    documents = text_lines = longest = first = 0
    after_blank = True
    for start, sizes in index.parts():
        ends, blank = first + np.cumsum(sizes), sizes == 1
        documents += int((blank & ~np.append(after_blank, blank[:-1])).sum())
        text_lines += int((~blank).sum())
        first, after_blank, longest = int(ends[-1]), blank[-1], max(longest, int(sizes.max()))
        for number, line in record.sample:
            if start <= number < start + len(sizes):
                end = ends[number - start]
                ids = tokens[end - sizes[number - start] : end - 1].tolist()
                if ids != tokenizer.encode_lines([line])[0].tolist():
                    raise UsageError(f"{data}: line {number + 1} is not what its text, {line[:200]!r}, gives; {again}")
    rate = record.unknown / max(record.characters, 1)
    most = "  ".join(f"{character!r} ({count:,})" for character, count in record.most_unknown[:10])
    print(
        f"{prefix}:\n  {documents:,} documents, {text_lines:,} lines with text,"
        f" {len(tokens):,} tokens including a </s> for each line and document\n  longest line"
        f" {longest:,} tokens; unknown {record.unknown:,} of {record.characters:,} characters, {rate:.3%}"
        f"{'; most frequent: ' * bool(most)}{most}"
    )
    same(data, {"text_lines": text_lines, "documents": documents, "tokens": len(tokens)}, record, again)
    if rate > MAXIMUM_UNKNOWN_RATE:
        raise UsageError(
            f"{data}: {rate:.1%} of the characters are unknown, expected at most {MAXIMUM_UNKNOWN_RATE:.0%}: the"
            " vocabulary does not fit this text; train one on similar text, with a larger --sample-lines or"
            " --vocab-size, and another --dest"
        )
    print(
        f"  complete_doc finds {documents:,} documents; {len(record.sample):,} lines drawn at random give"
        f" their tokens; {'all files match their SHA-256' if record.sha256 else 'there are no SHA-256 to compare'}"
    )
    return record


def load_vocabulary(folder):
    """The tokenizer of a folder that prepare.sh wrote; its dict.txt must list the same symbols."""
    dictionary, tokenizer = os.path.join(folder, "dict.txt"), read_subwords(folder)
    with opened(dictionary) as stream:
        if stream.read() != tokenizer.dict_text().encode():
            raise UsageError(
                f"{dictionary} is not the dictionary of the {tokenizer.file_name} beside it; expected its pieces in"
                " order; give a folder that prepare.sh wrote, or remove this one and run prepare.sh again"
            )
    return tokenizer


def check(dest, manifest, selected):
    """Checks selected shards and, given all of them, that together they contain every line and document of the input.

    Validation data are in shard 0. See `check_split` for errors.
    """
    records, shards, held_out = {"train": [], "valid": []}, manifest.options.shards, manifest.options.valid_documents
    files = {"train": manifest.train, "valid": manifest.train if held_out else manifest.valid}
    for shard in selected:
        folder = shard_folder(dest, shard, shards)
        tokenizer = load_vocabulary(folder)
        for split in ["train", "valid"] if shard == 0 else ["train"]:
            expected = part(split, shard, 1 if split == "valid" else shards, files[split])
            records["train" if held_out else split].append(check_split(folder, split, tokenizer, expected))
    for split, parts in records.items():
        if len(parts) == (shards + bool(held_out) if split == "train" else 1):
            read = parts[0].input
            of_which = f", of which {held_out:,} are held out for validation" if held_out else ""
            print(
                f"{split}: {read.lines:,} lines read = {read.text_lines:,} with text + {read.blank_lines:,} blank +"
                f" {read.lines_normalised_to_nothing:,} that normalise to nothing; {read.documents:,}"
                f" documents{of_which}"
            )
            written = {name: sum(getattr(one, name) for one in parts) for name in ("text_lines", "documents")}
            fix = f"the parts come from different inputs; {AGAIN.format(dest)}"
            same(f"{split}, all parts", written, read, fix)
            remark(split, read, sum(one.tokens for one in parts), len(tokenizer.symbols))
    if len(selected) < shards:
        what = "to compare the number of lines and documents with the input"
        print(f"{what}, finish all {shards} shards: check.py {dest}")


def remark(split, read, tokens, symbols):
    """Says of text that models hardly learn from, or blocks cross documents of, that it is so."""
    if read.documents <= read.files < read.text_lines / 10:
        print(f"{split}: no blank line between documents: blocks will cross them; put one after each if there are any")
    if split == "valid" and tokens < FEW_TO_VALIDATE:
        print(f"{split}: {tokens:,} tokens are few: losses and ranks of so little text say little; hold out more of it")
    if split == "train" and tokens < FEW_TOKENS * symbols:
        few = f"{split}: {tokens:,} tokens are few for {symbols:,} pieces: a model learns little from them"
        print(f"{few}; use more text, or a smaller --vocab-size")
