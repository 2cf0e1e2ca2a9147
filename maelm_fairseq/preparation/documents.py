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
        return len(tokenizer.encode_lines([text])[0]) > 0

    is_text_by_first = functools.cache(is_text)

    def count_name(line):
        text = line.strip()
        if not text:
            return "blank_lines"
        if is_text_by_first(text[0]) or is_text(text):
            return "text_lines"
        return "lines_normalised_to_nothing"

    return count_name


def documents_up_to(paths, limit=None):
    """The number of documents in files of raw text, at most `limit`, after which nothing is read.

    Blank lines and the ends of files end documents.
    """
    documents = 0
    for path in paths:
        is_within = False
        for _, line in read_lines(path):
            is_text = bool(line.strip())
            documents += is_text and not is_within
            is_within = is_text
            if documents == limit:
                return documents
    return documents


def needed_documents(shards, valid_documents=None):
    """How many documents of --train are needed: those held out, and one for each shard."""
    return (valid_documents or 0) + shards


def check_documents(documents, shards, valid_documents=None):
    """Refuses too few documents in --train.

    Args:
        documents: their number
        shards, valid_documents: the options of prepare.sh
    """
    needed = needed_documents(shards, valid_documents)
    if documents >= needed:
        return
    if needed == 1:
        raise UsageError("--train: found no text in its files; give files with text")
    if valid_documents:
        name, fix = f"--valid-documents {valid_documents}", "hold out fewer"
    else:
        name, fix = f"--shards {shards}", "use fewer --shards"
    raise UsageError(
        f"{name}: found {documents:,} documents in --train, expected {needed:,} or more, as each "
        f"shard needs one to train on; put a blank line after each document, or {fix}"
    )


class HeldOut(NamedTuple):
    """Documents for "valid", at even intervals among those for "train"."""

    valid_documents: int
    documents: int  # of both splits

    def before(self, document):
        """How many documents for "valid" come before one, by its number."""
        return (document * self.valid_documents + self.documents // 2) // self.documents

    def split_of(self, document):
        """The split to which a document belongs, and its number there."""
        before = self.before(document)
        if self.before(document + 1) > before:
            return "valid", before
        return "train", document - before
