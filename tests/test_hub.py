"""Using a model from Python."""

import shutil

import numpy as np
import pytest
import torch

from conftest import documents, refuses, script, succeed, text_of
from huggingface_cases import FINE_TUNED, HEADS, write_checkpoint
from labelled import of_fairseq
from maelm_fairseq import hub
from maelm_fairseq.masking import MaskedBatch, MaskedBlock
from test_huggingface_tokenizer import vocabulary

POSITIONS = 32


@pytest.fixture(scope="session")
def folder(pretrained, tmp_path_factory):
    """A folder with a pretraining checkpoint and its vocabulary, and nothing else of its training."""
    data, checkpoint = pretrained
    folder = tmp_path_factory.mktemp("folder")
    for path in [checkpoint, data / "dict.txt", data / "sentencepiece.model"]:
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="session")
def model(folder):
    return hub.from_pretrained(folder)


QUESTIONS = ["kan lo", "ru sen", "ti kan", "kan kan mi", "lon ru mi", "tin sen lon"]


def label_of(text):
    """In the order of fairseq's dictionary of labels, which its task keeps to itself."""
    return {"k": "0", "r": "2"}.get(text[0], "1")


@pytest.fixture(scope="session")
def classifier(folder, model, tmp_path_factory):
    """A tiny classifier of single texts, which fairseq's own task fine-tuned until it fits them."""
    made = tmp_path_factory.mktemp("finetuned")
    for name in ["dict.txt", "sentencepiece.model"]:
        shutil.copy(folder / name, made)
    pieces = [" ".join(model.tokenizer.processor.encode(text, out_type=str)) for text in QUESTIONS]
    printed = succeed(
        "fairseq-train", *of_fairseq(made, 20 * pieces, 20 * [*map(label_of, QUESTIONS)], made / "dict.txt"),
        "--batch-size", 6, "--required-batch-size-multiple", 1, "--lr", 0.005, "--total-num-update", 200, "--dropout",
        0, "--max-update", 60, "--classification-head-name", "topic", "--restore-file", folder / "checkpoint_last.pt",
        "--reset-optimizer", "--reset-lr-scheduler", "--reset-dataloader", "--reset-meters", "--no-epoch-checkpoints",
        "--disable-validation", "--save-dir", made,
    )  # fmt: skip
    assert printed.count("of the checkpoint is not used") == 2  # decoder and language-model head
    return hub.from_pretrained(made)


def names(model, tokens):
    return [model.dictionary[i] for i in tokens.tolist()]


def test_encode(model):
    pieces = model.tokenizer.processor.encode("kan lon", out_type=str)
    others = model.tokenizer.processor.encode("mipo", out_type=str)
    assert names(model, model.encode("Kan lon")) == ["<s>", *pieces, "</s>"]
    assert names(model, model.encode("kan lon", "mipo")) == ["<s>", *pieces, "</s>", "</s>", *others, "</s>"]
    assert names(model, model.encode("<mask>\u2603\ue001kan<mask><mask>"))[1:3] == ["<mask>", "<unk>"]
    batch = model.encode(["mipo", "kan lon kan"], ["lon", "lon"])
    for row, both in zip(batch, [("mipo", "lon"), ("kan lon kan", "lon")]):
        tokens = model.encode(*both)
        assert row[: len(tokens)].equal(tokens) and row[len(tokens) :].eq(model.dictionary.pad()).all()


def test_decode(model):
    assert model.decode(model.encode("kan <mask>lon. mipo <mask>")) == "kan <mask>lon \u2047  mipo <mask>"
    assert model.decode(model.encode(["Kan", "kan lon"], ["mi", "mi"])) == ["kan mi", "kan lon mi"]


@pytest.mark.parametrize("batch_tokens", [1, 20, 10_000])
def test_features_do_not_depend_on_padding_or_batches(model, monkeypatch, batch_tokens):
    monkeypatch.setattr(hub, "BATCH_TOKENS", batch_tokens)
    texts = ["kan lon mipo ru sen", "kan", "kan lon mipo ru sen kan lon mipo ru sen kan"]
    last, layers = model.extract_features(texts), model.extract_features(texts, all_layers=True)
    assert last.shape == (3, layers.size(2), 32) and layers.shape[:2] == (3, 3)
    assert layers[-1].equal(last)
    for i, text in enumerate(texts):
        tokens = model.encode(text)
        alone = model.extract_features(tokens, all_layers=True)
        torch.testing.assert_close(alone[-1], model.extract_features(text), rtol=0, atol=0)
        torch.testing.assert_close(layers[:, i, : len(tokens)], alone, rtol=0, atol=1e-5)
        assert layers[:, i, len(tokens) :].eq(0).all()
        embedded = model.model.embed_tokens(tokens) + model.model.encoder.embed_positions.weight[1 : 1 + len(tokens)]
        torch.testing.assert_close(alone[0], model.model.encoder.norm(embedded), rtol=0, atol=1e-5)


def test_word_features(model):
    text = " Kan  lonmipo, \u2603\tru\u00a0sen "
    words, features = model.word_features(text)
    assert words == ["Kan", "lonmipo,", "\u2603", "ru", "sen"]
    tokens = model.encode(text)
    whole = model.extract_features(tokens)[1:-1]
    starts = [i for i, name in enumerate(names(model, tokens)[1:-1]) if name.startswith("\u2581")]
    assert len(starts) == len(words) and starts != [0, 1, 2, 3, 4]
    for row, begin, end in zip(features, starts, [*starts[1:], len(whole)]):
        torch.testing.assert_close(row, whole[begin:end].mean(0), rtol=0, atol=1e-6)
    assert model.word_features("kan \u0001 lon")[1].isnan().all(1).tolist() == [False, True, False]


def test_vectors_of_texts(model):
    texts = ["kan lon", "", "kan " * 200, "mipo <mask>lon", "ru"]
    vectors = model.embed(texts, truncate=True)
    alone = torch.stack([model.extract_features(text, truncate=True).mean(0) for text in texts])
    assert vectors.dtype == torch.float32 and vectors.shape == (5, 32)
    torch.testing.assert_close(vectors, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(model.embed("kan"), model.extract_features("kan").mean(0))
    for layer, features in enumerate(model.extract_features("kan lo", all_layers=True)):
        torch.testing.assert_close(model.embed("kan lo", layer=layer), features.mean(0))
        unit = model.embed(["kan lo"], normalize=True, layer=layer)[0]
        torch.testing.assert_close(unit, features.mean(0) / features.mean(0).norm())
    refuses("layer 9 must be from 0 to 2, the layers of the encoder", model.embed, "kan", layer=9)
    assert len(model.encode("kan " * 200, truncate=True)) == POSITIONS


def in_pretraining(model, tokens, masked, masks_in_encoder):
    """Logits (K, N) at positions `masked` of tokens (T,), from the batch that pretraining would form."""
    tokens, nothing = tokens.numpy(), masked[:0]
    context = np.setdiff1d(np.arange(len(tokens)), masked)
    shown = (masked, np.full(len(masked), model.mask), nothing) if masks_in_encoder else (nothing, nothing, masked)
    block = MaskedBlock(context, tokens[context], *shown, tokens[masked])
    batch, targets = MaskedBatch.of([block], model.dictionary.pad())
    assert targets[0].tolist() == tokens[masked].tolist()
    with torch.no_grad():
        return model.model(**batch._asdict())[0]


def scored_slowly(model, text, masks_in_encoder, within_words):
    """The bits of a text and its tokens, one position at a time."""
    tokens, bits = model.encode(text), 0.0
    pieces = names(model, tokens)
    for target in range(1, len(tokens) - 1):
        behind = target + 1
        while within_words and behind < len(tokens) - 1 and not pieces[behind].startswith("\u2581"):
            behind += 1
        logits = in_pretraining(model, tokens, np.arange(target, behind), masks_in_encoder)
        bits -= float(logits[0].log_softmax(-1)[tokens[target]]) / np.log(2)
    return bits, len(tokens) - 2


@pytest.mark.parametrize(
    "masks_in_encoder, decoder_layers, shared", [(0, 1, 0), (1, 1, 0), (1, 0, 0), (0, 1, 1), (0, 2, 1), (1, 2, 1)]
)
def test_masks_are_filled_as_in_pretraining(folder, tmp_path, masks_in_encoder, decoder_layers, shared):
    options = dict(decoder_layers=decoder_layers, share_decoder_layers=bool(shared))
    task = {"encoder_mask_fraction": float(masks_in_encoder)}
    model = hub.from_pretrained(write_checkpoint(tmp_path, folder, task=task, **options), folder)
    text = "kan <mask> lon mipo <mask>"
    filled = model.fill_mask(text, topk=4)
    tokens = model.encode(text)
    logits = in_pretraining(model, tokens, np.flatnonzero(tokens == model.mask), masks_in_encoder)
    logits[:, [0, 1, 2, 3, model.mask]] = float("-inf")
    expected = logits.softmax(-1).topk(4)
    assert [[p for _, p in mask] for mask in filled] == [pytest.approx(row) for row in expected.values.tolist()]
    pieces = [[model.dictionary[i].replace("\u2581", "") for i in row] for row in expected.indices.tolist()]
    assert [[piece for piece, _ in mask] for mask in filled] == pieces

    texts = ["kan lon miporusen", "", "rusenkan ti", "kan"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "BATCH_TOKENS", 20)
        scored = {within_words: model.score(texts, within_words) for within_words in [True, False]}
    for within_words, scores in scored.items():
        expected = [scored_slowly(model, text, masks_in_encoder, within_words) for text in texts]
        assert [count for _, count in scores] == [count for _, count in expected]
        assert [bits for bits, _ in scores] == pytest.approx([bits for bits, _ in expected], rel=1e-5)
    assert scored[True][0][0] != scored[False][0][0] and scored[True][1] == (0, 0)
    assert model.score(f"{texts[0]} <mask>")[1] > len(model.encode(texts[0]))  # nothing in it is a symbol
    assert model.score(texts[0]) == pytest.approx(scored[True][0], rel=1e-5)


def test_the_demos_last_step_runs_and_loading_prints_nothing(folder, tmp_path):
    checkpoint = write_checkpoint(tmp_path, folder)  # of longer texts
    done = script("recipes/demo/use_encoder.py", "--checkpoint", checkpoint, "--data", folder, PYTHONWARNINGS="ignore")
    assert done.stderr == "" and done.stdout.startswith("What it fills in:\n")
    assert done.stdout.count("%") == 25 and "finds similar" in done.stdout


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_predictions(classifier, monkeypatch, batch_tokens):
    monkeypatch.setattr(hub, "BATCH_TOKENS", batch_tokens)
    for text, probabilities in zip(QUESTIONS, classifier.predict(QUESTIONS)):
        assert max(probabilities, key=probabilities.get) == label_of(text)
        assert sum(probabilities.values()) == pytest.approx(1)
        assert classifier.predict(text) == pytest.approx(probabilities, abs=1e-5)
    assert classifier.predict([]) == []


def test_pairs(classifier):
    both = classifier.predict(["kan", "lon mi"], ["mipo", "kan"])
    (logits,) = classifier._logits(classifier._head(), [classifier.encode("lon mi", "kan")])
    assert list(both[1].values()) == pytest.approx(logits.softmax(-1).tolist(), abs=1e-5)


def test_heads(folder, model, tmp_path):
    refuses("the checkpoint has no head: predictions need a fine-tuned model", model.predict, "kan")

    def with_heads(*names):
        heads = {name: HEADS[name]() for name in names}
        return hub.from_pretrained(write_checkpoint(tmp_path, folder, heads=heads, **FINE_TUNED), folder)

    refuses("has the heads span, score, expected one", with_heads("span", "score").predict, "kan")
    refuses("the head was fine-tuned on questions: call answer", with_heads("span").predict, "kan")
    refuses("the head was not fine-tuned on questions: call predict", with_heads("score").answer, "kan ?", "kan")
    # Regression: the value of the only output.
    model = with_heads("score")
    head, features = model.model.classification_heads["score"], map(model.extract_features, QUESTIONS)
    expected = [head(each[None]).item() for each in features]
    assert model.predict(QUESTIONS) == pytest.approx(expected, abs=1e-5)


def test_what_is_no_text_is_refused(model, tmp_path):
    for texts in [b"kan", {"kan": 1}, 3]:
        refuses("expected a string or a list of strings", model.encode, texts, error=TypeError)
    refuses(
        "nowhere: not found, expected a checkpoint", hub.from_pretrained, tmp_path / "nowhere", error=FileNotFoundError
    )


def test_vocabularies_refused(folder, tmp_path):
    checkpoint, other = tmp_path / "alone" / "checkpoint_last.pt", tmp_path / "other"
    checkpoint.parent.mkdir()
    shutil.copy(folder / "checkpoint_last.pt", checkpoint)
    refuses("dict.txt: not found: pass data=", hub.from_pretrained, checkpoint, error=FileNotFoundError)
    shutil.copy(folder / "dict.txt", checkpoint.parent)
    missing = "sentencepiece.model: not found, nor tokenizer.json; expected .* if fairseq-preprocess made"
    refuses(missing, hub.from_pretrained, checkpoint, checkpoint.parent, error=FileNotFoundError)
    (checkpoint.parent / "sentencepiece.model").write_text("no model")
    refuses("sentencepiece.model: cannot be read .*expected a Sent", hub.from_pretrained, checkpoint.parent)
    vocabulary(other, vocab_size=80, lines=text_of(documents(60, 1)).splitlines())
    refuses("with another dict.txt: that has 102 symbols and this one 82", hub.from_pretrained, checkpoint, data=other)
    shutil.copy(other / "sentencepiece.model", checkpoint.parent)
    refuses("sentencepiece.model: its 82 symbols differ from those of the dict.txt", hub.from_pretrained, checkpoint)


def test_texts_refused(model, classifier):
    for function in [model.encode, classifier.predict]:
        for texts in [(None,), (["kan", None],), (["kan", "lon"], "mi"), ("kan", ["mi"])]:
            refuses("expected a string", function, *texts, error=TypeError)
        refuses("2 texts and 1 pairs, expected a pair for each text", function, ["kan", "lon"], ["mi"])
    refuses("an empty list, expected at least one text", model.encode, [])
    one_text = [model.fill_mask, model.word_features]
    for function in [*one_text, model.encode, model.embed, model.score, classifier.predict]:
        for text in [None, 5, *[["kan"]] * (function in one_text)]:
            refuses("expected a string", function, text, error=TypeError)
        refuses("unpaired surrogate '.ud800' at position 2 of a text", function, "a \ud800")
    for wrong in ["5", 2.0]:
        refuses("cannot be interpreted as an integer", model.fill_mask, "<mask>", topk=wrong, error=TypeError)
        refuses("cannot be interpreted as an integer", model.embed, "kan", layer=wrong, error=TypeError)
    refuses("tokens must be a tensor of integers", model.embed, torch.ones(3, dtype=torch.complex64), error=TypeError)
    refuses("shorten it or split it", model.word_features, "kan " * 200)
    refuses("no <mask> in 'kan'", model.fill_mask, "kan")
    refuses("topk 0 must be from 1 to 97", model.fill_mask, "<mask>", topk=0)
    refuses("fine-tuned and has no decoder", classifier.fill_mask, "<mask>")
    with pytest.raises(ValueError, match=rf"text 2 of 2 has \d+ tokens, but the model has {POSITIONS} positions"):
        model.extract_features(["kan", "kan " * 200])


@pytest.mark.parametrize("tokens", [[], [1, 1], [1, 0, 5, 2], [0, 1, 2], [0, 102, 2], [0, -1, 2]])
def test_tokens_refused(model, tokens):
    """Padding before or between tokens would shift features and positions."""
    with pytest.raises(ValueError, match="padding .token 1. at the end only|expected 0 to 101"):
        model.extract_features(torch.tensor([tokens], dtype=torch.int64))
