"""The tokenizer as tokenizer.json: the tokens of SentencePiece, by the `tokenizers` library.

test_huggingface_transformers.py compares those that transformers gives.
"""

import importlib
import random
import sys
import unicodedata
from functools import partial
from types import SimpleNamespace

import pytest
import sentencepiece

from conftest import refuses
from maelm_fairseq.base.errors import InstallationError, UsageError
from maelm_fairseq.base.text_input import tokens_of
from maelm_fairseq.base.tokenizer import MASK
from maelm_fairseq.base.vocabulary_files import read_tokenizer
from maelm_fairseq.huggingface import tokenizer as huggingface
from maelm_fairseq.huggingface.edge_cases import EDGE_CASES, EDGE_CASES_WITH_MASK
from vocabularies import SYMBOLS, text, vocabulary

SYMBOLS += ["\u00e9t\u00e9", "x\u0301"]


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    """Vocabularies of several kinds, by name."""
    folder = tmp_path_factory.mktemp("vocabularies")
    kinds = {
        "lowercased": {},
        "cased": dict(name="nmt_nfkc"),
        "unigram": dict(kind="unigram"),
        "bytes": dict(byte_fallback=True, vocab_size=420),
    }
    return {
        name: read_tokenizer(vocabulary(folder / name, **options))
        for name, options in kinds.items()
    }


def masked(lines, seed):
    """The lines with `<mask>` in all kinds of places.

    Within words and beside punctuation, with and without spaces.
    """
    rng = random.Random(seed)
    masked_lines = []
    for line in lines:
        for _ in range(rng.randint(1, 3)):
            place = rng.randint(0, len(line))
            mask = rng.choice(["", " "]) + MASK + rng.choice(["", " "])
            line = line[:place] + mask + line[place:]
        masked_lines.append(line)
    return masked_lines


def with_control_characters(count):
    """Short random strings of letters, digits, marks and characters that SentencePiece removes."""
    characters = [*"kanlo 15.,", *"\x01\x07\x1f\x7f\x8f\x80", "\u0301", "\xad", "\u200b"]
    characters += ["\u4e2d", "\ufb01"]
    rng = random.Random(1)
    return ["".join(rng.choices(characters, k=rng.randint(1, 8))) for _ in range(count)]


@pytest.mark.parametrize("name", ["lowercased", "cased", "bytes"])
def test_tokens_are_those_of_sentencepiece(vocabularies, tmp_path, name):
    ours = vocabularies[name]
    tokenizer = huggingface.write_tokenizer(tmp_path, ours, 512)
    encode = partial(tokens_of, ours)
    lines = text(2)
    decomposed = [unicodedata.normalize("NFD", line) for line in lines[:50]]
    texts = [*lines, *masked(lines, 3), *EDGE_CASES, *EDGE_CASES_WITH_MASK, *decomposed]
    for one, other in zip(texts, [*reversed(texts[1:]), ""]):
        assert tokenizer.encode(one).ids == encode(one), one
        assert tokenizer.encode(one, other).ids == encode(one, other), (one, other)
    for line in with_control_characters(1000):
        if not huggingface.is_known_difference(line):
            assert tokenizer.encode(line).ids == encode(line), ascii(line)
    compared = huggingface.check_tokenizer(tokenizer, ours, lines)
    assert compared > len(lines) + len(EDGE_CASES)
    symbols = ["<s>", "<pad>", "</s>", "<unk>"]
    assert [tokenizer.token_to_id(symbol) for symbol in symbols] == [0, 1, 2, 3]
    assert tokenizer.token_to_id(MASK) == tokenizer.get_vocab_size() - 1 == ours.mask_id


def test_hardly_any_text_is_a_known_difference():
    texts = with_control_characters(1000)
    assert sum(map(huggingface.is_known_difference, texts)) < 0.1 * len(texts)
    assert not any(map(huggingface.is_known_difference, text(2)))


def test_offsets_slice_the_text_and_tokens_decode_to_it(vocabularies, tmp_path):
    line = "Kan Losh, mila (1999) don't rupo!"
    tokenizer = huggingface.write_tokenizer(tmp_path, vocabularies["lowercased"], 512)
    encoded = tokenizer.encode(line)
    for token, (begin, end) in list(zip(encoded.tokens, encoded.offsets))[1:-1]:
        if token != "<unk>":
            assert line[begin:end].lower() == token.lstrip("\u2581"), token
    tokenizer = huggingface.write_tokenizer(tmp_path, vocabularies["bytes"], 512)
    line = "kan \u4e2d\U0001f600 losh"
    assert tokenizer.decode(tokenizer.encode(line).ids) == line


@pytest.mark.parametrize("name", ["lowercased", "bytes"])
def test_no_place_of_a_token_has_white_space_around_it(vocabularies, tmp_path, name):
    tokenizer = huggingface.write_tokenizer(tmp_path, vocabularies[name], 512)
    for line in [
        *text(2),
        "  two   spaces  ",
        "tab\tand\nnewline\r\n",
        "wide\u3000space",
        "zero\u200bwidth",
        "a\u2581b",
    ]:
        encoded = tokenizer.encode(line)
        for token, (begin, end) in zip(encoded.tokens, encoded.offsets):
            assert line[begin:end] == line[begin:end].strip(), (line, token)


def test_other_vocabularies_differ_and_known_differences_do_not_count(vocabularies, tmp_path):
    cased = vocabularies["cased"]
    tokenizer = huggingface.write_tokenizer(tmp_path, cased, 512)
    fault = "tokenizer.json: .* texts get other tokens .*; the first: 'Kan'"
    with pytest.raises(UsageError, match=fault):
        huggingface.check_tokenizer(tokenizer, vocabularies["lowercased"], ["Kan"])
    lines = ["kan <s> losh", "<unk></s>", "a\x85b", "\u00c7\u0301a"]
    assert any(tokenizer.encode(line).ids != tokens_of(cased, line) for line in lines)
    huggingface.check_tokenizer(tokenizer, cased, lines)


def test_unigram_models_may_differ_in_one_text_of_a_hundred(vocabularies, tmp_path, capsys):
    right = vocabularies["unigram"]
    lines = text(5)
    tokenizer = huggingface.write_tokenizer(tmp_path, right, 512)

    def check(*wrong_lines):
        """Compares with a vocabulary that gives these lines a token more."""

        def encode(line):
            tokens = right.encode(line)
            return tokens + [0] if line in wrong_lines else tokens

        other = SimpleNamespace(
            encode=encode,
            encode_words=right.encode_words,
            file_name=right.file_name,
        )
        huggingface.check_tokenizer(tokenizer, other, lines)

    check(lines[1])
    assert capsys.readouterr().err.startswith("warning: a Unigram model: ")
    refuses("get other tokens", check, *lines[:20])


@pytest.mark.parametrize("options", [dict(name="identity"), dict(user_defined_symbols="losh")])
def test_models_that_the_file_cannot_hold_are_refused(tmp_path, options):
    tokenizer = read_tokenizer(vocabulary(tmp_path / "data", **options))
    fault = "sentencepiece.model: .*does not normalise.*data-prep/prepare.sh"
    with pytest.raises(UsageError, match=fault):
        huggingface.write_tokenizer(tmp_path, tokenizer, 512)


def test_sentencepiece_needs_protobuf(monkeypatch):
    monkeypatch.delattr(sentencepiece, "sentencepiece_model_pb2")
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    fault = "^[^\n]*sentencepiece_model_pb2[^\n]*: pip install -c constraints.txt"
    with pytest.raises(InstallationError, match=fault):
        importlib.reload(huggingface)
