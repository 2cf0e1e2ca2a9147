"""Compares an exported folder with the hub, in the calls that users of its head make."""

import os
import tempfile

from ..base.byte_pairs import BytePair
from ..base.errors import UsageError
from ..base.text_input import tokens_of
from ..finetuning.windows import LONGEST, WindowSizes
from . import calls as made
from .edge_cases import EDGE_CASES
from .tokenizer import is_known_difference, sample_lines
from .weights import CODE, MASKED_LM, MODEL, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION

TEXTS = 8
CALLS = {  # what they are, for the user
    "texts": "texts",
    "filled": "texts with masks",
    "tagged": "lists of words",
    "short": "texts to the pipeline",
    "answers": "questions",
}
SHORT_WORDS, QUESTION_WORDS = 12, 4  # of texts and of questions that fit into a window
CANDIDATES = 3  # at a mask


def expected_calls(model, kind, code, lines=()):
    """The calls that users of a head make, and what the hub answers.

    Args:
        model: `hub.MaeLm`
        kind: which class of its family the export is: `MODEL`, `MASKED_LM`, ...
        code: whether it is one of modeling_mae_lm.py
        lines: of text; edge cases are added where there are few
    Returns: a dict for `calls.differences`, of plain values and tensors
    """
    limit = model.model.max_positions()
    lines = [line for line in [*lines, *EDGE_CASES] if line.split() and not is_known_difference(line)][:TEXTS]
    words = " ".join(lines).split()
    short = [" ".join(words[i : i + SHORT_WORDS]) for i in range(0, TEXTS * SHORT_WORDS, SHORT_WORDS)]
    texts = [[line] for line in [*lines, " ".join(words * (1 + limit // len(words)))]]  # the last is cut
    if model.facts.texts == 2:
        texts = [[*one, *other] for one, other in zip(texts, [*texts[1:], texts[0]])]
    calls = {"class": "AutoModel" + kind.removeprefix(MODEL), "texts": texts, "trims": model.tokenizer.trims_places}
    calls["tokens"] = [tokens_of(model.tokenizer, *each, limit=limit) for each in texts]
    columns = [list(column) for column in zip(*texts)]
    if kind in (MODEL, MASKED_LM):
        calls["features"] = [model.extract_features(*each, truncate=True).cpu() for each in texts]
    if kind == MASKED_LM:
        masked = [f"{text} <mask> {text}" for text in short]
        filled = ((text, model.fill_mask(text, topk=CANDIDATES)) for text in masked if fits(model, text))
        calls["filled"] = [(text, [[p for _, p in row] for row in rows]) for text, rows in filled]
    if kind == SEQUENCE_CLASSIFICATION:
        calls["predictions"], calls["left_padding"] = model.predict(*columns), code
    if kind == TOKEN_CLASSIFICATION:
        if isinstance(model.tokenizer, BytePair):  # its exports are for lists of words
            del calls["texts"], calls["tokens"]
        calls["tagged"] = with_tokens(model, lines)
        calls["short"] = with_tokens(model, [text for text in short if fits(model, text)])
    if kind == QUESTION_ANSWERING:
        asked = [(" ".join(one.split()[:QUESTION_WORDS]), other) for one, other in zip(short, short[1:])]
        asked = [(one, other) for one, other in asked if fits_window(model, one, other)]
        calls["answers"] = [(one, other, model.answer(one, other).text) for one, other in asked]
        calls["longest"] = LONGEST
        calls["may_be_empty"] = model.facts.may_be_empty
    return calls


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


def compare_with_transformers(folder, config, model, data, kind):
    """Loads an exported folder with transformers, where it is installed, and calls it as its users do.

    Args:
        folder: of the export
        config: the contents of its config.json
        model: `hub.MaeLm`
        data: folder whose records have lines of text
        kind: as for `expected_calls`
    Returns: a sentence that says what was found, or why nothing was compared
    Raises ValueError: a call is answered otherwise
    """
    try:
        import transformers

        code = config["model_type"] == CODE.model_type
        if code:
            from . import modeling_mae_lm as classes
        else:
            classes = transformers
        model_class = getattr(classes, config["architectures"][0])
        tokenizer_class = transformers.PreTrainedTokenizerFast  # an Auto class would ask whether to run our file
    except Exception as error:  # it is not installed, or a broken installation of one of its packages raises another
        reason = " ".join(str(error).split())
        return f"outputs not compared: transformers cannot be imported ({reason}); pip install transformers"
    with tempfile.TemporaryDirectory() as place:  # safetensors opens no path that is not Unicode
        path = os.path.join(place, "model")
        os.symlink(os.path.abspath(folder), path)
        loaded, tokenizer = model_class.from_pretrained(path), tokenizer_class.from_pretrained(path)
    found = made.differences(tokenizer, loaded, expected_calls(model, kind, code, sample_lines(data, ["valid"])))
    which = f"transformers {transformers.__version__}"
    if found["faults"]:
        raise UsageError(
            f"{which} answers otherwise from the export in {len(found['faults'])} calls; the first: "
            f"{found['faults'][0]}; please report this, with config.json and the version"
        )
    counts = ", ".join(f"{count} {CALLS[name]}" for name, count in found["calls"].items())
    return f"{which} answers as the hub does ({counts}; numbers differ by {found['largest']:.1g} at most)"
