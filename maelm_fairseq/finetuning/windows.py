"""Questions on texts that may be longer than a model reads: the text in windows, and the best answer in all of them.

Letters in shapes: B windows, T tokens of the longest.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..base.errors import UsageError
from ..base.subwords import EOS, sequence

LONGEST = 30  # maximum tokens of an answer
# Of a window, from one to the next, and of a question: BERT's; less if the model has fewer positions.
MAX_TOKENS, STRIDE, MAX_QUESTION = 384, 128, 64


class Pieces(NamedTuple):
    """The pieces of a text, and the characters that each stands for: from `begins` to `ends`, without white space."""

    tokens: list
    begins: np.ndarray  # int64
    ends: np.ndarray  # int64; not over `begins` for a piece of white space


def pieces_of(tokenizer, text):
    """The `Pieces` of a text, with the tokenizer's own places in it."""
    (tokens, spans), places = tokenizer.spans(text), []
    for begin, end in spans:
        words = text[begin:end].strip()
        begin = text.index(words, begin)
        places.append((begin, begin + len(words)))
    begins, ends = np.array(places, np.int64).reshape(-1, 2).T
    return Pieces(tokens, begins, ends)


class Window(NamedTuple):
    """A question with a part of its context, `<s> question </s> </s> part of the context </s>`."""

    tokens: list
    offset: int  # where the context begins in the tokens
    first: int  # the first piece of the context in it

    @property
    def end(self):
        """The number of the first piece of the context after the window."""
        return self.first + len(self.tokens) - self.offset - 1


class WindowSizes:
    """How a model with so many positions reads questions and their contexts.

    Raises ValueError: it has too few
    """

    def __init__(self, positions):
        self.positions, self.max_tokens = positions, min(MAX_TOKENS, positions)
        if self.max_tokens < 12:
            raise UsageError(f"the model has {positions} positions: too few for a question and its context")
        self.stride, self.max_question = min(STRIDE, self.max_tokens // 3), min(MAX_QUESTION, self.max_tokens // 4)

    def windows(self, question, context):
        """Yields each `Window` of a question and a context, lists of tokens; a long question is cut."""
        question = question[: self.max_question]
        offset = len(question) + 3
        room = self.max_tokens - offset - 1
        step = min(self.stride, room)
        for first in range(0, max(0, len(context) - room) + step, step):
            yield Window(sequence([question, context[first : first + room]])[0], offset, first)


def log_probabilities(logits, tokens):
    """Those of start and end over `<s>` and the context, -inf elsewhere: float32 (B, T, 2), for tokens (B, T)."""
    ends = tokens.eq(EOS)
    allowed = ends.cumsum(1).eq(2) & ~ends
    allowed[:, 0] = True
    return logits.float().masked_fill(~allowed[:, :, None], float("-inf")).log_softmax(1)


class Candidate(NamedTuple):
    """The best answer in a window, or in several."""

    score: float  # the logarithm of its probability in its window, -inf where there is none
    begin: int  # its first character
    end: int  # and the one after its last
    none: float  # the logarithm of the probability that there is no answer


def best_in_window(scores, window, pieces):
    """The `Candidate` of a window, by log-probabilities (T, 2) without padding, and the context's pieces."""
    none = float(scores[0].sum())
    start, end = scores[window.offset : len(window.tokens) - 1].T
    begins, ends = (each[window.first : window.end] for each in (pieces.begins, pieces.ends))
    blank = begins >= ends
    if blank.all():
        return Candidate(-math.inf, 0, 0, none)
    start, end = np.where(blank, -math.inf, start), np.where(blank, -math.inf, end)
    later = sliding_window_view(np.pad(end, (0, LONGEST - 1), constant_values=-math.inf), LONGEST)
    spans = start[:, None] + later  # of each first piece and number of further ones
    first, more = divmod(int(spans.argmax()), LONGEST)
    return Candidate(float(spans.max()), int(begins[first]), int(ends[first + more]), none)


def best_of(candidates):
    """The best `Candidate` of the windows of a question.

    A window without the answer was trained to point at `<s>`, so that the scores of windows are comparable; the one
    that is least in favour of no answer decides about that.
    """
    best = max(candidates, key=lambda candidate: candidate[:3])
    return best._replace(none=min(candidate.none for candidate in candidates))


def is_empty(candidate, may_be_empty):
    """Whether there is no answer: the model has learned that there may be none, and it is more probable."""
    return may_be_empty and candidate.none > candidate.score
