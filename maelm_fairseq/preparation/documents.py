"""Which lines of raw text are text, and to which split and shard their documents belong."""

import functools
from typing import NamedTuple

from ..base.errors import UsageError
from ..base.utf8 import read_lines
from .manifest import InputCounts


class DocumentReader:
    """Reads documents from files of raw text; blank lines and the ends of files end documents.

    A line that the tokenizer normalises to nothing ends them, too.

    Args:
        paths: paths of the files
        tokenizer: `Tokenizer`
        report_bytes: function that is called with the number of bytes of each part that is read
    Attributes:
        counts: `InputCounts` of what has been read so far
    """

    def __init__(self, paths, tokenizer, report_bytes):
        self.paths = paths
        self.tokenizer = tokenizer
        self.report_bytes = report_bytes
        self.counts = InputCounts(
            files=len(paths),
            lines=0,
            text_lines=0,
            blank_lines=0,
            lines_normalised_to_nothing=0,
            documents=0,
        )
        self.has_tokens_by_first = functools.cache(self.has_tokens)

    def has_tokens(self, text):
        return len(self.tokenizer.encode_plain_text([text])[0]) > 0

    def __iter__(self):
        """Yields (number of a document, line) for each line of text, and with "" after each
        document."""
        for path in self.paths:
            is_inside = False  # whether the line before is one of a document
            for _, line in read_lines(path, self.report_bytes):
                is_text = self.classify_and_count(line)
                if is_text and not is_inside:
                    self.counts.documents += 1
                if is_text:
                    yield self.counts.documents - 1, line
                elif is_inside:
                    yield self.counts.documents - 1, ""
                is_inside = is_text
            if is_inside:
                yield self.counts.documents - 1, ""

    def classify_and_count(self, line):
        """Whether a line has tokens, which its first character mostly says; counts it, too."""
        self.counts.lines += 1
        text = line.strip()
        if not text:
            self.counts.blank_lines += 1
            return False
        if self.has_tokens_by_first(text[0]) or self.has_tokens(text):
            self.counts.text_lines += 1
            return True
        self.counts.lines_normalised_to_nothing += 1
        return False


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
