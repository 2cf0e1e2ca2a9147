"""What a word is: what spaces separate, and a piece of the vocabulary in scripts without spaces."""

import random

import numpy as np
import pytest
import tokenizers

from conftest import refuses
from maelm_fairseq.base.tokenizer import MASK, SPECIAL_SYMBOLS
from maelm_fairseq.base.vocabulary_files import read_tokenizer
from maelm_fairseq.base.words import (
    begins_without_space,
    byte_letters,
    first_character,
    word_spans,
    word_starts,
)
from maelm_fairseq.masking import Masking, MaskSettings
from maelm_fairseq.vocabulary import load_dictionary
from vocabularies import text, vocabulary

CHINESE = "\u6211\u4eec\u5728\u5317\u4eac\u5b66\u4e60\u4e2d\u6587\u3002"
THAI = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01"
HEBREW = "\u05d1\u05b0\u05bc\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea "
HEBREW += "\u05d1\u05b8\u05bc\u05e8\u05b8\u05d0"


def places_of(tokenizer, line):
    return [line[begin:end] for begin, end in word_spans(tokenizer, line)]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A vocabulary with English words, and letters of other scripts."""
    rng = random.Random(1)
    lines = [*text(1)]
    for script in [CHINESE, THAI, HEBREW]:
        lines += ["".join(rng.choices(script, k=8)) for _ in range(30)]
    folder = tmp_path_factory.mktemp("words") / "data"
    return read_tokenizer(vocabulary(folder, lines=lines, vocab_size=200, character_coverage=1.0))


@pytest.fixture(scope="module")
def byte_pieces(tmp_path_factory):
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(
        text(1), vocab_size=300, special_tokens=SPECIAL_SYMBOLS, show_progress=False
    )
    trained.add_special_tokens([MASK])
    folder = tmp_path_factory.mktemp("bytes")
    trained.save(str(folder / "tokenizer.json"))
    return read_tokenizer(folder)


WITH_SPACES = [
    "",
    "  kan\tlosh, (mi) don't ",
    "caf\u00e9 na\u00efve",
    "\u041c\u0438\u0440 \ud55c\uad6d\uc5b4",
    HEBREW,
]


@pytest.mark.parametrize("line", WITH_SPACES)
def test_white_space_separates_words(pieces, byte_pieces, line):
    for tokenizer in [pieces, byte_pieces]:
        assert places_of(tokenizer, line) == line.split()


def test_without_spaces_pieces_are_words(pieces, byte_pieces):
    """Bytes do not tell Thai words apart: they begin as those of Hindi, which has spaces."""
    mixed = f"kan {CHINESE}losh {CHINESE}"
    for tokenizer, line in [
        (pieces, CHINESE),
        (pieces, mixed),
        (pieces, THAI),
        (byte_pieces, CHINESE),
        (byte_pieces, mixed),
    ]:
        words = places_of(tokenizer, line)
        assert "".join(words) == "".join(line.split())
        assert len(words) > len(line.split()) + 2
        assert all(words)


def test_a_mark_or_a_long_vowel_begins_no_word():
    starts = ["\u2581kan", "\u6211", "\u0e2a\u0e27", "\u3042", "<0xE6>"]
    others = ["kan", "\u0e31", "\u30fc", "\u3002", "\ud55c", "<0x88>", "<0x61>"]
    expected = [True] * len(starts) + [False] * len(others)
    assert word_starts([*starts, *others]).tolist() == expected
    refuses("the vocabulary does not mark where words begin", word_starts, ["kan", "losh"])


def test_bytes_are_those_of_the_library():
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = byte_letters()
    assert {*letters} == {*split.alphabet()}
    for word in ["kan \u00a0\u00ad", CHINESE, THAI]:
        spelled = "".join(part for part, _ in split.pre_tokenize_str(word))
        assert bytes(letters[letter] for letter in spelled).decode() == word


@pytest.mark.parametrize(
    "character", [*"a\u00e9\u05d0\u0915\u0e01\u1780\u6211\u3042\ud55c", "\U00020000", "\U0001f600"]
)
def test_parts_of_a_character_begin_a_word_only_at_its_start(character):
    letters = byte_letters()
    spelled = {byte: letter for letter, byte in letters.items()}
    encoded = character.encode()
    expected = begins_without_space(character, {})

    def begins(part):
        symbol = "".join(spelled[byte] for byte in part)
        return begins_without_space(symbol, letters)

    for size in range(2, len(encoded) + 1):
        assert begins(encoded[:size]) == expected
    for start in range(1, len(encoded)):
        assert not begins(encoded[start:])
        assert first_character(encoded[start:]) == ""


def test_whole_words_are_masked_piece_by_piece(pieces, tmp_path):
    """By its spaces, the whole line would be one word."""
    (tmp_path / "dict.txt").write_text(pieces.dict_text(), encoding="utf-8")
    masking = Masking(
        MaskSettings(mask_prob=0.3, mask_whole_words=True), load_dictionary(tmp_path), 1
    )
    block = np.array([0, *pieces.encode(CHINESE * 5), 2])
    counts = [len(masking(block, 1, index).targets) for index in range(20)]
    expected = 0.3 * (len(block) - 1)
    assert 0 < min(counts) <= max(counts) < 2 * expected
    assert expected / 2 < np.mean(counts)
