"""Fine-tuning with the recipes.

From labelled files and a checkpoint to scores, a table of results and a submission.
"""

import csv
import json
import math
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import finetune
import label_texts
import labelled
from conftest import (
    PYTHON,
    ROOT,
    SCRIPTS_ENVIRONMENT,
    error_of,
    error_of_script,
    refuses,
    run_main,
    script,
)
from maelm_fairseq import hub
from maelm_fairseq.base.provenance import sha256
from maelm_fairseq.baselines import crf
from maelm_fairseq.finetuning import glue
from maelm_fairseq.finetuning.sentence_files import read_sentences
from maelm_fairseq.finetuning.tag_sequences import most_probable_tags
from maelm_fairseq.finetuning.tagged_files import read_tagged
from maelm_fairseq.heads import HEAD_OF_POOLING
from maelm_fairseq.metrics import compute_tag_scores
from maelm_fairseq.runs import finetune_results, log_report
from maelm_fairseq.runs.finetune_options import Run
from maelm_fairseq.runs.finetune_runs import RunRecord
from maelm_fairseq.runs.split_scores import SplitScores
from stoppable_runs import STOPPED, finish, start
from training import checkpoint, updates
from vocabularies import vocabulary

SETTINGS = ["--batch-size", 16, "--lr", 3e-3, "--warmup-ratio", 0.1, "--epochs", 2]
SENTENCES = "recipes/finetune_sentences.sh"
BASELINES = ["bag of words", "most frequent class"]
TOGETHER = "encoder and bag of words together"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of labelled files for each task."""
    folder = tmp_path_factory.mktemp("labelled")
    labelled.pairs(folder / "MNLI")
    labelled.pairs(folder / "STS-B", score=True)
    labelled.sentences(folder / "own")
    labelled.tags(folder / "tagged")
    labelled.squad(folder / "squad")
    return folder


@pytest.fixture
def arguments(pretrained, tmp_path):
    data, checkpoint_file = pretrained
    files = ["--checkpoint", checkpoint_file, "--data", data, "--save-dir", tmp_path / "save"]
    return [*files, *SETTINGS]


def table(folder):
    with open(folder / "results.tsv", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def encoder_rows(folder):
    """The rows of the encoder alone."""
    return [row for row in table(folder) if row["predictor"] == "encoder"]


def submitted(save, name):
    (path,) = save.glob(f"*/batch*/{name}.tsv")
    header, *lines = path.read_text().splitlines()
    assert header == "index\tprediction"
    return [line.split("\t") for line in lines]


def scores_of(run):
    return checkpoint(run)["task_state"]["scores"]


def test_scores_results_and_submission(pretrained, files, arguments, tmp_path):
    save = tmp_path / "save"
    mnli = [SENTENCES, "--labelled", files / "MNLI", *arguments]
    printed = script(*mnli, "--seeds", 2).stdout
    runs = sorted(save.glob("MNLI/batch16-lr0.003-warmup0.1-epochs2-*/seed*"))
    assert [run.name for run in runs] == ["seed1", "seed2"]
    assert [updates(run) for run in runs] == [8, 8]
    check_rows_of_mnli(save, pretrained[1], runs, printed)
    assert "dev_mismatched.tsv: 50 examples, read as MNLI or SNLI" in printed
    accuracies = [scores_of(run)["valid"]["accuracy"] for run in runs]
    best = runs[int(np.argmax(accuracies))] / "checkpoint_last.pt"
    assert printed.splitlines()[-1] == f"model of the encoder's best seed: {best}"
    # The server expects the official index and label of every line.
    model = hub.from_pretrained(best, data=pretrained[0])
    for split, name in [("test_matched", "MNLI-m"), ("test_mismatched", "MNLI-mm")]:
        examples = read_sentences(files / "MNLI" / f"{split}.tsv", is_test=True).examples
        first_texts, second_texts = zip(*(example.texts for example in examples))
        answers = model.predict(list(first_texts), list(second_texts))
        labels = [max(answer, key=answer.get) for answer in answers]
        ids = [example.id for example in examples]
        assert submitted(save, name) == [list(pair) for pair in zip(ids, labels)]
    # A repeated command does only what is left, and no row is repeated.
    before = times_of_checkpoints(runs)
    script(*mnli, "--seeds", 3)
    assert before == times_of_checkpoints(runs)
    assert seeds_of_rows(save, pretrained[1]) == ["2", "2", "3", "3"]
    # With other options, there are other runs.
    script(*mnli, "--seeds", 1, "--epochs", 1, "--clip-norm", 1)
    assert len(list(save.glob("MNLI/batch*"))) == 2
    assert seeds_of_rows(save, pretrained[1]) == ["2", "2", "3", "3", "1", "1"]


def check_rows_of_mnli(save, start, runs, printed):
    """The table has a row for each dev file, with what the runs' checkpoints say."""
    rows = [row for row in encoder_rows(save) if row["start"] == str(start)]
    files = ["dev_matched.tsv", "dev_mismatched.tsv"]
    for row, split, file in zip(rows, ["valid", "valid1"], files):
        scores = [scores_of(run)[split]["accuracy"] for run in runs]
        columns = ("task", "file", "metric", "seeds")
        assert [row[name] for name in columns] == ["MNLI", file, "accuracy", "2"]
        median = np.median(scores)
        assert float(row["median"]) == pytest.approx(median, abs=0.01)
        assert float(row["std"]) == pytest.approx(np.std(scores, ddof=1), abs=0.01)
        score = f"{median:.2f} ± {row['standard_error']}, median of 2 seeds"
        assert re.search(rf"\nMNLI, accuracy on {file}:\n  encoder +{score}", printed)


def times_of_checkpoints(runs):
    return [(run / "checkpoint_last.pt").stat().st_mtime_ns for run in runs]


def seeds_of_rows(save, start):
    """The numbers of seeds of the rows of a checkpoint, without those of a test file."""
    rows = [row for row in encoder_rows(save) if row["start"] == str(start)]
    return [row["seeds"] for row in rows if row["file"] != "test.tsv"]


def column_of(path, number):
    """A column of a table, without its header."""
    return [line.split("\t")[number] for line in path.read_text().splitlines()[1:]]


def test_a_bag_of_words_stands_beside_every_score(files, arguments, tmp_path):
    """Also on a test file that has labels, which the best seed predicts once."""
    own = tmp_path / "own"
    write_texts_with_or_without_k(own)
    printed = script(SENTENCES, "--labelled", own, *arguments, "--seeds", 2).stdout
    rows = {(row["file"], row["predictor"]): row for row in table(tmp_path / "save")}
    encoder = "encoder"
    assert [*rows] == [
        *[("dev.tsv", encoder), ("test.tsv", encoder)],
        *[("dev.tsv", baseline) for baseline in BASELINES],
        *[("test.tsv", baseline) for baseline in BASELINES],
        *[("dev.tsv", TOGETHER), ("test.tsv", TOGETHER)],
    ]
    # A bag of words also reads letters within words, which show the label.
    bag, frequent = (float(rows["dev.tsv", name]["median"]) for name in BASELINES)
    assert bag > frequent
    train = column_of(own / "train.tsv", 1)
    dev = column_of(own / "dev.tsv", 1)
    most = max(set(train), key=train.count)
    assert frequent == pytest.approx(100 * dev.count(most) / len(dev), abs=0.01)
    width = len(TOGETHER)
    assert f"\n  {'bag of words':{width}}  {bag:.2f} ± " in printed
    ours = float(rows["dev.tsv", encoder]["median"])
    lead = re.escape(f", {ours - bag:+.2f} ± ")
    assert re.search(rf"\n  encoder  .*{lead}\S+ compared with the bag of words\n", printed)
    together = float(rows["dev.tsv", TOGETHER]["median"])
    assert f"\n  {TOGETHER}  {together:.2f} ± " in printed
    assert rows["dev.tsv", TOGETHER]["seeds"] == "2"
    assert rows["test.tsv", TOGETHER]["seeds"] == "1"
    (predictions,) = (tmp_path / "save").glob("own/batch*/own.tsv")
    check_score_on_test_file(rows["test.tsv", encoder], predictions, own / "test.tsv")
    assert "labels absent from the training file count as errors: never seen" in printed
    # A file beside the predictions has the precision, recall and F1 of each class.
    report = predictions.parent / "own.report.txt"
    assert str(report) in printed
    names = ["encoder, seed", "bag of words\n", f"{TOGETHER}, seed"]
    titles = [f"{file}, {name}" for file in ["dev.tsv", "test.tsv"] for name in names]
    for name in [*titles, "precision", "with k", "without"]:
        assert name in report.read_text()


def write_texts_with_or_without_k(folder):
    """Two classes, and one more that only the test file has."""
    for split, count in [("train", 80), ("dev", 24), ("test", 10)]:
        texts = [" ".join(words) for words in labelled.texts(count, split, 6)]
        rows = [(text, "with k" if "k" in text else "without") for text in texts]
        if split == "test":
            rows.append(("kan losh", "never seen"))
        labelled.write_table(folder / f"{split}.tsv", ["sentence", "label"], rows)


def check_score_on_test_file(row, predictions, test_file):
    """One seed is scored; for a label that is not in training, no answer is right."""
    predicted = column_of(predictions, 1)
    labels = column_of(test_file, 1)
    right = sum(map(str.__eq__, predicted, labels))
    assert float(row["median"]) == pytest.approx(100 * right / len(labels), abs=0.01)
    assert row["seeds"] == "1"


def test_a_bag_of_words_that_takes_too_long_is_left_out(files, arguments, capsys):
    runs, _ = run_main(begun, "--labelled", files / "own", *arguments)
    os.makedirs(os.path.join(runs.command.args.save_dir, "own"))
    assert finetune.make_baseline_run(runs, runs.task).run(runs.jobs, limit=0.01) is None
    assert "bag of words: left out, as it takes longer than training" in capsys.readouterr().out


@pytest.fixture
def other_seeds(monkeypatch):
    """Seeds 1 and 3 predict the dev file without an error; seed 2 is the best."""

    def predict_dev(runs, run):
        targets = runs.task.datasets["valid"].targets
        return {"valid": dict(enumerate(9.0 * np.eye(3)[np.ravel(targets)]))}

    monkeypatch.setattr(finetune, "predict_dev", predict_dev)


def baselines_of(labelled, arguments):
    """The runs, and the results of an encoder beside a bag of words.

    The encoder scores 50 and always answers the first class.
    """
    runs, _ = run_main(begun, "--labelled", labelled, *arguments)
    os.makedirs(os.path.join(runs.command.args.save_dir, "own"), exist_ok=True)
    results = []
    scores = {}
    for split in runs.splits:
        dataset = runs.task.datasets[split]
        if split == "train" or not dataset.metrics:
            continue
        predictions = dict.fromkeys(range(len(dataset)), [2.0, 0.0, 0.0])
        scores[split] = SplitScores(runs.task, split, predictions)
        name = runs.file_name(split)
        for metric in dataset.metrics:
            digits = runs.file_sha256(split)
            result = finetune_results.Result("own", name, metric, [50.0], 1.0, file_sha256=digits)
            results.append(result)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", PYTHON)
        seed_runs = [Run(None, seed) for seed in [1, 2, 3]]
        run = finetune.make_baseline_run(runs, runs.task)
        outcome = run.run(runs.jobs, limit=60)
        results, _ = finetune.with_baselines(runs, run, outcome, results, scores, seed_runs, best=2)
        return runs, results


def test_baselines_are_those_of_the_run(files, arguments, tmp_path, other_seeds):
    """They are computed again if their file is damaged, or if there are other splits."""
    own = shutil.copytree(files / "own", tmp_path / "own")
    _, first = baselines_of(own, arguments)
    (path,) = (tmp_path / "save").glob("own/bag_of_words-*.json")
    whole = path.read_text()
    outcome = json.loads(whole)
    without_a_score = {**outcome, "scores": outcome["scores"][1:]}
    with_nan = {**outcome, "outputs": {"bag of words": {"dev.tsv": [[math.nan]]}}}
    for damaged in ["", "{}", json.dumps(without_a_score), json.dumps(with_nan)]:
        path.write_text(damaged)
        _, again = baselines_of(own, arguments)
        assert again == first
        assert path.read_text() == whole
    (own / "test.tsv").rename(own / "dev_mismatched.tsv")
    _, again = baselines_of(own, arguments)
    assert {result.file_name for result in first} == {"dev.tsv", "test.tsv"}
    assert {result.file_name for result in again} == {"dev.tsv", "dev_mismatched.tsv"}


def test_scores_of_seeds_are_in_their_order(files, arguments, other_seeds):
    _, results = baselines_of(files / "own", arguments)
    both = {result.file_name: result for result in results if result.predictor == TOGETHER}
    first, best, third = both["dev.tsv"].values
    assert first == third > best
    assert len(both["test.tsv"].values) == 1
    for result in results:
        assert result.file_sha256 == sha256(files / "own" / result.file_name)[:8]


def test_the_difference_from_a_bag_of_words_is_paired_by_examples(
    files, arguments, tmp_path, other_seeds
):
    """The error is that of a mean over the examples: of 100, 0 or -100 points of difference."""
    runs, results = baselines_of(files / "own", arguments)
    (path,) = (tmp_path / "save").glob("own/bag_of_words-*.json")
    outputs = json.loads(path.read_text())["outputs"]["bag of words"]["dev.tsv"]
    answers = np.array(outputs).argmax(axis=1)
    dataset = runs.task.datasets["valid"]
    examples = dataset.labelled_examples()
    targets = np.array([dataset.targets[number][0] for number in examples])
    differences = 100.0 * (targets == 0) - 100.0 * (answers == targets)
    error = differences.std(ddof=1) / len(differences) ** 0.5
    of_dev = {result.predictor: result for result in results if result.file_name == "dev.tsv"}
    bag = of_dev["bag of words"]
    assert bag.values[0] == pytest.approx(100 * (answers == targets).mean())
    lead = f", {50 - bag.values[0]:+.2f} ± {error:.2f} compared with the bag of words"
    assert str(of_dev["encoder"]).endswith(lead)
    for result in of_dev.values():  # all are paired with all others
        assert result.difference_errors.keys() == of_dev.keys() - {result.predictor}


def test_lower_layers_of_small_encoders_take_smaller_steps(files, arguments):
    """On sentences, because small encoders are fine-tuned on them for many epochs."""
    runs, candidates = run_main(begun, "--labelled", files / "own", *arguments)
    options = argv_of(runs, candidates)
    assert options[options.index("--lr-layer-decay") + 1] == "0.7"
    scratch = argv_of(*run_main(begun, "--labelled", files / "own", *arguments, "--from-scratch"))
    assert "--lr-layer-decay" not in scratch
    runs.command.defaults = runs.command.task_class.default_settings("own", 16, num_layers=12)
    assert "--lr-layer-decay" not in argv_of(runs, candidates)


@pytest.mark.parametrize("given, dropped", [
    (["--optimizer", "adam"], ["torch_adamw", "--lr-layer-decay"]),
    (["--optimizer", "sgd"], ["torch_adamw", "--adam-betas", "--lr-layer-decay"]),
    (["--lr-scheduler", "fixed"], ["polynomial_decay", "--total-num-update"]),
])  # fmt: skip
def test_another_optimizer_or_schedule_drops_the_settings_that_it_does_not_have(
    files, arguments, given, dropped
):
    runs, candidates = run_main(begun, "--labelled", files / "own", *arguments)
    assert {*dropped} < {*argv_of(runs, candidates)}
    runs, candidates = run_main(begun, "--labelled", files / "own", *arguments, *given)
    options = argv_of(runs, candidates)
    assert not {*dropped} & {*options}
    assert options[-2:] == given
    assert "--warmup-updates" in options
    assert ("--weight-decay" in options) == (given[-1] != "sgd")


def test_a_task_is_not_called_as_the_table_is(files, arguments, tmp_path):
    labelled_as_table = shutil.copytree(files / "own", tmp_path / "results.tsv")
    fault = error_of(begun, "--labelled", labelled_as_table, *arguments)
    assert "results.tsv: found a folder called results.tsv; rename it" in fault


def test_how_long_the_other_seeds_take_is_said(files, arguments, capsys, monkeypatch):
    """Of the seeds that are not done yet, with the jobs that run at the same time."""
    runs, (candidate,) = run_main(begun, "--labelled", files / "own", *arguments)
    passed = threading.local()  # each seed has a thread of its own

    def train(run, environment):
        passed.seconds = 60.0
        return RunRecord({}, [], seconds=50.0)

    monkeypatch.setattr(runs, "load_or_train", train)
    for jobs, seeds, expected in [
        (2, 1, ""), (2, 2, ""), (2, 5, "the other seeds take about 0:02:00\n"),
        (1, 2, "the other seed takes about 0:01:00\n"),
    ]:  # fmt: skip
        runs.jobs.count = jobs
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: getattr(passed, "seconds", 0.0))
            passed.seconds = 0.0
            runs.run_seeds(candidate, range(1, seeds + 1))
        assert capsys.readouterr().out == expected


def test_the_command_for_new_texts_has_the_options_of_the_baseline(files, arguments):
    runs, _ = run_main(begun, "--labelled", files / "STS-B", *arguments, "--regression")
    options = finetune.make_baseline_run(runs, runs.task).options()
    command = finetune.labelling_command(runs, TOGETHER, "model.pt", options)
    assert f" --labelled {files / 'STS-B'} --regression --checkpoint model.pt --data /" in command
    assert "--regression" not in finetune.labelling_command(runs, "encoder", "model.pt", options)


def test_a_damaged_model_of_a_finished_seed(files, arguments):
    runs, (candidate,) = run_main(begun, "--labelled", files / "own", *arguments)
    run = Run(candidate, seed=2)
    os.makedirs(runs.folder(run))
    Path(runs.checkpoint_path(run)).write_bytes(b"PK")
    advice = f"to train this seed again, remove {re.escape(runs.folder(run))}, and run the same"
    refuses(f"checkpoint_last.pt: .*; {advice}", finetune.load_model, runs, run)


def test_a_line_of_the_log_that_was_cut_is_left_out(tmp_path):
    lines = ['{"valid_num_updates": "1", "valid_loss": "2"}', '{"valid_num_updates": "2", "val']
    (tmp_path / "train.log").write_text("\n".join(lines))
    assert [*log_report.read_validations(tmp_path / "train.log")] == [1]


def test_a_regression(pretrained, files, arguments, tmp_path):
    options = ["--labelled", files / "STS-B", *arguments]
    options += ["--seeds", 1, "--classification-pooling", "mean"]
    printed = script(SENTENCES, *options).stdout
    assert "updates: loss " in printed
    assert " bits" not in printed
    assert "@ 0 updates" not in printed
    save = tmp_path / "save"
    (run,) = save.glob("STS-B/*/seed1")
    model = hub.from_pretrained(run / "checkpoint_last.pt", data=pretrained[0])
    examples = read_sentences(files / "STS-B" / "test.tsv", is_test=True).examples
    values = np.clip([model.predict(*example.texts) for example in examples], 0, 5)
    assert {type(head) for head in model.model.classification_heads.values()} == {
        HEAD_OF_POOLING["mean"]
    }
    assert submitted(save, "STS-B") == [[str(i), f"{value:.3f}"] for i, value in enumerate(values)]
    rows = table(save)
    ours = [row for row in rows if row["predictor"] == "encoder"]
    medians = {row["metric"]: float(row["median"]) for row in ours}
    assert medians == pytest.approx(scores_of(run)["valid"], abs=0.01)
    assert list(medians) == ["pearson", "spearman"]
    assert [row["predictor"] for row in rows[2:]] == [*["bag of words"] * 2, *[TOGETHER] * 2]
    # With another test file, the old predictions are kept under another name.
    test = files / "STS-B" / "test.tsv"
    test.write_text("".join(test.read_text().splitlines(True)[:3]))
    again = script(SENTENCES, *options).stdout
    assert re.search("renamed the earlier .*STS-B.tsv to ", again)
    assert len(submitted(save, "STS-B")) == 2
    assert glue.server_name("own", "test1") == "own_mismatched"
    assert glue.server_name("MNLI", "test") == "MNLI-m"
    classes = glue.prediction_table([(0, "5 stars")], "STS-B")  # a folder that is called so
    assert classes == "index\tprediction\n0\t5 stars\n"


def check_votes_on_words(folder, model, run, save, data):
    """What encoder and CRF vote for is scored, and labels new texts, by the means of both."""
    tagged = crf.TaggedSentences(folder)
    field = crf.ConditionalRandomField(tagged.train)
    sentences = tagged.sentences_by_file["dev.txt"]
    predicted = []
    for sentence in sentences:
        probabilities = model.word_probabilities(sentence.words).numpy()
        probabilities = probabilities + field.probabilities(sentence.words, tagged.labels)
        predicted.append(most_probable_tags(probabilities / 2, tagged.labels, only_legal=True))
    targets = [sentence.tags for sentence in sentences]
    expected = compute_tag_scores(tagged.metrics, targets, predicted)
    recorded = {}
    for row in table(save):
        if row["predictor"] == "encoder and CRF together" and row["file"] == "dev.txt":
            recorded[row["metric"]] = float(row["median"])
    assert recorded == pytest.approx(expected, abs=0.005)
    texts = folder.parent / "texts.txt"
    texts.write_text("".join(" ".join(sentence.words) + "\n" for sentence in sentences))
    options = ["--labelled", folder, "--texts", texts, "--dest", folder.parent / "new.txt"]
    encoder = ["--checkpoint", run / "checkpoint_last.pt", "--data", data]
    run_main(label_texts.main, *options, *encoder)
    other = folder.parent / "other"
    other.mkdir()
    text = (folder / "train.txt").read_text().replace("X", "Z")
    for split in ["train", "dev"]:
        (other / f"{split}.txt").write_text(text)
    options[1], options[-1] = other, folder.parent / "other.txt"
    fault = "it predicts the tags B-X, I-X, O, expected B-Z, I-Z, O, as in --labelled"
    assert fault in error_of(label_texts.main, *options, *encoder)
    words = [line.split("\t") for line in (folder.parent / "new.txt").read_text().splitlines()]
    assert [word[1] for word in words if word != [""]] == [
        tag for tags in predicted for tag in tags
    ]


def check_run_from_before(tagging, run):
    """A run whose checkpoint does not say how tags are predicted is reported, too."""
    path = run / "checkpoint_last.pt"
    state = checkpoint(run)
    del state["task_state"]["tags_are_legal"]
    torch.save(state, path)
    printed = script(*tagging, "--seeds", 1).stdout
    assert "highest f1 on dev.txt: the CRF" in printed


def test_tags_and_questions(pretrained, files, arguments, tmp_path):
    save = tmp_path / "save"
    tagging = ["recipes/finetune_tagging.sh", "--labelled", files / "tagged", *arguments]
    printed = script(*tagging, "--seeds", 1).stdout
    assert "3 labels: B-X (131), I-X (20), O (622)" in printed
    assert printed.count("labels:") == 1
    rows = [(row["predictor"], row["metric"]) for row in table(save) if row["file"] == "dev.txt"]
    metrics = ["f1", "precision", "recall", "accuracy"]
    both = "encoder and CRF together"
    predictors = ["encoder", "CRF", "most frequent tag of each word", both]
    assert rows == [(predictor, metric) for predictor in predictors for metric in metrics]
    _, _, scores = printed.partition("\ntagged, f1 on dev.txt:\n")
    of_encoder, of_crf, of_frequent_tags, of_both, *_ = scores.splitlines()
    assert re.fullmatch(r"  encoder  .* compared with the CRF", of_encoder)
    assert of_crf.startswith("  CRF  ")
    assert of_frequent_tags.startswith("  most frequent tag of each word  ")
    assert re.fullmatch(rf"  {both}  .* compared with the CRF", of_both)
    assert "highest f1 on dev.txt: the CRF" in printed
    (run,) = save.glob("tagged/*/seed1")
    model = hub.from_pretrained(run / "checkpoint_last.pt", data=pretrained[0])
    sentences = read_tagged(files / "tagged" / "test.txt")
    lines = []
    for row in model.predict([" ".join(sentence.words) for sentence in sentences]):
        lines += [f"{word}\t{tag}\n" for word, tag in row] + ["\n"]
    assert (run.parent / "tagged.txt").read_text() == "".join(lines)
    check_votes_on_words(files / "tagged", model, run, save, pretrained[0])
    check_run_from_before(tagging, run)
    questions = ["recipes/finetune_squad.sh", "--labelled", files / "squad", *arguments]
    script(*questions, "--seeds", 1, "--bf16-autocast")
    of_squad = [row for row in table(save) if row["task"] == "squad"]
    rows = {row["metric"]: float(row["median"]) for row in of_squad}
    assert list(rows) == ["f1", "exact", "HasAns_f1", "NoAns_f1"]
    mean = (14 * rows["HasAns_f1"] + 7 * rows["NoAns_f1"]) / 21
    assert rows["f1"] == pytest.approx(mean, abs=0.02)
    (path,) = save.glob("squad/*/squad.valid.json")
    answers = json.loads(path.read_text())
    assert answers.keys() == {f"dev-{i}" for i in range(21)}


def test_runs_start_from_the_pretrained_encoder_or_from_scratch(
    files, arguments, pretrained, tmp_path
):
    """With a learning rate of almost zero, a run ends where it began.

    How long its pretraining took is not its own time.
    """
    state = checkpoint(pretrained[1].parent)
    state["extra_state"]["previous_training_time"] = 1e6
    start = tmp_path / "pretrained.pt"
    torch.save(state, start)
    still = [
        "--checkpoint",
        start,
        *arguments[2:6],
        "--lr",
        1e-12,
        "--batch-size",
        16,
        "--warmup-ratio",
        0,
    ]
    still += ["--epochs", 1, "--seeds", 1]
    before = state["model"]
    save = tmp_path / "save"
    earlier_runs = set()
    for options, is_pretrained in [([], True), (["--from-scratch"], False)]:
        printed = script(SENTENCES, "--labelled", files / "own", *still, *options).stdout
        assert ("own: training again, as the checkpoint" in printed) == bool(earlier_runs)
        (run,) = {*save.glob("own/*/seed1")} - earlier_runs
        earlier_runs.add(run)
        assert checkpoint(run)["task_state"]["pretraining_updates"] == (2 if is_pretrained else 0)
        assert json.loads((run / "scores.json").read_text())["seconds"] < 1e5
        after = checkpoint(run)["model"]
        for name in [
            "embed_tokens.weight",
            "encoder.layers.1.ffn.0.weight",
            "encoder.relative_bias.table.weight",
        ]:
            assert torch.allclose(before[name], after[name], atol=1e-6) == is_pretrained
    starts = [row["start"] for row in encoder_rows(save) if row["file"] == "dev.tsv"]
    assert starts == [str(start), "scratch"]


def test_a_search_and_then_a_job_for_each_seed(files, arguments, pretrained, tmp_path):
    save = tmp_path / "save"
    options = [SENTENCES, "--labelled", files / "own", *arguments, "--epochs", 1]
    options += ["--search", "--lr", 3e-3, 1e-6]
    assert "the search is not finished" in error_of_script(*options, "--only-seed", 1)
    printed = script(*options, "--seeds", 1, "--jobs", 2).stdout
    assert not list(save.glob("own/*/seed0/*.pt"))
    accuracies = {}  # of the two combinations that were searched
    for path in save.glob("own/*/seed0/scores.json"):
        record = json.loads(path.read_text())
        accuracies[path.parent.parent.name] = record["scores"]["valid"]["accuracy"]
    (best,) = [run.parent.name for run in save.glob("own/*/seed1")]
    assert len(accuracies) == 2
    assert accuracies[best] == max(accuracies.values())
    assert f"best of 2: {best.rpartition('-')[0]}" in printed
    script(*options, "--seeds", 2, "--only-seed", 2)
    assert seeds_of_rows(save, pretrained[1]) == ["1"]
    checkpoints = "own/*/*/checkpoint_last.pt"
    trained = {path: path.stat().st_mtime_ns for path in save.glob(checkpoints)}
    script(*options, "--seeds", 2)  # collects the results
    assert trained == {path: path.stat().st_mtime_ns for path in save.glob(checkpoints)}
    assert seeds_of_rows(save, pretrained[1]) == ["1", "2"]


def begun():
    """The runs and the candidates of a recipe for sentences, with the arguments of this program."""
    return finetune.prepare_runs("mae_lm_sentences", sys.argv[1:])


def argv_of(runs, candidates):
    """The command of a run."""
    return runs.command.argv(Run(candidates[0], 1), 9, "folder", ["valid"])


def test_a_recipe_that_is_asked_to_stop_stops_as_pretraining_does(files, arguments, tmp_path):
    command = [ROOT / SENTENCES, "--labelled", files / "own", *arguments]
    command += ["--seeds", 1, "--epochs", 4000]
    process = start(command, PATH=SCRIPTS_ENVIRONMENT["PATH"])
    next(line for line in process.stdout if "validation after" in line)
    process.send_signal(signal.SIGTERM)
    assert "stopped on request at update" in finish([process], STOPPED)
    (run,) = tmp_path.glob("save/own/*/seed1")
    assert 5 <= updates(run) < 20_000
    before = updates(run)
    process = start(command, PATH=SCRIPTS_ENVIRONMENT["PATH"])
    assert any("Loaded checkpoint" in line for line in process.stdout)  # the same command resumes
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert updates(run) >= before


def test_another_vocabulary_is_refused_before_any_training(files, arguments, tmp_path):
    other = vocabulary(tmp_path / "other")
    options = ["--labelled", files / "own", *arguments, "--data", other]
    fault = error_of(begun, *options)
    assert "trained with another dict.txt, of 102 symbols" in fault
    run_main(begun, *options, "--from-scratch")  # only the sizes are the checkpoint's
    assert not (tmp_path / "save").exists()


@pytest.mark.parametrize("options, message", [
    (["--update-freq=2"], "--update-freq: the recipe sets it; leave it out; --help lists"),
    (["--max-tokens", 64], "--max-tokens: the recipe sets it"),
    (["--max-sentences=4"], "--max-sentences: the recipe sets it"),
    (["--seeds", 1, 2], "2: found a value that belongs to no option; remove it"),
    (["--fast", "x", "--seeds", 1], "unrecognized arguments: --fast x"),
    (["--seed", 7], "--seed: the recipe sets it; did you mean --seeds? leave it out"),
    (["--disable-validation"], "--disable-validation: the recipe sets it"),
    (["--lr-layer-decay", 2], "--lr-layer-decay 2.0 must be greater than 0 and at most 1"),
    (["--weight-decay", -1], "--weight-decay -1.0 must be a finite number, at least 0"),
    (["--save-dir", "/proc/runs"], "/proc/runs: cannot be written (/proc: "),
    (["--lr-sched", "x"], "unrecognized arguments: --lr-sched x"),
    (["--best-checkpoint-metric=f1", "--maximize-best"], "unrecognized arguments: --maximize-best"),
    (["--best-checkpoint-metric=f1", "--maximize-best-checkpoint-metric"],
     "--best-checkpoint-metric f1: validation logs accuracy, loss; choose one"),
    (["--best-checkpoint-metric=f1"], "checkpoint-metric f1: validation logs accuracy, loss"),
    (["--best-checkpoint-metric=accuracy"], "accuracy needs --maximize-best-checkpoint-metric"),
    (["--maximize-best-checkpoint-metric"], "the lowest loss is the best; leave it out"),
    (["--log-format", "simple"], "--log-format: the recipe sets it"),
    (["--max-valid-steps", 1], "--max-valid-steps: the recipe sets it"),
    (["--checkpoint-suffix", "_x"], "--checkpoint-suffix: the recipe sets it"),
    (["--criterion", "mae_lm"], "--criterion: the recipe sets it"),
])  # fmt: skip
def test_options_that_would_falsify_what_is_reported_are_refused(
    files, arguments, options, message
):
    assert message in error_of(begun, "--labelled", files / "own", *arguments, *options)


def test_a_run_that_stopped_before_its_last_validation_is_validated(files, arguments, tmp_path):
    own = [SENTENCES, "--labelled", files / "own", *arguments, "--seeds", 1]
    printed = script(*own).stdout
    (run,) = tmp_path.glob("save/own/*/seed1")
    state = checkpoint(run)
    state["task_state"]["scores"]["num_updates"] -= 5
    state["extra_state"]["val_loss"] = None  # as SIGTERM in a validation leaves it
    torch.save(state, run / "checkpoint_last.pt")
    for name in ["checkpoint_best.pt", "scores.json"]:
        (run / name).unlink()
    again = script(*own).stdout
    assert "validation after 10 updates" in again
    assert again.splitlines()[-1] == printed.splitlines()[-1]
    assert scores_of(run)["num_updates"] == 10
    assert (run / "checkpoint_best.pt").exists()
    (run / "scores.json").write_text('{"scores": {}, "curve": [], "seconds": 1}')
    fault = "scores.json: found no scores of this run for valid; remove it, and run again"
    assert fault in error_of_script(*own)
    for path in run.glob("checkpoint_*.pt"):
        path.unlink()
    script(*own)  # trains again, and has no scores until then
    kept = json.loads((run / "scores.json").read_text())["scores"]
    assert kept["valid"] == scores_of(run)["valid"]


def test_wrong_input(files, arguments, tmp_path):
    own = ["--labelled", files / "own", *arguments]

    def error_with(*options):
        return error_of(begun, *own, *options)  # later options override earlier ones

    runs, candidates = run_main(begun, *own, "--from-scratch")
    runs.command.model_options["relative_position_local_init"] = True
    assert "--relative-position-local-init" in argv_of(runs, candidates)
    assert "nosuch.pt: not found" in error_with("--checkpoint", tmp_path / "nosuch.pt")
    for option, value, expected in [
        ("--seeds", 0, "an integer from 1 to 2147483647, found '0'"),
        ("--epochs", 10**30, f"an integer from 1 to 1000000, found '1{'0' * 30}'"),
        ("--lr", 0, "a number from 1e-12 to 10, found '0'"),
        ("--warmup-ratio", 7, "a number from 0 to 1, found '7'"),
    ]:
        assert f"{option}: expected {expected}" in error_with(option, value)
    assert "--lr 0.001 0.002: give one value" in error_with("--lr", 1e-3, 2e-3)
    fault = "--only-seed 6 must be from 1 to --seeds, which is 5"
    assert fault in error_with("--only-seed", 6)
    fault = "expected train.tsv, found: no such folder"
    assert fault in error_with("--labelled", tmp_path / "none")
    assert "expected train.json or train-v1.1.json" in error_of_script(
        "recipes/finetune_squad.sh", *own
    )
    assert "in fairseq, ${...}" in error_with("--save-dir", tmp_path / "a${b}")
    assert "--dropout nan must be at least 0 and less than 1" in error_with("--dropout", "nan")
    (tmp_path / "results.tsv").write_text("name,score\n")
    fault = "results.tsv: found another table, expected one of this"
    assert fault in error_with("--save-dir", tmp_path)
    assert not (tmp_path / "save").exists()  # nothing was trained
    fault = "fairseq-train ended with exit status 1; the full log is"
    assert fault in error_of_script(SENTENCES, *own, "--encoder-attention-heads", 3)


def test_files_that_change_meanwhile(files, arguments, tmp_path):
    own = shutil.copytree(files / "own", tmp_path / "own")
    runs, candidates = run_main(begun, "--labelled", own, *arguments, "--epochs", 1)

    def run_and_change(*command, train=runs.jobs.execute):
        status = train(*command)
        (own / "dev.tsv").write_text((own / "dev.tsv").read_text().replace("first", "second"))
        return status

    runs.jobs.execute = run_and_change
    for _ in range(2):  # the second time, nothing is trained
        refuses(
            "has changed since this began; run the command again",
            runs.load_or_train,
            Run(candidates[0], 1),
            {},
        )
        assert [path.name for path in tmp_path.glob("save/own/*/*")] == ["seed1.changed"]


def test_precision_on_gpus(files, arguments, monkeypatch):
    runs, candidates = run_main(begun, "--labelled", files / "own", *arguments)
    devices = ["--cpu", "--fp16"]
    assert [word for word in argv_of(runs, candidates) if word in devices] == ["--cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [word for word in argv_of(runs, candidates) if word in devices] == ["--fp16"]
    runs.command.fairseq_args = ["--bf16-autocast"]
    assert not {*argv_of(runs, candidates)} & {*devices}


# Programs at the same time ------------------------------------------------------------------------
