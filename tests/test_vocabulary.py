"""Dictionaries: word starts and fingerprints. Reading them is tested with the programs that do it."""

import pytest
from fairseq.data import Dictionary

from maelm_fairseq.vocabulary import fingerprint, word_starts


def dictionary(*symbols):
    made = Dictionary()
    for symbol in [*symbols, "<mask>"]:
        made.add_symbol(symbol)
    return made


def test_words_start_at_sentencepieces_mark_and_special_symbols_are_words():
    starts = word_starts(dictionary("\u2581the", "cat", "\u2581", "s\u2581"))
    assert starts.tolist() == [True] * 4 + [True, False, True, False] + [True]
    with pytest.raises(ValueError, match="--mask-whole-words needs a SentencePiece vocabulary"):
        word_starts(dictionary("the", "cat"))


def test_a_fingerprint_depends_on_symbols_and_their_order():
    found = {int(fingerprint(dictionary(*symbols))) for symbols in ["ab", "ba", "a", "abc"]}
    assert len(found) == 4
    assert fingerprint(dictionary("a")).shape == () and fingerprint(dictionary(*"ab")) == fingerprint(dictionary(*"ab"))
    assert int(fingerprint(dictionary(*"ab"))) == -8587359395319196510  # checkpoints store it
