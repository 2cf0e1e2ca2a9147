"""SQuAD's text: its JSON, pieces with their places in the text, and windows of tokens.

Letters in shapes: T tokens of a window.
"""

import json
import os
import unicodedata
from typing import List, NamedTuple, Tuple

import numpy as np

from ..errors import MissingFileError, UsageError
from ..vocabulary import WORD_START

BOS, EOS, UNKNOWN = 0, 2, 3  # fairseq's ids of <s>, </s> and <unk>
SEPARATORS = 4  # <s>, </s> </s> between question and context, and </s>
# Put before text that does not begin a word, where SentencePiece would mark a beginning. For private use: in no piece.
GUARD = "\ue000"


class Answer(NamedTuple):
    text: str
    start: int  # its first character in the context


class Question(NamedTuple):
    id: str
    text: str
    context: str
    answers: Tuple[Answer, ...]  # empty if the context does not answer it


# The JSON ----------------------------------------------------------------------------------------------------------


def read_questions(path) -> List[Question]:
    """Reads the official JSON of SQuAD 1.1 or 2.0. Without `is_impossible`, questions with answers are answerable.

    Raises:
        FileNotFoundError: there is no such file
        ValueError: it is not SQuAD's JSON; the message says where
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: not found, expected SQuAD's JSON")
    try:
        with open(path, encoding="utf-8-sig") as stream:
            content = json.load(stream)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8, expected SQuAD's JSON in UTF-8") from None
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}), expected SQuAD's, with `data` at the top level") from None
    questions, seen = [], set()
    for i, article in enumerate(get(content, "data", list, path), 1):
        where = f"{path}: article {i}"
        for j, paragraph in enumerate(get(article, "paragraphs", list, where), 1):
            where = f"{path}: article {i}, paragraph {j}"
            context = get(paragraph, "context", str, where)
            if not context.strip():
                raise UsageError(f"{where}: 'context' is blank, expected the text that answers the questions")
            for k, entry in enumerate(get(paragraph, "qas", list, where), 1):
                question = read_question(entry, context, f"{where}, question {k}")
                if question.id in seen:
                    raise UsageError(f"{where}: question id {question.id!r} occurs twice; ids must differ")
                seen.add(question.id)
                questions.append(question)
    if not questions:
        raise UsageError(f"{path}: no questions found")
    return questions


def read_question(entry, context, where):
    name = get(entry, "id", str, where)
    where = f"{where} ({name})"
    text = get(entry, "question", str, where)
    impossible = get(entry, "is_impossible", bool, where) if "is_impossible" in entry else None
    answers = []
    if "answers" in entry or not impossible:
        for answer in get(entry, "answers", list, where):
            answers.append(Answer(get(answer, "text", str, where), get(answer, "answer_start", int, where)))
            if not answers[-1].text.strip():
                raise UsageError(
                    f"{where}: the text of an answer is blank; without an answer the list is empty"
                )
    if impossible is not None and impossible == bool(answers):
        raise UsageError(
            f"{where}: 'is_impossible' is {str(impossible).lower()} but 'answers' has {len(answers)}: correct one"
        )
    return Question(name, text, context, tuple(answers))


KINDS = {list: "a list", str: "a string", int: "a whole number", bool: "true or false"}


def get(value, key, kind, where):
    """Returns `value[key]`.

    Raises:
        ValueError: the key is missing, or its value is not of the expected kind
    """
    if not isinstance(value, dict) or key not in value:
        found = "keys " + ", ".join(map(repr, value)) if isinstance(value, dict) and value else repr(value)[:60]
        raise UsageError(f"{where}: no {key!r} (found {found}), expected {KINDS[kind]}, as in SQuAD's JSON")
    if type(value[key]) is not kind:
        raise UsageError(f"{where}: {key!r} is {repr(value[key])[:60]}, expected {KINDS[kind]}")
    if kind is str and any("\ud800" <= character <= "\udfff" for character in value[key]):
        raise UsageError(f"{where}: {key!r} contains half a surrogate pair, which is not a character; correct the text")
    return value[key]


# Pieces and characters ---------------------------------------------------------------------------------------------


class Pieces(NamedTuple):
    """Tokens of a text, and the characters that each stands for: `begins[i]` to `ends[i]`, exclusive."""

    tokens: np.ndarray  # int64, fairseq's ids
    begins: np.ndarray  # int64
    ends: np.ndarray  # int64

    def covering(self, begin, end):
        """The first and last of the fewest pieces that cover characters `begin` to `end`; None if no piece does."""
        first = int(np.searchsorted(self.ends, begin, side="right"))
        last = int(np.searchsorted(self.begins, end, side="left")) - 1
        return (first, last) if first <= last else None

    def characters(self, first, last):
        """The characters that pieces `first` to `last` stand for: (begin, end)."""
        return int(self.begins[first]), int(self.ends[last])


class SpanTokenizer:
    """Encodes text into SentencePiece's pieces with exact places in the original text.

    Runs of letters, runs of digits and single other characters are encoded separately, so that an answer can begin and
    end wherever the kind of character changes: no piece contains the end of a year and the comma after it. A piece
    still begins a word only after white space.

    Args:
        processor: SentencePieceProcessor
    """

    def __init__(self, processor):
        self.processor = processor
        self._kinds = {}
        self._encoded = {}

    def encode(self, text) -> Pieces:
        """The pieces of a text, in order."""
        rows = [
            (token, begin + b, begin + e)
            for begin, end, starts_word in self.runs(text)
            for token, b, e in self.encode_run(text[begin:end], starts_word)
        ]
        return Pieces(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)

    def encode_context(self, question: Question) -> Pieces:
        """The pieces of a question's context.

        Raises:
            ValueError: it has none, because its characters are invisible
        """
        pieces = self.encode(question.context)
        if not pieces.ends.any():
            raise UsageError(f"question {question.id!r}: SentencePiece removes its whole context; expected text")
        return pieces

    def kind(self, character):
        """space, letter, digit, symbol, or mark, which belongs to the character before it."""
        if character not in self._kinds:
            category = unicodedata.category(character)
            if character.isspace() or WORD_START in self.processor.normalize("a" + character + "a").lstrip(WORD_START):
                kind = "space"
            elif category[0] == "M" or category == "Cf":
                kind = "mark"
            else:
                kind = "letter" if category[0] == "L" else "digit" if category == "Nd" else "symbol"
            self._kinds[character] = kind
        return self._kinds[character]

    def runs(self, text):
        """Splits a text where the kind of character changes, and around each symbol.

        Returns:
            list of (begin, end, whether a word starts there)
        """
        cuts = []
        before = "space"  # kind of the current run
        for i, character in enumerate(text):
            kind = self.kind(character)
            if kind == "mark" and before != "space":
                kind = before
            elif kind != "space" and (kind != before or kind == "symbol"):
                cuts.append([i, i, before == "space"])
            if kind != "space":
                cuts[-1][1] = i + 1
            before = kind
        return cuts

    def encode_run(self, run, starts_word):
        """Encodes a run by itself: a tuple of (token, begin, end). Results are cached, since runs repeat."""
        key = run, starts_word
        if key not in self._encoded:
            before = GUARD + " " * starts_word
            spans = piece_spans(self.processor, before + run)
            skip = len(before)
            # A piece that ends with the guard is not part of the run; unknown characters join the guard in one piece.
            self._encoded[key] = tuple((t, max(b - skip, 0), max(e - skip, 0)) for t, b, e in spans if e > len(GUARD))
        return self._encoded[key]


def piece_spans(processor, text):
    """Encodes a text and traces each piece back through the normalisation to its characters.

    Returns:
        list of (fairseq's token, first character, one after the last)
    Raises:
        ValueError: the pieces do not spell the text
    """
    normalized, origins = processor.normalize(text, with_offsets=True)
    begins, ends = [], []  # for each byte of the normalised text
    end = len(text)
    for i in reversed(range(len(normalized))):
        if origins[i] < origins[i + 1]:
            end = origins[i + 1]
        size = len(normalized[i].encode("utf-8"))
        begins += [origins[i]] * size
        ends += [end] * size
    begins.reverse()
    ends.reverse()
    spans, place = [], 0
    for number, piece in zip(processor.encode(text), processor.encode(text, out_type=str)):
        size = 1 if processor.is_byte(number) else len(piece.encode("utf-8"))
        if place + size > len(begins):
            break
        spans.append((number + 1 if number else UNKNOWN, begins[place], ends[place + size - 1]))
        place += size
    if place != len(begins):
        raise UsageError(
            f"the SentencePiece model's pieces do not spell {text.lstrip(GUARD)!r}: use a model that "
            "data-prep/prepare.sh trained"
        )
    return spans


# Windows -----------------------------------------------------------------------------------------------------------


class WindowSizes(NamedTuple):
    """How contexts are split into windows `<s> question </s> </s> part of the context </s>`."""

    max_tokens: int = 384  # maximum tokens of a window
    stride: int = 128  # tokens of the context from the beginning of a window to that of the next
    max_question: int = 64  # maximum pieces of a question; the rest is cut


class Window(NamedTuple):
    """A question with a part of its context."""

    tokens: np.ndarray  # int64 (T,)
    offset: int  # where the context begins in `tokens`
    first: int  # the first piece of the context in it

    def label(self, span):
        """The place in the window of a span (first, last) of the context's pieces; (0, 0) for None or a span cut off.

        `<s>`, at 0, stands for no answer.
        """
        if span is not None:
            start, end = (self.offset + piece - self.first for piece in span)
            if self.offset <= start and end < len(self.tokens) - 1:
                return start, end
        return 0, 0


def windows(question: Pieces, context: Pieces, sizes: WindowSizes) -> List[Window]:
    """Windows over a context; each of its pieces is in at least one."""
    head = [BOS, *question.tokens[: sizes.max_question], EOS, EOS]
    room = sizes.max_tokens - len(head) - 1
    made, first = [], 0
    while True:
        part = context.tokens[first : first + room]
        made.append(Window(np.array([*head, *part, EOS], dtype=np.int64), len(head), first))
        if first + room >= len(context.tokens):
            return made
        first += min(sizes.stride, room)


def place(answer: Answer, question: Question, context: Pieces):
    """The fewest pieces that cover an answer.

    Returns:
        ((first, last), whether they cover exactly its characters); None if the text is not at its place
    """
    begin, end = answer.start, answer.start + len(answer.text)
    if begin < 0 or question.context[begin:end] != answer.text:
        return None
    begin += len(answer.text) - len(answer.text.lstrip())
    end -= len(answer.text) - len(answer.text.rstrip())
    span = context.covering(begin, end)
    return span and (span, context.characters(*span) == (begin, end))
