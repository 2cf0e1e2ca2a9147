"""Answers to questions, by a head that was fine-tuned on them."""

import math
from typing import NamedTuple

import torch

from ..base.errors import UsageError
from ..base.text_input import paired
from ..finetuning.windows import (
    WindowSizes,
    best_candidate,
    best_in_window,
    has_no_answer,
    log_probabilities,
    pieces_of,
)
from ..heads import SpanHead
from .fine_tuned import FineTuned


class Answer(NamedTuple):
    """The answer to a question: a part of its context."""

    text: str  # empty where the model finds no answer
    start: int  # its first character in the context
    # The probability, in its window, that it starts and ends there, or that there is no answer.
    score: float


class QuestionAnswering(FineTuned):
    """A model with a head that finds answers in texts."""

    def answer(self, questions, contexts):
        """The answers of a head that was fine-tuned on questions, as in SQuAD.

        A long context is read in windows.

        Args:
            questions: a string, or a list of n strings
            contexts: the text that has the answer, or a list of n
        Returns: `Answer`; for lists, a list of n
        """
        pairs = paired(questions, contexts)
        head = self._head()
        if not isinstance(head, SpanHead):
            raise UsageError("the head was not fine-tuned on questions: call predict(texts)")
        answers = [self._answer_one(head, question, context) for question, context in pairs]
        return answers[0] if isinstance(questions, str) else answers

    def _answer_one(self, head, question, context):
        """The `Answer` to one question, the best of all windows of its context."""
        sizes = WindowSizes(self.model.max_positions())
        pieces = pieces_of(self.tokenizer, context)
        question_tokens = self.tokenizer.encode_with_offsets(question)[0]
        windows = list(sizes.windows(question_tokens, pieces.tokens))
        sequences = [torch.tensor(window.tokens) for window in windows]
        candidates = []
        for sequence, logits, window in zip(sequences, self._logits(head, sequences), windows):
            scores = log_probabilities(logits[None], sequence[None])[0].double().numpy()
            candidates.append(best_in_window(scores, window, pieces))
        best = best_candidate(candidates)
        if has_no_answer(best, self.info.may_be_empty) or best.score == -math.inf:
            return Answer("", 0, math.exp(best.no_answer_score))
        return Answer(context[best.begin : best.end], best.begin, math.exp(best.score))
