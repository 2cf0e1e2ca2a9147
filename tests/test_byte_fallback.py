"""Vocabularies with a piece for each byte, `<0x00>` to `<0xFF>`, in which no character is unknown."""

import json
import subprocess

import numpy as np
import pytest
import sentencepiece

from conftest import PYTHON, ROOT, SCRIPTS_ENVIRONMENT, documents, text_of
from maelm_fairseq.data.vocabulary import MASK, Tokenizer, load_dictionary, load_sentencepiece, word_starts
from maelm_fairseq.finetuning.squad.answers import LONGEST, ranked_spans
from maelm_fairseq.finetuning.squad.questions import Answer, Question
from maelm_fairseq.finetuning.squad.text import SpanTokenizer, place
from maelm_fairseq.masking import Masking, MaskSettings
from test_hub import write_vocabulary

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# As the model normalises them: of one to four bytes, between known letters, at the ends, with spaces, and alone.
TEXTS = ["\u00e7a va ?", "na\u00efve caf\u00e9", "\u6f22\u5b57 kan \u6f22", "\U0001f600\U0001f600 x", "\ue000", "~"]
TEXTS += ["a\ue000b", "<0x41>", "</s> <pad> <unk> <s>", "\ue000\ue000. \ue000", "\u044f\u0437\u044b\u043a"]
LINES = ["\u00c7a va na\u00efve \u6f22\u5b57.", "<0x41> </s> \ue000", "kan \U0001f600\U0001f600lo \u00c7elik"]


def text():
    """Text of ASCII characters, some of them missing."""
    known = "in (1990) 5% of kan's losh, mipo. 1990, the key is what? \n" * 50
    return text_of(documents(200, 1)) + known.replace("\n", "\n\n")


def prep(name, *arguments, status=0):
    """Runs a program of data-prep/; returns what it printed."""
    done = subprocess.run(
        [ROOT / "data-prep" / name, *map(str, arguments)],
        env=dict(SCRIPTS_ENVIRONMENT, PYTHON=PYTHON), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == status and "Traceback" not in done.stdout, done.stdout
    return done.stdout


def arguments(folder, dest, *more):
    """prepare.sh's, for the files in `folder`."""
    inputs = ["--train", folder / "train.txt", "--valid", folder / "valid.txt", "--dest", dest, "--workers", 2]
    return ["--vocab-size", 400, "--lowercase", *inputs, *more]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def prepared(request, tmp_path_factory):
    """A folder with raw text and `data`, made from it with `--byte-fallback`; and what prepare.sh printed."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "train.txt").write_text(text(), encoding="utf-8")
    (folder / "valid.txt").write_text("".join(line + "\n" for line in LINES + TEXTS), encoding="utf-8")
    options = ["--byte-fallback", "--model-type", request.param]
    if request.param == "unigram":
        options += ["--vocab-size", 310]
    return folder, options, prep("prepare.sh", *arguments(folder, folder / "data", *options))


@pytest.fixture(scope="module")
def data(prepared):
    return prepared[0] / "data"


@pytest.fixture(scope="module")
def tokenizer(data):
    dictionary = load_dictionary(data)
    return Tokenizer(dictionary, load_sentencepiece(str(data / "sentencepiece.model"), dictionary))


def names(tokenizer, text):
    return [tokenizer.dictionary[token] for token in tokenizer.encode(text)]


def test_no_character_is_unknown(prepared):
    folder, options, output = prepared
    data = folder / "data"
    assert output.count("unknown 0 of") == 2 and f"{len(LINES + TEXTS)} lines drawn at random decode" in output
    record = json.loads((data / "valid.json").read_text(encoding="utf-8"))
    assert record["unknown"] == 0 and record["unknown_pieces"] == []
    lines = (data / "dict.txt").read_text(encoding="utf-8").split("\n")
    assert lines[:256] == [name + " 1" for name in BYTES]
    assert "unknown 0 of" in prep("check.py", data)
    # The same command has nothing to do.
    before = {path.name: path.stat().st_mtime_ns for path in data.iterdir()}
    assert prep("prepare.sh", *arguments(folder, data, *options)) == output[output.index(f"{data}/train:") :]
    assert {path.name: path.stat().st_mtime_ns for path in data.iterdir()} == before


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


AFTER_A_MASK = [".", "?", "\u00e4", "\u6f22\u5b57", "\ue000", "\ue000.", "kan", "<0x41>", "~x", "~ x"]


@pytest.mark.parametrize("after", AFTER_A_MASK)
def test_what_touches_a_mask_begins_no_word(tokenizer, after):
    mask, *touching = names(tokenizer, MASK + after)
    assert mask == MASK and not touching[0].startswith("\u2581")
    # No part is lost, unknown, or left of what stood before it.
    assert tokenizer.decode(tokenizer.encode(MASK + after)) == MASK + after
    expected = names(tokenizer, "x" + after)[-len(touching) :] if after != "kan" else touching
    assert touching == expected
    assert names(tokenizer, f"{MASK} {after}") == [MASK, *names(tokenizer, after)]


@pytest.mark.parametrize("typed", ["</s>", "<unk>", "\uff1cmask>", "<0x41>"])
def test_symbols_that_are_typed_never_become_special_tokens(tmp_path, typed):
    """Also without bytes, where the vocabulary has none of their letters."""
    lines = ["\u03b1\u03b2\u03b3 \u03b4\u03b5 \u03b1\u03b2", "\u03b3\u03b4 \u03b5\u03b1"]
    write_vocabulary(tmp_path / "data", "\n".join(lines), 12)
    dictionary = load_dictionary(tmp_path / "data")
    tokenizer = Tokenizer(dictionary, load_sentencepiece(str(tmp_path / "data" / "sentencepiece.model"), dictionary))
    for before in ["", "\u03b1\u03b2 ", MASK]:
        *others, last = names(tokenizer, before + typed)
        assert last == "<unk>" and set(others) <= {"\u2581", "\u2581\u03b1\u03b2", MASK}
        assert others.count(MASK) == before.count(MASK)


def test_the_bytes_of_a_character_are_masked_with_their_word(tokenizer):
    starts = word_starts(tokenizer.dictionary)
    assert not starts[[tokenizer.dictionary.index(name) for name in BYTES]].any()
    line = "kan \u00c7a na\u00efve \U0001f600 \u6f22\u5b57 lo ?"
    tokens = tokenizer.encode(line)
    word = np.cumsum(starts[tokens]) - 1
    spelled = [tokenizer.decode(np.array(tokens)[word == i].tolist()) for i in range(word[-1] + 1)]
    assert spelled == line.lower().split()
    masking = Masking(MaskSettings(mask_prob=0.4, mask_whole_words=True), tokenizer.dictionary, seed=1)
    for index in range(50):
        masked = masking(np.array([0, *tokens]), epoch=1, index=index)
        predicted = np.isin(np.arange(len(tokens)) + 1, masked.masked)
        assert all(len(set(predicted[word == i])) == 1 for i in range(len(spelled)))
        assert 0 < predicted.sum() < len(tokens)


def test_an_answer_of_many_bytes_is_not_cut(data):
    """Its length counts characters, not bytes: the best span is the answer itself, with up to 30 Han characters."""
    tokenizer = SpanTokenizer(sentencepiece.SentencePieceProcessor(model_file=str(data / "sentencepiece.model")))
    for characters, comes_back in [("\u6f22\u5b57", True), ("\u6f22" * 30, True), ("\u6f22" * 31, False)]:
        text = f"kan {characters} losh 1990"
        context = tokenizer.encode(text)
        (first, last), exact = place(Answer(characters, 4), Question("q", "", text, ()), context)
        assert exact and last - first + 1 >= 3 * len(characters)
        start, end = np.zeros(len(context.tokens)), np.zeros(len(context.tokens))
        start[first] = end[last] = 1
        _, *found = next(ranked_spans(start, end, context.lengths(LONGEST)))
        assert (found == [first, last]) == comes_back
    # Pieces of several characters count as before.
    context = tokenizer.encode("kan losh mipo 1990 " * 20)
    assert context.lengths(30).tolist() == [min(30, len(context.tokens) - i) for i in range(len(context.tokens))]
