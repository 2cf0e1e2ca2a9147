"""Vocabularies with a piece for each byte, `<0x00>` to `<0xFF>`, in which no character is unknown."""

import json

import numpy as np
import pytest

from conftest import documents, script, text_of
from maelm_fairseq.finetuning.squad.answers import best_answer
from maelm_fairseq.finetuning.squad.questions import Answer, Question
from maelm_fairseq.finetuning.squad.text import SpanTokenizer, Window, place
from maelm_fairseq.vocabulary import MASK, Tokenizer, read_vocabulary, word_starts
from test_huggingface_tokenizer import vocabulary

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# As the model normalises them: of one to four bytes, between known letters, at the ends, with spaces, and alone.
TEXTS = ["\u00e7a va ?", "na\u00efve caf\u00e9", "\u6f22\u5b57 kan \u6f22", "\U0001f600\U0001f600 x", "\ue000", "~"]
TEXTS += ["a\ue000b", "<0x41>", "</s> <pad> <unk> <s>", "\ue000\ue000. \ue000", "\u044f\u0437\u044b\u043a"]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "data"
    return Tokenizer(*read_vocabulary(vocabulary(folder, kind=request.param, byte_fallback=True, vocab_size=330)))


def names(tokenizer, text):
    return [tokenizer.dictionary[token] for token in tokenizer.encode(text)]


def test_no_character_of_prepared_text_is_unknown(tmp_path):
    (tmp_path / "train.txt").write_text(text_of(documents(200, 1)), encoding="utf-8")
    (tmp_path / "valid.txt").write_text("".join(line + "\n" for line in TEXTS), encoding="utf-8")
    data = tmp_path / "data"
    texts = ["--train", tmp_path / "train.txt", "--valid", tmp_path / "valid.txt"]
    script("data-prep/prepare.sh", "--byte-fallback", "--vocab-size", 350, "--dest", data, *texts)
    record = json.loads((data / "valid.json").read_text(encoding="utf-8"))
    assert record["unknown"] == 0 and record["unknown_pieces"] == []
    lines = (data / "dict.txt").read_text(encoding="utf-8").split("\n")
    assert lines[:256] == [name + " 1" for name in BYTES]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(tokenizer, text):
    tokens = tokenizer.encode(text)
    assert all(token >= tokenizer.dictionary.nspecial for token in tokens)
    assert tokenizer.decode([0, *tokens, 2, 1]) == text
    assert tokenizer.decode(tokenizer.encode(f"{text} {MASK} {text}")) == f"{text} {MASK} {text}"


def test_a_character_is_its_bytes(tokenizer):
    assert names(tokenizer, "\u00c7a")[:3] == ["\u2581", "<0xC3>", "<0xA7>"]
    # What is written like a byte or a special symbol is none.
    assert "<0x41>" not in names(tokenizer, "<0x41>") and names(tokenizer, "<0x41>")[1] == "<0x3C>"
    # Bytes that are no character, as a model may predict them.
    tokens = [tokenizer.dictionary.index(name) for name in ["\u2581", "<0xC3>", "?", "<0xA7>"]]
    assert tokenizer.decode(tokens) == "\ufffd?\ufffd"


@pytest.mark.parametrize("after", [".", "\u00e4", "\u6f22\u5b57", "\ue000", "\ue000.", "kan", "<0x41>", "~ x"])
def test_what_touches_a_mask_begins_no_word(tokenizer, after):
    mask, *touching = names(tokenizer, MASK + after)
    assert mask == MASK and not touching[0].startswith("\u2581")
    # No part is lost, unknown, or left of what stood before it.
    assert tokenizer.decode(tokenizer.encode(MASK + after)) == MASK + after
    expected = names(tokenizer, "~" + after)[-len(touching) :]
    assert touching == expected
    assert names(tokenizer, f"{MASK} {after}") == [MASK, *names(tokenizer, after)]


def test_the_bytes_of_a_character_begin_no_word(tokenizer):
    starts = word_starts(tokenizer.dictionary)
    assert not starts[[tokenizer.dictionary.index(name) for name in BYTES]].any()
    line = "kan \u00c7a na\u00efve \U0001f600 \u6f22\u5b57 lo ?"
    tokens = tokenizer.encode(line)
    word = np.cumsum(starts[tokens]) - 1
    spelled = [tokenizer.decode(np.array(tokens)[word == i].tolist()) for i in range(word[-1] + 1)]
    assert spelled == line.lower().split()


def test_an_answer_of_many_bytes_is_not_cut(tokenizer):
    """Its length counts characters, not bytes: the best span is the answer itself, with up to 30 Han characters."""
    spans = SpanTokenizer(tokenizer.processor)
    for characters, comes_back in [("\u6f22" * 30, True), ("\u6f22" * 31, False)]:
        text = f"kan {characters} losh 1990"
        context = spans.encode(text)
        (first, last), exact = place(Answer(characters, 4), Question("q", "", text, ()), context)
        assert exact and last - first + 1 >= 3 * len(characters)
        window = Window(np.append(context.tokens, 2), 0, 0)  # the whole text, and </s>
        start, end = np.zeros(len(window.tokens)), np.zeros(len(window.tokens))
        start[first] = end[last] = 1
        score, answer = best_answer(text, context, window, start, end)
        assert (answer == characters and score == 2) == comes_back
    # Pieces of several characters count as before.
    context = spans.encode("kan losh mipo 1990 " * 20)
    assert context.lengths(30).tolist() == [min(30, len(context.tokens) - i) for i in range(len(context.tokens))]
