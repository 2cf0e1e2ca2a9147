"""SQuAD's text: pieces with their places in the text, and windows of tokens.

Letters in shapes: T tokens of a window.
"""

import unicodedata
from dataclasses import dataclass
from typing import List, NamedTuple

import numpy as np

from ...base.errors import UsageError
from ...vocabulary import WORD_START
from .questions import Answer, Question

BOS, EOS, UNKNOWN = 0, 2, 3  # fairseq's ids of <s>, </s> and <unk>
SEPARATORS = 4  # <s>, </s> </s> between question and context, and </s>
# Put before text that does not begin a word, where SentencePiece would mark a beginning. For private use: in no piece.
GUARD = "\ue000"


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

    def lengths(self, longest):
        """How many pieces a span may have from each piece on if its length is at most `longest`: int64.

        Pieces for the same characters, such as the bytes that spell an unknown one, count as one.
        """
        starts = np.cumsum((np.diff(self.begins, prepend=-1) > 0) | (np.diff(self.ends, prepend=-1) > 0))
        return np.searchsorted(starts, starts + longest, side="left") - np.arange(len(starts))

    def characters(self, first, last):
        """The characters that pieces `first` to `last` stand for: (begin, end)."""
        return int(self.begins[first]), int(self.ends[last])


class SpanTokenizer:
    """Encodes text into SentencePiece's pieces with exact places in the original text.

    A text is first cut into pre-tokens, which are encoded separately: letters in sequence, digits in sequence, and each
    other character. So an answer can begin and end wherever the kind of character changes: no piece contains the end of
    a year and the comma after it. A piece still begins a word only after white space.

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
            for begin, end, starts_word in self.pre_tokenize(text)
            for token, b, e in self.encode_pre_token(text[begin:end], starts_word)
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
        """space, letter, digit, symbol, mark (it belongs to the character before it), or none (SentencePiece removes
        it)."""
        if character not in self._kinds:
            category = unicodedata.category(character)
            between = self.processor.normalize("a" + character + "a")
            if between == self.processor.normalize("aa"):
                kind = "none"
            elif character.isspace() or WORD_START in between.lstrip(WORD_START):
                kind = "space"
            elif category[0] == "M" or category == "Cf":
                kind = "mark"
            else:
                kind = "letter" if category[0] == "L" else "digit" if category == "Nd" else "symbol"
            self._kinds[character] = kind
        return self._kinds[character]

    def pre_tokenize(self, text):
        """Cuts a text where the kind of character changes, and around each symbol.

        Returns:
            list of (begin, end, whether a word starts there)
        """
        cuts = []
        before = "space"  # kind of the current pre-token
        for i, character in enumerate(text):
            kind = self.kind(character)
            if kind == "none":
                continue
            if kind == "mark" and before != "space":
                kind = before
            elif kind != "space" and (kind != before or kind == "symbol"):
                cuts.append([i, i, before == "space"])
            if kind != "space":
                cuts[-1][1] = i + 1
            before = kind
        return cuts

    def encode_pre_token(self, text, starts_word):
        """Encodes a pre-token by itself: a tuple of (token, begin, end). Results are cached, since words repeat."""
        key = text, starts_word
        if key not in self._encoded:
            before = GUARD + " " * starts_word
            spans = piece_spans(self.processor, before + text)
            skip = len(before)
            # A piece that ends with the guard is no part of the text; unknown characters join the guard in one piece.
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
    begins, ends = [], []  # for each byte of the normalised text, in reverse
    end = len(text)
    for i in reversed(range(len(normalized))):
        if origins[i] < origins[i + 1]:
            end = origins[i + 1]
        size = len(normalized[i].encode("utf-8"))
        begins += [origins[i]] * size
        ends += [end] * size
    ids, pieces = processor.encode(text), processor.encode(text, out_type=str)
    sizes = [1 if processor.is_byte(i) else len(piece.encode("utf-8")) for i, piece in zip(ids, pieces)]
    if sum(sizes) != len(begins):
        raise UsageError(
            f"the SentencePiece model's pieces do not spell {text.lstrip(GUARD)!r}: use a model that "
            "data-prep/prepare.sh trained"
        )
    spans = []
    for number, size in zip(ids, sizes):
        spans.append((number + 1 if number else UNKNOWN, begins[-1], ends[-size]))
        del begins[-size:], ends[-size:]
    return spans


# Windows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowSizes:
    """How contexts are split into windows `<s> question </s> </s> part of the context </s>`."""

    max_tokens: int = 384  # maximum tokens of a window
    stride: int = 128  # tokens of the context from the beginning of a window to that of the next
    max_question: int = 64  # maximum pieces of a question; the rest is cut

    def check(self):
        """Refuses sizes that leave no room for the context, or no way on in it."""
        if min(self.stride, self.max_question) < 1:
            raise UsageError(f"--stride {self.stride} and --max-question {self.max_question} must be over 0")
        if self.max_tokens <= self.max_question + SEPARATORS:
            raise UsageError(
                f"--max-tokens {self.max_tokens} leaves no room for the context: a question has up to "
                f"{self.max_question} tokens (--max-question), and <s> and </s> take {SEPARATORS}"
            )


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
    """The fewest pieces that cover an answer. White space and what SentencePiece removes is in no piece.

    Returns:
        None if the text is not at its place; else ((first, last), whether they cover no other characters), or
        (None, False) if no piece covers any of it, such as a zero-width space
    """
    begin, end = answer.answer_start, answer.answer_start + len(answer.text)
    if begin < 0 or question.context[begin:end] != answer.text:
        return None
    span = context.covering(begin, end)
    if span is None:
        return None, False
    first, last = context.characters(*span)
    return span, begin <= first and last <= end
