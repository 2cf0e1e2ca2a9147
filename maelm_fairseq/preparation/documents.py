"""Which lines of raw text are text, and to which split and shard their documents belong."""

import functools
from typing import NamedTuple

from ..base.errors import UsageError
from ..base.utf8 import read_lines


def line_counter(tokenizer):
    """A function that says which count of `InputCounts` a line belongs to.

    It remembers first characters, which mostly decide that.
    """

    def is_text(text):
        return len(tokenizer.encode_plain_text([text])[0]) > 0

    is_text_by_first = functools.cache(is_text)

    def count_name(line):
        text = line.strip()
        if not text:
            return "blank_lines"
        if is_text_by_first(text[0]) or is_text(text):
            return "text_lines"
        return "lines_normalised_to_nothing"

    return count_name


def count_documents_up_to(paths, limit=None):
    """The number of documents in files of raw text, at most `limit`, after which nothing is read.

    Blank lines and the ends of files end documents.
    """
    count = 0
    for path in paths:
        is_within = False
        for _, line in read_lines(path):
            is_text = bool(line.strip())
            count += is_text and not is_within
            is_within = is_text
            if count == limit:
                return count
    return count


def needed_documents(num_shards, num_valid_documents=None):
    """How many documents of --train are needed: those held out, and one for each shard."""
    return (num_valid_documents or 0) + num_shards


def check_documents(num_documents, num_shards, num_valid_documents=None):
    """Refuses too few documents in --train.

    Args:
        num_documents: their number
        num_shards, num_valid_documents: the options of prepare.sh
    """
    needed = needed_documents(num_shards, num_valid_documents)
    if num_documents >= needed:
        return
    if needed == 1:
        raise UsageError("--train: found no text in its files; give files with text")
    if num_valid_documents:
        name, advice = f"--valid-documents {num_valid_documents}", "hold out fewer"
    else:
        name, advice = f"--shards {num_shards}", "use fewer --shards"
    raise UsageError(
        f"{name}: found {num_documents:,} documents in --train, expected {needed:,} or more, as "
        f"each shard needs one to train on; put a blank line after each document, or {advice}"
    )


class HeldOut(NamedTuple):
    """Documents for "valid", at even intervals among those for "train"."""

    num_valid: int
    num_documents: int  # of both splits

    def num_valid_before(self, document):
        """How many documents for "valid" come before one, by its number."""
        return (document * self.num_valid + self.num_documents // 2) // self.num_documents

    def assign(self, document):
        """The split to which a document belongs, and its number there."""
        num_valid = self.num_valid_before(document)
        if self.num_valid_before(document + 1) > num_valid:
            return "valid", num_valid
        return "train", document - num_valid
