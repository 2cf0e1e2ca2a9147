"""The tokenizer as tokenizer.json: the tokens of SentencePiece, in the `tokenizers` library and in transformers."""

import json
import os
import random
import subprocess
import unicodedata

import pytest
import sentencepiece

from conftest import TRANSFORMERS, documents
from maelm_fairseq.errors import MissingFileError, UsageError
from maelm_fairseq.huggingface.odd_texts import ODD, ODD_MASKED
from maelm_fairseq.vocabulary import MASK

pytest.importorskip("tokenizers")

from maelm_fairseq.huggingface import tokenizer as huggingface  # noqa: E402

SYMBOLS = [
    *".,!?'\"-()\u2026\u00bd\u2122",
    "...",
    "1999",
    "1,000",
    "3.5",
    "don't",
    "\u00e9t\u00e9",
    "\u00c7a",
    "x\u0301",
]


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


def vocabulary(folder, name="nmt_nfkc_cf", kind="bpe", **options):
    """Trains a SentencePiece model into a new folder, with its dict.txt; returns the folder."""
    folder.mkdir()
    options = {"vocab_size": 180, "hard_vocab_limit": False, "minloglevel": 2, "character_coverage": 0.9995, **options}
    with open(folder / "sentencepiece.model", "wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text(1)),
            model_writer=writer,
            model_type=kind,
            normalization_rule_name=name,
            **options,
        )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    (folder / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabularies")
    return {
        "lowercased": vocabulary(folder / "lowercased"),
        "cased": vocabulary(folder / "cased", "nmt_nfkc"),
        "bytes": vocabulary(folder / "bytes", byte_fallback=True, vocab_size=420),
        "unigram": vocabulary(folder / "unigram", kind="unigram"),
    }


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


@pytest.mark.parametrize("name", ["lowercased", "cased", "bytes"])
def test_tokens_are_those_of_sentencepiece(vocabularies, tmp_path, name):
    made = huggingface.write_tokenizer(tmp_path, vocabularies[name], 512)
    encode = huggingface.reference(vocabularies[name])
    lines = text(2)
    texts = [*lines, *masked(lines, 3), *ODD, *ODD_MASKED, *(unicodedata.normalize("NFD", line) for line in lines[:50])]
    for a, b in zip(texts, [*reversed(texts[1:]), ""]):
        assert made.encode(a).ids == encode(a), a
        assert made.encode(a, b).ids == encode(a, b), (a, b)
    assert huggingface.check_tokenizer(made, encode, lines) > len(lines) + len(ODD)
    assert [made.token_to_id(symbol) for symbol in ["<s>", "<pad>", "</s>", "<unk>"]] == [0, 1, 2, 3]
    assert (
        made.token_to_id(MASK)
        == made.get_vocab_size() - 1
        == len(open(vocabularies[name] / "dict.txt").readlines()) + 4
    )


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("name", ["lowercased", "cased", "bytes"])
def test_tokens_of_control_characters(vocabularies, tmp_path, name, runs):
    made = huggingface.write_tokenizer(tmp_path, vocabularies[name], 384, runs=runs)
    encode = huggingface.reference(vocabularies[name], runs=runs)
    characters = [*"kanlo 15.,", *"\x01\x07\x1f\x7f\x8f\x80", "\u0301", "\xad", "\u200b", "\u4e2d", "\ufb01"]
    rng = random.Random(1)
    texts = ["bell\x07", "be\x07ll", "\x07bell", "1\x07bell", "a \x07 b", "\x07", "\x07 a"]
    texts += ["".join(rng.choices(characters, k=rng.randint(1, 8))) for _ in range(2000)]
    exceptions = 0
    for line in texts:
        if huggingface.is_exception(line, runs):
            exceptions += 1
        else:
            assert made.encode(line).ids == encode(line), ascii(line)
    assert exceptions < 0.1 * len(texts)


@pytest.mark.parametrize("name", ["lowercased", "cased"])
def test_tokens_with_runs_are_those_of_question_answering(vocabularies, tmp_path, name):
    made = huggingface.write_tokenizer(tmp_path, vocabularies[name], 384, runs=True)
    encode = huggingface.reference(vocabularies[name], runs=True)
    lines = text(4)
    for line in [
        *lines,
        "In 1999, (B2B) 4x4... wait\u2026 \u2122\u00bd",
        " x\u0301y \u2581 \u00a8a",
        "\u0438\u0306\u043e1\u0301",
    ]:
        assert made.encode(line).ids == encode(line), line
    without = huggingface.write_tokenizer(tmp_path, vocabularies[name], 384)
    assert sum(without.encode(line).ids != encode(line) for line in lines) > len(lines) / 10
    huggingface.check_tokenizer(made, encode, lines, runs=True)
    with pytest.raises(UsageError):
        huggingface.check_tokenizer(without, encode, lines, runs=True)


@pytest.mark.parametrize("runs", [False, True])
def test_offsets_slice_the_text_and_tokens_decode_to_it(vocabularies, tmp_path, runs):
    made = huggingface.write_tokenizer(tmp_path, vocabularies["lowercased"], 512, runs=runs)
    line = "Kan Losh, mila (1999) don't rupo!"
    encoded = made.encode(line)
    joined = ""
    for token, (begin, end) in list(zip(encoded.tokens, encoded.offsets))[1:-1]:
        if token != "<unk>":
            assert line[begin:end].strip().lower() == token.lstrip("\u2581"), token
        joined += line[begin:end]
    assert joined == line
    assert made.decode(made.encode("kan losh mila").ids) == "kan losh mila"


def test_bytes_decode(vocabularies, tmp_path):
    made = huggingface.write_tokenizer(tmp_path, vocabularies["bytes"], 512)
    encoded = made.encode("kan \u4e2d\U0001f600 losh")
    assert made.token_to_id("<unk>") not in encoded.ids
    assert made.decode(encoded.ids) == "kan \u4e2d\U0001f600 losh"


def test_unigram_models_get_a_warning(vocabularies, tmp_path, capsys):
    made = huggingface.write_tokenizer(tmp_path, vocabularies["unigram"], 512)
    huggingface.check_tokenizer(made, huggingface.reference(vocabularies["unigram"]), text(5))
    assert capsys.readouterr().err.startswith("warning: a Unigram model: ")


def test_unigram_models_may_differ_in_one_text_of_a_hundred(vocabularies, tmp_path):
    made = huggingface.write_tokenizer(tmp_path, vocabularies["unigram"], 512)
    encode = huggingface.reference(vocabularies["unigram"])
    lines = text(5)
    huggingface.check_tokenizer(made, lambda a, b=None: [*encode(a, b), *[0] * (a == lines[1])], lines)
    with pytest.raises(UsageError, match="get other tokens"):
        huggingface.check_tokenizer(made, lambda a, b=None: [*encode(a, b), *[0] * (a in lines[:20])], lines)


def test_a_difference_is_named(vocabularies, tmp_path):
    made = huggingface.write_tokenizer(tmp_path, vocabularies["cased"], 512)
    encode = huggingface.reference(vocabularies["lowercased"])
    with pytest.raises(
        UsageError, match=r"tokenizer.json: .* texts get other tokens .* 'Kan' gives <s> .* expected <s>"
    ):
        huggingface.check_tokenizer(made, encode, ["Kan"])
    same = huggingface.reference(vocabularies["cased"])
    with pytest.raises(UsageError, match="1 of .* texts .*'kan losh' with 'mila' gives"):
        huggingface.check_tokenizer(
            made, lambda a, b=None: [*same(a, b), *[0] * ((a, b) == ("kan losh", "mila"))], ["kan losh", "mila", "se"]
        )


def test_known_exceptions_are_no_difference(vocabularies, tmp_path):
    made = huggingface.write_tokenizer(tmp_path, vocabularies["lowercased"], 512)
    encode = huggingface.reference(vocabularies["lowercased"])
    lines = ["kan <s> losh", "<unk></s>", "a\x85b", "\u00c7\u0301a"]
    assert any(made.encode(line).ids != encode(line) for line in lines)
    huggingface.check_tokenizer(made, encode, lines)


def test_lines_are_those_that_the_data_keeps(tmp_path):
    assert huggingface.sample_lines(tmp_path) == []
    for name, count in [("train", 500), ("valid", 600)]:
        record = {"sample": [[i, f"{name} {i}"] for i in range(count)]}
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    lines = huggingface.sample_lines(tmp_path)
    assert len(lines) == 1000 and lines[0] == "train 0" and lines[-1] == "valid 499"


def test_wrong_vocabularies_are_refused(vocabularies, tmp_path):
    folder = tmp_path / "data"
    with pytest.raises(MissingFileError, match="dict.txt: not found"):
        huggingface.write_tokenizer(tmp_path, folder, 512)
    folder.mkdir()
    (folder / "dict.txt").write_bytes((vocabularies["cased"] / "dict.txt").read_bytes())
    with pytest.raises(MissingFileError, match="sentencepiece.model: not found"):
        huggingface.write_tokenizer(tmp_path, folder, 512)
    (folder / "sentencepiece.model").write_bytes((vocabularies["lowercased"] / "sentencepiece.model").read_bytes())
    with pytest.raises(UsageError, match="differ from those of the dict.txt"):
        huggingface.write_tokenizer(tmp_path, folder, 512)
    assert not (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kind": "char"}, "words or characters"),
        ({"name": "identity"}, "does not normalise"),
        ({"add_dummy_prefix": False}, "does not mark the beginning"),
        ({"remove_extra_whitespaces": False}, "keeps extra spaces"),
        ({"treat_whitespace_as_suffix": True}, "marks the ends of words"),
        ({"user_defined_symbols": ["<br>"]}, "user-defined pieces"),
    ],
)
def test_models_that_the_file_cannot_hold_are_refused(tmp_path, options, message):
    if options.get("kind") == "char":
        options = {**options, "vocab_size": 40}
    with pytest.raises(UsageError, match=f"sentencepiece.model: .*{message}.*data-prep/prepare.sh"):
        huggingface.write_tokenizer(tmp_path, vocabulary(tmp_path / "data", **options), 512)


@pytest.mark.parametrize("python", TRANSFORMERS)
def test_transformers_gives_the_same_tokens(vocabularies, tmp_path, python):
    cases = {}
    for name, runs in [("lowercased", False), ("cased", False), ("bytes", False), ("lowercased", True)]:
        folder = tmp_path / f"{name}-{runs}"
        folder.mkdir()
        huggingface.write_tokenizer(folder, vocabularies[name], 512, runs)
        encode = huggingface.reference(vocabularies[name], runs)
        texts = text(6, 10) + ([] if runs else ODD + ODD_MASKED)
        pairs = [(a, b) for a, b in zip(texts, texts[::-1]) if b]  # to transformers an empty second text is none
        cases[str(folder)] = {
            "texts": texts, "ids": [encode(line) for line in texts],
            "pairs": pairs, "pair_ids": [encode(a, b) for a, b in pairs],
        }  # fmt: skip
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    script = """
import json, sys
from transformers import AutoTokenizer
for folder, case in json.load(open(sys.argv[1])).items():
    made = AutoTokenizer.from_pretrained(folder)
    for again in (False, True):
        for line, ids in zip(case["texts"], case["ids"]):
            assert made(line)["input_ids"] == ids, (folder, line, made(line)["input_ids"], ids)
        for (a, b), ids in zip(case["pairs"], case["pair_ids"]):
            assert made(a, b)["input_ids"] == ids, (folder, a, b)
        batch = made(case["texts"][:8], padding=True)
        assert sorted(batch) == ["attention_mask", "input_ids"]
        names = ["bos", "pad", "eos", "unk", "mask", "cls", "sep"]
        assert [getattr(made, f"{name}_token_id") for name in names] == [0, 1, 2, 3, len(made) - 1, 0, 2]
        assert made.model_max_length == 512 and len(made(["word " * 999], truncation=True)["input_ids"][0]) == 512
        made.save_pretrained(folder + "-again")
        made = AutoTokenizer.from_pretrained(folder + "-again")
print("same")
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", script, str(tmp_path / "cases.json")],
        env={**environment, "HF_HUB_OFFLINE": "1"}, cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("same\n"), done.stdout[-3000:]
