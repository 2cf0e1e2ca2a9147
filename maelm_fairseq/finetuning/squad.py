"""Fine-tuning on questions, as in SQuAD 1.1 and 2.0: where in a text an answer starts and ends."""

import math

import numpy as np

from ..base.errors import UsageError
from ..engine import FairseqDataclass, register_criterion, register_task
from ..heads import SpanHead
from .labelled_criterion import LabelledCriterion
from .labelled_dataset import LabelledDataset
from .labelled_files import is_test
from .labelled_task import LabelledTask, LabelledTaskConfig
from .metrics import exact_and_f1
from .squad_files import SQUAD_FILES, read_questions
from .windows import (
    MAX_TOKENS,
    Candidate,
    WindowSizes,
    best_in_window,
    best_of,
    is_empty,
    log_probabilities,
    pieces_of,
)


def span_of(answer, question, pieces):
    """The first and last piece of an answer: the fewest that cover it. None if it is not at its place, or in none."""
    begin, end = answer.answer_start, answer.answer_start + len(answer.text)
    if not answer.text.strip() or question.context[begin:end] != answer.text:
        return None
    first = int(np.searchsorted(pieces.ends, begin, side="right"))
    last = int(np.searchsorted(pieces.begins, end, side="left")) - 1
    return (first, last) if first <= last else None


@register_task("squad", dataclass=LabelledTaskConfig)
class SquadTask(LabelledTask):
    """Reads train.json and dev.json, or SQuAD's official names; see `squad_files.read_questions`.

    The first and the last token of the answer, or `<s>` twice if there is none in a window. Training leaves out
    questions with answers that are not where they say. Its state: `may_be_empty`, whether there may be no answer.
    """

    files, head = SQUAD_FILES, "span"

    def make_head(self, model):
        model.register_head(self.head, SpanHead(model.cfg.encoder_embed_dim))

    def read(self, path, split):
        return read_questions(path, is_test(split))

    def prepare(self, path, questions):
        self.state.merge_state_dict({"may_be_empty": not all(question.answers for question in questions)})

    def make_dataset(self, path, split, questions):
        sizes = WindowSizes(self.positions)
        tokens, targets, windows, owners, left_out, contexts, cut = [], [], [], [], [], {}, 0
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
            cut += len(text) > sizes.max_question
            for window in sizes.windows(text, context.tokens):
                inside = span is not None and window.first <= span[0] and span[1] < window.end
                tokens.append(window.tokens)
                targets.append(np.add(span, window.offset - window.first) if inside else (0, 0))
                windows.append(window)
                owners.append(number)
        text = f"{path}: {len(questions):,} questions, {len(tokens):,} windows of up to {sizes.max_tokens} tokens"
        text += f", as the model has {self.positions} positions" * (sizes.max_tokens < MAX_TOKENS)
        text += f"; {cut:,} questions cut to {sizes.max_question} tokens" if cut else ""
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
        more = dict(questions=questions, windows=windows, owners=owners, contexts=contexts)
        return LabelledDataset(self, split, tokens, targets, text, names, **more)

    def output(self, model, net_input):
        """The `windows.log_probabilities` of start and end."""
        return log_probabilities(super().output(model, net_input), net_input["src_tokens"])

    def loss(self, output, target):
        return -output.gather(1, target[:, None]).sum()

    def answers(self, output, sample, dataset):
        """The best answer in a window: `windows.Candidate`."""
        rows = []
        for number, scores in zip(sample["id"].tolist(), output.double().cpu().numpy()):
            window, question = dataset.windows[number], dataset.questions[dataset.owners[number]]
            rows.append(best_in_window(scores[: len(window.tokens)], window, dataset.contexts[question.context]))
        return rows

    def texts(self, dataset, answers):
        """The answers to questions: {number of the question: text}, empty where no answer is more probable."""
        candidates, texts = {}, {}
        for number, candidate in answers.items():
            candidates.setdefault(dataset.owners[number], []).append(Candidate(*candidate))
        for i in sorted(candidates):
            best = best_of(candidates[i])
            empty = is_empty(best, self.state.may_be_empty)
            texts[i] = "" if empty else dataset.questions[i].context[best.begin : best.end]
        return texts

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
    """The cross-entropy of start and end; see `labelled_criterion.LabelledCriterion`."""
