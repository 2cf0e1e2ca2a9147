"""Fine-tuning on questions, as in SQuAD 1.1 and 2.0: where in a text an answer starts and ends.

Letters in shapes: B windows, T tokens of the longest.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..base.errors import UsageError
from ..base.subwords import sequence
from ..engine import FairseqDataclass, register_criterion, register_task
from ..heads import SpanHead
from .labelled_files import find_file, is_test
from .labelled_task import LabelledCriterion, LabelledDataset, LabelledTask, LabelledTaskConfig
from .metrics import exact_and_f1
from .squad_files import SQUAD_FILES, read_questions

LONGEST = 30  # maximum tokens of an answer
# Of a window, from one to the next, and of a question: BERT's; less if the model has fewer positions.
MAX_TOKENS, STRIDE, MAX_QUESTION = 384, 128, 64


class Pieces(NamedTuple):
    """The pieces of a text, and the characters that each stands for: from `begins` to `ends`, without white space."""

    tokens: list
    begins: np.ndarray  # int64
    ends: np.ndarray  # int64; not over `begins` for a piece of white space


def pieces_of(tokenizer, text):
    """The :class:`Pieces` of a text, with the tokenizer's own places in it."""
    (tokens, spans), places = tokenizer.spans(text), []
    for begin, end in spans:
        words = text[begin:end].strip()
        begin = text.index(words, begin)
        places.append((begin, begin + len(words)))
    begins, ends = np.array(places, np.int64).reshape(-1, 2).T
    return Pieces(tokens, begins, ends)


def span_of(answer, question, pieces):
    """The first and last piece of an answer: the fewest that cover it. None if it is not at its place, or in none."""
    begin, end = answer.answer_start, answer.answer_start + len(answer.text)
    if not answer.text.strip() or question.context[begin:end] != answer.text:
        return None
    first = int(np.searchsorted(pieces.ends, begin, side="right"))
    last = int(np.searchsorted(pieces.begins, end, side="left")) - 1
    return (first, last) if first <= last else None


class Window(NamedTuple):
    """A question with a part of its context, `<s> question </s> </s> part of the context </s>`."""

    question: int  # its number
    offset: int  # where the context begins in the tokens
    first: int  # the first piece of the context in it


@register_task("squad", dataclass=LabelledTaskConfig)
class SquadTask(LabelledTask):
    """Reads train.json and dev.json, or SQuAD's official names; see :func:`~.squad_files.read_questions`.

    The first and the last token of the answer, or `<s>` twice if there is none in a window. Training leaves out
    questions with answers that are not where they say. Its state: `may_be_empty`, whether there may be no answer.
    """

    files, head = SQUAD_FILES, "span"

    def make_head(self, model):
        model.register_head(self.head, SpanHead(model.cfg.encoder_embed_dim))

    def prepare(self):
        questions = read_questions(find_file(self.cfg.labelled, "train", self.files))
        self.state.merge_state_dict({"may_be_empty": not all(question.answers for question in questions)})

    def make_dataset(self, path, split):
        questions = read_questions(path, is_test(split))
        longest = min(MAX_TOKENS, self.positions)
        if longest < 12:
            raise UsageError(f"the model has {self.positions} positions: too few for a question and its context")
        stride, max_question = min(STRIDE, longest // 3), min(MAX_QUESTION, longest // 4)
        tokens, targets, windows, left_out, contexts, cut = [], [], [], [], {}, 0
        for number, question in enumerate(questions):
            if question.context not in contexts:
                contexts[question.context] = pieces_of(self.tokenizer, question.context)
            context, text = contexts[question.context], self.tokenizer.spans(question.text)[0]
            spans = [span_of(answer, question, context) for answer in question.answers]
            span = next(filter(None, spans), None)
            if question.answers and span is None:
                left_out.append(question.id)
                if split == "train":
                    continue
            cut += len(text) > max_question
            text = text[:max_question]
            offset = len(text) + 3
            room = longest - offset - 1
            step = min(stride, room)
            for first in range(0, max(0, len(context.tokens) - room) + step, step):
                inside = span is not None and first <= span[0] and span[1] < first + room
                tokens.append(sequence([text, context.tokens[first : first + room]])[0])
                targets.append(np.add(span, offset - first) if inside else (0, 0))
                windows.append(Window(number, offset, first))
        text = f"{path}: {len(questions):,} questions, {len(tokens):,} windows of up to {longest} tokens"
        text += f", as the model has {self.positions} positions" * (longest < MAX_TOKENS)
        text += f"; {cut:,} questions cut to {max_question} tokens" if cut else ""
        where = "left out" if split == "train" else "kept, and no window has their place"
        if left_out:
            text += f"; {len(left_out):,} whose answer is not where it says: {where}; such as {left_out[0]}"
        if not tokens:
            raise UsageError(f"{path}: no answer is at its answer_start; correct it")
        kinds = {bool(question.answers) for question in questions}
        names = ["f1", "exact"] + ["HasAns_f1", "NoAns_f1"] * (len(kinds) == 2)
        if is_test(split):
            names = names if kinds != {False} else []
            text += "; it has answers, and is scored in the end" if names else "; no answers"
        more = dict(questions=questions, windows=windows, contexts=contexts)
        return LabelledDataset(self, split, tokens, targets, text, names, **more)

    def output(self, model, net_input):
        """Log-probabilities of start and end over `<s>` and the context, -inf elsewhere: float32 (B, T, 2)."""
        logits, ends = super().output(model, net_input), net_input["src_tokens"].eq(self.dictionary.eos())
        allowed = ends.cumsum(1).eq(2) & ~ends
        allowed[:, 0] = True
        return logits.masked_fill(~allowed[:, :, None], float("-inf")).log_softmax(1)

    def loss(self, output, target):
        return -output.gather(1, target[:, None]).sum()

    def answers(self, output, sample, dataset):
        """The best answer in a window: its score, first and last character, and the score of no answer."""
        rows = []
        for number, scores in zip(sample["id"].tolist(), output.double().cpu().numpy()):
            window, size = dataset.windows[number], len(dataset.sequences[number])
            start, end = scores[window.offset : size - 1].T
            context = dataset.contexts[dataset.questions[window.question].context]
            begins, ends = (each[window.first : window.first + len(start)] for each in (context.begins, context.ends))
            blank = begins >= ends
            start, end = np.where(blank, -math.inf, start), np.where(blank, -math.inf, end)
            if blank.all():
                rows.append((-math.inf, 0, 0, float(scores[0].sum())))
                continue
            later = sliding_window_view(np.pad(end, (0, LONGEST - 1), constant_values=-math.inf), LONGEST)
            spans = start[:, None] + later  # of each first piece and number of further ones
            first, more = divmod(int(spans.argmax()), LONGEST)
            rows.append((float(spans.max()), int(begins[first]), int(ends[first + more]), float(scores[0].sum())))
        return rows

    def texts(self, dataset, answers):
        """The answers to questions: {number of the question: text}, empty where no answer is more probable.

        A window without the answer was trained to point at `<s>`, so that the scores of windows are comparable; the one
        that is least in favour of no answer decides.
        """
        best, nothing = {}, {}
        for number, (score, begin, end, none) in answers.items():
            i = dataset.windows[number].question
            best[i] = max(best.get(i, (-math.inf, 0, 0)), (score, begin, end))
            nothing[i] = min(nothing.get(i, math.inf), none)
        empty = {i for i, (score, _, _) in best.items() if self.state.may_be_empty and nothing[i] > score}
        return {i: "" if i in empty else dataset.questions[i].context[b:e] for i, (_, b, e) in sorted(best.items())}

    def scores(self, dataset, answers):
        values = {name: [] for name in ("f1", "exact", "HasAns_f1", "HasAns_exact", "NoAns_f1", "NoAns_exact")}
        for i, text in self.texts(dataset, answers).items():
            correct = [answer.text for answer in dataset.questions[i].answers]
            exact, f1 = exact_and_f1(text, correct)
            for group in ("", "HasAns_" if correct else "NoAns_"):
                values[f"{group}exact"].append(exact)
                values[f"{group}f1"].append(f1)
        return {name: 100 * float(np.mean(values[name] or math.nan)) for name in dataset.metrics}


@register_criterion("squad", dataclass=FairseqDataclass)
class SquadCriterion(LabelledCriterion):
    """The cross-entropy of start and end; see :class:`~.labelled_task.LabelledCriterion`."""
