"""Dictionaries: reading them, word starts, fingerprints; and the tokens of texts."""

import random
import sys
import unicodedata

import numpy as np
import pytest

from conftest import documents, refuses, text_of
from maelm_fairseq.base.tokenizer import MASK
from maelm_fairseq.preparation.encode import encode_text
from maelm_fairseq.vocabulary import (
    dictionary_word_starts,
    fingerprint,
    load_dictionary,
    load_dictionary_and_tokenizer,
)
from vocabularies import dictionary, vocabulary


def test_words_start_at_sentencepieces_mark_and_special_symbols_are_words():
    starts = dictionary_word_starts(dictionary("\u2581the", "cat", "\u2581", "s\u2581"))
    assert starts.tolist() == [True] * 4 + [True, False, True, False] + [True]
    fault = "the vocabulary does not mark where words begin: found no symbol that begins with"
    refuses(fault, dictionary_word_starts, dictionary("the", "cat"))


def test_a_fingerprint_depends_on_symbols_and_their_order():
    fingerprints = {fingerprint(dictionary(*symbols)) for symbols in ["ab", "ba", "a", "abc"]}
    assert len(fingerprints) == 4
    # Checkpoints store the number, so it must not change.
    assert fingerprint(dictionary(*"ab")) == -8587359395319196510


DAMAGED = {
    "duplicate": b"the 1\ncat 1\nthe 1\n",
    "no count": b"the 1\n\xe2\x96\x81cat\n",
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_dictionaries_are_refused_in_one_line(tmp_path, kind):
    (tmp_path / "dict.txt").write_bytes(DAMAGED[kind])
    message = "dict.txt: cannot be read .*, expected a dictionary: a line `symbol count` for each"
    refuses(message, load_dictionary, tmp_path)


def test_a_dictionary_without_symbols(tmp_path):
    (tmp_path / "dict.txt").write_text("")
    refuses("dict.txt: empty, expected a line", load_dictionary, tmp_path)


@pytest.mark.parametrize("options", [{}, {"byte_fallback": True}], ids=["unknown", "bytes"])
def test_tokens_are_those_of_data_preparation(tmp_path, options):
    """For any text without <mask>, even if it spells other special symbols."""
    folder = tmp_path / "data"
    lines = text_of(documents(60, 1)).replace("s", "z").splitlines()  # so that "<s>" is unknown
    vocabulary(folder, lines=lines, vocab_size=370 if options else 90, **options)
    _, tokenizer = load_dictionary_and_tokenizer(folder)
    lines = odd_lines(random.Random(1))
    # Without lines that have no tokens, as blank ones.
    lines = [line for line in lines if MASK not in line and tokenizer.processor.encode(line)]
    assert len(lines) > 1900
    tokens, sizes, _ = encode_text(tokenizer, "\n".join(lines))
    for line, row in zip(lines, np.split(tokens, np.cumsum(sizes))):
        assert tokenizer.encode(line) == row[:-1].tolist(), ascii(line)


def odd_lines(rng):
    """Lines of random parts, some of which are symbols, and lines of random characters."""
    parts = ["<s>", "</s>", "<pad>", "<unk>", "mask>", "\uff1cmask>", "<0x41>", "\u2581"]
    parts += ["kan", "lo", "\ue000", "\x07", "\u6f22", "lo ", " "]
    lines = ["".join(rng.choices(parts, k=rng.randint(1, 8))) for _ in range(1000)]
    characters = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if character != "\n" and unicodedata.category(character) != "Cs"  # surrogates
    ]
    lines += ["".join(rng.choices(characters, k=rng.randint(1, 9))) for _ in range(1000)]
    return lines
