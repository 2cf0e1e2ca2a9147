"""Fine-tuning on questions, as in SQuAD 1.1 and 2.0: where in a text an answer starts and ends."""

import collections
import json
import math

import numpy as np

from ..base.errors import UsageError
from ..fairseq_api import FairseqDataclass, register_criterion, register_task
from ..heads import SpanHead
from .finetuning_criterion import FineTuningCriterion
from .finetuning_dataset import FineTuningDataset
from .finetuning_task import FineTuningConfig, FineTuningTask
from .hyperparameters import Hyperparameters, defaults_for_width
from .labelled_files import is_test_split
from .squad_files import SQUAD_FILES, read_questions
from .squad_metrics import exact_and_f1
from .windows import (
    MAX_WINDOW_TOKENS,
    Candidate,
    WindowSizes,
    best_candidate,
    best_in_window,
    has_no_answer,
    log_probabilities,
    pieces_of,
)


def find_span(answer, question, pieces):
    """The first and the last piece of an answer: the fewest that cover it.

    None if the answer is not at its place, or in no piece.
    """
    begin = answer.answer_start
    end = begin + len(answer.text)
    if not answer.text.strip() or question.context[begin:end] != answer.text:
        return None
    first = int(np.searchsorted(pieces.ends, begin, side="right"))
    last = int(np.searchsorted(pieces.begins, end, side="left")) - 1
    if first > last:
        return None
    return first, last


def target_in_window(span, window):
    """The first and the last token of an answer in a window; 0 twice, which is `<s>`, without one.

    Args:
        span: the first and the last piece of the answer in the context, or None
        window: `windows.Window`
    """
    if span is None or span[0] < window.first or span[1] >= window.end:
        return (0, 0)
    return np.add(span, window.offset - window.first)


def describe_left_out(left_out, split):
    """What the log says about questions, a list of ids, whose answer is not at its place."""
    if not left_out:
        return ""
    # The scores compare texts, so that they do not need a place.
    kept = "scored by their texts, but counted as unanswerable in the loss"
    fate = "left out" if split == "train" else kept
    return (
        f"; {len(left_out):,} answers not at their answer_start, such as of {left_out[0]}: {fate}"
    )


def choose_metrics(questions, split):
    """The names of the scores of a split; none for a test file without answers."""
    kinds = {bool(question.answers) for question in questions}
    if is_test_split(split) and kinds == {False}:
        return []
    if len(kinds) == 2:
        return ["f1", "exact", "HasAns_f1", "NoAns_f1"]
    return ["f1", "exact"]


class SquadDataset(FineTuningDataset):
    """Questions on contexts, each read in windows, which are the sequences of tokens.

    Args:
        questions: list of `squad_files.Question`
        contexts: {context: its `windows.Pieces`}
        windows: the `windows.Window` of each sequence
        common: arguments of `FineTuningDataset`

    All but the last are attributes.
    """

    def __init__(self, questions, contexts, windows, **common):
        super().__init__(**common)
        self.questions = questions
        self.contexts = contexts
        self.windows = windows


@register_task("squad", dataclass=FineTuningConfig)
class SquadTask(FineTuningTask):
    """Reads train.json and dev.json, or SQuAD's official names; see `squad_files.read_questions`.

    The target of a window is the first and the last token of the answer, or `<s>` twice if the
    answer is not in it. Training leaves out questions with answers that are not where they say.
    Its state: `may_be_empty`, whether there may be no answer.
    """

    files = SQUAD_FILES
    head_name = "span"
    predicts_dev = True

    @classmethod
    def default_settings(cls, folder_name, width, num_layers):
        """BERT's settings; as for `FineTuningTask.default_settings`."""
        return defaults_for_width(Hyperparameters(32, 3e-5, 1 / 10, 3), [2, 3], width)

    def add_head(self, model):
        model.register_head(self.head_name, SpanHead(model.cfg.encoder_embed_dim))

    def read(self, path, split):
        return read_questions(path, is_test_split(split))

    def record_prediction_state(self, path, questions):
        all_answered = all(question.answers for question in questions)
        self.record_state(may_be_empty=not all_answered)

    def make_dataset(self, path, split, questions):
        sizes = WindowSizes(self.max_tokens)
        targets = []
        windows = []
        question_of_window = []  # its index
        left_out = []
        contexts = {}
        cut = 0
        for index, question in enumerate(questions):
            if question.context not in contexts:
                contexts[question.context] = pieces_of(self.tokenizer, question.context)
            context = contexts[question.context]
            question_tokens, _ = self.tokenizer.encode_with_offsets(question.text)
            spans = [find_span(answer, question, context) for answer in question.answers]
            span = next(filter(None, spans), None)
            if question.answers and span is None:
                left_out.append(question.id)
                if split == "train":
                    continue
            cut += len(question_tokens) > sizes.max_question
            for window in sizes.windows(question_tokens, context.tokens):
                targets.append(target_in_window(span, window))
                windows.append(window)
                question_of_window.append(index)
        if not windows:
            raise UsageError(f"{path}: no answer is at its answer_start; correct it")
        metrics = choose_metrics(questions, split)
        summary = f"{path}: {len(questions):,} questions, {len(windows):,} windows"
        summary += self.sizes_text(sizes, cut) + describe_left_out(left_out, split)
        if is_test_split(split):
            summary += "; it has answers and is scored at the end" if metrics else "; no answers"
        return SquadDataset(
            questions,
            contexts,
            windows,
            task=self,
            split=split,
            sequences=[window.tokens for window in windows],
            targets=targets,
            summary=summary,
            metrics=metrics,
            example_of_sequence=question_of_window,
        )

    def sizes_text(self, sizes, cut):
        """What the log says about sizes of windows, and how many questions are cut."""
        text = f" of up to {sizes.max_tokens} tokens"
        if sizes.max_tokens < MAX_WINDOW_TOKENS:
            text += f", as the model has {self.max_tokens} positions"
        if cut:
            text += f"; {cut:,} questions cut to {sizes.max_question} tokens"
        return text

    def compute_output(self, model, net_input):
        """The `windows.log_probabilities` of start and end."""
        return log_probabilities(super().compute_output(model, net_input), net_input["src_tokens"])

    def compute_loss(self, output, target):
        return -output.gather(1, target[:, None]).sum()

    def compute_predictions(self, output, sample, dataset):
        """The best answer in a window: `windows.Candidate`."""
        rows = []
        for index, scores in zip(sample["id"].tolist(), output.double().cpu().numpy()):
            window = dataset.windows[index]
            question = dataset.questions[dataset.example_of_sequence[index]]
            pieces = dataset.contexts[question.context]
            rows.append(best_in_window(scores[: len(window.tokens)], window, pieces))
        return rows

    def answer_texts(self, dataset, predictions):
        """The answers to questions: {index of the question: text}.

        A text is empty where it is more probable that there is no answer.
        """
        may_be_empty = self.recorded.may_be_empty
        candidates = {}
        for index, candidate in predictions.items():
            candidates.setdefault(dataset.example_of_sequence[index], []).append(
                Candidate(*candidate)
            )
        texts = {}
        for i in sorted(candidates):
            best = best_candidate(candidates[i])
            if has_no_answer(best, may_be_empty):
                texts[i] = ""
            else:
                texts[i] = dataset.questions[i].context[best.begin : best.end]
        return texts

    def compute_scores(self, dataset, predictions):
        values = collections.defaultdict(list)
        for i, text in self.answer_texts(dataset, predictions).items():
            correct = [answer.text for answer in dataset.questions[i].answers]
            exact, f1 = exact_and_f1(text, correct)
            for group in ("", "HasAns_" if correct else "NoAns_"):
                values[f"{group}exact"].append(exact)
                values[f"{group}f1"].append(f1)
        return {name: 100 * float(np.mean(values[name] or math.nan)) for name in dataset.metrics}

    def prediction_file(self, dataset, predictions, name):
        """JSON, as SQuAD's official scorer reads it: {id of the question: text}."""
        texts = {}
        for index, text in self.answer_texts(dataset, predictions).items():
            texts[dataset.questions[index].id] = text
        contents = json.dumps(texts, ensure_ascii=False, indent=1) + "\n"
        return f"{name}.{dataset.split}.json", contents


@register_criterion("squad", dataclass=FairseqDataclass)
class SquadCriterion(FineTuningCriterion):
    """The cross-entropy of start and end; see `finetuning_criterion.FineTuningCriterion`."""
