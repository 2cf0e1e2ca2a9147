"""The tokenizer as tokenizer.json: the tokens of SentencePiece, by the `tokenizers` library.

By transformers they are compared in test_huggingface_transformers.py.
"""

import importlib
import random
import sys
import unicodedata
from functools import partial
from types import SimpleNamespace

import pytest
import sentencepiece

from conftest import documents, refuses
from maelm_fairseq.base.errors import InstallationError, UsageError
from maelm_fairseq.base.subwords import MASK
from maelm_fairseq.base.text_input import tokens_of
from maelm_fairseq.base.vocabulary_files import read_subwords
from maelm_fairseq.huggingface import tokenizer as huggingface
from maelm_fairseq.huggingface.edge_cases import EDGE_CASES, EDGE_CASES_WITH_MASK

SYMBOLS = [*".,!?'\"-()\u2026\u00bd\u2122", "...", "1999", "1,000", "3.5", "don't", "\u00e9t\u00e9", "x\u0301"]


def text(seed, count=40):
    """Lines of generated words, some in capitals, with digits, punctuation, accents and signs between and within."""
    rng = random.Random(seed)
    lines = []
    for line in (line for document in documents(count, seed) for line in document):
        words = []
        for word in line.split():
            word = word.capitalize() if rng.random() < 0.2 else word
            word += rng.choice(["", " ", *SYMBOLS]) if rng.random() < 0.3 else ""
            words.append(rng.choice(SYMBOLS) + word if rng.random() < 0.1 else word)
        lines.append(" ".join(words))
    return lines


def vocabulary(folder, name="nmt_nfkc_cf", kind="bpe", lines=None, **options):
    """Trains a SentencePiece model into a new folder, with its dict.txt; returns the folder."""
    folder.mkdir()
    options = {"vocab_size": 180, "hard_vocab_limit": False, "minloglevel": 2, "character_coverage": 0.9995, **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines or text(1)), model_prefix=str(folder / "sentencepiece"), model_type=kind,
        normalization_rule_name=name, **options,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    (folder / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabularies")
    options = {"lowercased": {}, "cased": dict(name="nmt_nfkc"), "unigram": dict(kind="unigram")}
    options["bytes"] = dict(byte_fallback=True, vocab_size=420)
    return {name: read_subwords(vocabulary(folder / name, **each)) for name, each in options.items()}


def masked(lines, seed):
    """The lines with `<mask>` in places of all kinds: within words, beside punctuation, with and without spaces."""
    rng = random.Random(seed)
    made = []
    for line in lines:
        for _ in range(rng.randint(1, 3)):
            place = rng.randint(0, len(line))
            line = line[:place] + rng.choice(["", " "]) + MASK + rng.choice(["", " "]) + line[place:]
        made.append(line)
    return made


def with_control_characters(count):
    """Short random strings of letters, digits, marks and characters that SentencePiece removes."""
    characters = [*"kanlo 15.,", *"\x01\x07\x1f\x7f\x8f\x80", "\u0301", "\xad", "\u200b", "\u4e2d", "\ufb01"]
    rng = random.Random(1)
    return ["".join(rng.choices(characters, k=rng.randint(1, 8))) for _ in range(count)]


@pytest.mark.parametrize("name", ["lowercased", "cased", "bytes"])
def test_tokens_are_those_of_sentencepiece(vocabularies, tmp_path, name):
    made = huggingface.write_tokenizer(tmp_path, vocabularies[name], 512)
    encode, lines = partial(tokens_of, vocabularies[name]), text(2)
    apart = [unicodedata.normalize("NFD", line) for line in lines[:50]]
    texts = [*lines, *masked(lines, 3), *EDGE_CASES, *EDGE_CASES_WITH_MASK, *apart]
    for a, b in zip(texts, [*reversed(texts[1:]), ""]):
        assert made.encode(a).ids == encode(a), a
        assert made.encode(a, b).ids == encode(a, b), (a, b)
    for line in with_control_characters(1000):
        assert huggingface.is_known_difference(line) or made.encode(line).ids == encode(line), ascii(line)
    assert huggingface.check_tokenizer(made, vocabularies[name], lines) > len(lines) + len(EDGE_CASES)
    assert [made.token_to_id(symbol) for symbol in ["<s>", "<pad>", "</s>", "<unk>"]] == [0, 1, 2, 3]
    assert made.token_to_id(MASK) == made.get_vocab_size() - 1 == vocabularies[name].mask


def test_hardly_any_text_is_a_known_difference():
    texts = with_control_characters(1000)
    assert sum(map(huggingface.is_known_difference, texts)) < 0.1 * len(texts)
    assert not any(map(huggingface.is_known_difference, text(2)))


def test_offsets_slice_the_text_and_tokens_decode_to_it(vocabularies, tmp_path):
    line = "Kan Losh, mila (1999) don't rupo!"
    encoded = huggingface.write_tokenizer(tmp_path, vocabularies["lowercased"], 512).encode(line)
    for token, (begin, end) in list(zip(encoded.tokens, encoded.offsets))[1:-1]:
        if token != "<unk>":
            assert line[begin:end].lower() == token.lstrip("\u2581"), token
    made = huggingface.write_tokenizer(tmp_path, vocabularies["bytes"], 512)
    assert made.decode(made.encode("kan \u4e2d\U0001f600 losh").ids) == "kan \u4e2d\U0001f600 losh"


@pytest.mark.parametrize("name", ["lowercased", "bytes"])
def test_no_place_of_a_token_has_white_space_around_it(vocabularies, tmp_path, name):
    made = huggingface.write_tokenizer(tmp_path, vocabularies[name], 512)
    for line in [
        *text(2),
        "  two   spaces  ",
        "tab\tand\nnewline\r\n",
        "wide\u3000space",
        "zero\u200bwidth",
        "a\u2581b",
    ]:
        encoded = made.encode(line)
        for token, (begin, end) in zip(encoded.tokens, encoded.offsets):
            assert line[begin:end] == line[begin:end].strip(), (line, token)


def test_other_vocabularies_differ_and_known_differences_do_not_count(vocabularies, tmp_path):
    made = huggingface.write_tokenizer(tmp_path, vocabularies["cased"], 512)
    with pytest.raises(UsageError, match="tokenizer.json: .* texts get other tokens .*; the first: 'Kan'"):
        huggingface.check_tokenizer(made, vocabularies["lowercased"], ["Kan"])
    lines = ["kan <s> losh", "<unk></s>", "a\x85b", "\u00c7\u0301a"]
    assert any(made.encode(line).ids != tokens_of(vocabularies["cased"], line) for line in lines)
    huggingface.check_tokenizer(made, vocabularies["cased"], lines)


def test_unigram_models_may_differ_in_one_text_of_a_hundred(vocabularies, tmp_path, capsys):
    right, lines = vocabularies["unigram"], text(5)
    made = huggingface.write_tokenizer(tmp_path, right, 512)

    def check(*wrong):
        other = SimpleNamespace(
            encode=lambda text: right.encode(text) + [0] * (text in wrong),
            encode_words=right.encode_words,
            file_name=right.file_name,
        )
        huggingface.check_tokenizer(made, other, lines)

    check(lines[1])
    assert capsys.readouterr().err.startswith("warning: a Unigram model: ")
    refuses("get other tokens", check, *lines[:20])


@pytest.mark.parametrize("options", [dict(name="identity"), dict(user_defined_symbols="losh")])
def test_models_that_the_file_cannot_hold_are_refused(tmp_path, options):
    with pytest.raises(UsageError, match="sentencepiece.model: .*does not normalise.*data-prep/prepare.sh"):
        huggingface.write_tokenizer(tmp_path, read_subwords(vocabulary(tmp_path / "data", **options)), 512)


def test_sentencepiece_needs_protobuf(monkeypatch):
    monkeypatch.delattr(sentencepiece, "sentencepiece_model_pb2")
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with pytest.raises(InstallationError, match="^[^\n]*sentencepiece_model_pb2[^\n]*: pip install -c constraints.txt"):
        importlib.reload(huggingface)
