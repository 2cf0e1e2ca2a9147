"""What the hub's functions say about arguments that are no texts, pairs of texts, or tokens."""

import pathlib
import re

import numpy as np
import pytest
import torch

from conftest import documents, text_of
from maelm_fairseq import hub
from maelm_fairseq.errors import UsageError
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import Tokenizer, load_dictionary
from test_hub import write_vocabulary

POSITIONS = 40
SIZES = dict(encoder_layers=1, decoder_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=8)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untrained model that does everything: decoder, language-model head, and a head for pairs of texts."""
    folder = tmp_path_factory.mktemp("hub") / "data"
    processor = write_vocabulary(folder, text_of(documents(60, 1)), 90)
    (folder / "input1").mkdir()
    (folder / "label").mkdir()
    (folder / "label" / "dict.txt").write_text("yes 1\nno 1\n")
    dictionary = load_dictionary(folder)
    torch.manual_seed(1)
    cfg = MaeLmConfig(**SIZES, encoder_attention_heads=2, max_positions=POSITIONS)
    made = MaeLmModel(cfg, dictionary, pretraining=True).eval()
    made.register_classification_head("topic", num_classes=2)
    return hub.MaeLm(made.eval(), dictionary, Tokenizer(dictionary, processor), str(folder))


# A wrong value, and how a message must describe it or, within a list, its first wrong element with its place.
NO_TEXT = {
    "number": (3, "", r"int \(3\)"),
    "fraction": (2.5, "", r"float \(2.5\)"),
    "bool": (True, "", r"bool \(True\)"),
    "bytes": (b"kan", "", r"bytes \(b'kan'\)"),
    "bytearray": (bytearray(b"kan"), "", "bytearray "),
    "set": ({"kan"}, "", r"set \(\{'kan'\}\)"),
    "frozenset": (frozenset(["kan"]), "", "frozenset "),
    "dict": ({"kan": "lon"}, "", "dict "),
    "keys": ({"kan": "lon"}.keys(), "", "dict_keys "),
    "object": (object(), "", "object "),
    "class": (str, "", "type "),
    "tensor": (torch.tensor([0.5]), "", r"a tensor of float32 \(1,\)"),
    "surrogate": ("kan \ud83d", "", r"U\+D83D at 4|str "),  # where a list is expected, it is any string
    "low surrogate": ("\udc00", "", r"U\+DC00 at 0|str "),
    "path": (pathlib.Path("kan"), "", "PosixPath "),
}
NO_TEXT_WITHIN = {
    "None within": (["kan", None], "[1]", "None"),
    "number within": (["kan", 3], "[1]", r"int \(3\)"),
    "bytes within": (("kan", b"lon"), "[1]", r"bytes \(b'lon'\)"),
    "nested": ([["kan"]], "[0]", r"list \(\['kan'\]\)"),
    "mixed": (["kan", ["lon", "mi"]], "[1]", r"list \(\['lon', 'mi'\]\)"),
    "tuples": ([("kan", "lon")], "[0]", "tuple "),
    "set within": (["kan", {"lon"}], "[1]", "set "),
    "surrogate within": (["kan", "lo\udfffn"], "[1]", r"U\+DFFF at 2"),
    "array": (np.array([["kan", "lon"]]), "[0]", "ndarray "),
    "numbers": (range(2), "[0]", r"int \(0\)"),
}
LISTS = {**NO_TEXT, **NO_TEXT_WITHIN}
# For a string alone a list is one wrong value.
TEXTS = {**NO_TEXT, **{name: (value, "", r"\w+ \(") for name, (value, _, _) in NO_TEXT_WITHIN.items()}}
NONE = {"None": (None, "", "None")}
# A function, how it is called with a wrong value, the argument that the message must name, and the wrong values.
PLACES = {
    "encode": (lambda m, x: m.encode(x), "text", {**NONE, **LISTS}),
    "encode with a pair": (lambda m, x: m.encode(x, "kan"), "text", {**NONE, **NO_TEXT}),
    "encode with pairs": (lambda m, x: m.encode(x, ["kan", "lon"]), "text", {**NONE, **LISTS}),
    "encode, pair": (lambda m, x: m.encode("kan", x), "pair", TEXTS),
    "encode, pairs": (lambda m, x: m.encode(["kan", "lon"], x), "pair", LISTS),
    "extract_features": (
        lambda m, x: m.extract_features(x), "texts", {n: v for n, v in {**NONE, **LISTS}.items() if n != "tensor"}
    ),
    "word_features": (lambda m, x: m.word_features(x), "text", {**NONE, **TEXTS}),
    "fill_mask": (lambda m, x: m.fill_mask(x), "text", {**NONE, **TEXTS}),
    "predict": (lambda m, x: m.predict(x), "texts", {**NONE, **LISTS}),
    "predict with a pair": (lambda m, x: m.predict(x, "kan"), "texts", {**NONE, **NO_TEXT}),
    "predict, pair": (lambda m, x: m.predict("kan", x), "pairs", TEXTS),
    "predict, pairs": (lambda m, x: m.predict(["kan", "lon"], x), "pairs", LISTS),
}  # fmt: skip
CASES = [(place, value) for place, (_, _, values) in PLACES.items() for value in values]


@pytest.mark.parametrize("place, kind", CASES)
def test_what_is_not_text_is_named(model, place, kind):
    call, argument, values = PLACES[place]
    value, where, found = values[kind]
    with pytest.raises((TypeError, UsageError)) as raised:
        call(model, value)
    message = str(raised.value)
    assert re.match(re.escape(argument + where) + r" (must be|has half|contains)\b", message), message
    assert re.search(found, message) and re.search("a (list of )?string", message) and "\n" not in message, message
    assert message.isascii()  # a surrogate in it could not be printed


def test_there_are_many_such_cases():
    assert len(CASES) > 250


def test_pairs_that_do_not_belong_to_their_texts(model):
    for function, name, pair in [(model.encode, "text", "pair"), (model.predict, "texts", "pairs")]:
        with pytest.raises(ValueError, match=f"^{pair} has 1 strings and {name} has 2: expected as many"):
            function(["kan", "lon"], ["mi"])
        with pytest.raises(TypeError, match=rf"^{pair} must be a list of strings, as {name} is one, not str \('mi'\)"):
            function(["kan", "lon"], "mi")
        with pytest.raises(TypeError, match=rf"^{pair} must be a string, as {name} is one, not list \(\['mi'\]\)"):
            function("kan", ["mi"])
        with pytest.raises(TypeError, match=rf"^{pair}\[1\] must be a string, not None"):
            function(["kan", "lon"], ["mi", None])
    with pytest.raises(ValueError, match="^text is an empty list, expected at least one text"):
        model.encode([])
    with pytest.raises(ValueError, match="^texts is an empty list, expected at least one text"):
        model.extract_features([])


def test_other_ordered_collections_are_lists(model):
    expected = model.encode(["kan", "lon mi"])
    for texts in [
        ("kan", "lon mi"),
        np.array(["kan", "lon mi"]),
        iter(["kan", "lon mi"]),
        {1: "kan", 2: "lon mi"}.values(),
    ]:
        assert model.encode(texts).equal(expected)


PAD = 1
NO_TOKENS = {  # a wrong tensor, the functions that must refuse it, and what they must say
    "fractions": (torch.tensor([0.0, 5.0, 2.0]), "edh", TypeError, r"not a tensor of float32 \(3,\)"),
    "half": (torch.zeros(3, dtype=torch.float16), "edh", TypeError, r"not a tensor of float16 \(3,\)"),
    "complex": (torch.zeros(3, dtype=torch.complex64), "edh", TypeError, r"not a tensor of complex64 \(3,\)"),
    "bools": (torch.tensor([True]), "edh", TypeError, r"not a tensor of bool \(1,\)"),
    "too high": (torch.tensor([0, 92, 2]), "edh", UsageError, "tokens from 0 to 92, expected 0 to 91"),
    "negative": (torch.tensor([0, -1, 2]), "edh", UsageError, "tokens from -1 to 2, expected 0 to 91"),
    "3-d": (torch.zeros(1, 2, 3, dtype=torch.int64), "edh", UsageError, r"is a tensor of int64 \(1, 2, 3\), expected"),
    "0-d": (torch.tensor(3), "edh", UsageError, r"is a tensor of int64 \(\), expected"),
    "empty": (torch.zeros(0, dtype=torch.int64), "eh", UsageError, "has no tokens .*expected at least one"),
    "no rows": (torch.zeros(0, 3, dtype=torch.int64), "e", UsageError, "has no tokens .*expected at least one"),
    "empty rows": (torch.zeros(3, 0, dtype=torch.int64), "e", UsageError, "has no tokens .*expected at least one"),
    "only padding": (torch.tensor([PAD, PAD]), "eh", UsageError, "has no tokens .*expected at least one"),
    "a row of padding": (torch.tensor([[0, 2], [PAD, PAD]]), "e", UsageError, "^row 1 of texts has no tokens"),
    "left": (torch.tensor([PAD, 0, 5, 2]), "eh", UsageError, "has padding .token 1. before or between its tokens"),
    "interior": (torch.tensor([0, PAD, 5, 2, PAD]), "eh", UsageError, "has padding .token 1. before or between"),
    "a row": (torch.tensor([[0, 5, 2], [0, PAD, 2]]), "e", UsageError, "^row 1 of texts has padding .*at the end only"),
    "left in a row": (torch.tensor([[PAD, 0, 2], [0, 5, 2]]), "e", UsageError, "^row 0 of texts has padding"),
}  # fmt: skip
CALLS = {
    "e": (lambda m, x: m.extract_features(x), "texts"),
    "d": (lambda m, x: m.decode(x), "tokens"),
    "h": (lambda m, x: m.head_logits([torch.tensor([0, 2]), x]), r"tokens\[1\]"),
}


@pytest.mark.parametrize("call, kind", [(call, kind) for kind in NO_TOKENS for call in NO_TOKENS[kind][1]])
def test_tensors_that_are_no_tokens(model, call, kind):
    value, _, error, expected = NO_TOKENS[kind]
    function, argument = CALLS[call]
    with pytest.raises(error, match=expected) as raised:
        function(model, value)
    assert re.search(argument, str(raised.value)) and "\n" not in str(raised.value)


@pytest.mark.parametrize("value", [None, 3, "kan", [0, 5, 2], np.array([0, 5, 2]), [[0, 5], [0, 2]]], ids=repr)
def test_tokens_that_are_no_tensors(model, value):
    with pytest.raises(
        TypeError, match="^tokens must be a tensor of tokens, int64 .T,. or .B, T. as encode.. returns, "
    ):
        model.decode(value)
    with pytest.raises(TypeError, match=r"^tokens(\[0\])? must be a tensor of tokens"):
        model.head_logits(value)


def test_tokens_that_are_right(model):
    tokens = model.encode(["kan lon", "mipo ru sen kan"])
    expected = model.extract_features(tokens)
    wider = torch.nn.functional.pad(tokens, (0, POSITIONS), value=PAD)  # the model has positions for the tokens
    torch.testing.assert_close(model.extract_features(wider)[:, : tokens.size(1)], expected)
    assert model.extract_features(wider)[:, tokens.size(1) :].eq(0).all()
    assert model.extract_features(tokens.int()).equal(expected)
    torch.testing.assert_close(model.head_logits(wider), model.head_logits(tokens))
    assert model.head_logits([]).shape == (0, 2)
    assert model.decode(torch.zeros(0, dtype=torch.int64)) == ""
    # Padding is no text, wherever it is.
    assert model.decode(torch.tensor([PAD, *model.encode("kan lon").tolist()])) == "kan lon"


def test_other_arguments(model):
    for topk in [None, "5", 2.0, [5]]:
        with pytest.raises(TypeError, match="^topk must be a whole number, not "):
            model.fill_mask("<mask>", topk=topk)
    assert len(model.fill_mask("<mask>", topk=np.int64(3))[0]) == 3
    for head in [3, "other", ["topic"], b"topic"]:
        with pytest.raises(ValueError, match=r"^no head .*, the checkpoint has: topic"):
            model.predict("kan", "lon", head=head)
    for path in [None, 3, b"folder", ["folder"]]:
        with pytest.raises(TypeError, match="^checkpoint must be a path, a string or a pathlib.Path, not "):
            hub.from_pretrained(path)
    for path in [3, b"folder", ["folder"]]:
        with pytest.raises(TypeError, match="^data must be a path, a string or a pathlib.Path, not "):
            hub.from_pretrained("folder.pt", data=path)
