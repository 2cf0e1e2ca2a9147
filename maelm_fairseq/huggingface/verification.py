"""Compares an exported folder with the hub, in the calls that users of its head make."""

import os
import tempfile

from ..base.byte_pairs import BytePair
from ..base.errors import UsageError
from ..base.text_input import tokens_of
from ..finetuning.windows import MAX_ANSWER_TOKENS, WindowSizes
from .calls import differences
from .edge_cases import EDGE_CASES
from .tokenizer import is_known_difference, sample_lines
from .weights import (
    CODE,
    MASKED_LM,
    MODEL,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
)

TEXT_COUNT = 8
CALL_TITLES = {  # what they are, for the user
    "texts": "texts",
    "filled": "texts with masks",
    "tagged": "lists of words",
    "short": "texts to the pipeline",
    "answers": "questions",
}
# The words of texts and of questions that fit into a window.
SHORT_WORDS = 12
QUESTION_WORDS = 4
TOP_K = 3  # at a mask


def expected_calls(model, suffix, code, lines=()):
    """The calls that users of a head make, and what the hub answers.

    Args:
        model: `hub.MaeLm`
        suffix: of the name of the export's class: `MODEL`, `MASKED_LM`, ...
        code: whether it is one of modeling_mae_lm.py
        lines: of text; edge cases are added where there are few
    Returns: a dict for `calls.differences`, of plain values and tensors
    """
    limit = model.model.max_positions()
    usable = []
    for line in [*lines, *EDGE_CASES]:
        if line.split() and not is_known_difference(line):
            usable.append(line)
    lines = usable[:TEXT_COUNT]
    words = " ".join(lines).split()
    starts = range(0, TEXT_COUNT * SHORT_WORDS, SHORT_WORDS)
    short = [" ".join(words[i : i + SHORT_WORDS]) for i in starts]
    too_long = " ".join(words * (1 + limit // len(words)))
    texts = [[line] for line in [*lines, too_long]]
    if model.facts.texts_per_example == 2:
        texts = [[*one, *other] for one, other in zip(texts, [*texts[1:], texts[0]])]
    calls = {
        "class": "AutoModel" + suffix.removeprefix(MODEL),
        "texts": texts,
        "trims": model.tokenizer.trims_places,
        "tokens": [tokens_of(model.tokenizer, *row, limit=limit) for row in texts],
    }
    if suffix in (MODEL, MASKED_LM):
        calls["features"] = [model.extract_features(*row, truncate=True).cpu() for row in texts]
    if suffix == MASKED_LM:
        calls["filled"] = _filled(model, [f"{text} <mask> {text}" for text in short])
    if suffix == SEQUENCE_CLASSIFICATION:
        columns = [list(column) for column in zip(*texts)]
        calls["predictions"] = model.predict(*columns)
        calls["left_padding"] = code
    if suffix == TOKEN_CLASSIFICATION:
        if isinstance(model.tokenizer, BytePair):  # its exports are for lists of words
            del calls["texts"], calls["tokens"]
        calls["tagged"] = with_tokens(model, lines)
        calls["short"] = with_tokens(model, [text for text in short if fits(model, text)])
    if suffix == QUESTION_ANSWERING:
        calls["answers"] = _answers(model, short)
        calls["longest"] = MAX_ANSWER_TOKENS
        calls["may_be_empty"] = model.facts.may_be_empty
    return calls


def _filled(model, texts):
    """(text, probabilities of the best tokens at each mask) of the texts that are not too long."""
    filled = []
    for text in texts:
        if fits(model, text):
            rows = model.fill_mask(text, topk=TOP_K)
            filled.append((text, [[p for _, p in row] for row in rows]))
    return filled


def _answers(model, texts):
    """(question, context, answer) of the first words of each text, and the next text."""
    answers = []
    for text, context in zip(texts, texts[1:]):
        question = " ".join(text.split()[:QUESTION_WORDS])
        if fits_window(model, question, context):
            answers.append((question, context, model.answer(question, context).text))
    return answers


def fits(model, *texts):
    return len(tokens_of(model.tokenizer, *texts)) <= model.model.max_positions()


def fits_window(model, question, context):
    """Whether a question and its context are read in one window, and neither is cut."""
    question, context = (model.tokenizer.spans(text)[0] for text in (question, context))
    sizes = WindowSizes(model.model.max_positions())
    return len(question) <= sizes.max_question and len(list(sizes.windows(question, context))) == 1


def with_tokens(model, texts):
    """Texts as lists of (word, label), without words that have no token."""
    kept = []
    for text in texts:
        words = text.split()
        tokens = model.tokenizer.encode_words(words)
        kept.append(" ".join(word for word, pieces in zip(words, tokens) if pieces))
    return [[tuple(pair) for pair in row] for row in model.predict(kept)]


def compare_with_transformers(folder, config, model, data, suffix):
    """Loads an exported folder with transformers and calls it as its users do.

    Nothing is compared where transformers is not installed.

    Args:
        folder: of the export
        config: the contents of its config.json
        model: `hub.MaeLm`
        data: folder whose records have lines of text
        suffix: as for `expected_calls`
    Returns: a sentence that says what was found, or why nothing was compared
    Raises ValueError: a call is answered differently
    """
    is_code = config["model_type"] == CODE.model_type
    try:
        import transformers

        if is_code:
            from . import modeling_mae_lm as classes
        else:
            classes = transformers
        model_class = getattr(classes, config["architectures"][0])
        # An Auto class would ask whether to run our file.
        tokenizer_class = transformers.PreTrainedTokenizerFast
    except Exception as error:  # not only ImportError: a broken installation may raise any
        reason = " ".join(str(error).split())
        return (
            f"outputs not compared: transformers cannot be imported ({reason}); pip install "
            "-c constraints.txt transformers, then export again to the same folder"
        )
    # A link: safetensors opens no path that is not Unicode.
    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "model")
        os.symlink(os.path.abspath(folder), path)
        loaded = model_class.from_pretrained(path)
        tokenizer = tokenizer_class.from_pretrained(path)
    expected = expected_calls(model, suffix, is_code, sample_lines(data, ["valid"]))
    results = differences(tokenizer, loaded, expected)
    version = f"transformers {transformers.__version__}"
    faults = results["faults"]
    if faults:
        raise UsageError(
            f"{version} answers otherwise from the export in {len(faults)} calls; the first: "
            f"{faults[0]}; please report this, with config.json and the version"
        )
    counts = ", ".join(f"{count} {CALL_TITLES[name]}" for name, count in results["calls"].items())
    return (
        f"{version} answers as the hub does ({counts}; numbers differ by "
        f"{results['largest']:.1g} at most)"
    )
