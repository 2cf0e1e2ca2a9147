"""Fine-tuning with fairseq-train: a task for sentences, one for words, one for questions."""

import gzip
import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import label_texts
import labelled
import maelm_fairseq.predict
from conftest import PLUGIN, error_of, refuses, run_main, succeed
from labelled import KINDS, arguments, finetune, task_with_split, write_table
from maelm_fairseq import hub, metrics
from maelm_fairseq.baselines import bag_of_words
from maelm_fairseq.finetuning import jackknife, squad_files, squad_metrics
from maelm_fairseq.finetuning.finetuning_dataset import IGNORE_INDEX
from maelm_fairseq.finetuning.finetuning_task import layers_below_head
from maelm_fairseq.finetuning.prediction import predict_split
from maelm_fairseq.finetuning.sentence_files import read_sentences
from maelm_fairseq.finetuning.sentences import SentencesTask
from maelm_fairseq.finetuning.tagged_files import read_tagged
from maelm_fairseq.finetuning.tagging import TaggingTask
from maelm_fairseq.finetuning.task_loading import load_task
from maelm_fairseq.inference import text_labelling
from maelm_fairseq.runs.split_scores import SplitScores
from stoppable_runs import finish, two_processes
from training import assert_same_weights, checkpoint, error_of_command

UPDATES = {"mae_lm_sentences": 150, "mae_lm_tokens": 150, "squad": 300}


@pytest.fixture(scope="module", params=KINDS)
def tuned(request, pretrained, tmp_path_factory):
    """A task, its labelled files, and a run that has learned them."""
    task = request.param
    data, pretrained_file = pretrained
    folder = tmp_path_factory.mktemp(task)
    if task == "squad":
        files = labelled.squad(folder / "files", 300)
    else:
        files = KINDS[task](folder / "files")
    options = ["--max-update", UPDATES[task], "--validate-interval", 5]
    options += ["--relative-position-local-init"]
    printed = finetune(task, data, files, pretrained_file, folder / "run", *options)
    return SimpleNamespace(task=task, files=files, run=folder / "run", printed=printed, data=data)


def validations(printed):
    """The logs of validations, in order."""
    lines = [line for line in printed.splitlines() if '"valid_loss"' in line]
    return [json.loads(line[line.index("{") :]) for line in lines]


def test_validation_logs_the_scores_and_the_checkpoint_has_them(tuned):
    state = checkpoint(tuned.run)
    scores = state["task_state"]["scores"]
    last = validations(tuned.printed)[-1]
    assert scores["num_updates"] == int(last["valid_num_updates"]) == UPDATES[tuned.task]
    for name, value in scores["valid"].items():
        assert float(last[f"valid_{name}"]) == pytest.approx(value, abs=0.01)
    first = {"mae_lm_sentences": "accuracy", "mae_lm_tokens": "f1", "squad": "f1"}[tuned.task]
    assert scores["valid"][first] > 75, scores  # it has learned
    # The sizes are those of the pretrained encoder.
    sizes = dict(encoder_embed_dim=32, encoder_layers=2, max_positions=32)
    assert {name: state["cfg"]["model"][name] for name in sizes} == sizes


def test_predictions_score_the_same(tuned):
    """Those of `predict_split` from the raw file, and those of fairseq-validate."""
    scores = checkpoint(tuned.run)["task_state"]["scores"]["valid"]
    model_file = tuned.run / "checkpoint_last.pt"
    task, model = load_task(model_file, labelled=tuned.files)
    predictions = predict_split(task, model, "valid")
    computed = task.compute_scores(task.datasets["valid"], predictions)
    assert computed == pytest.approx(scores, abs=1e-6)
    options = ["--task", tuned.task, "--criterion", tuned.task, "--labelled", tuned.files]
    options += ["--path", model_file, "--batch-size", 7, "--cpu"]
    options += ["--log-format", "json", "--log-interval", 1]
    printed = succeed("fairseq-validate", tuned.data, "--user-dir", PLUGIN, *options)
    (logged,) = validations(printed)
    logged_scores = {name: float(logged[f"valid_{name}"]) for name in scores}
    assert logged_scores == pytest.approx(scores, abs=0.01)


def test_an_encoder_and_a_bag_of_words_label_texts_together(tuned, tmp_path):
    """The mean of what each says decides, in units of what each says of the dev file."""
    model_file = tuned.run / "checkpoint_last.pt"
    texts = [" ".join(words) for words in labelled.texts(7, 1)]
    (tmp_path / "texts").write_text("\n".join(texts))

    def options(files, dest):
        paths = ["--labelled", files, "--texts", tmp_path / "texts", "--dest", dest]
        return [*paths, "--checkpoint", model_file, "--data", tuned.data]

    new = tmp_path / "new.tsv"
    if tuned.task != "mae_lm_sentences":
        files = labelled.sentences(tmp_path / "files")
        fault = error_of(label_texts.main, *options(files, new))
        assert (
            "found a model fine-tuned on other data, expected one that finetune_sentences.sh"
            in fault
        )
        return
    run_main(label_texts.main, *options(tuned.files, new))
    header, *rows = [line.split("\t") for line in new.read_text().splitlines()]
    assert header == ["label", "sentence"]
    assert [row[1] for row in rows] == texts
    check_mean_of_votes(tuned.files, hub.from_pretrained(model_file, data=tuned.data))
    other = tmp_path / "other"
    for split in ["train", "dev"]:
        write_table(other / f"{split}.tsv", ["sentence", "label"], [("kan", "a"), ("lo", "b")])
    fault = error_of(label_texts.main, *options(other, other / "x"))
    assert "it predicts the labels " in fault
    assert "expected the labels a, b of single texts, as in --labelled; give the folder" in fault
    pairs = tmp_path / "pairs"
    labels = read_sentences(tuned.files / "train.tsv").examples
    rows = [("kan", "lo", label) for label in sorted({example.label for example in labels})]
    for split in ["train", "dev"]:
        write_table(pairs / f"{split}.tsv", ["sentence1", "sentence2", "label"], rows)
    fault = error_of(label_texts.main, *options(pairs, pairs / "x"))
    assert "of single texts, expected the labels " in fault
    assert "of pairs of texts, as in --labelled" in fault


def test_errors_of_labelling_name_the_file(pretrained, tmp_path):
    data, checkpoint_file = pretrained
    files = labelled.sentences(tmp_path / "files")
    texts = tmp_path / "texts"
    dest = ["--dest", tmp_path / "x"]
    model = ["--checkpoint", checkpoint_file, "--data", data]
    for place, found in {"none": "not found", "files": "found a folder"}.items():
        options = ["--texts", tmp_path / place, *dest]
        for fault in [
            error_of(maelm_fairseq.predict.main, *model, *options),
            error_of(label_texts.main, "--labelled", files, *options),
        ]:
            assert fault.startswith(f"{tmp_path}/{place}: {found}, expected a file")
    texts.write_text("kan\n")
    fault = error_of(maelm_fairseq.predict.main, *model, "--texts", texts, *dest)
    assert fault.startswith(f"--checkpoint {checkpoint_file}: the checkpoint has no head")
    options = ["--labelled", files, "--texts", texts, *dest]
    fault = error_of(label_texts.main, *model, *options)
    assert f"{checkpoint_file}: found a model that was only pretrained, expected one" in fault


def test_models_that_label_are_on_the_default_device(pretrained, tmp_path, monkeypatch):
    """In both programs."""
    data, checkpoint_file = pretrained
    monkeypatch.setattr(maelm_fairseq.predict, "default_device", lambda: torch.device("meta"))
    assert maelm_fairseq.predict.load_model(checkpoint_file, data).device.type == "meta"
    assert label_texts.load_model is maelm_fairseq.predict.load_model


def check_mean_of_votes(files, model):
    """The labeller gives the texts of the dev file the labels with the highest mean."""
    examples = bag_of_words.LabelledExamples(files)
    examples.indices_by_file = {"dev.tsv": examples.indices_by_file["dev.tsv"]}
    dev = [examples.texts[number] for number in examples.indices_by_file["dev.tsv"]]
    together = label_texts.SentenceLabeller(examples, model).label(dev)
    ours = label_texts.predict_class_scores(model, dev, examples.classes)
    theirs = bag_of_words.baseline_predictions(examples)["bag of words"][: len(dev)]
    for votes in (ours, theirs):
        votes -= votes.mean(1, keepdims=True)
        votes /= votes.std()
    assert together == [examples.classes[number] for number in (ours + theirs).argmax(1)]


def options_of_prediction(checkpoint_file, data, texts, dest):
    return ["--checkpoint", checkpoint_file, "--data", data, "--texts", texts, "--dest", dest]


def predicted_lines(checkpoint_file, data, texts, dest):
    options = options_of_prediction(checkpoint_file, data, texts, dest)
    run_main(maelm_fairseq.predict.main, *options)
    return dest.read_text(encoding="utf-8").split("\n")


def prediction_error(checkpoint_file, data, texts, dest):
    options = options_of_prediction(checkpoint_file, data, texts, dest)
    return error_of(maelm_fairseq.predict.main, *options)


def test_a_file_of_texts_gets_labels(tuned, tmp_path, monkeypatch):
    """In the order of the file, which is packed and longer than a chunk."""
    monkeypatch.setattr(text_labelling, "CHUNK_TEXTS", 4)
    texts = ["kan losh", "lo mi", "", *[" ".join(words) for words in labelled.texts(7, 1)]]
    packed = tmp_path / "texts.gz"
    packed.write_bytes(gzip.compress("".join(text + "\n" for text in texts).encode()))
    model_file = tuned.run / "checkpoint_last.pt"
    labels_file = tmp_path / "labels.tsv"
    new = tmp_path / "new.tsv"
    if tuned.task == "squad":
        fault = prediction_error(model_file, tuned.data, packed, new)
        assert f"{model_file}: the head was fine-tuned on questions: call answer" in fault
        assert not new.exists()
        return
    lines = predicted_lines(model_file, tuned.data, packed, labels_file)
    model = hub.from_pretrained(model_file, data=tuned.data)
    if tuned.task == "mae_lm_tokens":
        expected = []
        for text in texts:
            expected += [f"{word}\t{tag}" for word, tag in model.predict(text)] + [""]
        assert lines == [*expected, ""]
        return
    check_labels_of_texts(lines, texts, model)
    # It is a file that fine-tuning reads.
    assert len(read_sentences(labels_file).examples) == len(texts)
    fault = prediction_error(model_file, tuned.data, packed, labels_file)
    assert "labels.tsv: exists already" in fault
    (tmp_path / "empty").write_text("")
    (tmp_path / "table").write_text("kan\tlosh\n")
    fault = prediction_error(model_file, tuned.data, tmp_path / "table", new)
    assert "table: line 1: found 2 columns, expected one text without a tab" in fault
    fault = prediction_error(model_file, tuned.data, tmp_path / "empty", new)
    assert "empty: it is empty, expected a text in each line" in fault
    assert not new.exists()


def check_labels_of_texts(lines, texts, model):
    """Every text has its most probable label, and the probability of that."""
    assert lines[0] == "label\tprobability\tsentence"
    for line, text in zip(lines[1:], texts, strict=False):
        label, probability, shown = line.split("\t")
        probabilities = model.predict(text)
        assert label == max(probabilities, key=probabilities.get)
        assert float(probability) == pytest.approx(max(probabilities.values()), abs=1e-3)
        assert shown == text
    assert len(lines) == len(texts) + 2


def test_weights_say_how_far_below_the_head_they_are():
    layers = {
        "classification_heads.sentences.dense.bias": 0,
        "encoder.layers.2.ffn.0.weight": 1,
        "encoder.layers.0.out.bias": 3,
        "encoder.norm.weight": 4,
        "embed_tokens.weight": 4,
        "encoder.relative_bias.table.weight": 4,
    }
    assert {name: layers_below_head(name, 3) for name in layers} == layers


def test_the_hub_gives_labels(tuned):
    model = hub.from_pretrained(tuned.run / "checkpoint_last.pt", data=tuned.data)
    scores = checkpoint(tuned.run)["task_state"]["scores"]["valid"]
    check = {
        "mae_lm_sentences": check_labels_of_sentences,
        "mae_lm_tokens": check_labels_of_words,
        "squad": check_answers_to_questions,
    }[tuned.task]
    check(model, tuned.files, scores)


def check_labels_of_sentences(model, files, scores):
    examples = read_sentences(files / "dev.tsv").examples
    rows = model.predict([example.texts[0] for example in examples])
    predicted = [max(row, key=row.get) for row in rows]
    accuracy = metrics.accuracy([example.label for example in examples], predicted)
    assert 100 * accuracy == scores["accuracy"]
    # A long text is cut, as in training.
    assert set(model.predict("kan " * 100)) == {"first", "second", "other"}


def check_labels_of_words(model, files, scores):
    sentences = read_tagged(files / "dev.txt")
    tagged = model.predict([" ".join(sentence.words) for sentence in sentences])
    for row, sentence in zip(tagged, sentences, strict=True):
        assert [word for word, _ in row] == sentence.words
    predicted = [[tag for _, tag in row] for row in tagged]
    values = metrics.entity_scores([sentence.tags for sentence in sentences], predicted)
    assert 100 * values["f1"] == pytest.approx(scores["f1"])
    assert model.predict("") == []
    assert len(model.predict("\u200b kan")) == 2  # SentencePiece removes the first word
    words = ["\u0e40\u0e02\u0e32", "\u0e44\u0e1b", "kan"]  # of Thai, which would have no spaces
    joined = " ".join(words)
    assert [word for word, _ in model.predict(joined)] == words
    assert model.predict([words, "kan"]) == [model.predict(joined), model.predict("kan")]
    (row,) = model.predict([["kan lo", ""]])
    assert [word for word, _ in row] == ["kan lo", ""]
    fault = "the head was fine-tuned on words with tags: call predict.texts"
    refuses(fault, model.predict, "kan", "lo")


def check_answers_to_questions(model, files, scores):
    refuses("the head was fine-tuned on questions: call answer", model.predict, "kan")
    questions = squad_files.read_questions(files / "dev.json")
    texts = [asked.text for asked in questions]
    contexts = [asked.context for asked in questions]
    answers = model.answer(texts, contexts)
    exact = 0
    for answer, asked in zip(answers, questions):
        right = [correct.text for correct in asked.answers]
        exact += squad_metrics.exact_and_f1(answer.text, right)[0]
        assert asked.context[answer.start :].startswith(answer.text)
        assert 0 < answer.score <= 1
    assert 100 * exact / len(answers) == pytest.approx(scores["exact"])
    assert model.answer(questions[0].text, questions[0].context) == answers[0]
    assert model.answer("kan ?", "") == ("", 0, pytest.approx(1))


@pytest.mark.parametrize("task", KINDS)
def test_a_run_that_is_stopped_resumes_bit_for_bit(pretrained, tmp_path, task):
    data, pretrained_file = pretrained
    files = KINDS[task](tmp_path / "files")
    start_from = [task, data, files, pretrained_file]
    finetune(*start_from, tmp_path / "whole", "--dropout", 0.1)
    finetune(*start_from, tmp_path / "other", "--dropout", 0.1, "--max-update", 5)
    # The pretrained checkpoint is no longer needed.
    gone = tmp_path / "gone.pt"
    printed = finetune(task, data, files, gone, tmp_path / "other", "--dropout", 0.1)
    assert "Loaded checkpoint" in printed
    assert_same_weights(tmp_path / "other", tmp_path / "whole", 0)


def test_two_processes_score_as_one(pretrained, tmp_path):
    """Also if the parts of a sentence, or the windows of a question, lie on both processes."""
    data, pretrained_file = pretrained
    for task in ["mae_lm_tokens", "squad"]:
        start_from = [task, data, KINDS[task](tmp_path / task), pretrained_file]
        one = tmp_path / f"{task}1"
        two = tmp_path / f"{task}2"
        options = ["--max-update", 2, "--lr", 1e-9, "--batch-size-valid", 5]
        finetune(*start_from, one, *options, "--batch-size", 6)
        words = arguments(*start_from, *options, "--batch-size", 3, "--save-dir", two)
        finish(two_processes(*words), 0)
        assert checkpoint(one)["task_state"]["scores"] == checkpoint(two)["task_state"]["scores"]


def test_regression_pairs_and_mnlis_two_dev_sets(pretrained, tmp_path):
    data, pretrained_file = pretrained
    files = labelled.pairs(tmp_path / "STS-B", score=True)
    run = tmp_path / "r"
    best = ["--best-checkpoint-metric", "pearson", "--maximize-best-checkpoint-metric"]
    finetune("mae_lm_sentences", data, files, pretrained_file, run, *best, "--max-update", 60)
    task, _ = load_task(run / "checkpoint_last.pt", labelled=files)
    task.load_dataset("valid")
    dataset = task.datasets["valid"]
    # With --fp16, float32 would become half precision.
    assert dataset.collater([dataset[0]])["target"].dtype == torch.float64
    state = checkpoint(run, "checkpoint_best.pt")
    pearson = state["task_state"]["scores"]["valid"]["pearson"]
    assert state["extra_state"]["best"] == pytest.approx(pearson, abs=0.01)
    model = hub.from_pretrained(run, data=data)
    assert isinstance(model.predict("kan lo", "mi"), float)
    check_scores_far_from_zero(data, run / "checkpoint_last.pt", tmp_path)
    refuses(r"on pairs of texts: call predict\(texts, pairs\)", model.predict, "kan lo")
    check_file_of_pairs(data, run, model, tmp_path)
    mnli = labelled.pairs(tmp_path / "MNLI")
    options = ["--valid-subset", "valid,valid1", "--max-update", 3]
    # Another task's head and labels are not taken over.
    last = run / "checkpoint_last.pt"
    finetune("mae_lm_sentences", data, mnli, last, tmp_path / "m", *options)
    state = checkpoint(tmp_path / "m")["task_state"]
    assert state["labels"] == ["entailment", "neutral"]
    assert state["form"][1] == ["sentence1", "sentence2"]
    assert state["scores"].keys() == {"num_updates", "valid", "valid1"}


def check_scores_far_from_zero(data, start, folder):
    """Predictions begin among the numbers to predict, even if these are huge."""
    far = labelled.pairs(folder / "far", score=True)
    header, *rows = [row.split("\t") for row in (far / "train.tsv").read_text().splitlines()]
    for row in rows:
        row[3] = f"{2e13 * float(row[3]) - 900e12:.1f}"
    write_table(far / "train.tsv", header, rows)
    run = folder / "f"
    finetune("mae_lm_sentences", data, far, start, run, "--max-update", 1, "--lr", 1e-9)
    state = checkpoint(run)["task_state"]
    assert state["encoder_mask_fraction"] == 0  # for the model card
    assert state["tokens_per_sample"] == 32
    assert state["mask_prob"] == 0.15
    assert state["pretraining_updates"] == 2  # though it started from a fine-tuned one
    mean, std = state["standardised"]
    assert -900e12 < mean < -700e12
    value = hub.from_pretrained(run, data=data).predict("kan lo", "mi")
    assert abs(value - mean) < std


def check_file_of_pairs(data, run, model, folder):
    """A file of pairs gets scores; a line without a second text is refused."""
    texts = folder / "pairs.txt"
    texts.write_text("kan lo\tmi\n")
    lines = predicted_lines(run, data, texts, folder / "scores.tsv")
    assert lines[0] == "score\tsentence1\tsentence2"
    score = float(lines[1].split("\t")[0])
    assert score == pytest.approx(model.predict("kan lo", "mi"), abs=1e-3)
    texts.write_text("kan lo\tmi\nkan\n")
    fault = prediction_error(run, data, texts, folder / "x")
    assert "pairs.txt: line 2: found 1 column, expected two texts with a tab between them" in fault


def test_what_does_not_fit_is_refused(pretrained, tmp_path):
    data, pretrained_file = pretrained
    files = labelled.sentences(tmp_path / "files")
    train_file = files / "train.tsv"
    dev_file = files / "dev.tsv"
    save = ["--save-dir", tmp_path / "run"]
    options = arguments("mae_lm_sentences", data, files, pretrained_file, *save)
    fault = "--encoder-layers 2 in the checkpoint, 3 here"
    assert fault in error_of_command(*options, "--encoder-layers", 3)
    fault = "--valid-subset test: test files are for the finished model"
    assert fault in error_of_command(*options, "--valid-subset", "valid,test")
    succeed("fairseq-train", *options, "--max-update", 2)
    train = train_file.read_text()
    for path in [train_file, dev_file]:
        path.write_text(path.read_text().replace("second", "2nd"))
    fault = "the data differ from those of the run: labels was first, other, second and is 2nd, "
    assert fault in error_of_command(*options)
    train_file.write_text(train)
    write_table(dev_file, ["sentence", "label"], [("kan", "first"), ("lo", "third")])
    fault = "dev.tsv: line 3: the label 'third' is not one of the training set's, first"
    assert fault in error_of_command(*options)
    write_table(train_file, ["sentence", "label"], [("kan", "first")] * 9)
    fault = "train.tsv: every label is 'first'; expected two labels or more"
    assert fault in error_of_command(*options)
    write_table(train_file, ["sentence", "score"], [("kan", "2.0")] * 9)
    fault = "train.tsv: every number to predict is 2; expected two or more different ones"
    assert fault in error_of_command(*options)


# Questions ---------------------------------------------------------------------------------------


# Scores ------------------------------------------------------------------------------------------


def test_a_score_that_is_undefined_is_logged_as_zero_and_kept_as_such(pretrained, tmp_path):
    data, pretrained_file = pretrained
    files = tmp_path / "files"
    for split in ["train", "dev"]:  # of one text: all predictions are equal
        rows = [("kan", str(i)) for i in range(8)]
        write_table(files / f"{split}.tsv", ["sentence", "label"], rows)
    options = ["--regression", "--best-checkpoint-metric", "pearson"]
    options += ["--maximize-best-checkpoint-metric"]
    run = tmp_path / "run"
    printed = finetune("mae_lm_sentences", data, files, pretrained_file, run, *options)
    assert {log["valid_pearson"] for log in validations(printed)} == {"0"}
    assert np.isnan(checkpoint(run)["task_state"]["scores"]["valid"]["pearson"])


def test_a_test_file_is_scored_where_its_last_column_has_the_tags_of_training(pretrained, tmp_path):
    folder = labelled.tags(tmp_path)
    task = task_with_split(TaggingTask, pretrained[0], folder, "test", max_tokens=32)
    assert task.datasets["test"].metrics == ["f1", "precision", "recall", "accuracy"]
    path = folder / "test.txt"
    lines = []
    for line in path.read_text().splitlines():
        lines.append(f"{line.split()[0]} NN" if line else "")
    path.write_text("\n".join(lines))
    task.load_dataset("test")
    assert task.datasets["test"].metrics == []
    assert task.datasets["test"].summary.endswith("; not scored, as all its tags are 'NN'")


@pytest.mark.parametrize("start, is_known", [(None, True), ("longer.pt", False)])
def test_the_log_says_which_texts_are_longer_than_those_of_pretraining(
    start, is_known, pretrained, tmp_path, caplog
):
    """Pretraining that went on from another may have longer texts behind it."""
    caplog.set_level(logging.INFO)
    folder = labelled.tags(tmp_path)
    task = task_with_split(TaggingTask, pretrained[0], folder, "train", max_tokens=32)
    longest = max(task.datasets["train"].sizes)
    num_longest = int((task.datasets["train"].sizes == longest).sum())
    assert "of more tokens" not in caplog.text
    task.record_state(tokens_per_sample=int(longest) - 1, pretraining_start=start)
    task.load_dataset("train")
    note = f"; {num_longest} of more tokens than the {longest - 1} of pretraining, which left later"
    assert (note in caplog.text) == is_known


@pytest.mark.parametrize("lines, split, note", [
    (["Kan B-X", "lo I-X"], "train", "the vocabulary has no capitals"),
    (["kan O", "lo I-X"], "train",
     "1 sentence with an entity that goes on without a beginning, or has no end, the first in "
     "line 2 (I-X); so each word gets its most probable tag by itself"),
    (["kan b-x", "lo O"], "train",
     "scored by accuracy, not by F1 of entities, as the tag 'b-x' is neither O nor of BIO"),
    (["kan B-X", "lo I-X", "mi 0"], "train", "as the tag '0' is neither O nor of BIO"),
    (["kan B-X", "lo O"], "valid", "no entities, so that F1 is undefined"),
])  # fmt: skip
def test_the_log_says_what_of_tags_a_user_can_mend(pretrained, tmp_path, lines, split, note):
    (tmp_path / "train.txt").write_text("\n".join(lines))
    (tmp_path / "dev.txt").write_text("lo O\n")
    task = task_with_split(TaggingTask, pretrained[0], tmp_path, split, max_tokens=32)
    assert note in task.datasets[split].summary


@pytest.mark.parametrize("words", ["kan lo", "\u0410\u043d\u043d\u0430 lo"])
def test_capitals_that_no_text_has_or_no_vocabulary_knows_need_no_note(pretrained, tmp_path, words):
    for name in ["train.txt", "dev.txt"]:
        (tmp_path / name).write_text("{} B-X\n{} I-X\n".format(*words.split()))
    task = task_with_split(TaggingTask, pretrained[0], tmp_path, "train", max_tokens=32)
    assert "no capitals" not in task.datasets["train"].summary


def test_tags_of_words_alone_need_no_note(pretrained, tmp_path):
    for name in ["train.txt", "dev.txt"]:
        (tmp_path / name).write_text("kan NN\nlo VB\n")
    task = task_with_split(TaggingTask, pretrained[0], tmp_path, "train", max_tokens=32)
    assert task.datasets["train"].summary.endswith("train.txt: 1 sentence of 2 words")


@pytest.mark.parametrize("task_class, files, label", [
    (SentencesTask, labelled.sentences, "second"),
    (TaggingTask, labelled.tags, "O"),
])  # fmt: skip
def test_an_encoder_that_always_predicts_one_label_is_noticed(
    pretrained, tmp_path, task_class, files, label
):
    task = task_with_split(task_class, pretrained[0], files(tmp_path), "valid", max_tokens=32)
    dataset = task.datasets["valid"]
    outputs = np.eye(3)[task.recorded.labels.index(label)]
    predictions = {}
    for index in range(len(dataset)):
        of_words = np.tile(outputs, (len(dataset.targets[index]), 1))
        if task_class is TaggingTask:
            of_words = of_words[dataset.targets[index] != IGNORE_INDEX]
        predictions[index] = of_words
    assert task.constant_prediction(dataset, predictions) == label
    predictions[0] = np.roll(predictions[0], 1, axis=-1)
    assert task.constant_prediction(dataset, predictions) is None


def test_what_an_older_checkpoint_does_not_say_is_none(pretrained, tmp_path):
    folder = labelled.tags(tmp_path)
    task = task_with_split(TaggingTask, pretrained[0], folder, "valid", max_tokens=32)
    assert task.recorded.tags_are_legal
    del task.state.state_dict["tags_are_legal"]
    assert task.recorded.tags_are_legal is None
    assert task.recorded.labels == ["B-X", "I-X", "O"]
    predictions = {0: np.eye(3)[[2] * task.datasets["valid"].num_words(0)]}
    assert len(list(task.tagged(task.datasets["valid"], predictions))) == 1


def test_errors_are_over_sentences_also_where_these_are_split(pretrained, tmp_path):
    folder = labelled.tags(tmp_path)
    task = task_with_split(TaggingTask, pretrained[0], folder, "valid", max_tokens=12)
    dataset = task.datasets["valid"]
    assert len(dataset) > len(dataset.sentences)
    rng = np.random.default_rng(1)
    predictions = {i: rng.random((dataset.num_words(i), 3)) for i in range(len(dataset))}
    targets, predicted = task.targets_and_predictions(dataset, predictions)

    def score_sentences(rows):
        kept = [[tags[row] for row in rows] for tags in (targets, predicted)]
        return metrics.compute_tag_scores(dataset.metrics, *kept)

    scores = SplitScores(task, "valid", predictions)
    expected = jackknife.standard_errors(score_sentences, range(len(dataset.sentences)))
    assert scores.standard_errors == pytest.approx(expected)
    assert scores.values == pytest.approx(score_sentences(range(len(dataset.sentences))))
