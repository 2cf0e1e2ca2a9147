"""Answers: the most probable spans over all windows of a question, as text cut from its context.

Letters in shapes: T tokens of a window, S of its context.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from tqdm import trange

from .squad_task import network_input, span_log_probs
from .text import windows

LONGEST = 30  # maximum tokens of an answer; see Pieces.lengths


class Prediction(NamedTuple):
    text: str  # the most probable answer, never empty
    score: float  # log-probability of its start plus that of its end
    no_answer: float  # the same of `<s>`

    @property
    def difference(self):
        """Score of no answer minus that of the best answer: above 0, no answer is more probable."""
        return self.no_answer - self.score


def best_answer(context, pieces, window, start, end):
    """The span with text that has the highest score in a window.

    Args:
        context, pieces: the text, and its :class:`~maelm_fairseq.finetuning.squad.text.Pieces`
        window: :class:`~maelm_fairseq.finetuning.squad.text.Window` over them
        start, end: scores of its tokens (T,)
    Returns:
        (score, text); (-inf, "") if no span has text
    """
    start, end = (scores[window.offset : len(window.tokens) - 1] for scores in (start, end))
    lengths = pieces.lengths(LONGEST)[window.first :][: len(start)]
    longest = min(int(lengths.max()), len(start))
    ends = sliding_window_view(np.pad(end, (0, longest - 1), constant_values=-math.inf), longest)
    ends = np.where(np.arange(longest) < lengths[:, None], ends, -math.inf)
    scores = start[:, None] + ends  # of each first token and number of further tokens (S, longest)
    for i in np.argsort(-scores, axis=None, kind="stable"):
        first, more = divmod(int(i), longest)
        if scores[first, more] == -math.inf:
            break
        begin, after = pieces.characters(window.first + first, window.first + first + more)
        text = context[begin:after].strip()
        if text:
            return float(scores[first, more]), text
    return -math.inf, ""


@torch.no_grad()
def answer_questions(model, questions, tokenizer, sizes, batch_size=32):
    """Answers questions on the model's device.

    A span in several windows gets its best score: windows without the answer were trained to point at `<s>`, so their
    probabilities are comparable.

    Args:
        model: :class:`~maelm_fairseq.model.MaeLmModel` with a span head, in evaluation mode
        questions: list of :class:`~maelm_fairseq.finetuning.squad.questions.Question`
        tokenizer: :class:`~maelm_fairseq.finetuning.squad.text.SpanTokenizer` of the model's vocabulary
        sizes: :class:`~maelm_fairseq.finetuning.squad.text.WindowSizes` that the model was trained with
        batch_size: windows per batch
    Returns:
        list of :class:`Prediction`, one for each question
    """
    contexts = {}
    for question in questions:
        if question.context not in contexts:
            contexts[question.context] = tokenizer.encode_context(question)
    jobs = [
        (number, window)
        for number, question in enumerate(questions)
        for window in windows(tokenizer.encode(question.text), contexts[question.context], sizes)
    ]
    jobs.sort(key=lambda job: -len(job[1].tokens))  # longest first: running out of memory shows at once
    best = [(-math.inf, "")] * len(questions)
    no_answer = [math.inf] * len(questions)
    device = model.embed_tokens.weight.device
    for begin in trange(0, len(jobs), batch_size, desc="answer", unit="batch", disable=None):
        batch = jobs[begin : begin + batch_size]
        net_input = network_input([window.tokens for _, window in batch], model.pad)
        net_input["src_tokens"] = net_input["src_tokens"].to(device)
        scores = span_log_probs(model, net_input).double().cpu().numpy()
        for (number, window), (start, end) in zip(batch, scores.transpose(0, 2, 1)):
            # The window that is least in favour of no answer decides.
            no_answer[number] = min(no_answer[number], float(start[0] + end[0]))
            context = questions[number].context
            answer = best_answer(context, contexts[context], window, start, end)
            best[number] = max(best[number], answer, key=lambda candidate: candidate[0])
    return [Prediction(text, score, nothing) for (score, text), nothing in zip(best, no_answer)]
