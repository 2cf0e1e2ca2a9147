"""Using a model from Python."""

import shutil
from functools import partial

import numpy as np
import pytest
import torch

import use_encoder
from conftest import documents, refuses, run_main, script, succeed, text_of
from huggingface_cases import FINE_TUNED, HEADS, write_checkpoint
from labelled import of_fairseq
from maelm_fairseq import hub
from maelm_fairseq.inference import encoding, fine_tuned, mask_prediction
from maelm_fairseq.masking import MaskedBlock, collate
from maelm_fairseq.vocabulary import load_dictionary
from vocabularies import vocabulary

POSITIONS = 32


@pytest.fixture(scope="session")
def folder(pretrained, tmp_path_factory):
    """A folder with a pretraining checkpoint and its vocabulary, but without its data."""
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
    run = tmp_path_factory.mktemp("finetuned")
    for name in ["dict.txt", "sentencepiece.model"]:
        shutil.copy(folder / name, run)
    pieces = [" ".join(model.tokenizer.processor.encode(text, out_type=str)) for text in QUESTIONS]
    labels = [*map(label_of, QUESTIONS)]
    options = of_fairseq(run, 20 * pieces, 20 * labels, run / "dict.txt")
    options += ["--classification-head-name", "topic", "--dropout", 0]
    options += ["--batch-size", 6, "--required-batch-size-multiple", 1]
    options += ["--lr", 0.005, "--total-num-update", 200, "--max-update", 60]
    options += ["--restore-file", folder / "checkpoint_last.pt", "--reset-optimizer"]
    options += ["--reset-lr-scheduler", "--reset-dataloader", "--reset-meters"]
    options += ["--save-dir", run, "--no-epoch-checkpoints", "--disable-validation"]
    printed = succeed("fairseq-train", *options)
    assert printed.count("of the checkpoint is not used") == 2  # decoder and language-model head
    return hub.from_pretrained(run)


def names(model, tokens):
    return [model.dictionary[i] for i in tokens.tolist()]


def test_encode(model):
    pieces = model.tokenizer.processor.encode("kan lon", out_type=str)
    others = model.tokenizer.processor.encode("mipo", out_type=str)
    assert names(model, model.encode("Kan lon")) == ["<s>", *pieces, "</s>"]
    pair = ["<s>", *pieces, "</s>", "</s>", *others, "</s>"]
    assert names(model, model.encode("kan lon", "mipo")) == pair
    odd = names(model, model.encode("<mask>\u2603\ue001kan<mask><mask>"))
    assert odd[1:3] == ["<mask>", "<unk>"]
    batch = model.encode(["mipo", "kan lon kan"], ["lon", "lon"])
    for row, pair in zip(batch, [("mipo", "lon"), ("kan lon kan", "lon")]):
        tokens = model.encode(*pair)
        assert row[: len(tokens)].equal(tokens)
        assert row[len(tokens) :].eq(model.dictionary.pad()).all()


def test_decode(model):
    tokens = model.encode("kan <mask>lon. mipo <mask>")
    assert model.decode(tokens) == "kan <mask>lon \u2047  mipo <mask>"
    batch = model.encode(["Kan", "kan lon"], ["mi", "mi"])
    assert model.decode(batch) == ["kan mi", "kan lon mi"]


@pytest.mark.parametrize("batch_tokens", [1, 20, 10_000])
def test_features_do_not_depend_on_padding_or_batches(model, monkeypatch, batch_tokens):
    monkeypatch.setattr(encoding, "BATCH_TOKENS", batch_tokens)
    texts = ["kan lon mipo ru sen", "kan", "kan lon mipo ru sen kan lon mipo ru sen kan"]
    last = model.extract_features(texts)
    layers = model.extract_features(texts, all_layers=True)
    assert last.shape == (3, layers.size(2), 32)
    assert layers.shape[:2] == (3, 3)
    assert layers[-1].equal(last)
    encoder = model.model.encoder
    for i, text in enumerate(texts):
        tokens = model.encode(text)
        alone = model.extract_features(tokens, all_layers=True)
        torch.testing.assert_close(alone[-1], model.extract_features(text), rtol=0, atol=0)
        torch.testing.assert_close(layers[:, i, : len(tokens)], alone, rtol=0, atol=1e-5)
        assert layers[:, i, len(tokens) :].eq(0).all()
        positions = encoder.embed_positions.weight[1 : 1 + len(tokens)]
        embedded = encoder.norm(model.model.embed_tokens(tokens) + positions)
        torch.testing.assert_close(alone[0], embedded, rtol=0, atol=1e-5)


def test_word_features(model):
    text = " Kan  lonmipo, \u2603\tru\u00a0sen "
    words, features = model.word_features(text)
    assert words == ["Kan", "lonmipo,", "\u2603", "ru", "sen"]
    tokens = model.encode(text)
    whole = model.extract_features(tokens)[1:-1]
    pieces = names(model, tokens)[1:-1]
    starts = [i for i, piece in enumerate(pieces) if piece.startswith("\u2581")]
    assert len(starts) == len(words)
    assert starts != [0, 1, 2, 3, 4]
    for row, begin, end in zip(features, starts, [*starts[1:], len(whole)]):
        torch.testing.assert_close(row, whole[begin:end].mean(0), rtol=0, atol=1e-6)
    _, features = model.word_features("kan \u0001 lon")
    assert features.isnan().all(1).tolist() == [False, True, False]


def test_vectors_of_texts(model):
    texts = ["kan lon", "", "kan " * 200, "mipo <mask>lon", "ru"]
    vectors = model.embed(texts, truncate=True)
    alone = [model.extract_features(text, truncate=True).mean(0) for text in texts]
    assert vectors.dtype == torch.float32
    assert vectors.shape == (5, 32)
    torch.testing.assert_close(vectors, torch.stack(alone), rtol=0, atol=1e-5)
    torch.testing.assert_close(model.embed("kan"), model.extract_features("kan").mean(0))
    for layer, features in enumerate(model.extract_features("kan lo", all_layers=True)):
        mean = features.mean(0)
        torch.testing.assert_close(model.embed("kan lo", layer=layer), mean)
        unit = model.embed(["kan lo"], normalize=True, layer=layer)[0]
        torch.testing.assert_close(unit, mean / mean.norm())
    fault = "layer 9 must be from 0 to 2, the layers of the encoder"
    refuses(fault, model.embed, "kan", layer=9)
    assert len(model.encode("kan " * 200, truncate=True)) == POSITIONS


def in_pretraining(model, tokens, masked, masks_in_encoder):
    """Logits (K, N) at positions `masked` of tokens (T,), from the batch of pretraining."""
    tokens = tokens.numpy()
    nothing = masked[:0]
    context = np.setdiff1d(np.arange(len(tokens)), masked)
    if masks_in_encoder:
        shown = (masked, np.full(len(masked), model.mask_id), nothing)
    else:
        shown = (nothing, nothing, masked)
    block = MaskedBlock(context, tokens[context], *shown, tokens[masked])
    batch, targets = collate([block], model.dictionary.pad())
    assert targets[0].tolist() == tokens[masked].tolist()
    with torch.no_grad():
        return model.model(**batch._asdict())[0]


def scored_slowly(model, text, masks_in_encoder, within_words):
    """The bits of a text and the number of its tokens, computed one position at a time."""
    tokens = model.encode(text)
    pieces = names(model, tokens)
    bits = 0.0
    for target in range(1, len(tokens) - 1):
        end = target + 1
        if within_words:  # the rest of the word is masked, too
            while end < len(tokens) - 1 and not pieces[end].startswith("\u2581"):
                end += 1
        logits = in_pretraining(model, tokens, np.arange(target, end), masks_in_encoder)
        bits -= float(logits[0].log_softmax(-1)[tokens[target]]) / np.log(2)
    return bits, len(tokens) - 2


@pytest.mark.parametrize("masks_in_encoder, decoder_layers, shared", [
    (0, 1, 0), (1, 1, 0), (1, 0, 0), (0, 1, 1), (0, 2, 1), (1, 2, 1)
])  # fmt: skip
def test_masks_are_filled_as_in_pretraining(
    folder, tmp_path, masks_in_encoder, decoder_layers, shared
):
    options = dict(decoder_layers=decoder_layers, share_decoder_layers=bool(shared))
    task = {"encoder_mask_fraction": float(masks_in_encoder)}
    model = hub.from_pretrained(write_checkpoint(tmp_path, folder, task=task, **options), folder)
    check_filled_masks(model, masks_in_encoder)
    check_scores_of_texts(model, masks_in_encoder)


def check_filled_masks(model, masks_in_encoder):
    text = "kan <mask> lon mipo <mask>"
    tokens = model.encode(text)
    masked = np.flatnonzero(tokens == model.mask_id)
    logits = in_pretraining(model, tokens, masked, masks_in_encoder)
    logits[:, [0, 1, 2, 3, model.mask_id]] = float("-inf")  # special symbols fill no mask
    expected = logits.softmax(-1).topk(4)
    filled = model.fill_mask(text, topk=4)
    assert len(filled) == len(masked)
    for mask, probabilities, indices in zip(filled, expected.values, expected.indices):
        assert [p for _, p in mask] == pytest.approx(probabilities.tolist())
        pieces = [piece.replace("\u2581", "") for piece in names(model, indices)]
        assert [piece for piece, _ in mask] == pieces


def check_scores_of_texts(model, masks_in_encoder):
    texts = ["kan lon miporusen", "", "rusenkan ti", "kan"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mask_prediction, "BATCH_TOKENS", 20)
        within_words = model.score(texts, True)
        tokens_alone = model.score(texts, False)
    for scores, is_within_words in [(within_words, True), (tokens_alone, False)]:
        slowly = [scored_slowly(model, text, masks_in_encoder, is_within_words) for text in texts]
        assert [count for _, count in scores] == [count for _, count in slowly]
        assert [bits for bits, _ in scores] == pytest.approx([bits for bits, _ in slowly], rel=1e-5)
    assert within_words[0][0] != tokens_alone[0][0]
    assert within_words[1] == (0, 0)
    # In a text to be scored, <mask> is no symbol.
    assert model.score(f"{texts[0]} <mask>")[1] > len(model.encode(texts[0]))
    assert model.score(texts[0]) == pytest.approx(within_words[0], rel=1e-5)


def test_the_demos_last_step_runs_and_loading_prints_nothing(folder, tmp_path):
    checkpoint = write_checkpoint(tmp_path, folder)  # of longer texts
    options = ["--checkpoint", checkpoint, "--data", folder]
    done = script("recipes/demo/use_encoder.py", *options, PYTHONWARNINGS="ignore")
    assert done.stderr == ""
    assert done.stdout.startswith("What it fills in:\n")
    assert done.stdout.count("%") == 25
    assert "finds similar" not in done.stdout  # no query word is in this vocabulary


def test_the_demos_last_step_shows_similar_words_that_the_vocabulary_has(
    folder, tmp_path, monkeypatch, capsys
):
    checkpoint = write_checkpoint(tmp_path, folder)
    symbols = load_dictionary(str(folder)).symbols
    words = [symbol[1:] for symbol in symbols if symbol.startswith("\u2581") and symbol[1:]]
    monkeypatch.setattr(use_encoder, "QUERY_WORDS", ["film", words[0]])
    run_main(use_encoder.main, "--checkpoint", checkpoint, "--data", folder)
    _, _, similar = capsys.readouterr().out.partition("finds similar, by the cosine")
    (line,) = similar.splitlines()[1:]
    assert line.startswith(f"  {words[0]}: ")
    assert line.count(",") == 4


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_predictions(classifier, monkeypatch, batch_tokens):
    monkeypatch.setattr(encoding, "BATCH_TOKENS", batch_tokens)
    for text, probabilities in zip(QUESTIONS, classifier.predict(QUESTIONS)):
        assert max(probabilities, key=probabilities.get) == label_of(text)
        assert sum(probabilities.values()) == pytest.approx(1)
        assert classifier.predict(text) == pytest.approx(probabilities, abs=1e-5)
    assert classifier.predict([]) == []


def test_pairs(classifier):
    rows = classifier.predict(["kan", "lon mi"], ["mipo", "kan"])
    head = fine_tuned.head_of(classifier)
    (logits,) = fine_tuned.logits_of_texts(classifier, head, [classifier.encode("lon mi", "kan")])
    assert list(rows[1].values()) == pytest.approx(logits.softmax(-1).tolist(), abs=1e-5)


@pytest.fixture
def with_heads(folder, tmp_path):
    """A function: the model with heads of these names, which are untrained."""

    def load(*names):
        heads = {name: HEADS[name]() for name in names}
        return hub.from_pretrained(
            write_checkpoint(tmp_path, folder, heads=heads, **FINE_TUNED), folder
        )

    return load


def test_heads(with_heads, model):
    refuses("the checkpoint has no head: predictions need a fine-tuned model", model.predict, "kan")

    fault = "has the heads span, score, expected one"
    refuses(fault, with_heads("span", "score").predict, "kan")
    fault = "the head was fine-tuned on questions: call answer"
    refuses(fault, with_heads("span").predict, "kan")
    fault = "the head was not fine-tuned on questions: call predict"
    refuses(fault, with_heads("score").answer, "kan ?", "kan")
    # Regression: the value of the only output.
    model = with_heads("score")
    head = model.model.classification_heads["score"]
    features = [model.extract_features(text) for text in QUESTIONS]
    expected = [head(of_text[None]).item() for of_text in features]
    assert model.predict(QUESTIONS) == pytest.approx(expected, abs=1e-5)


def test_what_is_no_text_is_refused(model, classifier, with_heads):
    """By every method, in a line of ours."""
    tagger = with_heads("tags")
    span = with_heads("span")
    of_texts = [
        model.encode,
        model.extract_features,
        model.embed,
        model.score,
        classifier.predict,
        tagger.predict,
        partial(span.answer, "kan ?"),
        lambda texts: span.answer(texts, "kan"),
    ]
    of_one_text = [model.words, model.word_features, model.fill_mask]
    for method in of_texts + of_one_text:
        for texts in [b"kan", {"kan": 1}, 3, None]:
            refuses("expected a string", method, texts, error=TypeError)
    for texts in [[3], [None], 3, "kan", [["kan", 3]]]:
        for method in [model.decode, lambda tokens: next(model.layers(tokens))]:
            refuses("tokens must be a tensor of integers", method, texts, error=TypeError)
    refuses("found int, expected a string", tagger.predict, [["kan", 3]], error=TypeError)
    for words in ["kan lon", {"kan": 1}, iter(["kan"]), None]:
        refuses("expected a list of words", tagger.word_probabilities, words, error=TypeError)
    refuses("found list, expected a str", tagger.word_probabilities, [["kan"]], error=TypeError)
    refuses("tokens from 0 to 102", lambda: next(model.layers(torch.tensor([[0, 102, 2]]))))


def test_what_is_no_checkpoint_is_refused(tmp_path):
    fault = "nowhere: not found, expected a checkpoint"
    refuses(fault, hub.from_pretrained, tmp_path / "nowhere", error=FileNotFoundError)


def test_vocabularies_refused(folder, tmp_path):
    alone = tmp_path / "alone"
    other = tmp_path / "other"
    checkpoint = alone / "checkpoint_last.pt"
    alone.mkdir()
    shutil.copy(folder / "checkpoint_last.pt", checkpoint)
    fault = "dict.txt: not found: pass data="
    refuses(fault, hub.from_pretrained, checkpoint, error=FileNotFoundError)
    shutil.copy(folder / "dict.txt", alone)
    fault = (
        "sentencepiece.model: not found, nor tokenizer.json; expected .* if fairseq-preprocess made"
    )
    refuses(fault, hub.from_pretrained, checkpoint, alone, error=FileNotFoundError)
    (alone / "sentencepiece.model").write_text("no model")
    fault = "sentencepiece.model: cannot be read .*expected a Sent"
    refuses(fault, hub.from_pretrained, alone)
    vocabulary(other, vocab_size=80, lines=text_of(documents(60, 1)).splitlines())
    fault = "with another dict.txt, of 102 symbols with special ones and <mask>; this one has 82"
    refuses(fault, hub.from_pretrained, checkpoint, data=other)
    shutil.copy(other / "sentencepiece.model", alone)
    fault = "sentencepiece.model: its 82 symbols differ from those of the dict.txt"
    refuses(fault, hub.from_pretrained, checkpoint)


def test_texts_refused(model, classifier):
    for function in [model.encode, classifier.predict]:
        for texts in [(None,), (["kan", None],), (["kan", "lon"], "mi"), ("kan", ["mi"])]:
            refuses("expected a string", function, *texts, error=TypeError)
        fault = "2 texts and 1 pairs, expected a pair for each text"
        refuses(fault, function, ["kan", "lon"], ["mi"])
    of_one_text = [model.fill_mask, model.word_features]
    of_texts = [model.encode, model.embed, model.score, classifier.predict]
    for function in of_one_text:
        refuses("expected a string", function, ["kan"], error=TypeError)
    for function in of_one_text + of_texts:
        for text in [None, 5, {"kan", "lon"}]:
            refuses("expected a string", function, text, error=TypeError)
        fault = "unpaired surrogate '.ud800' at position 2 of a text"
        refuses(fault, function, "a \ud800")
    refuses("shorten it or split it", model.word_features, "kan " * 200)
    refuses("no <mask> in 'kan'", model.fill_mask, "kan")
    refuses("fine-tuned and has no decoder", classifier.fill_mask, "<mask>")
    fault = rf"text 2 of 2 has \d+ tokens, but the model has {POSITIONS} positions"
    with pytest.raises(ValueError, match=fault):
        model.extract_features(["kan", "kan " * 200])
    check_numbers_refused(model)


def test_no_texts_have_no_results(model, classifier):
    width = model.embed("kan").size(0)
    assert model.encode([]).shape == (0, 0)
    assert model.extract_features([]).shape == (0, 0, width)
    assert model.embed([], normalize=True).shape == (0, width)
    assert model.score([]) == classifier.predict([]) == []


def check_numbers_refused(model):
    fault = "cannot be interpreted as an integer"
    for wrong in ["5", 2.0]:
        refuses(fault, model.fill_mask, "<mask>", topk=wrong, error=TypeError)
        refuses(fault, model.embed, "kan", layer=wrong, error=TypeError)
    refuses("topk 0 must be from 1 to 97", model.fill_mask, "<mask>", topk=0)
    tokens = torch.ones(3, dtype=torch.complex64)
    refuses("tokens must be a tensor of integers", model.embed, tokens, error=TypeError)


@pytest.mark.parametrize("tokens", [[], [1, 1], [1, 0, 5, 2], [0, 1, 2], [0, 102, 2], [0, -1, 2]])
def test_tokens_refused(model, tokens):
    """Padding before or between tokens would shift features and positions."""
    with pytest.raises(ValueError, match="padding .token 1. at the end only|expected 0 to 101"):
        model.extract_features(torch.tensor([tokens], dtype=torch.int64))
