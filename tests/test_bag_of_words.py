"""The bag of words: its features compared with scikit-learn's vectoriser, and tiny data."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer

import label_texts
from conftest import error_of, run_main
from labelled import write_table
from maelm_fairseq.baselines import bag_of_words, bag_of_words_model
from maelm_fairseq.finetuning.sentence_files import read_sentences
from maelm_fairseq.inference import text_labelling

TEXTS = [
    "A good film , really",
    "a bad film",
    "not good at all",
    "so bad !",
    "good good",
    "really bad film",
]


def test_weights_are_those_of_a_vectoriser_of_the_training_texts():
    rows = np.array([0, 1, 2, 3])
    matrices = bag_of_words_model.NgramCounts([(text,) for text in TEXTS]).matrices
    weights = bag_of_words_model.TfidfWeights(matrices, rows).weigh(matrices, len(TEXTS))
    words = dict(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]")
    characters = dict(ngram_range=(2, 5), analyzer="char_wb")
    expected = []
    for kind in [words, characters]:
        vectorizer = TfidfVectorizer(sublinear_tf=True, **kind).fit([TEXTS[i] for i in rows])
        expected.append(vectorizer.transform(TEXTS))
    expected = hstack(expected).toarray()
    # The first column is empty.
    np.testing.assert_allclose(weights.toarray()[:, 1:], expected, atol=1e-12)


@pytest.mark.parametrize("texts, labels", [
    ([("a b",)] * 4, [0, 0, 0, 0]),  # one class
    ([("a b",)] * 3 + [("c",)], [0, 0, 0, 1]),  # one example of a class
    ([("",)] * 4, [0, 1, 0, 1]),  # no words
    ([("a", "")] * 2 + [("b", "")] * 2, [0, 0, 1, 1]),  # no words in the second text
    ([("\U0001f600",), ("!",)] * 2, [0, 1, 0, 1]),
    ([("a",), ("b",)] * 2, [0.5, 1.5, 0.5, 1.5]),
    ([("a",), ("b",), ("a",), ("c",)], [0.5, 1.5, 0.5, 9.0]),
])  # fmt: skip
def test_little_to_learn_from_is_learned(texts, labels):
    rows = np.arange(len(texts))
    predicted = bag_of_words_model.train_and_predict(
        bag_of_words_model.NgramCounts(texts), np.array(labels), rows, rows
    )
    assert len(predicted) == len(texts)
    assert np.isfinite(predicted).all()
    if len(set(zip(texts, labels))) == len(set(texts)) > 1:
        assert np.corrcoef(predicted, labels)[0, 1] > 0.9


def test_the_strength_of_regularisation_is_chosen_by_folds():
    """Random labels need a strong one."""
    rng = np.random.default_rng(1)
    strengths = bag_of_words_model.REGULARISATION_GRID
    x = csr_matrix(rng.normal(size=(200, 50)))
    noise = rng.normal(size=200)
    signal = x.toarray() @ rng.normal(size=50)
    assert bag_of_words_model.train_best(x, noise).alpha == max(strengths)
    assert bag_of_words_model.train_best(x, signal).alpha == min(strengths)
    assert bag_of_words_model.train_best(x, (signal > 0).astype(int)).C > min(strengths)


def folder(path, dev, test=()):
    train = [(text, "good" if "good" in text else "bad") for text in TEXTS]
    for split, rows in [("train", train), ("dev", dev), ("test", test)]:
        if rows:
            write_table(path / f"{split}.tsv", ["sentence", "label"], rows)
    return path


def test_one_example_has_a_score_without_an_error(tmp_path):
    test = [("x", "good"), ("bad", "bad"), ("y", " ")]
    labelled = bag_of_words.LabelledExamples(folder(tmp_path, [("good film", "good")], test))
    outputs = bag_of_words.baseline_predictions(labelled)
    scores = bag_of_words.score_files(labelled, outputs)
    of_dev, _, of_test, _ = sorted(scores, key=lambda score: (score.file, score.predictor))
    assert (of_dev.file, of_dev.predictor, of_dev.value) == ("dev.tsv", "bag of words", 100.0)
    assert np.isnan(of_dev.standard_error)
    assert of_test.file == "test.tsv"
    # The error of two examples, as the third one has no label.
    assert of_test.standard_error == pytest.approx(0 if of_test.value == 100 else 50)


def test_the_program_says_the_files_names_and_overwrites_nothing(tmp_path, capsys):
    labelled = folder(tmp_path, [("good film", "good"), ("bad film", "bad")])
    run_main(bag_of_words.main, "--labelled", labelled, "--dest", tmp_path / "scores.json")
    assert "bag of words, accuracy on dev.tsv: 100.00 ± 0.00" in capsys.readouterr().out
    for name in ["scores.json", "dev.tsv"]:
        fault = error_of(bag_of_words.main, "--labelled", labelled, "--dest", tmp_path / name)
        assert f"{name}: exists already" in fault


def test_it_labels_new_texts(tmp_path, monkeypatch):
    """Also more than are labelled at a time."""
    monkeypatch.setattr(text_labelling, "CHUNK_TEXTS", 2)
    files = folder(tmp_path / "files", [("good film", "good"), ("bad film", "bad")])
    (tmp_path / "texts").write_text("really good !\n\nso bad\n")
    options = ["--labelled", files, "--texts", tmp_path / "texts", "--dest"]
    run_main(label_texts.main, *options, tmp_path / "labels.tsv")
    lines = (tmp_path / "labels.tsv").read_text().splitlines()
    assert lines[0] == "label\tsentence"
    assert lines[1] == "good\treally good !"
    assert lines[3] == "bad\tso bad"
    assert len(read_sentences(tmp_path / "labels.tsv").examples) == 3
    fault = error_of(label_texts.main, *options, tmp_path / "labels.tsv")
    assert "labels.tsv: exists already" in fault
    fault = error_of(label_texts.main, *options, tmp_path / "labels.tsv.gz")
    assert "labels.tsv.gz: it is written as plain text; choose a name without .gz" in fault
    fault = error_of(label_texts.main, *options, tmp_path / "x", "--checkpoint", "model.pt")
    assert "--checkpoint and --data belong together" in fault


def test_small_values_are_written_with_their_digits(tmp_path):
    rows = [("good film", "2e-06"), ("bad film", "1e-06"), ("good one", "3e-06"), ("bad", "1e-06")]
    for split in ("train", "dev"):
        write_table(tmp_path / f"{split}.tsv", ["sentence", "score"], rows)
    texts, dest = tmp_path / "texts", tmp_path / "new.tsv"
    texts.write_text("good\nbad\n")
    run_main(label_texts.main, "--labelled", tmp_path, "--texts", texts, "--dest", dest)
    _, *lines = dest.read_text().splitlines()
    good, bad = (float(line.split("\t")[0]) for line in lines)
    assert good > bad
    assert 0 < good < 1e-5


def test_it_predicts_values_of_pairs(tmp_path):
    (tmp_path / "train.txt").write_text("a text that has no labels\n")
    rows = [("a b", "a", "1.5"), ("a c", "b", "-0.5"), ("c d", "a", "1.0"), ("e", "b", "-1.0")]
    for split in ("train", "dev"):
        write_table(tmp_path / f"{split}.tsv", ["sentence1", "sentence2", "score"], rows)
    texts, dest = tmp_path / "texts", tmp_path / "new.tsv"
    texts.write_text("x\ta\nx\tb\n")
    run_main(label_texts.main, "--labelled", tmp_path, "--texts", texts, "--dest", dest)
    header, *lines = dest.read_text().splitlines()
    assert header == "score\tsentence1\tsentence2"
    first, second = (float(line.split("\t")[0]) for line in lines)
    assert first > second


def test_files_are_read_as_by_fine_tuning(tmp_path, capsys):
    """Unknown labels of the dev file and single classes are refused; what is skipped is counted."""
    unknown = folder(tmp_path / "unknown", [("good film", "godo")])
    fault = error_of(bag_of_words.main, "--labelled", unknown)
    assert f"{unknown}/dev.tsv: line 2: the label 'godo' is not one of the training set's" in fault
    one = folder(tmp_path / "one", [("good film", "good")])
    write_table(one / "train.tsv", ["sentence", "label"], [("good", "good")] * 3)
    assert "every label is 'good'" in error_of(bag_of_words.main, "--labelled", one)
    skipped = folder(tmp_path / "skipped", [("good film", "good")])
    with open(skipped / "train.tsv", "a") as stream:
        stream.write("".join("good film\tgood\n" for _ in range(200)) + "a\tb\tc\n")
    run_main(bag_of_words.main, "--labelled", skipped)
    assert "206 examples, read as sentences; 1 skipped, from line 208" in capsys.readouterr().out
