"""Files of texts that are labelled: what is read, what is written, and in between a `Labeller`."""

import os
from abc import ABC, abstractmethod
from pathlib import Path

from tqdm import tqdm

from ..base.destinations import check_new_file
from ..base.errors import UsageError, counted
from ..base.files import atomic_write
from ..base.opening import open_to_read
from ..base.utf8 import read_lines

CHUNK_TEXTS = 1000  # texts that are labelled together
MIN_TAGGED_LINES = 3  # fewer texts may end with a word that is also a tag


class Labeller(ABC):
    """What labels texts.

    Attributes:
        name: what it is, for the user
        texts_per_line: 1, or 2 for pairs
        tags: all tags, if it tags words; else None
    """

    name = ""
    texts_per_line = 1
    tags = None

    def header(self):
        """The first line of the file that is written; nothing where words are tagged."""
        return ""

    @abstractmethod
    def lines(self, texts):
        """The lines that are written for texts, lists of one or two."""


def label_file(labeller, path, dest):
    """Labels the texts of a file, and writes a new one, whole or not at all.

    Raises UsageError: a line does not have as many texts as the labeller expects, or there is none
    """
    count = 0
    with atomic_write(dest, must_be_new=True) as stream:
        stream.write(labeller.header())
        for texts in read_in_chunks(path, labeller.texts_per_line):
            if labeller.tags and count == 0:
                check_not_tagged(path, [text for (text,) in texts], labeller.tags)
            stream.writelines(labeller.lines(texts))
            count += len(texts)
        if count == 0:
            raise UsageError(f"{path}: it is empty, expected a text in each line")
    print(f"written: {dest}, {counted(count, 'text')}, labelled by {labeller.name}")


def add_file_options(add):
    """Adds --texts and --dest to a parser by its method `add`; see `check_files`."""
    add("--texts", required=True, metavar="FILE", help="a text in each line; may be a pipe")
    add("--dest", required=True, metavar="FILE.tsv", help="new file to write")


def check_files(texts, dest):
    """Refuses, before any work, files that cannot be read or written; a pipe opens only once.

    Raises:
        FileNotFoundError: there is no file of texts
        UsageError: it is something else; or the new file exists, cannot be written, or ends in .gz
        OSError: the file of texts cannot be read
    """
    check_new_file(dest)
    if dest.endswith(".gz"):
        raise UsageError(f"--dest {dest}: it is written as plain text; choose a name without .gz")
    if not Path(texts).is_fifo():
        open_to_read(texts, "a file with a text in each line").close()


def read_in_chunks(path, texts_per_line):
    """Yields lists of up to CHUNK_TEXTS lines of a file, each a list of one text or of two."""
    chunk = []
    size = os.path.getsize(path)
    with tqdm(desc="predict", total=size, unit="B", unit_scale=True, disable=None) as bar:
        for number, line in read_lines(path, bar.update, allow_pipe=True):
            texts = line.split("\t")
            if len(texts) != texts_per_line:
                expected = expected_columns(texts_per_line)
                found = counted(len(texts), "column")
                raise UsageError(f"{path}: line {number}: found {found}, expected {expected}")
            chunk.append(texts)
            if len(chunk) == CHUNK_TEXTS:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def expected_columns(texts_per_line):
    """What a line should have, in words."""
    if texts_per_line == 1:
        return (
            "one text without a tab: from a table, first extract the column of the texts, for "
            "example with tail -n +2 FILE | cut -f N, where N is its number, from 1"
        )
    return "two texts with a tab between them, as the examples of training are pairs"


def check_not_tagged(path, texts, tags):
    """Refuses texts that are lines of a tagged file, where texts to tag are expected.

    Args:
        path: of their file
        texts: the first ones
        tags: all tags
    """
    lines = [text.split() for text in texts if text.strip()]
    # A punctuation mark may be a tag, and is the last word of many texts.
    tags = {tag for tag in tags if any(map(str.isalnum, tag))}
    tagged = [words for words in lines if len(words) > 1 and words[-1] in tags]
    if len(tagged) >= MIN_TAGGED_LINES and len(tagged) > len(lines) / 2:
        raise UsageError(
            f"{path}: found a word and its tag in a line, such as {' '.join(tagged[0])!r}, "
            "expected a text in each line; join the words of each sentence, without their tags"
        )


def table_row(fields, texts):
    """A line of a table: what is predicted, and the texts."""
    return "\t".join([*fields, *texts]) + "\n"


def table_header(columns, texts_per_line):
    """The names of the columns of predictions and of texts, as fine-tuning reads them."""
    return table_row(columns, ["sentence"] if texts_per_line == 1 else ["sentence1", "sentence2"])


def tagged_lines(words_with_tags):
    """A line for each pair of a word and its tag, and a blank one."""
    return "".join(f"{word}\t{tag}\n" for word, tag in words_with_tags) + "\n"


def format_value(value):
    """A predicted value as text."""
    return f"{value:.10g}"
