"""Files of words with tags: CoNLL's columns, or CoNLL-U."""

import re

from ..base.errors import UsageError, counted
from ..base.utf8 import read_lines
from ..metrics import flatten
from .conllu import CONLLU_COLUMNS, is_conllu, sentences_of_conllu
from .labelled_files import find_file
from .labels import classes_of_training, index_of_label
from .tagged_sentences import Sentence, why_not_scored

TAGGED_FILES = {
    "train": ["train.txt", "train.conllu"],
    "valid": ["dev.txt", "dev.conllu"],
    "test": ["test.txt", "test.conllu"],
}
DOCUMENT = "-DOCSTART-"  # the word of lines between documents, which are not sentences


def read_tagged(path, is_test=False, column=CONLLU_COLUMNS[0]):
    """Reads sentences of words with tags.

    A file is CoNLL-U if its name says so, or if its first word is numbered as in CoNLL-U. Its tags
    are in the given column. Comments, ranges of words such as 1-2, and words that are not in the
    text, such as 1.1, are left out.

    Other files have CoNLL's columns: a word per line, the word first and the tag last, separated by
    tabs, or else by spaces, and a blank line after each sentence.

    A test file may have no tags: words alone, or columns of another kind; in CoNLL-U, `_` for all
    tags.

    Returns: list of `Sentence`
    Raises UsageError: a word has no tag, lines have different numbers of columns, or words are
        numbered otherwise
    """
    lines = list(read_lines(path))
    for line, text in lines:
        if "\r" in text:
            raise UsageError(
                f"{path}: line {line}: found a carriage return within it, "
                "expected \\n at the ends of lines"
            )
    if is_conllu(path, lines):
        sentences = sentences_of_conllu(path, lines, column, is_test)
    elif column != CONLLU_COLUMNS[0]:
        raise UsageError(
            f"--conllu-column {column}: {path} is not CoNLL-U: its last column has the tags; "
            "leave it out"
        )
    else:
        sentences = sentences_of_columns(path, lines, is_test)
    if not sentences:
        raise UsageError(f"{path}: no sentences; expected a word and its tag per line")
    return sentences


def read_tagged_folder(folder, column=CONLLU_COLUMNS[0]):
    """Reads the files of a folder that have tags.

    Args:
        folder: with a file for training, one for development, and perhaps one for testing
        column: of CoNLL-U; see `read_tagged`
    Returns: the labels, in order; {path: list of `Sentence`}, the training file first; and a list
        of lines that say why a test file is not among them
    Raises UsageError: `read_tagged` refuses a file, or the training file does not have a tag of the
        development file
    """
    train_path = find_file(folder, "train", TAGGED_FILES)
    files = {train_path: read_tagged(train_path, column=column)}
    labels = classes_of_training(train_path, flatten(each.tags for each in files[train_path]))
    dev_path = find_file(folder, "valid", TAGGED_FILES)
    files[dev_path] = read_tagged(dev_path, column=column)
    for sentence in files[dev_path]:
        for tag, line in zip(sentence.tags, sentence.lines):
            index_of_label(tag, labels, dev_path, line)
    left_out = []
    test_path = find_file(folder, "test", TAGGED_FILES, required=False)
    if test_path:
        sentences = read_tagged(test_path, is_test=True, column=column)
        reason = why_not_scored(sentences, labels)
        if reason is None:
            files[test_path] = sentences
        else:
            left_out.append(f"{test_path}: not scored, as {reason}")
    return labels, files, left_out


def sentences_of_columns(path, lines, is_test):
    """The sentences of lines, (number, text), with a word first and a tag last.

    See `read_tagged`.
    """
    sentences = []
    sentence = None
    columns = Columns(path, lines, is_test)
    for line, text in lines:
        row = text.strip(" \t")
        if not row.strip() or row.split()[0] == DOCUMENT:
            sentence = None
            continue
        fields = columns.split(line, row)
        if sentence is None:
            sentence = Sentence([], [], [])
            sentences.append(sentence)
        sentence.words.append(fields[0])
        sentence.lines.append(line)
        if len(fields) > 1:
            sentence.tags.append(fields[-1])
    return sentences


class Columns:
    """The columns of a file: those of its first line with a word, which all others must have."""

    def __init__(self, path, lines, is_test):
        self.path = path
        self.is_test = is_test
        self.has_tabs_alone = is_separated_by_tabs(lines)
        self.count = None
        self.first_line = None

    def split(self, line, row):
        """The fields of a line, which has a number."""
        # A word may contain other white space.
        fields = re.split(" *\t *" if self.has_tabs_alone else "[ \t]+", row)
        if self.count is None:
            self.count = len(fields)
            self.first_line = line
        expected = None
        if self.count == 1 and not self.is_test:
            expected = "a word and its tag, separated by a space or tab"
        elif len(fields) != self.count:
            expected = f"{self.count} as in line {self.first_line}"
            if "\t" in row and not self.has_tabs_alone:
                expected += ", where spaces separate columns, too, as not all lines have tabs alone"
        if expected:
            found = counted(len(fields), "column")
            raise UsageError(
                f"{self.path}: line {line}: found {found}, expected {expected}; correct it"
            )
        return fields


def is_separated_by_tabs(lines):
    """Whether there is a tab on each line, and spaces at most in the words, such as "New York"."""
    for _, text in lines:
        row = text.strip(" \t")
        if not row.strip() or row.startswith(DOCUMENT):
            continue
        if "\t" not in row:
            return False
        after_word = re.sub("^[^\t]*", "", row)
        if " " in after_word.replace(" \t", ""):
            return False
    return True
