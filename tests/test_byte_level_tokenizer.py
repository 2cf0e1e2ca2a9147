"""Vocabularies of byte-level BPE, such as that of `roberta-base`.

They go from a folder of transformers to data and a model, and back. How transformers reads the
folders is in test_huggingface_transformers.py.
"""

import json
import os

import numpy as np
import pytest
import tokenizers
import torch

from conftest import error_of_script, refuses, script, succeed
from huggingface_cases import (
    MLM,
    NO_BIAS,
    P,
    add_special_token,
    byte_level_roberta,
    changed_vocabulary,
    write_checkpoint,
)
from maelm_fairseq import hub
from maelm_fairseq.base.byte_level_tokenizer import ByteLevelTokenizer
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.tokenizer import MASK, SPECIAL_SYMBOLS, word_sequences
from maelm_fairseq.base.vocabulary_files import read_tokenizer
from maelm_fairseq.finetuning.squad import find_span
from maelm_fairseq.finetuning.squad_files import GoldAnswer, Question
from maelm_fairseq.finetuning.windows import pieces_of
from maelm_fairseq.huggingface import export
from maelm_fairseq.huggingface.edge_cases import EDGE_CASES, EDGE_CASES_WITH_MASK
from maelm_fairseq.huggingface.import_roberta import import_roberta
from maelm_fairseq.huggingface.tokenizer import check_tokenizer, write_tokenizer
from maelm_fairseq.masking import Masking, MaskSettings
from maelm_fairseq.vocabulary import dictionary_word_starts, load_dictionary
from vocabularies import text

WORDS = ["cytokine", "kanlo", "gr\u00f6\u00dfe", "kanlo"]


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    return byte_level_roberta(tmp_path_factory.mktemp("roberta"), text(1))


@pytest.fixture(scope="module")
def extended(roberta, tmp_path_factory):
    """Data with more words in the vocabulary, and an import with more positions."""
    theirs = roberta[0]
    folder = tmp_path_factory.mktemp("extended")
    (folder / "words.txt").write_text("\n".join([*WORDS, ""]), encoding="utf-8")
    (folder / "text.txt").write_text(" cytokine and kanlo , (kanlo)\n\nkanlo\n", encoding="utf-8")
    texts = ["--train", folder / "text.txt", "--valid", folder / "text.txt"]
    options = ["--vocabulary", theirs / "tokenizer.json", "--add-tokens", folder / "words.txt"]
    done = script("data-prep/prepare.sh", *options, "--dest", folder / "data", *texts)
    assert "words.txt: 3 new tokens" in done.stderr
    printed = succeed(
        "python", "-m", "maelm_fairseq.huggingface.import_roberta",
        "--extend-positions", 2 * P + 3, "--decoder-layers", 0,
        "--checkpoint", theirs, "--data", folder / "data", "--dest", folder / "checkpoint_last.pt",
    )  # fmt: skip
    assert f"--max-positions {2 * P + 3}" in printed
    return folder


def test_tokens_are_those_of_the_library(roberta):
    theirs, data, model = roberta
    library = tokenizers.Tokenizer.from_file(str(theirs / "tokenizer.json"))
    b = model.tokenizer.encode("b")
    symbols = "<s>a</s> <pad>"
    in_pretraining = model.tokenizer.encode_plain_text([symbols])[0].tolist()
    assert model.tokenizer.encode(symbols) == in_pretraining
    for line in [*text(7), *EDGE_CASES, *EDGE_CASES_WITH_MASK, " a", "  a  b"]:
        tokens = model.tokenizer.encode(line)
        assert tokens == library.encode(line, add_special_tokens=False).ids
        assert model.encode(line, "b").tolist() == [0, *tokens, 2, 2, *b, 2]
    assert model.tokenizer.encode_all(["a", MASK]) == [model.tokenizer.encode("a"), [model.mask_id]]


def test_prepared_text_comes_back(roberta, tmp_path):
    """Even lines that contain the names of symbols, or begin or end with spaces."""
    theirs, _, model = roberta
    lines = ["<s> kan <mask>lo </s>", "  lo  kan ", "\u6f22\u5b57 \U0001f600\u0301", "Kan, don't"]
    raw, data = tmp_path / "text.txt", tmp_path / "data"
    raw.write_text("\n".join([*lines, "", "\u3000", "kan", ""]), encoding="utf-8")
    options = ["--vocabulary", theirs, "--dest", data, "--train", raw, "--valid", raw]
    done = script("data-prep/prepare.sh", *options)
    assert "unknown 0 of" in done.stdout
    assert "2 documents" in done.stdout
    tokens = np.fromfile(data / "train.bin", np.uint16)
    rows = np.split(tokens, np.flatnonzero(tokens == 2) + 1)
    rows = [row[:-1].tolist() for row in rows if len(row) > 1]
    assert [model.decode(torch.tensor(row)) for row in rows] == [*lines, "kan"]
    assert min(map(min, rows)) >= len(SPECIAL_SYMBOLS)
    assert model.mask_id not in sum(rows, [])
    again = script("data-prep/prepare.sh", *options)
    assert again.stdout.splitlines()[-1] == str(data)


def test_words_begin_at_spaces_and_lines(roberta):
    dictionary = load_dictionary(roberta[1])
    tokenizer = roberta[2].tokenizer
    lines = ["kan lo, don't", "lo \u6f22\u5b57"]
    block = [0]
    for line in lines:
        block += [*tokenizer.encode(line), 2]
    block = np.array(block)
    masking = Masking(MaskSettings(mask_prob=0.5, mask_whole_words=True), dictionary, 1)
    starts = dictionary_word_starts(dictionary)[block]
    starts[1:] |= np.isin(block[:-1], [0, 2])
    words = np.split(np.arange(1, len(block)), np.flatnonzero(starts[2:]) + 1)
    spelled = [tokenizer.decode(block[word].tolist()).strip() for word in words]
    # An empty word is the end of a line, or the mark of a space alone.
    assert spelled == [*lines[0].split(), "", "lo", "", "\u6f22", "\u5b57", ""]
    selected = set()
    for index in range(200):
        visible = np.zeros(len(block), bool)
        visible[masking(block, 1, index).context] = True
        selected.update(np.flatnonzero(~visible).tolist())
        assert all(visible[word].all() or not visible[word].any() for word in words)
    assert selected == set(range(1, len(block)))


def test_masks_need_not_be_last(extended):
    """Random tokens and candidates for a mask are pieces, also those after `<mask>`."""
    dictionary = load_dictionary(extended / "data")
    mask = dictionary.index(MASK)
    N = len(dictionary)
    assert mask == N - 4
    masking = Masking(MaskSettings(mask_prob=0.9, random_token_prob=1.0), dictionary, 1)
    block = np.full(999, 9)
    drawn = [masking(block, 1, i).predicted_visible_tokens for i in range(20)]
    assert set(np.concatenate(drawn)) == set(range(4, N)) - {mask}
    model = hub.from_pretrained(extended, extended / "data")
    (candidates,) = model.fill_mask(f"kan {MASK}.", topk=N - 5)
    assert {"cytokine", "kanlo", "gr\u00f6\u00dfe"} <= {piece for piece, _ in candidates}
    assert sum(probability for _, probability in candidates) == pytest.approx(1, abs=1e-5)


def test_added_words(roberta, extended):
    """An added word is a token with the space before it, and no part of other words."""
    old, new = roberta[2], hub.from_pretrained(extended, extended / "data")
    words = [new.dictionary[i] for i in range(len(old.dictionary), len(new.dictionary))]
    assert words == ["\u0120cytokine", "\u0120kanlo", "\u0120gr\u00c3\u00b6\u00c3\u0141e"]
    line = "a kanlo, (kanlo) kanlos gr\u00f6\u00dfe;  cytokine"
    names = [new.dictionary[i] for i in new.tokenizer.encode(line)]
    assert names[1:3] == [words[1], ","]
    assert names.count(words[1]) == 1
    assert names[-1] == words[0]
    assert words[2] in names
    for text_with_words in [line, "kanlo", f"gr\u00f6\u00dfe {MASK} kanlo."]:
        assert new.decode(new.encode(text_with_words)) == text_with_words


def test_weights_of_added_words_and_positions(roberta, extended):
    """Those of a word are the means of its pieces, and positions repeat those of the checkpoint."""
    old, new = roberta[2], hub.from_pretrained(extended, extended / "data")
    rows, old_rows = new.model.embed_tokens.weight, old.model.embed_tokens.weight
    biases, old_biases = new.model.lm_head.bias, old.model.lm_head.bias
    assert rows[: len(old_rows)].equal(old_rows)
    for i, word in enumerate(["cytokine", "kanlo", "gr\u00f6\u00dfe"], start=len(old_rows)):
        pieces = old.tokenizer.encode(" " + word)
        assert len(pieces) > 1
        assert torch.allclose(rows[i], old_rows[pieces].mean(0), atol=1e-6)
        assert torch.allclose(biases[i], old_biases[pieces].mean(), atol=1e-6)
    positions = new.model.encoder.embed_positions.weight
    old_positions = old.model.encoder.embed_positions.weight
    repeated = [old_positions[:1], old_positions[1:], old_positions[1:], old_positions[1:4]]
    assert positions.equal(torch.cat(repeated))


def made_from(tokenizer, folder, **options):
    folder.mkdir()
    return write_tokenizer(folder, tokenizer, 512, **options)


def test_a_special_token_of_ones_own_is_one_token_everywhere(roberta, tmp_path):
    """In the text of pretraining, for the hub, and in the export, where it is still special."""
    tokenizer = read_tokenizer(
        changed_vocabulary(roberta[0], tmp_path / "theirs", add_special_token)
    )
    drug = tokenizer.symbols.index("[DRUG]")
    line = "kan [DRUG] losh</s>"
    exported = made_from(tokenizer, tmp_path / "exported")
    assert tokenizer.encode_plain_text([line])[0].tolist().count(drug) == 1
    assert tokenizer.encode(line).count(drug) == exported.encode(line).ids.count(drug) == 1
    assert tokenizer.encode_with_offsets(line)[0] == tokenizer.encode(line)
    assert 2 not in tokenizer.encode(line)  # `</s>` is text
    assert "[DRUG]" not in exported.decode(exported.encode(line).ids)


@pytest.mark.parametrize("prefix", [False, True])
def test_lists_of_words_have_the_tokens_of_words_in_a_text(roberta, tmp_path, prefix):
    """In the export of a tagger, whatever the file says about a space before texts.

    Other exports obey the file.
    """

    def change(file):
        file["pre_tokenizer"]["add_prefix_space"] = prefix

    tokenizer = read_tokenizer(changed_vocabulary(roberta[0], tmp_path / "theirs", change))
    words = "was given losh".split()
    expected = [0, *sum(tokenizer.encode_words(words), []), 2]
    exported = made_from(tokenizer, tmp_path / "tagger", for_words=True)
    assert exported.encode(words, is_pretokenized=True).ids == expected
    assert check_tokenizer(exported, tokenizer, [], for_words=True) > 50
    other = made_from(tokenizer, tmp_path / "other")
    assert (other.encode(words, is_pretokenized=True).ids == expected) == prefix
    if not prefix:
        message = "texts get other tokens than from tokenizer.json"
        refuses(message, check_tokenizer, other, tokenizer, [], for_words=True)


@pytest.mark.parametrize("trim", [False, True])
def test_places_of_tokens_are_those_of_the_file(roberta, tmp_path, trim):
    def change(file):
        file["post_processor"]["trim_offsets"] = trim

    theirs = read_tokenizer(changed_vocabulary(roberta[0], tmp_path / "theirs", change))
    library = tokenizers.Tokenizer.from_file(theirs.path)
    exported = made_from(theirs, tmp_path / "exported")
    line = " kan losh  mipo"
    assert exported.encode(line).offsets == library.encode(line).offsets
    assert exported.encode(line).ids == library.encode(line).ids


def test_an_added_word_takes_no_other_token(roberta):
    """Such as that of the same letters within words, of a byte, or of a symbol."""
    path = roberta[0] / "tokenizer.json"
    old = roberta[2].tokenizer
    pieces = old.symbols[300:]
    inner_pieces = [piece for piece in pieces if piece.isascii() and piece.isalpha()]
    inside = next(piece for piece in inner_pieces if "\u0120" + piece not in old.symbols)
    first_pieces = [piece for piece in pieces if piece.startswith("\u0120")]
    known_word = next(piece[1:] for piece in first_pieces if piece[1:].isalpha())
    new = ByteLevelTokenizer(path, [inside, "\u00e9", known_word])
    assert new.symbols == [*old.symbols, "\u0120" + inside, "\u0120\u00c3\u00a9"]
    assert new.words_added_to(old) == [inside, "\u00e9"]
    assert old.words_added_to(new) is None
    for line in [f"x{inside} {inside}", "caf\u00e9 \u00e9", "<s> <mask>"]:
        assert new.decode(new.encode_plain_text([line])[0].tolist()) == line
    for word in ["<s>", MASK, "IL-6", "B2B"]:
        message = f"{word!r} cannot become a token of .* add words of letters alone"
        refuses(message, ByteLevelTokenizer, path, [word])


def test_an_added_word_is_found_in_normalised_text(roberta, tmp_path):
    lowercase = {"type": "Lowercase"}
    contents = unfit(roberta[0], lambda contents: contents.update(normalizer=lowercase))
    (tmp_path / "tokenizer.json").write_text(contents)
    tokenizer = ByteLevelTokenizer(tmp_path / "tokenizer.json", ["Zorble"])
    zorble = len(tokenizer.symbols) - 1
    assert tokenizer.encode("a Zorble")[-1] == zorble
    assert tokenizer.encode("a zorble")[-1] == zorble


def test_what_files_may_have_differently_changes_nothing(roberta, tmp_path):
    """Dropout, truncation, symbols that are not marked as such, decoders and post-processors."""

    def change(contents):
        contents["model"]["dropout"] = 0.5
        contents.update(decoder=None, post_processor=None)
        truncation = dict(direction="Right", max_length=3, strategy="LongestFirst", stride=0)
        contents["truncation"] = truncation
        symbols = contents["added_tokens"]
        contents["added_tokens"] = [dict(token, special=False) for token in symbols]

    (tmp_path / "tokenizer.json").write_text(unfit(roberta[0], change))
    new, old = read_tokenizer(tmp_path), roberta[2].tokenizer
    assert new.file_bytes() == old.file_bytes()
    line = "<s> Kan lo <pad> losh mipo </s>"
    assert new.encode(line) == old.encode(line)
    assert 1 not in new.encode(line)
    tokens = new.encode_plain_text([line])[0]
    assert tokens.min() > 3
    assert new.decode(tokens.tolist()) == line


def test_a_space_before_texts_does_not_come_back(roberta, tmp_path):
    options = {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    pre_tokenizer = {"type": "ByteLevel", **options}
    contents = unfit(roberta[0], lambda contents: contents.update(pre_tokenizer=pre_tokenizer))
    (tmp_path / "tokenizer.json").write_text(contents)
    tokenizer = read_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode("kan lo")) == "kan lo"


def test_added_words_and_positions_go_back(extended, tmp_path):
    export.export(extended, extended / "data", tmp_path / "more")
    config = json.loads((tmp_path / "more/config.json").read_text())
    assert config["max_position_embeddings"] == 2 * P + 5
    symbols = load_dictionary(extended / "data").symbols
    assert read_tokenizer(tmp_path / "more").symbols == symbols


def test_fine_tuning_reads_it(roberta):
    tokenizer = roberta[2].tokenizer
    ((tokens, starts),) = word_sequences(tokenizer, ["Kan", "lo,", "\u6f22"], 99)
    assert [tokenizer.symbols[tokens[start]][0] for start in starts] == ["\u0120"] * 3
    context = "kan \u6f22\u5b57 losh"
    pieces = pieces_of(tokenizer, context)
    first, last = find_span(GoldAnswer("\u6f22\u5b57", 4), Question("q", "", context, ()), pieces)
    assert context[pieces.begins[first] : pieces.ends[last]] == "\u6f22\u5b57"
    words, features = roberta[2].word_features("kan lo")
    assert words == ["kan", "lo"]
    assert features.isfinite().all()


def unfit(folder, change):
    """The contents of a folder's tokenizer.json after a change, as text."""
    contents = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(contents)
    return json.dumps(contents)


def swap_the_first_two(contents):
    contents["model"]["vocab"].update({"<s>": 1, "<pad>": 0})
    contents["added_tokens"][0].update(id=1)
    contents["added_tokens"][1].update(id=0)


SWAPPED = "ids 0 to 3 are <pad> <s> </s> <unk>, .* expected <s> <pad> </s> <unk>"
WHITESPACE = {"type": "Whitespace"}


@pytest.mark.parametrize("change, message", [
    (swap_the_first_two, SWAPPED),
    (lambda c: c["added_tokens"].pop(), "<mask> is None"),
    (lambda c: c.update(pre_tokenizer=WHITESPACE), "found BPE of characters, expected byte"),
    (lambda c: c["model"]["vocab"].pop("\u00e9"), "no token for 1 of the 256 bytes"),
    (lambda c: c["model"].update(end_of_word_suffix="</w>"), "the mark '</w>' within words"),
    (lambda c: c.clear(), "expected a tokenizer.json"),
])  # fmt: skip
def test_unfit_tokenizers_are_refused(roberta, tmp_path, change, message):
    (tmp_path / "tokenizer.json").write_text(unfit(roberta[0], change))
    refuses("tokenizer.json: .*" + message, ByteLevelTokenizer, tmp_path / "tokenizer.json")


def test_other_kinds_are_refused_by_name(roberta, tmp_path):
    word_piece = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    word_piece.save(str(tmp_path / "tokenizer.json"))
    message = "found WordPiece of characters, expected byte-level BPE, .* take another"
    refuses(message, read_tokenizer, tmp_path)
    os.remove(tmp_path / "tokenizer.json")
    for files, message in [
        ([], "no vocabulary, expected sentencepiece.bpe.model, .* or tokenizer.json$"),
        (["vocab.txt"], "found vocab.txt, WordPiece"),
        (["vocab.json", "merges.txt"], "let transformers write them as tokenizer.json"),
        (["bpe.codes"], "found bpe.codes, fastBPE's"),
    ]:
        for file in files:  # The files of the cases before stay.
            (tmp_path / file).touch()
        refuses(message, read_tokenizer, tmp_path, error=FileNotFoundError)


def test_options_that_do_not_fit(roberta, extended, prepared, tmp_path):
    theirs, data, _ = roberta
    (tmp_path / "words.txt").write_text("one\ntwo words\n")
    options = ["--train", theirs / "text.txt", "--valid", theirs / "text.txt"]
    options += ["--dest", tmp_path / "data", "--add-tokens", tmp_path / "words.txt"]
    error = error_of_script("data-prep/prepare.sh", *options, "--vocabulary", theirs)
    assert error.endswith("words.txt: line 2: found 'two words', expected one word")
    (tmp_path / "words.txt").write_text("one\n")
    error = error_of_script("data-prep/prepare.sh", *options, "--vocabulary", prepared)
    assert "words can be added to a tokenizer.json" in error
    assert "--add-tokens needs a --vocabulary" in error_of_script("data-prep/prepare.sh", *options)

    message = f"--extend-positions 9: the checkpoint has {P}, expected as many or more"
    with pytest.raises(UsageError, match=message):
        import_roberta(theirs, data, tmp_path / "short.pt", extend_positions=9)
    fault = "prepared with another vocabulary than .*tokenizer.json"
    dest = tmp_path / "new.pt"
    refuses(fault, import_roberta, theirs, prepared, dest)
    other = write_checkpoint(tmp_path / "checkpoint", extended / "data", **NO_BIAS, **MLM)
    export.export(other, extended / "data", tmp_path / "theirs")
    refuses(fault, import_roberta, tmp_path / "theirs", data, dest)
