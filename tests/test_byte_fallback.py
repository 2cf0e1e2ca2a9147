"""Vocabularies with pieces for all bytes, `<0x00>` to `<0xFF>`, so that no character is unknown."""

import json
import os

import numpy as np
import pytest

from conftest import documents, script, text_of
from maelm_fairseq.base.tokenizer import MASK
from maelm_fairseq.finetuning.squad import find_span
from maelm_fairseq.finetuning.squad_files import GoldAnswer, Question
from maelm_fairseq.finetuning.windows import pieces_of
from maelm_fairseq.vocabulary import (
    dictionary_word_starts,
    load_dictionary,
    load_dictionary_and_tokenizer,
)
from vocabularies import vocabulary

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# Texts as the model normalises them. Their unknown characters have one to four bytes, and are
# between known letters, at the ends, next to spaces, and alone.
TEXTS = [
    "\u00e7a va ?",
    "na\u00efve caf\u00e9",
    "\u6f22\u5b57 kan \u6f22",
    "\U0001f600\U0001f600 x",
    "\ue000",
    "~",
    "a\ue000b",
    "<0x41>",
    "</s> <pad> <unk> <s>",
    "\ue000\ue000. \ue000",
    "\u044f\u0437\u044b\u043a",
]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "data"
    vocabulary(folder, kind=request.param, byte_fallback=True, vocab_size=330)
    return load_dictionary_and_tokenizer(folder)[1]


def names(tokenizer, text):
    return [tokenizer.symbols[token] for token in tokenizer.encode(text)]


def test_no_character_of_prepared_text_is_unknown(tmp_path):
    (tmp_path / "train.txt").write_text(text_of(documents(200, 1)), encoding="utf-8")
    (tmp_path / "valid.txt").write_text("".join(line + "\n" for line in TEXTS), encoding="utf-8")
    data = tmp_path / "data"
    texts = ["--train", tmp_path / "train.txt", "--valid", tmp_path / "valid.txt"]
    script("data-prep/prepare.sh", "--byte-fallback", "--vocab-size", 350, "--dest", data, *texts)
    record = json.loads((data / "valid.json").read_text(encoding="utf-8"))
    assert record["most_unknown"] == []
    lines = (data / "dict.txt").read_text(encoding="utf-8").split("\n")
    assert lines[:256] == [name + " 1" for name in BYTES]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(tokenizer, text):
    tokens = tokenizer.encode(text)
    assert all(token >= 4 for token in tokens)
    assert tokenizer.decode([0, *tokens, 2, 1]) == text
    assert tokenizer.decode(tokenizer.encode(f"{text} {MASK} {text}")) == f"{text} {MASK} {text}"


def test_a_character_is_its_bytes(tokenizer):
    assert names(tokenizer, "\u00c7a")[:3] == ["\u2581", "<0xC3>", "<0xA7>"]
    # Text that looks like the name of a byte is text.
    assert "<0x41>" not in names(tokenizer, "<0x41>")
    assert names(tokenizer, "<0x41>")[1] == "<0x3C>"
    # A model may predict bytes that form no character.
    tokens = [tokenizer.symbols.index(name) for name in ["\u2581", "<0xC3>", "?", "<0xA7>"]]
    assert tokenizer.decode(tokens) == "\ufffd?\ufffd"


@pytest.mark.parametrize("after", [
    ".", "\u00e4", "\u6f22\u5b57", "\ue000", "\ue000.", "kan", "<0x41>", "~ x",
])  # fmt: skip
def test_what_touches_a_mask_begins_no_word(tokenizer, after):
    mask, *touching = names(tokenizer, MASK + after)
    assert mask == MASK
    assert not touching[0].startswith("\u2581")
    # No part is lost or unknown, and nothing is left of what stands in for the mask.
    assert tokenizer.decode(tokenizer.encode(MASK + after)) == MASK + after
    expected = names(tokenizer, "~" + after)[-len(touching) :]
    assert touching == expected
    assert names(tokenizer, f"{MASK} {after}") == [MASK, *names(tokenizer, after)]


def test_the_bytes_of_a_character_begin_no_word(tokenizer):
    """Except the first byte of a Chinese character, since no space separates it from others."""
    starts = dictionary_word_starts(load_dictionary(os.path.dirname(tokenizer.path)))
    beginning = [name for name in BYTES if starts[tokenizer.symbols.index(name)]]
    assert beginning == [f"<0x{byte:02X}>" for byte in [*range(0xE3, 0xEA), 0xEF]]
    line = "kan \u00c7a na\u00efve \U0001f600 \u6f22\u5b57 lo ?"
    tokens = tokenizer.encode(line)
    word_of_token = np.cumsum(starts[tokens]) - 1
    spelled = []
    for i in range(word_of_token[-1] + 1):
        spelled.append(tokenizer.decode(np.array(tokens)[word_of_token == i].tolist()))
    # The empty one is the mark of a space alone.
    assert spelled == [*line.lower().split()[:-3], "", "\u6f22", "\u5b57", "lo", "?"]


def test_the_bytes_of_a_character_stand_for_it_together(tokenizer):
    """In SQuAD, the text of a character belongs to its last byte; its other bytes have no text."""
    text = "kan \u6f22\u5b57 losh"
    pieces = pieces_of(tokenizer, text)
    assert pieces.tokens == tokenizer.encode(text)
    covered = [text[begin:end] for begin, end in zip(pieces.begins, pieces.ends)]
    assert "".join(covered) == "kan\u6f22\u5b57losh"
    assert covered.count("") >= 4
    (first, last) = find_span(GoldAnswer("\u6f22\u5b57", 4), Question("q", "", text, ()), pieces)
    assert text[pieces.begins[first] : pieces.ends[last]] == "\u6f22\u5b57"
