"""What the hub answers with each kind of head, for export_checks.py to compare with an export.

Each function that `export_kinds.ExportKind` names takes `hub.MaeLm` and `SampleTexts`, and returns
a dict of plain values and tensors.
"""

from dataclasses import dataclass
from typing import List

from ..base.text_input import tokens_of
from ..finetuning.windows import MAX_ANSWER_TOKENS, WindowSizes
from ..inference.classification import labels_of
from ..inference.fine_tuned import head_of

QUESTION_WORDS = 4  # a question and its context fit into a window
MASK_CANDIDATES = 3  # tokens to compare at a mask


@dataclass(frozen=True)
class SampleTexts:
    """Texts to try an export on."""

    lines: List[str]
    inputs: List[List[str]]  # one text or a pair each; the last is too long
    short_texts: List[str]  # of so few words that several fit into the model's input


def features(model, samples):
    """The features of each input, (T, C) each."""
    rows = [model.extract_features(*texts, truncate=True).cpu() for texts in samples.inputs]
    return {"features": rows}


def masked_lm(model, samples):
    """The features, and of short texts the probabilities of the best tokens at each mask."""
    filled = []
    for text in samples.short_texts:
        masked = f"{text} <mask> {text}"
        if fits(model, masked):
            candidates = model.fill_mask(masked, topk=MASK_CANDIDATES)
            filled.append((masked, [[p for _, p in best] for best in candidates]))
    return {**features(model, samples), "mask_probabilities": filled}


def sequence_classification(model, samples):
    """Scores or probabilities of each input."""
    columns = [list(column) for column in zip(*samples.inputs)]
    return {"predictions": model.predict(*columns)}


def token_classification(model, samples):
    """The label of each word, of lists of words and of texts for the pipeline."""
    fitting = [text for text in samples.short_texts if fits(model, text)]
    return {
        "word_labels": labelled_words(model, samples.lines),
        "pipeline_texts": labelled_words(model, fitting),
    }


def question_answering(model, samples):
    """(question, context, answer): the first words of each short text, and the next text."""
    answers = []
    for text, context in zip(samples.short_texts, samples.short_texts[1:]):
        question = " ".join(text.split()[:QUESTION_WORDS])
        if fits_window(model, question, context):
            answers.append((question, context, model.answer(question, context).text))
    return {
        "answers": answers,
        "max_answer_tokens": MAX_ANSWER_TOKENS,
        "may_be_empty": model.info.may_be_empty,
    }


def fits(model, *texts):
    return len(tokens_of(model.tokenizer, *texts)) <= model.model.max_positions()


def fits_window(model, question, context):
    """Whether a question and its context are read in one window, and neither is cut."""
    question, context = (
        model.tokenizer.encode_with_offsets(text)[0] for text in (question, context)
    )
    sizes = WindowSizes(model.model.max_positions())
    return len(question) <= sizes.max_question and len(list(sizes.windows(question, context))) == 1


def labelled_words(model, texts):
    """Texts as lists of words that have tokens, with the most probable label of each.

    transformers looks at each word by itself, too.
    """
    labels = labels_of(model, head_of(model))
    labelled = []
    for text in texts:
        words = text.split()
        tokens = model.tokenizer.encode_words(words)
        kept = [word for word, word_tokens in zip(words, tokens) if word_tokens]
        best = model.word_probabilities(kept).argmax(-1).tolist()
        labelled.append([(word, labels[index]) for word, index in zip(kept, best)])
    return labelled
