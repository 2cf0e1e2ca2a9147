"""Question answering: exact offsets, windows, labels, training, answers, metrics, and wrong input."""

import importlib.util
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import torch
from omegaconf import OmegaConf

from conftest import PLUGIN, PYTHON, ROOT, documents, run, succeed, text_of
from maelm_fairseq.checkpoint import load_model
from maelm_fairseq.squad.answers import answer_questions, ranked_spans
from maelm_fairseq.squad.metric import best_threshold, evaluate, exact_match, f1
from maelm_fairseq.squad.questions import Answer, Question, read_questions
from maelm_fairseq.squad.task import SquadDataset, SquadTask, load_record, network_input, span_log_probs
from maelm_fairseq.squad.text import SpanTokenizer, WindowSizes, piece_spans, place, windows
from maelm_fairseq.vocabulary import load_dictionary

PREPARE, ANSWER = ROOT / "data-prep" / "squad.py", ROOT / "recipes" / "answer_questions.py"

# Runs of one kind of character: an answer may begin or end between two of them, with or without white space.
LETTERS = ["kan", "Losh", "MIPO", "ru\ufb01n", "na\u00efve", "cafe\u0301", "\u0130stan", "stra\u00dfe", "\u6f22\u5b57"]
LETTERS += ["\u0928\u092e\u0938\u094d\u0924\u0947", "co\u00adoperate", "x\u0338", "\ufb03x"]
DIGITS = ["1990", "5", "007", "\u0661\u0662", "\uff11\uff12"]
SYMBOLS = list("()%$-,.;'\"/&") + ["\u2026", "\u00bd", "\u20ac", "\u00ab", "\U0001f600", "\u00b2", "\u2122", "\u2014"]
SYMBOLS += ["\U0001f469\u200d", "\u2764\ufe0f", "=\u0338", "\ue000", "\u2163", "\u337f"]
SPACES = [" ", " ", " ", "  ", "\t", "\n\n", "\u00a0", "\u3000", "\u200b", " \u2009 "]


def program(path, *arguments, status=0, real=False):
    done = subprocess.run(
        [sys.executable if real else PYTHON, path, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def refused(path, *arguments):
    """The one-line error of a program that must fail."""
    done = program(path, *arguments, status=1)
    (line,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "Traceback" not in done.stderr
    return line


def squad_json(path, paragraphs, version="1.1"):
    """Writes the official format; `paragraphs`: pairs of a context and its questions, two to an article."""
    made = [{"context": context, "qas": qas} for context, qas in paragraphs]
    articles = [{"title": f"t{i}", "paragraphs": made[i : i + 2]} for i in range(0, len(made), 2)]
    path.write_text(json.dumps({"version": version, "data": articles}), encoding="utf-8")
    return path


def qa(name, question, *answers, **more):
    return {"id": name, "question": question, "answers": [{"text": t, "answer_start": s} for t, s in answers], **more}


def hard_context(rng, length):
    """A text of runs with and without white space between them, and the beginning and end of each run."""
    text, spans, before = rng.choice(["", " ", "\t "]), [], None
    for _ in range(length):
        kind = rng.choice([LETTERS, LETTERS, DIGITS, SYMBOLS])
        if before is not None and (kind is before and kind is not SYMBOLS or rng.random() < 0.5):
            text += rng.choice(SPACES)
        run = rng.choice(kind)
        spans.append((len(text), len(text) + len(run)))
        text, before = text + run, kind
    return text + rng.choice(["", " ", "\n"]), spans


def hard_paragraphs(seed, count=12, length=60):
    rng = random.Random(seed)
    paragraphs = []
    for number in range(count):
        context, spans = hard_context(rng, length)
        qas = []
        for k in range(25):
            first = rng.randrange(len(spans))
            last = min(first + rng.choice([0, 0, 1, 2, 5]), len(spans) - 1)
            begin, end = spans[first][0], spans[last][1]
            qas.append(qa(f"{seed}-{number}-{k}", "kan losh " * (k % 3), (context[begin:end], begin)))
        paragraphs.append((context, qas))
    return paragraphs


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A folder with `sentencepiece.model` and `dict.txt` of a lowercasing BPE model that also merges across kinds."""
    folder = tmp_path_factory.mktemp("vocabulary")
    text = text_of(documents(300, 1)) + "in (1990) 5% of kan's losh, mipo. 1990, the key is \n" * 100
    text += " ".join(LETTERS + DIGITS + SYMBOLS[:20]) + "\n"  # the other symbols are unknown
    (folder / "text.txt").write_text(text, encoding="utf-8")
    program(
        ROOT / "data-prep" / "prepare.py", "--train", folder / "text.txt", "--valid", folder / "text.txt",
        "--vocab-size", 200, "--lowercase", "--only-vocabulary", "--dest", folder / "data",
    )  # fmt: skip
    return folder / "data"


def tokenizer_of(folder):
    return SpanTokenizer(sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model")))


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return tokenizer_of(vocabulary)


@pytest.fixture(scope="module")
def hard(vocabulary, tmp_path_factory):
    """Hard cases prepared: the folder, and the questions of train and dev."""
    folder = tmp_path_factory.mktemp("hard")
    train, dev = (squad_json(folder / f"{seed}.json", hard_paragraphs(seed)) for seed in (1, 2))
    done = program(
        PREPARE, "--train", train, "--dev", dev, "--vocabulary", vocabulary, "--dest", folder / "data",
        "--max-tokens", 64, "--stride", 16, "--max-question", 10,
    )  # fmt: skip
    return folder / "data", read_questions(train), read_questions(dev), done


# Text, pieces, windows ---------------------------------------------------------------------------------------------


def test_every_answer_that_fits_a_window_comes_back_as_the_same_string(hard, tokenizer):
    folder, train, dev, _ = hard
    dictionary, sizes = load_dictionary(folder), WindowSizes(**load_record(folder)["options"])
    assert sizes == WindowSizes(64, 16, 10)
    for split, questions in [("train", train), ("valid", dev)]:
        data = SquadDataset(str(folder / split), dictionary, seed=1)
        index = fits = 0
        for question in questions:
            (answer,) = question.answers
            context = tokenizer.encode(question.context)
            in_windows = 0
            for window in windows(tokenizer.encode(question.text), context, sizes):
                _, tokens, (start, end) = data[index]
                index += 1
                assert tokens.tolist() == window.tokens.tolist() and len(tokens) <= sizes.max_tokens
                if end:
                    in_windows += 1
                    places = [window.first + i - window.offset for i in (start, end)]
                    begin, after = context.characters(*places)
                    assert (begin, question.context[begin:after]) == (answer.start, answer.text)
            # A span shorter than the overlap of two windows is complete in one of them.
            (first, last), exact = place(answer, question, context)
            assert exact
            if last - first + 1 <= sizes.max_tokens - sizes.max_question - 4 - sizes.stride:
                fits += 1
                assert in_windows
        assert index == len(data) and fits > 280


def test_plain_encoding_does_not_give_these_answers(hard, tokenizer):
    """The vocabulary has pieces with several kinds of characters, as that of pretraining does."""
    found = 0
    for question in hard[1]:
        (answer,) = question.answers
        spans = piece_spans(tokenizer.processor, question.context)
        begins, ends = {begin for _, begin, _ in spans}, {end for _, _, end in spans}
        found += answer.start + len(answer.text) in ends and {answer.start, answer.start - 1} & begins != set()
    assert found < 0.9 * len(hard[1])


def test_pieces_are_those_of_pretraining_where_the_kind_does_not_change(tokenizer):
    text = "  Kan losh  mipo\tnaive "
    assert tokenizer.encode(text).tokens.tolist() == [i + 1 or 3 for i in tokenizer.processor.encode(text)]


def test_windows_keep_the_question_and_leave_out_nothing(tokenizer):
    context = tokenizer.encode(" ".join(line for document in documents(40, 3) for line in document))
    question = tokenizer.encode("what is losh ?")
    for sizes in [WindowSizes(40, 12, 20), WindowSizes(40, 100, 3), WindowSizes(10000, 1, 20)]:
        made = windows(question, context, sizes)
        seen = set()
        kept = question.tokens[: sizes.max_question].tolist()
        for window in made:
            tokens = window.tokens.tolist()
            assert len(tokens) <= sizes.max_tokens
            assert tokens[: window.offset] == [0, *kept, 2, 2] and tokens[-1] == 2
            part = tokens[window.offset : -1]
            assert part == context.tokens[window.first : window.first + len(part)].tolist()
            seen.update(range(window.first, window.first + len(part)))
        assert seen == set(range(len(context.tokens)))
        room = sizes.max_tokens - len(kept) - 4
        assert {b.first - a.first for a, b in zip(made, made[1:])} <= {min(sizes.stride, room)}


def test_labels(tokenizer):
    text = "kan Losh the ru , mipo"
    assert "losh" in tokenizer.processor.decode(tokenizer.processor.encode("Losh")[:1])  # one piece
    question = Question("q", "", text, ())
    context = tokenizer.encode(text)

    def label(answer, start):
        span, exact = place(Answer(answer, start), question, context) or (None, False)
        return span and (text[slice(*context.characters(*span))], exact)

    assert label("Losh", 4) == ("Losh", True)
    assert label(" Losh ", 3) == ("Losh", True)
    assert label("Losh", 5) is None and label("Losh", -18) is None and label("losh", 4) is None
    assert label("os", 5) == ("Losh", False)  # the fewest pieces around it
    text = "kan\u200b losh\x07 1990"  # no piece covers what SentencePiece removes
    question, context = Question("q", "", text, ()), tokenizer.encode(text)
    assert label("\u200b", 3) is label("\x07", 9) is None and label("\u200b", 4) is None
    assert place(Answer("\u200b", 3), question, context) == place(Answer("\x07", 9), question, context) == (None, False)
    assert label("losh\x07", 5) == ("losh", True) and label("\u200b losh", 3) == ("losh", True)
    text = "kan Losh the ru , mipo"
    question, context = Question("q", "", text, ()), tokenizer.encode(text)
    (window,) = windows(tokenizer.encode("kan"), context, WindowSizes())
    assert window.label(None) == (0, 0)
    assert window.label((0, 1)) == (window.offset, window.offset + 1)
    later = window._replace(first=1)  # a window that begins one piece later
    assert later.label((0, 1)) == (0, 0) and later.label((1, 1)) == (window.offset, window.offset)
    assert window.label((1, len(context.tokens))) == (0, 0)


# Preparation -------------------------------------------------------------------------------------------------------


def test_counts_and_running_again(vocabulary, tmp_path, monkeypatch, capsys):
    context = "kan losh the ru , mipo"
    train = squad_json(
        tmp_path / "train.json",
        [
            (context, [qa("good", "kan ?", ("losh", 4)), qa("moved", "kan ?", ("losh", 5))]),
            (context, [qa("inside", "kan losh " * 20, ("os", 5)), qa("second", "?", ("x", 0), ("kan", 0))]),
            ("losh " * 200, [qa("long", "kan ?", ("losh " * 150, 0))]),
            (context, [qa("none", "kan ?", is_impossible=True)]),
            ("kan \u200b losh", [qa("unseen", "kan ?", ("\u200b", 4))]),
        ],
    )
    dev = squad_json(tmp_path / "dev.json", [(context, [qa("d", "?", ("kan", 0)), qa("moved", "?", ("x", 0))])])
    arguments = [
        "--train", train, "--dev", dev, "--vocabulary", vocabulary, "--dest", tmp_path / "made" / "data",
        "--max-tokens", 100, "--stride", 50,
    ]  # fmt: skip
    done = program(PREPARE, *arguments, real=True)
    record = load_record(tmp_path / "made" / "data")
    counts = record["counts"]["train"]
    assert record["version"] == "2.0" and done.stdout.startswith("SQuAD 2.0\n")
    expected = dict(
        questions=7,
        answerable=6,
        answers_misplaced=2,
        answers_invisible=1,
        questions_left_out=2,
        labels_widened=1,
        answers_too_long=1,
    )
    assert {key: counts[key] for key in expected} == expected
    assert counts["questions_cut"] == (len(tokenizer_of(vocabulary).encode("kan losh " * 20).tokens) > 64)
    data = SquadDataset(str(tmp_path / "made" / "data" / "train"), load_dictionary(vocabulary), 1)
    assert counts["windows"] == len(data) > 6
    assert counts["windows_without_answer"] == sum(not data[i][2].any() for i in range(len(data))) == len(data) - 3
    assert (
        "questions left out" not in done.stdout and "first in moved" in done.stderr and "first in unseen" in done.stderr
    )
    # The dev file loses no question: predictions and metrics include all.
    assert len(read_questions(tmp_path / "made" / "data" / "dev.json")) == 2

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "made" / "data").iterdir()}
    again = program(PREPARE, *arguments)
    assert again.stdout == done.stdout and "finished already" in again.stderr
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "made" / "data").iterdir()}
    assert "options 'stride' differ" in run_here([*arguments, "--stride", 49], monkeypatch, capsys)
    assert os.listdir(str(tmp_path / "made")) == ["data"]


# Training and answers ----------------------------------------------------------------------------------------------


def key_paragraphs(seed, count, impossible):
    """Generated text in which the word after "key" is the answer; if `impossible`, every third has no key."""
    rng = random.Random(seed)
    words = sorted({word for document in documents(50, 1) for line in document for word in line.split()})
    paragraphs = []
    for number in range(count):
        text = [rng.choice(words) for _ in range(rng.randint(8, 30))]
        place = rng.randrange(len(text))
        if impossible and number % 3 == 0:
            paragraphs.append((" ".join(text), [qa(f"{seed}-{number}", "what ?", is_impossible=True)]))
            continue
        text[place] = text[place].capitalize()
        before = " ".join([*text[:place], "key "])
        context = before + " ".join(text[place:])
        paragraphs.append((context, [qa(f"{seed}-{number}", "what ?", (text[place], len(before)))]))
    return paragraphs


MODEL = [
    "--arch", "mae_lm_tiny", "--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 64, "--max-positions", 64,
    "--dropout", 0, "--attention-dropout", 0, "--cpu",
]  # fmt: skip
FINETUNE = [
    "--user-dir", PLUGIN, "--task", "squad", "--criterion", "squad", *MODEL, "--batch-size", 16, "--optimizer", "adam",
    "--lr", 0.003, "--lr-scheduler", "polynomial_decay", "--warmup-updates", 20, "--total-num-update", 300,
    "--log-format", "json", "--num-workers", 2, "--seed", 1,
    "--relative-position-local-init",  # without it, one seed in three does not get beyond "no answer"
]  # fmt: skip


@pytest.fixture(scope="module", params=["1.1", "2.0"])
def learned(request, vocabulary, tmp_path_factory):
    """Data whose answers follow a word, and a model that was trained on them."""
    folder = tmp_path_factory.mktemp("learned")
    train, dev = (
        squad_json(folder / f"{seed}.json", key_paragraphs(seed, count, request.param == "2.0"), request.param)
        for seed, count in [(1, 300), (2, 45)]
    )
    program(
        PREPARE, "--train", train, "--dev", dev, "--vocabulary", vocabulary, "--dest", folder / "data",
        "--max-tokens", 48, "--stride", 16, "--max-question", 10,
    )  # fmt: skip
    printed = succeed(
        "fairseq-train", folder / "data", *FINETUNE, "--save-dir", folder / "run", "--max-update", 300,
        "--validate-interval", 1000, "--no-epoch-checkpoints",
    )  # fmt: skip
    return request.param, folder, train, printed


def test_a_model_learns_to_answer(learned, tmp_path):
    version, folder, train, printed = learned
    logged = [json.loads(line[line.index("{") :]) for line in printed.splitlines() if "valid_loss" in line]
    assert float(logged[-1]["valid_accuracy"]) > 80 and float(logged[-1]["valid_loss"]) < 1
    # Validation covers every window.
    record = load_record(folder / "data")
    assert record["version"] == version
    outputs = {name: tmp_path / f"{name}.json" for name in ["predictions", "nbest", "no-answer-scores", "metrics"]}
    arguments = ["--checkpoint", folder / "run" / "checkpoint_last.pt", "--data", folder / "data"]
    arguments += [a for name, path in outputs.items() for a in (f"--{name}", path)]
    done = program(ANSWER, *arguments, "--json", train, real=True)
    predictions, nbest, differences, metrics = (json.loads(path.read_text("utf-8")) for path in outputs.values())
    questions = read_questions(train)
    assert metrics["exact"] > 80 and metrics["f1"] > 80 and metrics["total"] == len(questions) == 300
    assert "all: exact match {:.2f}, F1 {:.2f}".format(metrics["exact"], metrics["f1"]) in done.stdout
    for question in questions:
        candidates = nbest[question.id]
        scores = [candidate["score"] for candidate in candidates]
        assert scores == sorted(scores, reverse=True) and 1 < len(scores) <= 21
        assert all(candidate["text"] in question.context for candidate in candidates)
        texts = [candidate["text"] for candidate in candidates]
        assert len(set(texts)) == len(texts)
        nothing = version == "2.0" and differences[question.id] > 0
        assert predictions[question.id] == ("" if nothing else next(text for text in texts if text))
        assert ("" in texts) == (version == "2.0")
    if version == "2.0":
        assert metrics["HasAns_exact"] > 80 and metrics["NoAns_exact"] > 80
        assert metrics["HasAns_total"] == 200 and metrics["NoAns_total"] == 100
        assert metrics["at_best_threshold"]["f1"] >= metrics["f1"]
        all_answered = program(
            ANSWER, *arguments[:4], "--predictions", tmp_path / "all.json", "--no-answer-threshold", 1000
        )
        assert "unanswerable: exact match 0.00" in all_answered.stdout
        assert all(json.loads((tmp_path / "all.json").read_text("utf-8")).values())
    else:
        assert "NoAns_total" not in metrics and "at_best_threshold" not in metrics
    assert "already exists" in refused(ANSWER, *arguments)


def test_answers_are_the_best_spans_of_all_windows(learned):
    """Compared with a brute-force search over every span of every window."""
    _, folder, train, _ = learned
    dictionary = load_dictionary(folder / "data")
    model = load_model(folder / "run" / "checkpoint_last.pt", dictionary)
    tokenizer, sizes = tokenizer_of(folder / "data"), WindowSizes(30, 7, 5)
    questions = read_questions(train)[:8]
    found = answer_questions(model, questions, tokenizer, sizes, batch_size=3)
    windows_seen = 0
    for question, answers in zip(questions, found):
        context = tokenizer.encode(question.context)
        scores, nothing = {}, []
        for window in windows(tokenizer.encode(question.text), context, sizes):
            windows_seen += 1
            log_probs = span_log_probs(model, network_input([window.tokens], dictionary.pad()))[0]
            inside = range(window.offset, len(window.tokens) - 1)
            outside = [i for i in range(1, len(window.tokens)) if i not in inside]
            assert log_probs[outside].eq(float("-inf")).all()
            torch.testing.assert_close(log_probs.exp().sum(0), torch.ones(2))
            nothing.append(log_probs[0].sum().item())
            for start in inside:
                for end in range(start, min(start + 30, len(window.tokens) - 1)):
                    begin, after = context.characters(*(window.first + i - window.offset for i in (start, end)))
                    text = question.context[begin:after].strip()
                    score = (log_probs[start, 0] + log_probs[end, 1]).item()
                    if text:
                        scores[text] = max(scores.get(text, score), score)
        best = sorted(scores.values(), reverse=True)[:20]
        np.testing.assert_allclose([c.score for c in answers.candidates], best, atol=1e-3)
        for candidate in answers.candidates:
            assert abs(scores[candidate.text] - candidate.score) < 1e-3
        assert abs(answers.no_answer - min(nothing)) < 1e-3
    assert windows_seen > len(questions)


def test_ranked_spans():
    start, end = np.array([0.0, 5.0, 1.0]), np.array([9.0, 1.0, 3.0])

    def ranked(*lengths):
        return list(ranked_spans(start, end, np.array(lengths)))

    assert ranked(30, 30, 30)[:3] == [(9.0, 0, 0), (8.0, 1, 2), (6.0, 1, 1)]
    assert ranked(1, 1, 1) == [(9.0, 0, 0), (6.0, 1, 1), (4.0, 2, 2)]
    assert ranked(1, 2, 1) == [(9.0, 0, 0), (8.0, 1, 2), (6.0, 1, 1), (4.0, 2, 2)]
    assert len(ranked(30, 30, 30)) == 6


def test_finetuning_starts_from_a_pretrained_encoder_and_hydra_works_too(
    hard, vocabulary, tmp_path, monkeypatch, capsys
):
    data = hard[0]
    (tmp_path / "raw.txt").write_text(text_of(documents(20, 4)), encoding="utf-8")
    program(
        ROOT / "data-prep" / "prepare.py", "--train", tmp_path / "raw.txt", "--valid", tmp_path / "raw.txt",
        "--spm-model", vocabulary / "sentencepiece.model", "--dest", tmp_path / "text",
    )  # fmt: skip
    pretrain = ["--user-dir", PLUGIN, "--task", "mae_lm", "--criterion", "mae_lm", *MODEL, "--tokens-per-sample", 64]
    pretrain += ["--batch-size", 8, "--optimizer", "adam", "--lr", 0.001, "--max-update", 1]
    succeed("fairseq-train", tmp_path / "text", *pretrain, "--save-dir", tmp_path / "pretrained")
    pretrained = tmp_path / "pretrained" / "checkpoint_last.pt"
    options = ["--max-update", 2, "--lr", 1e-9, "--finetune-from-model", pretrained, "--bf16-autocast"]
    succeed("fairseq-train", data, *FINETUNE, *options, "--save-dir", tmp_path / "run")
    before, after = (
        torch.load(path, weights_only=True)["model"] for path in (pretrained, tmp_path / "run" / "checkpoint_last.pt")
    )
    assert after["classification_heads.squad.weight"].shape == (2, 32)
    for key in after:
        if not key.startswith("classification_heads"):
            torch.testing.assert_close(after[key], before[key], rtol=0, atol=1e-6)

    model = {"_name": "mae_lm_tiny", "encoder_embed_dim": 32, "encoder_ffn_embed_dim": 64, "max_positions": 64}
    config = {
        "common": {"user_dir": str(PLUGIN), "cpu": True, "seed": 1},
        "task": {"_name": "squad", "data": str(data)},
        "criterion": {"_name": "squad"},
        "model": model,
        "dataset": {"batch_size": 16, "num_workers": 2},
        "optimizer": {"_name": "adam"},
        "optimization": {"lr": [0.001], "max_update": 2},
        "lr_scheduler": {"_name": "fixed", "warmup_updates": 0},
        "checkpoint": {"save_dir": str(tmp_path / "hydra"), "finetune_from_model": str(pretrained)},
    }
    (tmp_path / "run.yaml").write_text("# @package _group_\n" + json.dumps(config))
    succeed(
        "fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "run", f"hydra.run.dir={tmp_path}/outputs",
        cwd=tmp_path,
    )  # fmt: skip
    assert torch.load(tmp_path / "hydra" / "checkpoint_last.pt", weights_only=True)["optimizer_history"]

    head = refused(ANSWER, "--checkpoint", pretrained, "--data", data, "--predictions", tmp_path / "p.json")
    assert "no head for answers" in head and not (tmp_path / "p.json").exists()
    prepare = ["--train", data / "dev.json", "--dev", data / "dev.json", "--vocabulary", vocabulary]
    prepare += ["--dest", tmp_path / "data", "--checkpoint", pretrained]
    assert "has 64 positions: give --max-tokens 64" in run_here(prepare, monkeypatch, capsys)


def test_batches_cover_every_window_and_differ_by_seed(hard):
    folder = hard[0]
    made = []
    for seed in [1, 2]:
        data = SquadDataset(str(folder / "valid"), load_dictionary(folder), seed)
        batches = data.batch_by_size(data.ordered_indices(), max_sentences=16, required_batch_size_multiple=8)
        assert sorted(np.concatenate(batches)) == list(range(len(data))) and len(data) % 8
        made.append([batch.tolist() for batch in batches])
    assert made[0] != made[1]
    batch = data.collater([data[int(i)] for i in made[0][0]])
    tokens = batch["net_input"]["src_tokens"]
    for row, index, target in zip(tokens, made[0][0], batch["target"]):
        window = torch.from_numpy(data[index][1])
        assert row[: len(window)].equal(window) and row[len(window) :].eq(1).all()
        assert target.tolist() == data[index][2].tolist()


# Metrics -----------------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_torchmetrics():
    from torchmetrics.text import SQuAD

    rng = random.Random(1)
    words = ["the", "a", "An", "cat", "Cat's", "U.S.", "1990", "(dog)", "dog", "caf\u00e9", "--", "x"]

    def phrase():
        return " ".join(rng.choice(words) for _ in range(rng.randint(1, 5)))

    questions, predictions = [], {}
    for number in range(1000):
        answers = [phrase() + " word" for _ in range(rng.randint(1, 4))]
        questions.append(Question(str(number), "", "", tuple(Answer(text, 0) for text in answers)))
        predictions[str(number)] = rng.choice([phrase() + " word", phrase(), answers[-1].upper(), ""])
    reference = SQuAD()(
        [{"id": name, "prediction_text": text} for name, text in predictions.items()],
        [{"id": q.id, "answers": {"text": [a.text for a in q.answers], "answer_start": [0]}} for q in questions],
    )
    ours = evaluate(predictions, questions)
    assert 20 < ours["exact"] < ours["f1"] < 80 and ours["total"] == 1000
    assert abs(ours["exact"] - reference["exact_match"].item()) < 1e-3
    assert abs(ours["f1"] - reference["f1"].item()) < 1e-3


def test_metrics_by_hand():
    assert exact_match("The cat!", ["dog", "cat"]) == 1 and exact_match("cats", ["cat"]) == 0
    assert f1("the black cat", ["a cat", "dog"]) == pytest.approx(2 / 3)
    assert f1("cat cat", ["cat"]) == pytest.approx(2 / 3)
    for metric in (exact_match, f1):
        assert metric("", []) == 1 and metric("cat", []) == 0 and metric("", ["cat"]) == 0
        assert metric("the", []) == 1  # an article normalises to nothing
    questions = [
        Question("a", "", "", (Answer("cat", 0),)),
        Question("b", "", "", (Answer("black dog", 0),)),
        Question("c", "", "", ()),
        Question("d", "", "", ()),
    ]
    scores = evaluate({"a": "cat", "b": "dog", "c": "", "d": "cat"}, questions)
    f = 100 * 2 / 3
    assert scores == pytest.approx(
        dict(exact=50, f1=(200 + f) / 4, total=4, HasAns_exact=50, HasAns_f1=(100 + f) / 2, HasAns_total=2,
             NoAns_exact=50, NoAns_f1=50, NoAns_total=2)
    )  # fmt: skip


def test_best_threshold():
    answers = {"a": ["cat"], "b": ["dog"], "c": [], "d": []}
    questions = [Question(name, "", "", tuple(Answer(text, 0) for text in texts)) for name, texts in answers.items()]
    texts = {"a": "cat", "b": "bird", "c": "cat", "d": "cat"}

    def best(*differences):
        return best_threshold(texts, dict(zip("abcd", differences)), questions)

    assert best(1, 2, 3, 4) == 2  # a answered, b makes no difference, c and d empty
    assert best(2, 5, 1, 4) == 2 and best(1, 5, 1, 1) < 1  # of equal differences all are answered or none
    assert best(9, 1, 2, 3) == 1

    # Compared with trying every threshold.
    rng = random.Random(1)
    for _ in range(50):
        differences = {name: rng.randint(-3, 3) for name in "abcd"}
        found = best_threshold(texts, differences, questions)

        def score(threshold, differences=differences):
            return evaluate({n: "" if differences[n] > threshold else texts[n] for n in texts}, questions)["f1"]

        assert score(found) == max(score(x / 2) for x in range(-9, 10))


# Wrong input -------------------------------------------------------------------------------------------------------

GOOD = {"id": "q1", "question": "kan ?", "answers": [{"text": "kan", "answer_start": 0}]}


def paragraph(*qas, **more):
    return {"data": [{"paragraphs": [{"context": "kan losh", "qas": list(qas), **more}]}]}


WRONG = {
    "not JSON": ("{", "not JSON (Expecting property name"),
    "a list": ([], "no 'data' (found []), expected a list"),
    "GLUE": ({"version": "1"}, "no 'data' (found keys 'version'), expected a list"),
    "data": ({"data": {}}, "'data' is {}, expected a list"),
    "no paragraphs": ({"data": [{"title": "t"}]}, "article 1: no 'paragraphs'"),
    "no context": ({"data": [{"paragraphs": [{"qas": []}]}]}, "article 1, paragraph 1: no 'context'"),
    "blank context": (paragraph(GOOD, context=" \n"), "article 1, paragraph 1: 'context' is blank"),
    "invisible context": (paragraph(GOOD, context="\u200b"), "question 'q1': SentencePiece removes its whole context"),
    "no id": (paragraph({"question": "?"}), "paragraph 1, question 1: no 'id'"),
    "same id": (paragraph(GOOD, GOOD), "question id 'q1' occurs twice"),
    "no answers": (paragraph({"id": "q", "question": "?"}), "question 1 (q): no 'answers'"),
    "start": (
        paragraph({**GOOD, "answers": [{"text": "kan", "answer_start": "0"}]}),
        "'answer_start' is '0', expected",
    ),
    "no start": (paragraph({**GOOD, "answers": [{"text": "kan"}]}), "question 1 (q1): no 'answer_start'"),
    "text": (paragraph({**GOOD, "answers": [{"text": " ", "answer_start": 3}]}), "the text of an answer is blank"),
    "contradiction": (paragraph({**GOOD, "is_impossible": True}), "'is_impossible' is true but 'answers' has 1"),
    "no contradiction": (paragraph({**GOOD, "answers": [], "is_impossible": False}), "is false but 'answers' has 0"),
    "surrogate": (paragraph({**GOOD, "question": "\ud83d"}), "'question' contains half a surrogate pair"),
    "no questions": (paragraph(), "no questions found"),
    "misplaced": (paragraph({**GOOD, "answers": [{"text": "kan", "answer_start": 1}]}), "--train: no question has"),
}


@pytest.mark.parametrize("name", WRONG)
def test_json_that_is_not_squads(name, vocabulary, tmp_path, monkeypatch, capsys):
    content, expected = WRONG[name]
    (tmp_path / "dev.json").write_text(json.dumps(paragraph(GOOD)))
    wrong = tmp_path / "wrong.json"
    wrong.write_text(content if isinstance(content, str) else json.dumps(content))
    arguments = ["--train", wrong, "--dev", tmp_path / "dev.json", "--vocabulary", vocabulary, "--dest", tmp_path / "d"]
    error = run_here(arguments, monkeypatch, capsys)
    assert error.startswith("squad.py: error: ") and expected in error, error
    assert sorted(os.listdir(str(tmp_path))) == ["dev.json", "wrong.json"]


def run_here(arguments, monkeypatch, capsys):
    """Runs the preparation in this process, which has imported fairseq; returns its one-line error."""
    monkeypatch.syspath_prepend(str(PREPARE.parent))
    monkeypatch.setattr(sys, "argv", ["squad.py", *map(str, arguments)])
    spec = importlib.util.spec_from_file_location("prepare_squad", str(PREPARE))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(SystemExit) as exit:
        module.run(module.main, "squad.py")
    assert exit.value.code == 1
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    return error


def test_preparing_with_wrong_options(hard, vocabulary, tmp_path, monkeypatch, capsys):
    (tmp_path / "dev.json").write_text(json.dumps(paragraph(GOOD)))

    def error(**changed):
        options = dict(train=tmp_path / "dev.json", dev=tmp_path / "dev.json", vocabulary=vocabulary)
        options.update(dict(dest=tmp_path / "d"), **changed)
        arguments = [a for name, value in options.items() for a in ("--" + name.replace("_", "-"), value)]
        return run_here(arguments, monkeypatch, capsys)

    assert "--dev: file" in error(dev=tmp_path / "nosuch") and "does not exist" in error(train=tmp_path)
    assert "leaves no room for the context" in error(max_tokens=68)
    assert "argument --stride: 0 is not a positive integer" in error(stride=0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    assert "contains notes but no squad.json" in error(dest=tmp_path / "full")
    assert "is a file" in error(dest=tmp_path / "dev.json")
    assert "inputs 'train', inputs 'dev'" in error(dest=hard[0])
    (tmp_path / "v").mkdir()
    assert f"SentencePiece model {tmp_path}/v/sentencepiece.model does not exist" in error(vocabulary=tmp_path / "v")
    for name in ["dict.txt", "sentencepiece.model"]:
        (tmp_path / "v" / name).write_bytes((vocabulary / name).read_bytes())
    lines = (tmp_path / "v" / "dict.txt").read_text("utf-8").splitlines()
    (tmp_path / "v" / "dict.txt").write_text("\n".join(lines[::-1]) + "\n", "utf-8")
    assert "dict.txt is not the dictionary of the sentencepiece.model beside it" in error(vocabulary=tmp_path / "v")
    (tmp_path / "no.pt").write_text("x")
    assert "cannot be read as a checkpoint" in error(checkpoint=tmp_path / "no.pt")


@pytest.mark.parametrize("options, expected", [
    (["--max-positions", 63], "windows of up to 64 tokens, but the model has 63 positions"),
    (["--max-tokens", 40], "but only 40 are allowed: raise --max-tokens"),
])  # fmt: skip
def test_training_on_windows_that_do_not_fit(hard, tmp_path, options, expected):
    done = run("fairseq-train", hard[0], *FINETUNE, "--max-update", 1, "--save-dir", tmp_path, *options)
    assert done.returncode == 1 and "Traceback" not in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert expected in line


def test_loading_what_is_not_prepared(hard, vocabulary, tmp_path):
    def task(folder, **options):
        return SquadTask.setup_task(OmegaConf.create(dict(data=str(folder), seed=1, **{**PRECISION, **options})))

    PRECISION = dict(bf16_autocast=False, fp16=False, bf16=False, amp=False)
    with pytest.raises(
        FileNotFoundError, match="squad.json: not found, expected the record of a finished run of data-prep/squad.py"
    ):
        task(vocabulary)
    with pytest.raises(FileNotFoundError, match="test.bin: not found"):
        task(hard[0]).load_dataset("test")
    with pytest.raises(ValueError, match="use --bf16-autocast"):
        task(hard[0], bf16=True)
    with pytest.raises(ValueError, match="--bf16-autocast contradicts --fp16"):
        task(hard[0], bf16_autocast=True, fp16=True)
    (tmp_path / "squad.json").write_text('{"format": 0}')
    with pytest.raises(ValueError, match="'format' is 0, expected 1"):
        load_record(str(tmp_path))
