"""Answers to questions, by a head that was fine-tuned on them."""

import math
from typing import NamedTuple

import torch

from ..base.errors import UsageError
from ..base.text_input import paired
from ..finetuning.windows import (
    WindowSizes,
    best_in_window,
    best_of,
    is_empty,
    log_probabilities,
    pieces_of,
)
from ..heads import SpanHead
from .predicting import head_of, logits_of


class Answer(NamedTuple):
    """The answer to a question: a part of its context."""

    text: str  # empty where the model finds no answer
    start: int  # its first character in the context
    # The probability, in its window, that it starts and ends there, or that there is no answer.
    score: float


def answer(hub_model, questions, contexts):
    """As `hub.MaeLm.answer`."""
    pairs = paired(questions, contexts)
    head = head_of(hub_model)
    if not isinstance(head, SpanHead):
        raise UsageError("the head was not fine-tuned on questions: call predict(texts)")
    answers = [answer_one(hub_model, head, question, context) for question, context in pairs]
    return answers[0] if isinstance(questions, str) else answers


def answer_one(hub_model, head, question, context):
    """The `Answer` to one question, the best of all windows of its context."""
    sizes = WindowSizes(hub_model.model.max_positions())
    pieces = pieces_of(hub_model.tokenizer, context)
    question_tokens = hub_model.tokenizer.spans(question)[0]
    windows = list(sizes.windows(question_tokens, pieces.tokens))
    rows = [torch.tensor(window.tokens) for window in windows]
    candidates = []
    for row, logits, window in zip(rows, logits_of(hub_model, head, rows), windows):
        scores = log_probabilities(logits[None], row[None])[0].double().numpy()
        candidates.append(best_in_window(scores, window, pieces))
    best = best_of(candidates)
    if is_empty(best, hub_model.facts.may_be_empty) or best.score == -math.inf:
        return Answer("", 0, math.exp(best.none))
    return Answer(context[best.begin : best.end], best.begin, math.exp(best.score))
