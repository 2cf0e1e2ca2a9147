"""Answers to questions, by a head that was fine-tuned on them: `hub.MaeLm.answer`."""

import math
from typing import NamedTuple

import torch

from ..base.errors import UsageError
from ..finetuning.windows import (
    WindowSizes,
    best_candidate,
    best_in_window,
    has_no_answer,
    log_probabilities,
    pieces_of,
)
from ..heads import SpanHead
from .fine_tuned import head_of, logits_of_texts


class Answer(NamedTuple):
    """The answer to a question: a part of its context."""

    text: str  # empty where the model finds no answer
    start: int  # its first character in the context
    # The probability, in its window, that it starts and ends there, or that there is no answer.
    score: float


def answer_questions(mae_lm, pairs):
    """The `Answer` to the question of each (question, context): list."""
    head = head_of(mae_lm)
    if not isinstance(head, SpanHead):
        raise UsageError("the head was not fine-tuned on questions: call predict(texts)")
    return [answer_question(mae_lm, head, question, context) for question, context in pairs]


def answer_question(mae_lm, head, question, context):
    """The `Answer` to one question, the best of all windows of its context."""
    sizes = WindowSizes(mae_lm.model.max_positions())
    pieces = pieces_of(mae_lm.tokenizer, context)
    question_tokens = mae_lm.tokenizer.encode_with_offsets(question)[0]
    windows = list(sizes.windows(question_tokens, pieces.tokens))
    sequences = [torch.tensor(window.tokens) for window in windows]
    logits_of_windows = logits_of_texts(mae_lm, head, sequences)
    candidates = []
    for sequence, logits, window in zip(sequences, logits_of_windows, windows):
        scores = log_probabilities(logits[None], sequence[None])[0].double().numpy()
        candidates.append(best_in_window(scores, window, pieces))
    best = best_candidate(candidates)
    if has_no_answer(best, mae_lm.info.may_be_empty) or best.score == -math.inf:
        return Answer("", 0, math.exp(best.no_answer_score))
    return Answer(context[best.begin : best.end], best.begin, math.exp(best.score))
