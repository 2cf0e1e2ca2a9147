"""Vocabularies of byte-level BPE, as of `roberta-base`: from a folder of transformers to data, a model, and back.

What transformers makes of the folders is in test_huggingface_transformers.py.
"""

import json
import os

import numpy as np
import pytest
import tokenizers
import torch

from conftest import refused, refuses, script, succeed
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
from maelm_fairseq.base.byte_pairs import BytePair
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.subwords import MASK, SPECIAL, word_sequences
from maelm_fairseq.base.vocabulary_files import read_subwords
from maelm_fairseq.finetuning.squad import span_of
from maelm_fairseq.finetuning.squad_files import Answer, Question
from maelm_fairseq.finetuning.windows import pieces_of
from maelm_fairseq.huggingface import export
from maelm_fairseq.huggingface.edge_cases import EDGE_CASES, EDGE_CASES_WITH_MASK
from maelm_fairseq.huggingface.import_roberta import import_roberta
from maelm_fairseq.huggingface.tokenizer import check_tokenizer, write_tokenizer
from maelm_fairseq.masking import Masking, MaskSettings
from maelm_fairseq.vocabulary import load_dictionary, word_starts
from test_huggingface_tokenizer import text

WORDS = ["cytokine", "kanlo", "gr\u00f6\u00dfe", "kanlo"]


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    return byte_level_roberta(tmp_path_factory.mktemp("roberta"), text(1))


@pytest.fixture(scope="module")
def extended(roberta, tmp_path_factory):
    """Data with more words in the vocabulary, and an import with more positions."""
    theirs, folder = roberta[0], tmp_path_factory.mktemp("extended")
    (folder / "words.txt").write_text("\n".join([*WORDS, ""]), encoding="utf-8")
    (folder / "text.txt").write_text(" cytokine and kanlo , (kanlo)\n\nkanlo\n", encoding="utf-8")
    texts = [word for option in ["--train", "--valid"] for word in [option, folder / "text.txt"]]
    options = ["--vocabulary", theirs / "tokenizer.json", "--add-tokens", folder / "words.txt"]
    done = script("data-prep/prepare.sh", *options, "--dest", folder / "data", *texts)
    assert "words.txt: 3 new tokens" in done.stderr
    program = ["-m", "maelm_fairseq.huggingface.import_roberta", "--extend-positions", 2 * P + 3]
    program += ["--checkpoint", theirs, "--data", folder / "data", "--dest", folder / "checkpoint_last.pt"]
    assert f"--max-positions {2 * P + 3}" in succeed("python", *program, "--decoder-layers", 0)
    return folder


def test_tokens_are_those_of_the_library(roberta):
    theirs, data, model = roberta
    library = tokenizers.Tokenizer.from_file(str(theirs / "tokenizer.json"))
    b, symbols = model.tokenizer.encode("b"), "<s>a</s> <pad>"
    assert model.tokenizer.encode(symbols) == model.tokenizer.encode_lines([symbols])[0].tolist()  # as in pretraining
    for each in [*text(7), *EDGE_CASES, *EDGE_CASES_WITH_MASK, " a", "  a  b"]:
        tokens = model.tokenizer.encode(each)
        assert tokens == library.encode(each, add_special_tokens=False).ids
        assert model.encode(each, "b").tolist() == [0, *tokens, 2, 2, *b, 2]
    assert model.tokenizer.encode_all(["a", MASK]) == [model.tokenizer.encode("a"), [model.mask]]


def test_prepared_text_comes_back(roberta, tmp_path):
    """Even of lines that are written like symbols, and spaces at their ends."""
    lines = ["<s> kan <mask>lo </s>", "  lo  kan ", "\u6f22\u5b57 \U0001f600\u0301", "Kan, don't"]
    (tmp_path / "text.txt").write_text("\n".join([*lines, "", "\u3000", "kan", ""]), encoding="utf-8")
    texts = [word for option in ["--train", "--valid"] for word in [option, tmp_path / "text.txt"]]
    done = script("data-prep/prepare.sh", "--vocabulary", roberta[0], "--dest", tmp_path / "data", *texts)
    assert "unknown 0 of" in done.stdout and "2 documents" in done.stdout
    tokens = np.fromfile(tmp_path / "data" / "train.bin", np.uint16)
    rows = [row[:-1].tolist() for row in np.split(tokens, np.flatnonzero(tokens == 2) + 1) if len(row) > 1]
    assert [roberta[2].decode(torch.tensor(row)) for row in rows] == [*lines, "kan"]
    assert min(map(min, rows)) >= len(SPECIAL) and roberta[2].mask not in sum(rows, [])
    same = script("data-prep/prepare.sh", "--vocabulary", roberta[0], "--dest", tmp_path / "data", *texts)
    assert same.stdout.splitlines()[-1] == str(tmp_path / "data")


def test_words_begin_at_spaces_and_lines(roberta):
    dictionary, tokenizer = load_dictionary(roberta[1]), roberta[2].tokenizer
    lines = ["kan lo, don't", "lo \u6f22\u5b57"]
    block = np.array([0, *(token for line in lines for token in [*tokenizer.encode(line), 2])])
    masking = Masking(MaskSettings(mask_prob=0.5, mask_whole_words=True), dictionary, 1)
    starts = word_starts(dictionary)[block]
    starts[1:] |= np.isin(block[:-1], [0, 2])
    words = np.split(np.arange(1, len(block)), np.flatnonzero(starts[2:]) + 1)
    spelled = [tokenizer.decode(block[word].tolist()).strip() for word in words]
    assert spelled == [*lines[0].split(), "", "lo", "", "\u6f22", "\u5b57", ""]  # a piece each, and the mark alone
    selected = set()
    for index in range(200):
        seen = np.zeros(len(block), bool)
        seen[masking(block, 1, index).context] = True
        selected.update(np.flatnonzero(~seen).tolist())
        assert all(seen[word].all() or not seen[word].any() for word in words)
    assert selected == set(range(1, len(block)))


def test_masks_need_not_be_last(extended):
    """Random tokens are pieces, those after <mask> too; candidates as well."""
    dictionary = load_dictionary(extended / "data")
    mask, N = dictionary.index(MASK), len(dictionary)
    assert mask == N - 4
    masking = Masking(MaskSettings(mask_prob=0.9, random_token_prob=1.0), dictionary, 1)
    drawn = np.concatenate([masking(np.full(999, 9), 1, i).predicted_visible_tokens for i in range(20)])
    assert set(drawn) == set(range(4, N)) - {mask}
    model = hub.from_pretrained(extended, extended / "data")
    (found,) = model.fill_mask(f"kan {MASK}.", topk=N - 5)
    assert {"cytokine", "kanlo", "gr\u00f6\u00dfe"} <= {piece for piece, _ in found}
    assert sum(p for _, p in found) == pytest.approx(1, abs=1e-5)


def test_added_words(roberta, extended):
    """A word stands for itself with the space before it, not for a part of another; text comes back."""
    old, new = roberta[2], hub.from_pretrained(extended, extended / "data")
    words = [new.dictionary[i] for i in range(len(old.dictionary), len(new.dictionary))]
    assert words == ["\u0120cytokine", "\u0120kanlo", "\u0120gr\u00c3\u00b6\u00c3\u0141e"]
    line = "a kanlo, (kanlo) kanlos gr\u00f6\u00dfe;  cytokine"
    names = [new.dictionary[i] for i in new.tokenizer.encode(line)]
    assert names[1:3] == [words[1], ","] and names.count(words[1]) == 1 and names[-1] == words[0] and words[2] in names
    for each in [line, "kanlo", f"gr\u00f6\u00dfe {MASK} kanlo."]:
        assert new.decode(new.encode(each)) == each
    rows, before = new.model.embed_tokens.weight, old.model.embed_tokens.weight
    assert rows[: len(before)].equal(before)
    for i, word in enumerate(["cytokine", "kanlo", "gr\u00f6\u00dfe"]):
        pieces = old.tokenizer.encode(" " + word)
        assert len(pieces) > 1 and torch.allclose(rows[len(before) + i], before[pieces].mean(0), atol=1e-6)
        bias = old.model.lm_head.bias[pieces].mean()
        assert torch.allclose(new.model.lm_head.bias[len(before) + i], bias, atol=1e-6)
    long, short = (each.model.encoder.embed_positions.weight for each in (new, old))
    assert long.equal(torch.cat([short[:1], short[1:], short[1:], short[1:4]]))


def made_from(subwords, folder, **options):
    folder.mkdir()
    return write_tokenizer(folder, subwords, 512, **options)


def test_a_special_token_of_ones_own_is_one_token_everywhere(roberta, tmp_path):
    """In the text of pretraining, for the hub, and in the export, which keeps that it is special."""
    subwords = read_subwords(changed_vocabulary(roberta[0], tmp_path / "theirs", add_special_token))
    drug = subwords.symbols.index("[DRUG]")
    line = "kan [DRUG] losh</s>"
    exported = made_from(subwords, tmp_path / "exported")
    assert subwords.encode_lines([line])[0].tolist().count(drug) == 1
    assert subwords.encode(line).count(drug) == exported.encode(line).ids.count(drug) == 1
    assert subwords.spans(line)[0] == subwords.encode(line)
    assert 2 not in subwords.encode(line)  # `</s>` is text
    assert "[DRUG]" not in exported.decode(exported.encode(line).ids)


@pytest.mark.parametrize("prefix", [False, True])
def test_lists_of_words_have_the_tokens_of_words_in_a_text(roberta, tmp_path, prefix):
    """In the export of a tagger, whatever the file says of a space before texts; others obey the file."""

    def change(file):
        file["pre_tokenizer"]["add_prefix_space"] = prefix

    subwords, words = (
        read_subwords(changed_vocabulary(roberta[0], tmp_path / "theirs", change)),
        "was given losh".split(),
    )
    expected = [0, *(token for tokens in subwords.encode_words(words) for token in tokens), 2]
    exported = made_from(subwords, tmp_path / "tagger", of_words=True)
    assert exported.encode(words, is_pretokenized=True).ids == expected
    assert check_tokenizer(exported, subwords, [], of_words=True) > 50
    other = made_from(subwords, tmp_path / "other")
    assert (other.encode(words, is_pretokenized=True).ids == expected) == prefix
    if not prefix:
        refuses("texts get other tokens than from tokenizer.json", check_tokenizer, other, subwords, [], of_words=True)


@pytest.mark.parametrize("trim", [False, True])
def test_places_of_tokens_are_those_of_the_file(roberta, tmp_path, trim):
    def change(file):
        file["post_processor"]["trim_offsets"] = trim

    theirs = read_subwords(changed_vocabulary(roberta[0], tmp_path / "theirs", change))
    library, line = tokenizers.Tokenizer.from_file(theirs.path), " kan losh  mipo"
    exported = made_from(theirs, tmp_path / "exported")
    assert exported.encode(line).offsets == library.encode(line).offsets
    assert exported.encode(line).ids == library.encode(line).ids


def test_an_added_word_takes_no_other_token(roberta):
    """Such as that of the same letters within words, of a byte, or of a symbol."""
    path, old = roberta[0] / "tokenizer.json", roberta[2].tokenizer
    inside = next(symbol for symbol in old.symbols[300:] if symbol.isascii() and symbol.isalpha() and
                  "\u0120" + symbol not in old.symbols)  # fmt: skip
    known = next(symbol for symbol in old.symbols[300:] if symbol.startswith("\u0120") and symbol[1:].isalpha())
    made = BytePair(path, [inside, "\u00e9", known[1:]])
    assert made.symbols == [*old.symbols, "\u0120" + inside, "\u0120\u00c3\u00a9"]
    assert made.words_added_to(old) == [inside, "\u00e9"] and old.words_added_to(made) is None
    for each in [f"x{inside} {inside}", "caf\u00e9 \u00e9", "<s> <mask>"]:
        assert made.decode(made.encode_lines([each])[0].tolist()) == each
    for word in ["<s>", MASK, "IL-6", "B2B"]:
        refuses(f"{word!r} cannot become a token of .* add words of letters alone", BytePair, path, [word])


def test_an_added_word_is_found_in_normalised_text(roberta, tmp_path):
    contents = unfit(roberta[0], lambda contents: contents.update(normalizer={"type": "Lowercase"}))
    (tmp_path / "tokenizer.json").write_text(contents)
    made = BytePair(tmp_path / "tokenizer.json", ["Zorble"])
    assert made.encode("a Zorble")[-1:] == made.encode("a zorble")[-1:] == [len(made.symbols) - 1]


def test_what_files_may_have_differently_changes_nothing(roberta, tmp_path):
    """Truncation, padding, dropout, and symbols that are not marked as such; decoders and post-processors."""

    def change(contents):
        contents["model"]["dropout"] = 0.5
        contents.update(decoder=None, post_processor=None)
        contents["truncation"] = dict(direction="Right", max_length=3, strategy="LongestFirst", stride=0)
        contents["added_tokens"] = [dict(token, special=False) for token in contents["added_tokens"]]

    (tmp_path / "tokenizer.json").write_text(unfit(roberta[0], change))
    made, old = read_subwords(tmp_path), roberta[2].tokenizer
    assert made.contents() == old.contents()
    line = "<s> Kan lo <pad> losh mipo </s>"
    assert made.encode(line) == old.encode(line) and 1 not in made.encode(line)
    assert made.encode_lines([line])[0].min() > 3 and made.decode(made.encode_lines([line])[0].tolist()) == line
    change = {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    (tmp_path / "tokenizer.json").write_text(unfit(roberta[0], lambda contents: contents.update(change)))
    assert read_subwords(tmp_path).decode(read_subwords(tmp_path).encode("kan lo")) == "kan lo"


def test_added_words_and_positions_go_back(extended, tmp_path):
    export.export(extended, extended / "data", tmp_path / "more")
    assert json.loads((tmp_path / "more/config.json").read_text())["max_position_embeddings"] == 2 * P + 5
    assert read_subwords(tmp_path / "more").symbols == load_dictionary(extended / "data").symbols


def test_fine_tuning_reads_it(roberta):
    tokenizer = roberta[2].tokenizer
    ((tokens, starts),) = word_sequences(tokenizer, ["Kan", "lo,", "\u6f22"], 99)
    assert [tokenizer.symbols[tokens[start]][0] for start in starts] == ["\u0120"] * 3
    context = "kan \u6f22\u5b57 losh"
    pieces = pieces_of(tokenizer, context)
    first, last = span_of(Answer("\u6f22\u5b57", 4), Question("q", "", context, ()), pieces)
    assert context[pieces.begins[first] : pieces.ends[last]] == "\u6f22\u5b57"
    words, features = roberta[2].word_features("kan lo")
    assert words == ["kan", "lo"] and features.isfinite().all()


def unfit(folder, change):
    """A tokenizer.json that is something else."""
    contents = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(contents)
    return json.dumps(contents)


@pytest.mark.parametrize("change, message", [
    (lambda c: c["model"]["vocab"].update({"<s>": 1, "<pad>": 0}) or c["added_tokens"][0].update(id=1)
     or c["added_tokens"][1].update(id=0), "ids 0 to 3 are <pad> <s> </s> <unk>, .* expected <s> <pad> </s> <unk>"),
    (lambda c: c["added_tokens"].pop(), "<mask> is None"),
    (lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), "found BPE of characters, expected byte"),
    (lambda c: c["model"]["vocab"].pop("\u00e9"), "no token for 1 of the 256 bytes"),
    (lambda c: c["model"].update(end_of_word_suffix="</w>"), "the mark '</w>' within words"),
    (lambda c: c.clear(), "expected a tokenizer.json"),
])  # fmt: skip
def test_unfit_tokenizers_are_refused(roberta, tmp_path, change, message):
    (tmp_path / "tokenizer.json").write_text(unfit(roberta[0], change))
    refuses("tokenizer.json: .*" + message, BytePair, tmp_path / "tokenizer.json")


def test_other_kinds_are_refused_by_name(roberta, tmp_path):
    word_piece = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    word_piece.save(str(tmp_path / "tokenizer.json"))
    refuses("found WordPiece of characters, expected byte-level BPE, .* take another", read_subwords, tmp_path)
    os.remove(tmp_path / "tokenizer.json")
    for files, message in [
        ([], "no vocabulary, expected sentencepiece.bpe.model, .* or tokenizer.json$"),
        (["vocab.txt"], "found vocab.txt, WordPiece"),
        (["vocab.json", "merges.txt"], "let transformers write them as tokenizer.json"),
        (["bpe.codes"], "found bpe.codes, fastBPE's"),
    ]:
        for file in files:  # beside those before
            (tmp_path / file).touch()
        refuses(message, read_subwords, tmp_path, error=FileNotFoundError)


def test_options_that_do_not_fit(roberta, extended, prepared, tmp_path):
    theirs, data, _ = roberta
    (tmp_path / "words.txt").write_text("one\ntwo words\n")
    texts = [word for option in ["--train", "--valid"] for word in [option, theirs / "text.txt"]]
    texts += ["--dest", tmp_path / "data", "--add-tokens", tmp_path / "words.txt"]
    line = refused("data-prep/prepare.sh", *texts, "--vocabulary", theirs)
    assert line.endswith("words.txt, line 2: found 'two words', expected one word")
    (tmp_path / "words.txt").write_text("one\n")
    assert "words can be added to a tokenizer.json" in refused("data-prep/prepare.sh", *texts, "--vocabulary", prepared)
    assert "--add-tokens needs a --vocabulary" in refused("data-prep/prepare.sh", *texts)
    with pytest.raises(UsageError, match=f"--extend-positions 9: the checkpoint has {P}, expected as many or more"):
        import_roberta(theirs, data, tmp_path / "short.pt", extend_positions=9)
    fault, dest = "prepared with another vocabulary than .*tokenizer.json", tmp_path / "new.pt"
    refuses(fault, import_roberta, theirs, prepared, dest)
    other = write_checkpoint(tmp_path / "checkpoint", extended / "data", **NO_BIAS, **MLM)
    export.export(other, extended / "data", tmp_path / "theirs")
    refuses(fault, import_roberta, tmp_path / "theirs", data, dest)
