"""Fine-tuning with fairseq-train: a task for sentences, one for words, one for questions."""

import gzip
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import label_texts
import labelled
import maelm_fairseq.predict
from conftest import PLUGIN, error_of, refuses, run_main, succeed
from huggingface_cases import byte_level_roberta
from labelled import KINDS, arguments, finetune, question, write_squad, write_table
from maelm_fairseq import hub
from maelm_fairseq.base.vocabulary_files import read_subwords
from maelm_fairseq.evaluation import bag_of_words
from maelm_fairseq.finetuning import metrics, squad_files
from maelm_fairseq.finetuning.labelled_files import read_sentences
from maelm_fairseq.finetuning.labelled_task import layers_below_head
from maelm_fairseq.finetuning.prediction import load_task, make_task, predict
from maelm_fairseq.finetuning.tagged_files import read_tagged
from maelm_fairseq.finetuning.windows import pieces_of
from test_errors import refused
from test_preemption import finish, two_processes
from training import assert_same_weights, checkpoint

UPDATES = {"mae_lm_sentences": 150, "mae_lm_tokens": 150, "squad": 300}


@pytest.fixture(scope="module", params=KINDS)
def tuned(request, pretrained, tmp_path_factory):
    """A task, its labelled files, and a run that has learned them."""
    task, folder = request.param, tmp_path_factory.mktemp(request.param)
    files = KINDS[task](folder / "files", *[300] * (task == "squad"))
    more = ["--max-update", UPDATES[task], "--validate-interval", 5, "--relative-position-local-init"]
    printed = finetune(task, *pretrained[:1], files, pretrained[1], folder / "run", *more)
    return SimpleNamespace(task=task, files=files, run=folder / "run", printed=printed, data=pretrained[0])


def validations(printed):
    return [json.loads(line[line.index("{") :]) for line in printed.splitlines() if '"valid_loss"' in line]


def test_validation_logs_the_scores_and_the_checkpoint_has_them(tuned):
    state = checkpoint(tuned.run)
    scores, last = state["task_state"]["scores"], validations(tuned.printed)[-1]
    assert scores["num_updates"] == int(last["valid_num_updates"]) == UPDATES[tuned.task]
    for name, value in scores["valid"].items():
        assert float(last[f"valid_{name}"]) == pytest.approx(value, abs=0.01)
    first = {"mae_lm_sentences": "accuracy", "mae_lm_tokens": "f1", "squad": "f1"}[tuned.task]
    assert scores["valid"][first] > 75, scores  # it has learned
    sizes = {name: state["cfg"]["model"][name] for name in ["encoder_embed_dim", "encoder_layers", "max_positions"]}
    assert sizes == dict(encoder_embed_dim=32, encoder_layers=2, max_positions=32)  # of the pretrained encoder


def test_predictions_score_the_same(tuned):
    """What `predict` answers from the raw file, by itself and with fairseq-validate."""
    scores = checkpoint(tuned.run)["task_state"]["scores"]["valid"]
    task, model = load_task(tuned.run / "checkpoint_last.pt", labelled=tuned.files)
    answers = predict(task, model, "valid")
    assert task.scores(task.datasets["valid"], answers) == pytest.approx(scores, abs=1e-6)
    options = ["--task", tuned.task, "--path", tuned.run / "checkpoint_last.pt", "--batch-size", 7, "--cpu"]
    options += ["--labelled", tuned.files, "--criterion", tuned.task, "--log-format", "json", "--log-interval", 1]
    printed = succeed("fairseq-validate", tuned.data, "--user-dir", PLUGIN, *options)
    (logged,) = validations(printed)
    assert {name: float(logged[f"valid_{name}"]) for name in scores} == pytest.approx(scores, abs=0.01)


def test_an_encoder_and_a_bag_of_words_label_texts_together(tuned, tmp_path):
    """As the mean of what each says, in units of what they say of the dev file."""
    arguments = ["--labelled", tuned.files, "--texts", tmp_path / "texts", "--dest", tmp_path / "new.tsv"]
    arguments += ["--checkpoint", tuned.run / "checkpoint_last.pt", "--data", tuned.data]
    texts = [" ".join(words) for words in labelled.texts(7, 1)]
    (tmp_path / "texts").write_text("\n".join(texts))
    if tuned.task != "mae_lm_sentences":
        (tmp_path / "files").mkdir()
        labelled.sentences(tmp_path / "files")
        arguments[1] = tmp_path / "files"
        assert "expected a model that finetune_glue.sh has fine-tuned" in error_of(label_texts.main, *arguments)
        return
    run_main(label_texts.main, *arguments)
    lines = (tmp_path / "new.tsv").read_text().splitlines()
    assert lines[0] == "label\tsentence"
    assert [line.split("\t")[1] for line in lines[1:]] == texts
    model, of_files = hub.from_pretrained(arguments[7], data=tuned.data), bag_of_words.Labelled(tuned.files)
    of_files.files = {name: of_files.files[name] for name in list(of_files.files)[:1]}
    dev = [of_files.texts[number] for number in of_files.files["dev.tsv"]]
    together = label_texts.label(of_files, dev, model)
    ours = label_texts.of_encoder(model, dev, of_files.classes)
    theirs = bag_of_words.of_all(of_files)["bag of words"][: len(dev)]
    for votes in (ours, theirs):
        votes -= votes.mean(1, keepdims=True)
        votes /= votes.std()
    assert together == [of_files.classes[number] for number in (ours + theirs).argmax(1)]
    other = tmp_path / "other"
    labelled.write_table(other / "train.tsv", ["sentence", "label"], [("kan", "a"), ("lo", "b")])
    labelled.write_table(other / "dev.tsv", ["sentence", "label"], [("kan", "a"), ("lo", "b")])
    fault = error_of(
        label_texts.main, "--labelled", other, "--texts", arguments[3], "--dest", other / "x", *arguments[6:]
    )
    assert "expected the labels a, b of --labelled; give the folder that it was fine-tuned on" in fault


def predicted_lines(checkpoint_file, data, texts, dest):
    options = ["--checkpoint", checkpoint_file, "--data", data, "--texts", texts, "--dest", dest]
    run_main(maelm_fairseq.predict.main, *options)
    return dest.read_text(encoding="utf-8").split("\n")


def test_a_file_of_texts_gets_labels(tuned, tmp_path, monkeypatch):
    """In the order of the file, whether it is packed or not; more than one chunk."""
    monkeypatch.setattr(maelm_fairseq.predict, "CHUNK", 4)
    texts = ["kan losh", "lo mi", "", *[" ".join(words) for words in labelled.texts(7, 1)]]
    packed = tmp_path / "texts.gz"
    packed.write_bytes(gzip.compress("".join(text + "\n" for text in texts).encode()))
    model_file = tuned.run / "checkpoint_last.pt"
    options = ["--checkpoint", model_file, "--data", tuned.data, "--texts", packed, "--dest", tmp_path / "new.tsv"]
    if tuned.task == "squad":
        assert "the head was fine-tuned on questions: call answer" in error_of(maelm_fairseq.predict.main, *options)
        assert not (tmp_path / "new.tsv").exists()
        return
    lines = predicted_lines(model_file, tuned.data, packed, tmp_path / "labels.tsv")
    model = hub.from_pretrained(model_file, data=tuned.data)
    if tuned.task == "mae_lm_tokens":
        expected = "".join("".join(f"{w}\t{tag}\n" for w, tag in model.predict(text)) + "\n" for text in texts)
        assert "\n".join(lines) == expected
        return
    assert lines[0] == "label\tprobability\tsentence"
    for line, text in zip(lines[1:], texts, strict=False):
        label, probability, shown = line.split("\t")
        probabilities = model.predict(text)
        assert label == max(probabilities, key=probabilities.get)
        assert float(probability) == pytest.approx(max(probabilities.values()), abs=1e-3)
        assert shown == text
    assert len(lines) == len(texts) + 2
    # It is a file that fine-tuning reads.
    assert len(read_sentences(tmp_path / "labels.tsv").examples) == len(texts)
    assert "labels.tsv: exists already" in error_of(maelm_fairseq.predict.main, *options[:-1], tmp_path / "labels.tsv")
    (tmp_path / "empty").write_text("")
    (tmp_path / "table").write_text("kan\tlosh\n")
    fault = error_of(maelm_fairseq.predict.main, *options[:5], tmp_path / "table", *options[6:])
    assert "table: line 1: found 2 columns, expected one text without a tab" in fault
    fault = error_of(maelm_fairseq.predict.main, *options[:5], tmp_path / "empty", *options[6:])
    assert "empty: it is empty, expected a text in each line" in fault
    assert not (tmp_path / "new.tsv").exists()


def test_weights_say_how_far_below_the_head_they_are():
    names = ["classification_heads.sentences.dense.bias", "encoder.layers.2.ffn.0.weight", "encoder.layers.0.out.bias"]
    names += ["encoder.norm.weight", "embed_tokens.weight", "encoder.relative_bias.table.weight"]
    assert [layers_below_head(name, 3) for name in names] == [0, 1, 3, 4, 4, 4]


def test_the_hub_gives_labels(tuned):
    model = hub.from_pretrained(tuned.run / "checkpoint_last.pt", data=tuned.data)
    scores = checkpoint(tuned.run)["task_state"]["scores"]["valid"]
    if tuned.task == "mae_lm_sentences":
        examples = read_sentences(tuned.files / "dev.tsv").examples
        predicted = [max(row, key=row.get) for row in model.predict([example.texts[0] for example in examples])]
        assert 100 * metrics.accuracy([example.label for example in examples], predicted) == scores["accuracy"]
        assert set(model.predict("kan " * 100)) == {"first", "second", "other"}  # cut, as in training
    elif tuned.task == "mae_lm_tokens":
        read = read_tagged(tuned.files / "dev.txt")
        tagged = model.predict([" ".join(sentence.words) for sentence in read])
        assert [[word for word, _ in row] for row in tagged] == [sentence.words for sentence in read]
        values = metrics.entities([sentence.tags for sentence in read], [[tag for _, tag in row] for row in tagged])
        assert 100 * values["f1"] == pytest.approx(scores["f1"])
        assert model.predict("") == [] and len(model.predict("\u200b kan")) == 2  # SentencePiece removes the first
        words = ["\u0e40\u0e02\u0e32", "\u0e44\u0e1b", "kan"]  # of Thai, which would have no spaces
        assert [word for word, _ in model.predict(" ".join(words))] == words
        assert model.predict([words, "kan"]) == [model.predict(" ".join(words)), model.predict("kan")]
        refuses("found the word 'kan lo', expected words without white space", model.predict, [["kan lo"]])
        refuses("the head was fine-tuned on words with tags: call predict.texts", model.predict, "kan", "lo")
    else:
        refuses("the head was fine-tuned on questions: call answer", model.predict, "kan")
        read = squad_files.read_questions(tuned.files / "dev.json")
        answers = model.answer([each.text for each in read], [each.context for each in read])
        right = [metrics.exact_and_f1(a.text, [true.text for true in each.answers]) for a, each in zip(answers, read)]
        assert 100 * sum(exact for exact, _ in right) / len(right) == pytest.approx(scores["exact"])
        for answer, each in zip(answers, read):
            assert each.context[answer.start :].startswith(answer.text)
            assert 0 < answer.score <= 1
        assert model.answer(read[0].text, read[0].context) == answers[0]
        assert model.answer("kan ?", "") == ("", 0, pytest.approx(1))


@pytest.mark.parametrize("task", KINDS)
def test_a_run_that_is_stopped_resumes_bit_for_bit(pretrained, tmp_path, task):
    files = KINDS[task](tmp_path / "files")
    start_from = [task, pretrained[0], files, pretrained[1]]
    finetune(*start_from, tmp_path / "whole", "--dropout", 0.1)
    finetune(*start_from, tmp_path / "other", "--dropout", 0.1, "--max-update", 5)
    # The pretrained checkpoint is needed no longer.
    printed = finetune(*start_from[:3], tmp_path / "gone.pt", tmp_path / "other", "--dropout", 0.1)
    assert "Loaded checkpoint" in printed
    assert_same_weights(tmp_path / "other", tmp_path / "whole", 0)


def test_two_processes_score_as_one(pretrained, tmp_path):
    """Of sentences cut into parts, and of questions with several windows, which lie on both."""
    for task in ["mae_lm_tokens", "squad"]:
        start_from = [task, pretrained[0], KINDS[task](tmp_path / task), pretrained[1]]
        one, two = tmp_path / f"{task}1", tmp_path / f"{task}2"
        options = ["--max-update", 2, "--lr", 1e-9, "--batch-size-valid", 5]
        finetune(*start_from, one, *options, "--batch-size", 6)
        finish(two_processes(*arguments(*start_from, *options, "--batch-size", 3, "--save-dir", two)), 0)
        assert checkpoint(one)["task_state"]["scores"] == checkpoint(two)["task_state"]["scores"]


def test_regression_pairs_and_mnlis_two_dev_sets(pretrained, tmp_path):
    regression = labelled.pairs(tmp_path / "STS-B", score=True)
    finetune("mae_lm_sentences", pretrained[0], regression, pretrained[1], tmp_path / "r", "--best-checkpoint-metric",
             "pearson", "--maximize-best-checkpoint-metric", "--max-update", 60)  # fmt: skip
    task, _ = load_task(tmp_path / "r" / "checkpoint_last.pt", labelled=regression)
    task.load_dataset("valid")
    dataset = task.datasets["valid"]
    assert dataset.collater([dataset[0]])["target"].dtype == torch.float64  # float32 would be halved with --fp16
    state = checkpoint(tmp_path / "r", "checkpoint_best.pt")
    assert state["extra_state"]["best"] == pytest.approx(state["task_state"]["scores"]["valid"]["pearson"], abs=0.01)
    model = hub.from_pretrained(tmp_path / "r", data=pretrained[0])
    assert isinstance(model.predict("kan lo", "mi"), float)
    far = labelled.pairs(tmp_path / "far", score=True)
    rows = [row.split("\t") for row in (far / "train.tsv").read_text().splitlines()]
    labelled.write_table(
        far / "train.tsv", rows[0], [[*row[:3], f"{2e13 * float(row[3]) - 900e12:.1f}"] for row in rows[1:]]
    )
    finetune("mae_lm_sentences", pretrained[0], far, tmp_path / "r" / "checkpoint_last.pt", tmp_path / "f",
             "--max-update", 1, "--lr", 1e-9)  # fmt: skip
    assert checkpoint(tmp_path / "f")["task_state"]["encoder_mask_fraction"] == 0  # for the model card
    assert checkpoint(tmp_path / "f")["task_state"]["tokens_per_sample"] == 32
    (mean, deviation), value = (
        checkpoint(tmp_path / "f")["task_state"]["standardised"],
        hub.from_pretrained(tmp_path / "f", data=pretrained[0]).predict("kan lo", "mi"),
    )
    assert -900e12 < mean < -700e12 and abs(value - mean) < deviation  # predictions begin among the numbers to predict
    refuses(r"on pairs of texts: call predict\(texts, pairs\)", model.predict, "kan lo")
    texts = tmp_path / "pairs.txt"
    texts.write_text("kan lo\tmi\n")
    lines = predicted_lines(tmp_path / "r", pretrained[0], texts, tmp_path / "scores.tsv")
    assert lines[0] == "score\tsentence1\tsentence2"
    assert float(lines[1].split("\t")[0]) == pytest.approx(model.predict("kan lo", "mi"), abs=1e-3)
    texts.write_text("kan lo\tmi\nkan\n")
    options = ["--checkpoint", tmp_path / "r", "--data", pretrained[0], "--texts", texts, "--dest", tmp_path / "x"]
    fault = error_of(maelm_fairseq.predict.main, *options)
    assert "pairs.txt: line 2: found 1 columns, expected two texts with a tab between them" in fault
    mnli = labelled.pairs(tmp_path / "MNLI")
    more = ["--valid-subset", "valid,valid1", "--max-update", 3]
    # Another task's head and labels are not taken over.
    finetune("mae_lm_sentences", pretrained[0], mnli, tmp_path / "r" / "checkpoint_last.pt", tmp_path / "m", *more)
    state = checkpoint(tmp_path / "m")["task_state"]
    assert state["labels"] == ["entailment", "neutral"] and state["form"][1] == ["sentence1", "sentence2"]
    assert state["scores"].keys() == {"num_updates", "valid", "valid1"}


def test_what_does_not_fit_is_refused(pretrained, tmp_path):
    data, pretrained_file = pretrained
    files = labelled.sentences(tmp_path / "files")
    options = arguments("mae_lm_sentences", data, files, pretrained_file, "--save-dir", tmp_path / "run")
    assert "--encoder-layers 2 in the checkpoint, 3 here" in refused(*options, "--encoder-layers", 3)
    assert "--valid-subset test: test files are for the finished model" in refused(
        *options, "--valid-subset", "valid,test"
    )
    succeed("fairseq-train", *options, "--max-update", 2)
    train, dev = (files / "train.tsv").read_text(), (files / "dev.tsv").read_text()
    for name, text in [("train.tsv", train), ("dev.tsv", dev)]:
        (files / name).write_text(text.replace("second", "2nd"))
    assert "the data are not those of the run: labels was a list and is a list" in refused(*options)
    (files / "train.tsv").write_text(train)
    write_table(files / "dev.tsv", ["sentence", "label"], [("kan", "first"), ("lo", "third")])
    assert "dev.tsv: line 3: the label 'third' is not one of the training set's, first" in refused(*options)
    write_table(files / "train.tsv", ["sentence", "label"], [("kan", "first")] * 9)
    assert "train.tsv: every label is 'first'; expected two labels or more" in refused(*options)


# Questions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def questions(prepared, tmp_path):
    """A function that reads paragraphs as a split, for a model with 64 positions."""

    def read(paragraphs, split="valid"):
        for name in ["train", "dev"]:
            write_squad(tmp_path / f"{name}.json", paragraphs)
        task = make_task("squad", data=str(prepared), labelled=str(tmp_path))
        task.positions = 64
        task.prepare_state()
        task.load_dataset(split)
        return task, task.datasets[split]

    return read


def test_answers_of_pieces_come_back_from_every_window(questions):
    rng, paragraphs = random.Random(1), []
    odd = [*labelled.WORDS, "1990", "(5%)", "na\u00efve", "\u6f22\u5b57", "\U0001f600", "x\u00a0y"]
    for number in range(30):
        words = [rng.choice(odd) for _ in range(50)]
        first = rng.randrange(45)
        context, answer = " ".join(words), " ".join(words[first : first + 4])
        begin = len(" ".join(words[:first])) + (first > 0)
        paragraphs.append((context, [question(str(number), "kan losh mipo ru " * 5, (answer, begin))]))
    task, dataset = questions(paragraphs)
    found, seen = set(), {}
    for i in range(len(dataset)):
        _, tokens, target = dataset[i]
        window, owner, (start, end) = dataset.windows[i], dataset.owners[i], target.tolist()
        asked = dataset.questions[owner]
        context = dataset.contexts[asked.context]
        part = tokens.tolist()[window.offset : -1]
        assert len(tokens) <= 64 and part == context.tokens[window.first : window.first + len(part)]
        seen.setdefault(owner, set()).update(range(window.first, window.first + len(part)))
        if end:
            first, last = (place - window.offset + window.first for place in (start, end))
            text = asked.context[context.begins[first] : context.ends[last]]
            assert text == asked.answers[0].text
            found.add(owner)
    assert found == set(range(30))  # no answer is lost
    assert all(len(places) == len(dataset.contexts[dataset.questions[i].context].tokens) for i, places in seen.items())


def test_pieces_say_which_characters_they_are(prepared, questions):
    task, _ = questions([("kan lo", [question("a", "?", ("kan", 0))])])
    for text in ["kan  losh\tmi", " kan", "\u0130 ka\u0301n \ufb01n", "\u6f22\u5b57 \U0001f600 kan", "\u200b", ""]:
        pieces = pieces_of(task.tokenizer, text)
        assert pieces.tokens == task.tokenizer.encode(text)
        covered = "".join(text[b:e] for b, e in zip(pieces.begins, pieces.ends))
        assert [c for c in covered if c.isalnum()] == [c for c in text if c.isalnum()]


def test_a_question_may_contain_what_special_tokens_are_called(questions, tmp_path):
    """To `encode` of byte-level BPE, `</s>` is a token, as which it would end the question."""
    theirs, _, _ = byte_level_roberta(tmp_path / "bytes", [" kan lo"])
    task, _ = questions([("kan lo", [question("a", "?", ("kan", 0))])])
    task.tokenizer = read_subwords(theirs)
    write_squad(tmp_path / "dev.json", [("kan lo", [question("a", "kan </s> lo ?", ("kan", 0))])])
    task.load_dataset("valid")
    (tokens,) = task.datasets["valid"].sequences
    assert (np.asarray(tokens) == task.dictionary.eos()).sum() == 3


def test_what_cannot_be_used_is_left_out_of_training_and_counted(questions):
    context = "kan losh the ru , mipo"
    qas = [question("good", "?", ("losh", 4)), question("moved", "?", ("losh", 5)), question("none", "?")]
    qas.append(question("second", "?", ("x", 0), ("kan", 0)))
    task, train = questions([(context, qas)], "train")
    assert [train.questions[owner].id for owner in train.owners] == ["good", "none", "second"]
    assert "1 whose answer is not where it says: left out; such as moved" in train.text
    task, dev = questions([(context, qas)])
    assert dev.owners == [0, 1, 2, 3] and task.state.may_be_empty
    refuses("no answer is at its answer_start", questions, [(context, qas[1:2])], "train")


def test_the_best_answer_is_that_of_a_search_over_all_spans(questions):
    task, dataset = questions([("kan  losh \t mipo ru sen " * 12, [question("a", "kan ?", ("losh", 5))])])
    torch.manual_seed(1)
    sample = dataset.collater([dataset[i] for i in range(len(dataset))])
    logits = torch.randn(*sample["net_input"]["src_tokens"].shape, 2)
    output = task.output(lambda **inputs: (logits, None), sample["net_input"])
    torch.testing.assert_close(output.exp().sum(1), torch.ones(len(dataset), 2))
    best, nothing, context = -np.inf, np.inf, dataset.contexts[dataset.questions[0].context]
    for window, scores, sequence in zip(dataset.windows, output.double(), dataset.sequences):
        nothing = min(nothing, scores[0].sum().item())
        for i in range(window.offset, len(sequence) - 1):
            for j in range(i, min(i + 30, len(sequence) - 1)):
                score = (scores[i, 0] + scores[j, 1]).item()
                if score > best:
                    best, first, last = score, i - window.offset + window.first, j - window.offset + window.first
    answers = dict(enumerate(task.answers(output, sample, dataset)))
    assert len(answers) > 1 and max(row[0] for row in answers.values()) == pytest.approx(best)
    assert min(row[3] for row in answers.values()) == pytest.approx(nothing)
    expected = dataset.questions[0].context[context.begins[first] : context.ends[last]]
    assert task.texts(dataset, answers) == {0: expected}  # every question has an answer
    task.state.merge_state_dict({"may_be_empty": True})
    assert task.texts(dataset, answers) == {0: "" if nothing > best else expected}
    assert task.texts(dataset, {0: (-5.0, 0, 3, -4.0)}) == {0: ""}


# Scores ------------------------------------------------------------------------------------------------------------


def test_squads_scores_are_those_of_torchmetrics():
    from torchmetrics.text import SQuAD

    rng, pairs = random.Random(1), []
    words = ["the", "a", "An", "cat", "Cat's", "U.S.", "1990", "(dog)", "dog", "caf\u00e9", "--", "x"]
    for _ in range(300):
        answers = [" ".join(rng.choices(words, k=rng.randint(1, 5))) + " word" for _ in range(rng.randint(1, 4))]
        pairs.append((rng.choice([" ".join(rng.choices(words, k=3)), answers[-1].upper(), ""]), answers))
    reference = SQuAD()(
        [{"id": str(i), "prediction_text": text} for i, (text, _) in enumerate(pairs)],
        [{"id": str(i), "answers": {"text": each, "answer_start": [0]}} for i, (_, each) in enumerate(pairs)],
    )
    exact, f1 = 100 * np.mean([metrics.exact_and_f1(*pair) for pair in pairs], axis=0)
    assert 20 < exact < f1 < 80
    assert (exact, f1) == pytest.approx((reference["exact_match"].item(), reference["f1"].item()), abs=1e-3)
    assert metrics.entities([["U-X", "U-X", "O"]], [["B-X", "L-X", "O"]])["f1"] == 0  # two entities are not one
    # Without an answer, which torchmetrics does not know: an article normalises to nothing.
    for pair, score in {("", ()): 1, ("the", ()): 1, ("cat", ()): 0, ("", ("cat",)): 0}.items():
        assert metrics.exact_and_f1(*pair) == (score, score)


def test_a_score_that_is_undefined_is_logged_as_zero_and_kept_as_such(pretrained, tmp_path):
    files = tmp_path / "files"
    for split in ["train", "dev"]:  # of one text: all predictions are equal
        write_table(files / f"{split}.tsv", ["sentence", "label"], [("kan", str(i)) for i in range(8)])
    printed = finetune("mae_lm_sentences", pretrained[0], files, pretrained[1], tmp_path / "run", "--regression",
                       "--best-checkpoint-metric", "pearson", "--maximize-best-checkpoint-metric")  # fmt: skip
    assert {log["valid_pearson"] for log in validations(printed)} == {"0"}
    assert np.isnan(checkpoint(tmp_path / "run")["task_state"]["scores"]["valid"]["pearson"])


def test_standard_errors_are_those_of_the_formula_and_of_a_bootstrap():
    rng = np.random.default_rng(1)
    right = rng.random(2000) < 0.8
    share = right.mean()
    for groups, tolerance in [(100, 0.25), (2000, 1e-3)]:
        errors = metrics.standard_errors(lambda rows: {"accuracy": right[rows].mean()}, range(len(right)), groups)
        assert errors["accuracy"] == pytest.approx(np.sqrt(share * (1 - share) / len(right)), rel=tolerance)
    targets = rng.normal(size=500)
    predicted = targets + rng.normal(size=500)

    def pearson(rows):
        return {"pearson": metrics.METRICS["pearson"](targets[rows], predicted[rows])}

    drawn = [pearson(rng.integers(500, size=500))["pearson"] for _ in range(500)]
    error = metrics.standard_errors(pearson, range(500))["pearson"]
    assert error == pytest.approx(np.std(drawn), rel=0.35)
    assert np.isnan(metrics.standard_errors(lambda rows: {"pearson": np.nan}, range(9))["pearson"])


def test_f1_of_two_classes_with_a_label_that_training_does_not_have():
    assert metrics.f1([1, 1, 0, -1], [1, 0, 0, 1]) == pytest.approx(0.5)


def test_reports_have_a_row_for_each_class_and_each_type_of_entity():
    report = metrics.report_of_classes(["a", "a", "b"], ["a", "b", "b"])
    rows = {line.split()[0]: line.split()[1:] for line in report.splitlines() if line.strip()}
    assert rows["a"] == ["1.0000", "0.5000", "0.6667", "2"]
    report = metrics.report_of_entities([["U-X", "O", "B-Y"]], [["U-X", "O", "O"]])
    rows = {line.split()[0]: line.split()[1:] for line in report.splitlines() if line.strip()}
    assert rows["X"] == ["1.0000", "1.0000", "1.0000", "1"]
    assert rows["Y"][1] == "0.0000"


def test_a_test_file_is_scored_where_its_last_column_has_the_tags_of_training(pretrained, tmp_path):
    folder = labelled.tags(tmp_path)
    task = make_task("mae_lm_tokens", data=pretrained[0], labelled=str(folder))
    task.positions = 32
    task.prepare_state()
    task.load_dataset("test")
    assert task.datasets["test"].metrics == ["f1", "precision", "recall", "accuracy"]
    lines = (folder / "test.txt").read_text().splitlines()
    (folder / "test.txt").write_text("\n".join(f"{line.split()[0]} NN" if line else "" for line in lines))
    task.load_dataset("test")
    assert task.datasets["test"].metrics == []
    assert task.datasets["test"].text.endswith("; no tags")


def test_scores_of_little_are_undefined_and_no_error():
    assert np.isnan(metrics.scores_of(["accuracy", "f1", "pearson"], [], [])["pearson"])
    errors = metrics.standard_errors(lambda rows: {"accuracy": 100.0}, [7])
    assert np.isnan(errors["accuracy"])
    assert metrics.report_of_entities([["O", "O"]], [["O", "O"]]) == "no entities\n"
