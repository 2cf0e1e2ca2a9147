"""Words with tags: CoNLL's columns, and CoNLL-U."""

import re
from typing import List, NamedTuple

from ..base.errors import UsageError, counted
from ..base.utf8 import read_lines
from ..metrics import flatten
from .labelled_files import find_file
from .labels import classes_of_training, index_of_label

TAGGED_FILES = {
    "train": ["train.txt", "train.conllu"],
    "valid": ["dev.txt", "dev.conllu"],
    "test": ["test.txt", "test.conllu"],
}
DOCUMENT = "-DOCSTART-"  # the word of lines between documents, which are not sentences
# The columns of universaldependencies.org/format.html.
CONLLU = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
CONLLU_COLUMNS = ["upos", "xpos", "feats", "deprel"]  # those that can be the tags
COLUMN_HELP = "of CoNLL-U files: the column of the tags"  # of the option --conllu-column
NO_VALUE = "_"
COLUMN_WITH_EMPTY_TAGS = "feats"  # the column in which NO_VALUE is a tag of its own: no features


class Sentence(NamedTuple):
    words: List[str]
    tags: List[str]  # empty where a test file has none
    lines: List[int]  # of the words


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


def describe_sentences(sentences):
    """How many sentences and words there are, for the user."""
    words = sum(len(sentence.words) for sentence in sentences)
    return f"{counted(len(sentences), 'sentence')} of {counted(words, 'word')}"


def why_not_scored(sentences, labels):
    """Why a test file cannot be scored; None if it has tags, most of which occur in training.

    Tags that are all the same stand in for those that are withheld.
    """
    tags = flatten(sentence.tags for sentence in sentences)
    if not tags:
        return "it has no tags"
    if len(set(tags)) == 1:
        return f"all its tags are {tags[0]!r}"
    known = sum(tag in labels for tag in tags)
    if 2 * known <= len(tags):
        return f"of its {len(tags):,} tags, only {known:,} are tags of the training file"
    return None


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


def is_conllu(path, lines):
    """Whether a file is CoNLL-U; its columns must then be separated by tabs."""
    if str(path).removesuffix(".gz").endswith(".conllu"):
        return True
    rows = [text for _, text in lines if text.strip() and not text.startswith("#")][:2]
    numbers = [row.split()[0] for row in rows if len(row.split()) >= len(CONLLU)]
    if numbers == ["1", "2"] and all("\t" not in row for row in rows):
        raise UsageError(
            f"{path}: found CoNLL-U with spaces between its columns, expected tabs; correct it"
        )
    if not rows or len(rows[0].split("\t")) != len(CONLLU):
        return False
    return bool(re.match(r"(1|1-[0-9]+|0\.1)\t", rows[0]))


def sentences_of_conllu(path, lines, column, is_test):
    """The sentences of CoNLL-U, with the tags of a column; see `read_tagged`."""
    sentences = []
    numbering = None  # between sentences
    for line, text in lines:
        if not text.strip():
            if numbering:
                numbering.end()
            numbering = None
            continue
        if text.startswith("#") and numbering is None:
            continue
        fields = text.split("\t")
        if len(fields) != len(CONLLU):
            raise UsageError(
                f"{path}: line {line}: found {counted(len(fields), 'column')}, expected the "
                f"{len(CONLLU)} of CoNLL-U, with tabs between them; correct it"
            )
        if numbering is None:
            numbering = Numbering(path)
            sentences.append(Sentence([], [], []))
        if numbering.consume(fields[0], line):
            add_word(sentences[-1], path, line, fields, column)
    if numbering:
        numbering.end()
    return with_checked_tags(path, sentences, column, is_test)


def add_word(sentence, path, line, fields, column):
    """Adds the word of a line of CoNLL-U, with the tag in a column, to a sentence."""
    word = fields[CONLLU.index("FORM")]
    tag = fields[CONLLU.index(column.upper())]
    for name, field in [("form", word), (column, tag)]:
        if not field or field != field.strip():
            raise UsageError(
                f"{path}: line {line}: the column {name} is {field!r}, expected text; correct it"
            )
    sentence.words.append(word)
    sentence.tags.append(tag)
    sentence.lines.append(line)


class Numbering:
    """The IDs of a sentence of CoNLL-U.

    Words have 1, 2, 3; ranges of words 1-2; words that are not in the text 1.1.
    """

    def __init__(self, path):
        self.path = path
        self.next = 1  # the number of the next word
        self.range_end = 0
        self.range_line = 0

    def consume(self, identifier, line):
        """Goes on to the ID of the next line; returns whether the line has a word.

        Raises UsageError: the ID is out of order
        """
        match = re.fullmatch(r"([0-9]+)(?:([-.])([0-9]+))?", identifier)
        if not self.follows(match):
            raise UsageError(
                f"{self.path}: line {line}: found the ID {identifier[:20]!r}, expected "
                f"{self.next}: words are numbered from 1 in each sentence, and a blank line ends "
                "it; correct it"
            )
        _, separator, second = match.groups()
        if separator == "-":
            self.range_end = int(second)
            self.range_line = line
        if separator:
            return False
        self.next += 1
        return True

    def follows(self, match):
        """Whether an ID, as the match of its parts or None, may stand at this place."""
        if match is None:
            return False
        number, separator, second = match.groups()
        if separator == ".":
            return int(number) == self.next - 1
        if separator == "-" and int(second) <= int(number):
            return False
        return int(number) == self.next

    def end(self):
        """Refuses a sentence that ends within a range."""
        if self.range_end >= self.next:
            raise UsageError(
                f"{self.path}: line {self.range_line}: found a range of words up to "
                f"{self.range_end}, expected as many words in the sentence, which has "
                f"{self.next - 1}; correct it"
            )


def with_checked_tags(path, sentences, column, is_test):
    """Sentences of CoNLL-U, in a test file without tags if it has none.

    Words without a tag are refused where others have one.
    """
    without = []
    for sentence in sentences:
        for tag, line in zip(sentence.tags, sentence.lines):
            if tag == NO_VALUE:
                without.append(line)
    if len(without) == sum(len(sentence.words) for sentence in sentences):
        if is_test:
            return [sentence._replace(tags=[]) for sentence in sentences]
        raise UsageError(
            f"{path}: the column {column} is {NO_VALUE!r} for every word, expected tags; set "
            f"--conllu-column to another of {', '.join(CONLLU_COLUMNS)}"
        )
    if without and column != COLUMN_WITH_EMPTY_TAGS:
        raise UsageError(
            f"{path}: line {without[0]}: the column {column} is {NO_VALUE!r}, expected a tag, as "
            "other words have one; correct it, or choose another --conllu-column"
        )
    return sentences
