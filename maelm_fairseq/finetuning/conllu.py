"""CoNLL-U: words with tags in ten columns (universaldependencies.org/format.html)."""

import re

from ..base.errors import UsageError, counted
from .tagged_sentences import Sentence

CONLLU = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
CONLLU_COLUMNS = ["upos", "xpos", "feats", "deprel"]  # those that can be the tags
COLUMN_HELP = "of CoNLL-U files: the column of the tags"  # of the option --conllu-column
NO_VALUE = "_"
COLUMN_WITH_EMPTY_TAGS = "feats"  # the column in which NO_VALUE is a tag of its own: no features


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
