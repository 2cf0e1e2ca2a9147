"""The conditional random field: its features, what it learns, and what it says of tagged files."""

import itertools
import json
import random

import pytest

import label_texts
import labelled
from conftest import error_of, refuses, run_main
from maelm_fairseq.baselines import crf
from maelm_fairseq.baselines.baseline_scores import split_word_outputs
from maelm_fairseq.finetuning.tagged_files import read_tagged
from maelm_fairseq.finetuning.tagged_sentences import Sentence
from maelm_fairseq.inference import text_labelling
from maelm_fairseq.metrics import compute_tag_scores, has_entities

PHRASES = ["mr park", "the park", "mr hill", "the hill", "park", "hill"]


@pytest.fixture
def files(tmp_path):
    """The word after "mr" is a name."""
    for split in ["train", "dev", "test"]:
        lines = []
        rng = random.Random(split)
        for _ in range(60):
            before = None
            for word in " and ".join(rng.choices(PHRASES, k=3)).split():
                lines.append(f"{word} {'B-X' if before == 'mr' else 'O'}")
                before = word
            lines.append("")
        (tmp_path / f"{split}.txt").write_text("\n".join(lines))
    return tmp_path


def test_features_are_those_of_a_word_and_of_two_words_on_either_side():
    first, second = crf.word_features(["Boeing-747", "flies"])
    assert {"word=boeing-747", "shape=Xx-d", "start=boei", "end=7", "-1 outside"} <= {*first}
    assert {"1 word=flies", "1 shape=x", "1 end=ies", "2 outside"} <= {*first}
    assert {"-1 word=boeing-747", "-1 shape=Xx-d", "-1 end=747", "-2 outside"} <= {*second}
    assert crf.word_features([]) == []


def test_it_uses_the_words_around_where_the_most_frequent_tag_cannot(files):
    tagged = crf.TaggedSentences(files)
    field = crf.ConditionalRandomField(tagged.train)
    scores = {}
    for score in crf.score_tagged_files(tagged, crf.baseline_tags(tagged, field)):
        scores[score.predictor, score.file, score.metric] = score
    metrics = ["f1", "precision", "recall", "accuracy"]
    assert [metric for predictor, file, metric in scores if file == "dev.txt"] == metrics * 2
    assert scores[crf.CRF, "dev.txt", "f1"].value > 95
    for file in ["dev.txt", "test.txt"]:
        ours = scores[crf.CRF, file, "accuracy"]
        frequent = scores[crf.MOST_FREQUENT_TAG, file, "accuracy"]
        assert ours.value == 100
        assert frequent.value < 95
        assert ours.standard_error < frequent.standard_error


def test_a_word_gets_its_most_frequent_tag_and_a_new_word_that_of_all():
    sentences = [
        Sentence(["a", "b", "b"], ["X", "Y", "Y"], [1, 2, 3]),
        Sentence(["b", "a"], ["Z", "X"], [5, 6]),
        Sentence(["c", "c"], ["X", "X"], [8, 9]),
    ]
    assert crf.MostFrequentTags(sentences).tag(["b", "a", "new"]) == ["Y", "X", "X"]


def test_the_program_writes_scores_and_the_tags_of_each_sentence(files, tmp_path, capsys):
    run_main(crf.main, "--labelled", files, "--dest", tmp_path / "scores.json")
    assert "CRF, f1 on dev.txt: 100.00 ± 0.00" in capsys.readouterr().out
    written = json.loads((tmp_path / "scores.json").read_text())
    tagged = crf.TaggedSentences(files)
    field = crf.ConditionalRandomField(tagged.train)
    targets = [sentence.tags for sentence in tagged.sentences_by_file["dev.txt"]]
    predicted = []
    for sentence, outputs in zip(
        tagged.sentences_by_file["dev.txt"], written["outputs"]["CRF"]["dev.txt"]
    ):
        indices, probabilities = split_word_outputs(outputs, len(tagged.labels))
        # They vote as those of a CRF that is trained to label texts.
        assert probabilities.tolist() == field.probabilities(sentence.words, tagged.labels).tolist()
        assert probabilities.shape == (len(sentence.words), 2)
        assert probabilities.sum(1) == pytest.approx(1, abs=1e-3)
        assert probabilities.argmax(1).tolist() == indices.tolist()
        predicted.append([tagged.labels[index] for index in indices])
    expected = compute_tag_scores(tagged.metrics, targets, predicted)
    of_dev = [score for score in written["scores"] if score["file"] == "dev.txt"]
    assert {score["metric"]: score["value"] for score in of_dev[:4]} == pytest.approx(expected)


@pytest.mark.parametrize("split, expected", [
    ("dev", "the label 'B-NEW' is not one of the training set's, B-X, O; correct it"),
    ("test", None),  # counts as an error
])  # fmt: skip
def test_a_tag_that_training_does_not_have(files, split, expected):
    with open(files / f"{split}.txt", "a", encoding="utf-8") as stream:
        stream.write("\npark B-NEW\n")
    if expected:
        assert expected in error_of(crf.main, "--labelled", files)
    else:
        tagged = crf.TaggedSentences(files)
        assert tagged.sentences_by_file["test.txt"][-1].tags == ["B-NEW"]
        assert tagged.labels == ["B-X", "O"]


@pytest.mark.parametrize("tag, reason", [
    ("", "it has no tags"),
    (" O", "all its tags are 'O'"),
    (" NN", "all its tags are 'NN'"),
    (" {}", "of its 300 tags, only 0 are tags of the training file"),
])  # fmt: skip
def test_a_test_file_without_tags_is_not_scored(files, tag, reason):
    sentences = read_tagged(files / "test.txt")
    words = itertools.count()
    lines = []
    for sentence in sentences:
        lines += [word + tag.format(next(words)) for word in sentence.words[:5]] + [""]
    (files / "test.txt").write_text("\n".join(lines))
    tagged = crf.TaggedSentences(files)
    assert [*tagged.sentences_by_file] == ["dev.txt"]
    assert tagged.summary[0].endswith(f"test.txt: not scored, as {reason}")


def test_a_text_may_end_with_a_punctuation_mark_that_is_a_tag():
    text_labelling.check_not_tagged("texts", ["the old dog sees .", "a cat ."], ["DT", "."])


def test_a_few_texts_may_end_with_what_is_also_a_tag():
    text_labelling.check_not_tagged("texts", ["his blood group is O"], ["B-X", "O"])
    refuses("found a word and its tag", text_labelling.check_not_tagged, "x", ["a O"] * 3, ["O"])


def test_texts_are_labelled_as_tagged_files_are_written(files, tmp_path, pretrained):
    texts = tmp_path / "texts"
    texts.write_text("the park  and\n\nmr park\n")
    options = ["--labelled", files, "--texts", texts, "--dest"]
    run_main(label_texts.main, *options, tmp_path / "tagged")
    expected = "the\tO\npark\tO\nand\tO\n\n\nmr\tO\npark\tB-X\n\n"
    assert (tmp_path / "tagged").read_text() == expected
    given = ["--labelled", files, "--texts", files / "test.txt", "--dest", tmp_path / "new"]
    fault = error_of(label_texts.main, *given)
    assert "found a word and its tag in a line, such as '" in fault
    assert "expected a text in each line; join the words" in fault
    for further, problem in [
        (["--checkpoint", "a.pt", "--data", "data"], "a.pt: not found, expected a checkpoint"),
        (["--checkpoint", "a.pt"], "--checkpoint and --data belong together"),
        (["--regression"], "has tags; leave it out"),
        (["--conllu-column", "xpos"], "is not CoNLL-U"),
    ]:
        assert problem in error_of(label_texts.main, *options, tmp_path / "new", *further)
    assert not (tmp_path / "new").exists()
    (tmp_path / "nothing").mkdir()
    fault = error_of(
        label_texts.main, "--labelled", tmp_path / "nothing", *options[2:], tmp_path / "new"
    )
    assert "expected train.tsv or train.txt or train.conllu, found: nothing" in fault
    pretrained_encoder = ["--checkpoint", pretrained[1], "--data", pretrained[0]]
    fault = error_of(label_texts.main, *options, tmp_path / "new", *pretrained_encoder)
    assert "predictions need a fine-tuned model; expected one that finetune_tagging.sh" in fault
    sentences = labelled.sentences(tmp_path / "sentences")
    fault = error_of(
        label_texts.main, "--labelled", sentences, *options[2:], tmp_path / "new",
        "--conllu-column", "xpos",
    )  # fmt: skip
    assert "has no tags; leave it out" in fault


def test_a_line_of_other_white_space_is_blank(files):
    with open(files / "train.txt", "a", encoding="utf-8") as stream:
        stream.write("\u3000\nmr O\nhill B-X\n\u00a0\n")
    assert crf.TaggedSentences(files).train[-1].words == ["mr", "hill"]


@pytest.mark.parametrize("labels, expected", [
    (["B-PER", "I-PER", "O"], True),
    (["S-X", "B-X", "E-X", "I-X"], True),
    (["U-X", "L-X", "O"], True),
    (["S----3MS1-", "I---------", "VIIA-3MS--"], False),  # parts of speech
    (["NOUN", "B-X"], False),
    (["O"], False),
])  # fmt: skip
def test_tags_are_of_entities_if_all_look_so(labels, expected):
    assert has_entities(labels) == expected
