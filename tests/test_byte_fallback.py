"""Vocabularies with a piece for each byte, `<0x00>` to `<0xFF>`, in which no character is unknown."""

import json
import os
import random
import subprocess

import numpy as np
import pytest
import sentencepiece
import torch

from conftest import PYTHON, ROOT, SCRIPTS_ENVIRONMENT, documents, text_of
from maelm_fairseq.masking import Masking, MaskSettings
from maelm_fairseq.squad.answers import LONGEST, ranked_spans
from maelm_fairseq.squad.questions import Answer, Question, read_questions
from maelm_fairseq.squad.text import SpanTokenizer, WindowSizes, place, windows
from maelm_fairseq.vocabulary import MASK, Tokenizer, load_dictionary, load_sentencepiece, word_starts
from test_squad import hard_paragraphs, squad_json

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# As the model normalises them: of one to four bytes, between known letters, at the ends, with spaces, and alone.
TEXTS = ["\u00e7a va ?", "na\u00efve caf\u00e9", "\u6f22\u5b57 kan \u6f22", "\U0001f600\U0001f600 x"]
TEXTS += [
    "\ue000",
    "a\ue000b",
    "<0x41>",
    "</s> <pad> <unk> <s>",
    "\ue000\ue000. \ue000",
    "\u044f\u0437\u044b\u043a",
    "~",
]
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


# Preparation -------------------------------------------------------------------------------------------------------


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


def test_the_manifest_has_the_option_where_it_is_given(prepared, tmp_path):
    folder, options, _ = prepared
    data, others = folder / "data", [*options[1:], "--vocab-size", 170]
    assert json.loads((data / "prepare.json").read_text())["options"]["byte_fallback"] is True
    error = prep("prepare.sh", *arguments(folder, data, *others), status=1)
    assert "--byte-fallback was True and is not given" in error
    if "unigram" in options:
        return
    # Folders from before the option was there have no such key.
    prep("prepare.sh", *arguments(folder, tmp_path / "old", "--only-vocabulary", *others))
    manifest = json.loads((tmp_path / "old" / "prepare.json").read_text())
    assert set(manifest["options"]) == {"shards", "vocab_size", "model_type", "lowercase", "sample_lines"}
    error = prep("prepare.sh", *arguments(folder, tmp_path / "old", *others, "--byte-fallback"), status=1)
    assert "--byte-fallback was not given and is True" in error
    assert not set(BYTES) & set((tmp_path / "old" / "dict.txt").read_text(encoding="utf-8").split())


def test_a_trained_model_and_the_steps_alone(prepared, tmp_path):
    folder, options, _ = prepared
    model = folder / "data" / "sentencepiece.model"
    inputs = arguments(folder, tmp_path / "data")[3:]
    error = prep("prepare.sh", *inputs, "--spm-model", model, "--byte-fallback", status=1)
    assert "--byte-fallback is for training a model, but --spm-model gives a trained one" in error
    assert "unknown 0 of" in prep("prepare.sh", *inputs, "--spm-model", model)
    assert (tmp_path / "data" / "valid.bin").read_bytes() == (folder / "data" / "valid.bin").read_bytes()
    kept = ["--vocab-size", 400, "--lowercase", *options]
    prep("train_sentencepiece.py", "--input", folder / "train.txt", "--output", tmp_path / "again.model", *kept)
    assert (tmp_path / "again.model").read_bytes() == model.read_bytes()


def test_a_vocabulary_without_room_for_the_bytes(prepared, tmp_path):
    options = arguments(prepared[0], tmp_path / "data", "--byte-fallback", "--vocab-size", 100)
    error = prep("prepare.sh", *options, status=1)
    assert "--vocab-size 100 is too small for the characters in this text" in error
    assert int(error.split()[-1]) > 259


def test_data_read_back_are_the_lines(data):
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(data / "dict.txt"))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(data / "sentencepiece.model"))
    found = data_utils.load_indexed_dataset(str(data / "valid"), dictionary)
    for row, line in zip(found, LINES + TEXTS):
        ids = row.tolist()
        assert ids[:-1] == [i + 1 for i in processor.encode(line)] and ids[-1] == dictionary.eos()
        assert dictionary.unk() not in ids
        assert processor.decode([i - 1 for i in ids[:-1]]) == processor.normalize(line).replace("\u2581", " ").strip()


# Text to tokens and back -------------------------------------------------------------------------------------------


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


def without_bytes(folder, lines, size, **options):
    """The tokenizer of a BPE model that knows nothing but these lines."""
    with open(folder / "sentencepiece.model", "wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=writer, vocab_size=size, model_type="bpe", minloglevel=2,
            **options,
        )  # fmt: skip
    prep("write_dict.py", "--spm-model", folder / "sentencepiece.model", "--output", folder / "dict.txt")
    dictionary = load_dictionary(folder)
    return Tokenizer(dictionary, load_sentencepiece(str(folder / "sentencepiece.model"), dictionary))


@pytest.mark.parametrize("typed", ["</s>", "<pad>", "<s>", "<unk>", "\uff1cmask>", "<0x41>"])
def test_symbols_that_are_typed_never_become_special_tokens(tmp_path, typed):
    """Also without bytes, where the vocabulary has none of their letters."""
    lines = ["\u03b1\u03b2\u03b3 \u03b4\u03b5 \u03b1\u03b2", "\u03b3\u03b4 \u03b5\u03b1"]
    tokenizer = without_bytes(tmp_path, lines, 12)
    for before in ["", "\u03b1\u03b2 ", MASK]:
        *others, last = names(tokenizer, before + typed)
        assert last == "<unk>" and set(others) <= {"\u2581", "\u2581\u03b1\u03b2", MASK}
        assert others.count(MASK) == before.count(MASK)


def test_a_vocabulary_with_characters_for_private_use(tmp_path):
    """Such as fonts of icons have."""
    lines = ["kan \ue000. lo \ue000. mi", "\ue000.", "\ue001 kan."]
    tokenizer = without_bytes(tmp_path, 50 * lines, 24, hard_vocab_limit=False, split_by_unicode_script=False)
    assert any("\ue000." in symbol for symbol in tokenizer.dictionary.symbols)
    assert names(tokenizer, MASK + ".") == [MASK, "."]
    assert "".join(names(tokenizer, MASK + "\ue000.")) == MASK + "\ue000."


# Words -------------------------------------------------------------------------------------------------------------


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


def test_using_a_model_from_python(tokenizer, data):
    from maelm_fairseq.hub import MaeLm

    class Encoder(torch.nn.Module):
        """Features are the tokens themselves."""

        embed_tokens = torch.nn.Embedding(1, 1)

        def max_positions(self):
            return 512

        def forward_encoder(self, tokens, padded, hidden):
            return tokens[..., None].float()

    model = MaeLm(Encoder(), tokenizer.dictionary, tokenizer, data)
    tokens = model.encode(["\u00c7a va ?", "kan"], ["\u6f22", "</s>"])
    assert model.decode(tokens) == ["\u00e7a va ? \u6f22", "kan </s>"]
    words, features = model.word_features("\u00c7a \u6f22\u5b57 kan")
    assert words == ["\u00c7a", "\u6f22\u5b57", "kan"] and not features.isnan().any()


# Fine-tuning data --------------------------------------------------------------------------------------------------


def test_answers_come_back_as_the_same_string(data, tmp_path):
    paragraphs = hard_paragraphs(5)
    files = {name: squad_json(tmp_path / f"{name}.json", paragraphs) for name in ["train", "dev"]}
    printed = prep(
        "squad.sh", *(word for name in files for word in ["--" + name, files[name]]), "--vocabulary", data,
        "--dest", tmp_path / "squad", "--max-tokens", 200,
    )  # fmt: skip
    assert "train: 0 labels wider than the answer" in printed and "train: 0 questions without windows" in printed
    dictionary = load_dictionary(data)
    tokenizer = SpanTokenizer(load_sentencepiece(str(data / "sentencepiece.model"), dictionary))
    byte_first = 0
    for question in read_questions(files["train"]):
        (answer,) = question.answers
        context = tokenizer.encode(question.context)
        assert dictionary.unk() not in context.tokens
        (first, last), exact = place(answer, question, context)
        begin, end = context.characters(first, last)
        assert exact and (begin, question.context[begin:end]) == (answer.start, answer.text)
        byte_first += dictionary[context.tokens[first]] in BYTES
        found = [window.label((first, last)) for window in windows(context, context, WindowSizes(4000))]
        assert found == [(len(context.tokens[:64]) + 3 + first, len(context.tokens[:64]) + 3 + last)]
    assert byte_first > 50


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


def test_places_of_characters_that_are_bytes(data):
    tokenizer = SpanTokenizer(sentencepiece.SentencePieceProcessor(model_file=str(data / "sentencepiece.model")))
    rng = random.Random(1)
    alphabet = list("kan losh. ,5 ~<>\u00e9\u6f22\U0001f600\ue000\ufb01\u00c7\u200b") + ["e\u0301"]
    for _ in range(300):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 12)))
        pieces = tokenizer.encode(text)
        assert 3 not in pieces.tokens
        assert (np.diff(pieces.begins) >= 0).all() and (np.diff(pieces.ends) >= 0).all()
        covered = {i for b, e in zip(pieces.begins, pieces.ends) for i in range(b, e)}
        assert covered >= {i for i, character in enumerate(text) if tokenizer.kind(character) not in ["space", "mark"]}
    text = "kan\u00c7a (\u6f22\u5b57) \U0001f600"
    context = tokenizer.encode(text)
    for character in "\u6f22\u5b57\U0001f600":
        start = text.index(character)
        (first, last), exact = place(Answer(character, start), Question("q", "", text, ()), context)
        if character != "\u6f22\u5b57":
            assert exact and last - first + 1 == len(character.encode())


def test_glue(data, tmp_path):
    rows = ["sentence\tlabel", *(f"{line}\t{i % 2}" for i, line in enumerate(LINES + TEXTS))]
    (tmp_path / "glue" / "own").mkdir(parents=True)
    for name in ["train.tsv", "dev.tsv"]:
        (tmp_path / "glue" / "own" / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    printed = prep(
        "glue.sh", "--input", tmp_path / "glue", "--vocabulary", data, "--dest", tmp_path / "out", "--task", "own",
        "--max-tokens", 12,
    )  # fmt: skip
    assert "warning" not in printed and printed.count("0.00% of the tokens unknown") == 2
    record = json.loads((tmp_path / "out" / "own" / "task.json").read_text(encoding="utf-8"))
    assert record["splits"]["train"]["cut"] > 0 and record["splits"]["train"]["unknown"] == 0
    assert os.path.getsize(tmp_path / "out" / "own" / "input0" / "train.bin") > 0
