"""Questions on texts that may be longer than a model reads.

The text is read in windows, and the best answer in all of them is taken.

Letters in shapes: B windows, T tokens of the longest.
"""

import math
from typing import NamedTuple

import numpy as np

from ..base.errors import UsageError
from ..base.tokenizer import EOS, join_and_cut

MAX_ANSWER_TOKENS = 30
MAX_WINDOW_TOKENS = 384  # as for BERT; fewer if the model has fewer positions
WINDOW_STRIDE = 128  # from one window to the next
MAX_QUESTION_TOKENS = 64


class Pieces(NamedTuple):
    """The pieces of a text, and the characters that each stands for, without white space.

    A piece that is only white space does not end after its beginning.
    """

    tokens: list
    begins: np.ndarray  # int64, the first character of each piece
    ends: np.ndarray  # int64, the one after its last


def pieces_of(tokenizer, text):
    """The `Pieces` of a text, with the tokenizer's own offsets in it."""
    tokens, spans = tokenizer.encode_with_offsets(text)
    offsets = []
    for begin, end in spans:
        words = text[begin:end].strip()
        begin = text.index(words, begin)
        offsets.append((begin, begin + len(words)))
    begins, ends = np.array(offsets, np.int64).reshape(-1, 2).T
    return Pieces(tokens, begins, ends)


class Window(NamedTuple):
    """A question with a part of its context, `<s> question </s> </s> part of the context </s>`."""

    tokens: list
    offset: int  # where the context begins in the tokens
    first: int  # the first piece of the context in it

    @property
    def end(self):
        """The index of the first piece of the context after the window."""
        return self.first + len(self.tokens) - self.offset - 1


class WindowSizes:
    """How a model with `max_positions` positions reads questions and their contexts.

    Raises UsageError: it has too few positions
    """

    def __init__(self, max_positions):
        self.max_tokens = min(MAX_WINDOW_TOKENS, max_positions)
        if self.max_tokens < 12:
            raise UsageError(
                f"the model has {max_positions} positions: too few for a question and its context"
            )
        self.stride = min(WINDOW_STRIDE, self.max_tokens // 3)
        self.max_question = min(MAX_QUESTION_TOKENS, self.max_tokens // 4)

    def windows(self, question, context):
        """Yields each `Window` of a question and a context; a long question is cut.

        Args:
            question, context: lists of tokens
        """
        question = question[: self.max_question]
        offset = len(question) + 3
        room = self.max_tokens - offset - 1
        step = min(self.stride, room)
        for first in range(0, max(0, len(context) - room) + step, step):
            tokens, _ = join_and_cut([question, context[first : first + room]])
            yield Window(tokens, offset, first)


def log_probabilities(logits, tokens):
    """The log-probabilities of start and end, over `<s>` and the context.

    Args:
        logits: (B, T, 2), of start and end
        tokens: (B, T)
    Returns: float32 (B, T, 2), -inf for all other tokens
    """
    ends = tokens.eq(EOS)
    allowed = ends.cumsum(1).eq(2) & ~ends
    allowed[:, 0] = True
    logits = logits.float().masked_fill(~allowed[:, :, None], float("-inf"))
    return logits.log_softmax(1)


class Candidate(NamedTuple):
    """The best answer in a window, or in several."""

    score: float  # the logarithm of its probability in its window, -inf where there is none
    begin: int  # its first character
    end: int  # and the one after its last
    no_answer_score: float  # the logarithm of the probability that there is none


def best_in_window(scores, window, pieces):
    """The best answer in a window: `Candidate`.

    Args:
        scores: log-probabilities (T, 2), without padding
        window: `Window`
        pieces: `Pieces` of the context
    """
    none = float(scores[0].sum())
    start, end = scores[window.offset : len(window.tokens) - 1].T
    begins = pieces.begins[window.first : window.end]
    ends = pieces.ends[window.first : window.end]
    blank = begins >= ends
    if blank.all():
        return Candidate(-math.inf, 0, 0, none)
    start = np.where(blank, -math.inf, start)
    end = np.where(blank, -math.inf, end)
    spans = start[:, None] + end  # by their first and their last piece
    pieces_after_first = np.arange(len(end)) - np.arange(len(start))[:, None]
    is_allowed = (pieces_after_first >= 0) & (pieces_after_first < MAX_ANSWER_TOKENS)
    spans = np.where(is_allowed, spans, -math.inf)
    first, last = np.unravel_index(spans.argmax(), spans.shape)
    return Candidate(float(spans.max()), int(begins[first]), int(ends[last]), none)


def best_candidate(candidates):
    """The best `Candidate` of the windows of a question.

    The model was trained to point at `<s>` in a window without the answer, so that the scores of
    windows are comparable. The lowest score for no answer decides: there is none only if every
    window scores that higher than the best answer of all windows.
    """
    best = max(candidates, key=lambda candidate: candidate[:3])
    return best._replace(no_answer_score=min(candidate.no_answer_score for candidate in candidates))


def has_no_answer(candidate, may_be_empty):
    """Whether no answer is more probable; only if the model was trained on questions without."""
    return may_be_empty and candidate.no_answer_score > candidate.score
