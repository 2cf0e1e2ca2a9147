"""Question answering: exact offsets, windows, labels, training, answers, metrics, and wrong input."""

import json
import random
import re
import sys

import pytest
import sentencepiece
import torch

from conftest import PLUGIN, ROOT, documents, refused, run, script, succeed, text_of
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.checkpoints.building import load_model
from maelm_fairseq.finetuning.squad.answers import answer_questions
from maelm_fairseq.finetuning.squad.metric import best_threshold, evaluate, exact_match, f1
from maelm_fairseq.finetuning.squad.questions import Answer, Question, read_questions
from maelm_fairseq.finetuning.squad.squad_task import SquadDataset, load_record, network_input, span_log_probs
from maelm_fairseq.finetuning.squad.text import SpanTokenizer, WindowSizes, place, windows
from maelm_fairseq.vocabulary import load_dictionary

sys.path.insert(0, str(ROOT / "recipes"))
from finetune_squad import answer  # noqa: E402

PREPARE = "data-prep/squad.py"

# An answer may begin or end between two of them, with or without white space.
LETTERS = ["kan", "Losh", "MIPO", "ru\ufb01n", "na\u00efve", "cafe\u0301", "\u0130stan", "stra\u00dfe", "\u6f22\u5b57"]
LETTERS += ["\u0928\u092e\u0938\u094d\u0924\u0947", "co\u00adoperate", "x\u0338", "\ufb03x"]
DIGITS = ["1990", "5", "007", "\u0661\u0662", "\uff11\uff12"]
SYMBOLS = list("()%$-,.;'\"/&") + ["\u2026", "\u00bd", "\u20ac", "\u00ab", "\U0001f600", "\u00b2", "\u2122", "\u2014"]
SYMBOLS += ["\U0001f469\u200d", "\u2764\ufe0f", "=\u0338", "\ue000", "\u2163", "\u337f"]
SPACES = [" ", " ", " ", "  ", "\t", "\n\n", "\u00a0", "\u3000", "\u200b", " \u2009 "]


def squad_json(path, paragraphs, version="1.1"):
    """Writes the official format; `paragraphs`: pairs of a context and its questions, two to an article."""
    made = [{"context": context, "qas": qas} for context, qas in paragraphs]
    articles = [{"title": f"t{i}", "paragraphs": made[i : i + 2]} for i in range(0, len(made), 2)]
    path.write_text(json.dumps({"version": version, "data": articles}), encoding="utf-8")
    return path


def qa(name, question, *answers, **more):
    return {"id": name, "question": question, "answers": [{"text": t, "answer_start": s} for t, s in answers], **more}


def mixed_context(rng, length):
    """A text of parts with and without white space between them, and the beginning and end of each part."""
    text, spans, before = rng.choice(["", " ", "\t "]), [], None
    for _ in range(length):
        kind = rng.choice([LETTERS, LETTERS, DIGITS, SYMBOLS])
        if before is not None and (kind is before and kind is not SYMBOLS or rng.random() < 0.5):
            text += rng.choice(SPACES)
        part = rng.choice(kind)
        spans.append((len(text), len(text) + len(part)))
        text, before = text + part, kind
    return text + rng.choice(["", " ", "\n"]), spans


def mixed_paragraphs(seed, count=12, length=60):
    rng, paragraphs = random.Random(seed), []
    for number in range(count):
        context, spans = mixed_context(rng, length)
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
    script(
        "data-prep/prepare.py", "--train", folder / "text.txt", "--valid", folder / "text.txt",
        "--vocab-size", 200, "--lowercase", "--only-vocabulary", "--dest", folder / "data",
    )  # fmt: skip
    return folder / "data"


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return SpanTokenizer(sentencepiece.SentencePieceProcessor(model_file=str(vocabulary / "sentencepiece.model")))


@pytest.fixture(scope="module")
def mixed(vocabulary, tmp_path_factory):
    """Texts of mixed scripts prepared: the folder, and the questions of train and dev."""
    folder = tmp_path_factory.mktemp("mixed")
    train, dev = (squad_json(folder / f"{seed}.json", mixed_paragraphs(seed)) for seed in (1, 2))
    options = ["--train", train, "--dev", dev, "--vocabulary", vocabulary, "--dest", folder / "data"]
    script(PREPARE, *options, "--max-tokens", 64, "--stride", 16, "--max-question", 10)
    return folder / "data", read_questions(train), read_questions(dev)


def test_every_answer_within_a_window_comes_back_as_the_same_string(mixed, tokenizer):
    folder, train, dev = mixed
    dictionary, sizes = load_dictionary(folder), load_record(folder).options
    assert sizes == WindowSizes(64, 16, 10)
    for split, questions in [("train", train), ("valid", dev)]:
        data, index, short = SquadDataset(str(folder / split), dictionary, seed=1), 0, 0
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
                    begin, after = context.characters(*(window.first + i - window.offset for i in (start, end)))
                    assert (begin, question.context[begin:after]) == (answer.answer_start, answer.text)
            # A span shorter than the overlap of two windows is complete in one of them.
            (first, last), exact = place(answer, question, context)
            assert exact
            if last - first + 1 <= sizes.max_tokens - sizes.max_question - 4 - sizes.stride:
                short += 1
                assert in_windows
        assert index == len(data) and short > 280


def test_windows_keep_the_question_and_leave_out_nothing(tokenizer):
    context = tokenizer.encode(" ".join(line for document in documents(40, 3) for line in document))
    question = tokenizer.encode("what is losh ?")
    for sizes in [WindowSizes(40, 12, 20), WindowSizes(40, 100, 3), WindowSizes(10000, 1, 20)]:
        seen, kept = set(), question.tokens[: sizes.max_question].tolist()
        for window in windows(question, context, sizes):
            tokens = window.tokens.tolist()
            assert len(tokens) <= sizes.max_tokens
            assert tokens[: window.offset] == [0, *kept, 2, 2] and tokens[-1] == 2
            part = tokens[window.offset : -1]
            assert part == context.tokens[window.first : window.first + len(part)].tolist()
            seen.update(range(window.first, window.first + len(part)))
        assert seen == set(range(len(context.tokens)))


def test_counts_and_running_again(vocabulary, tmp_path):
    context = "kan losh the ru , mipo"
    paragraphs = [
        (context, [qa("good", "kan ?", ("losh", 4)), qa("moved", "kan ?", ("losh", 5))]),
        (context, [qa("inside", "kan losh " * 20, ("os", 5)), qa("second", "?", ("x", 0), ("kan", 0))]),
        ("losh " * 200, [qa("long", "kan ?", ("losh " * 150, 0))]),
        (context, [qa("none", "kan ?", is_impossible=True)]),
        ("kan \u200b losh", [qa("unseen", "kan ?", ("\u200b", 4))]),
    ]
    train = squad_json(tmp_path / "train.json", paragraphs)
    dev = squad_json(tmp_path / "dev.json", [(context, [qa("d", "?", ("kan", 0)), qa("moved", "?", ("x", 0))])])
    made = tmp_path / "made" / "data"
    arguments = ["--train", train, "--dev", dev, "--vocabulary", vocabulary, "--dest", made]
    arguments += ["--max-tokens", 100, "--stride", 50]
    done = script(PREPARE, *arguments)
    counts = load_record(made).counts["train"]
    assert load_record(made).version == "2.0" and done.stdout.startswith("SQuAD 2.0\n")
    expected = dict(questions=7, answerable=6, answers_misplaced=2, answers_invisible=1, questions_left_out=2)
    assert counts.items() >= dict(expected, labels_widened=1, answers_too_long=1).items()
    data = SquadDataset(str(made / "train"), load_dictionary(vocabulary), 1)
    assert counts["windows"] == len(data) > 6
    assert counts["windows_without_answer"] == sum(not data[i][2].any() for i in range(len(data))) == len(data) - 3
    assert "first in moved" in done.stderr and "first in unseen" in done.stderr
    # The dev file loses no question: predictions and metrics include all.
    assert len(read_questions(made / "dev.json")) == 2

    again = script(PREPARE, *arguments)
    assert again.stdout == done.stdout and "finished already" in again.stderr
    assert "--stride was 50 and is 49" in refused(PREPARE, *arguments, "--stride", 49)


def key_paragraphs(seed, count):
    """Generated text in which the word after "key" is the answer; every third has no key."""
    rng, paragraphs = random.Random(seed), []
    words = sorted(set(text_of(documents(50, 1)).split()))
    for number in range(count):
        text = [rng.choice(words) for _ in range(rng.randint(8, 30))]
        place = rng.randrange(len(text))
        if number % 3 == 0:
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


@pytest.fixture(scope="module")
def learned(vocabulary, tmp_path_factory):
    """Data whose answers follow a word, and a model that was trained on them."""
    folder = tmp_path_factory.mktemp("learned")
    train, dev = (squad_json(folder / f"{i}.json", key_paragraphs(i, count)) for i, count in [(1, 300), (2, 45)])
    options = ["--train", train, "--dev", dev, "--vocabulary", vocabulary, "--dest", folder / "data"]
    script(PREPARE, *options, "--max-tokens", 48, "--stride", 16, "--max-question", 10)
    printed = succeed(
        "fairseq-train", folder / "data", *FINETUNE, "--save-dir", folder / "run", "--max-update", 300,
        "--validate-interval", 1000, "--no-epoch-checkpoints",
    )  # fmt: skip
    return folder, train, printed


def test_a_model_learns_to_answer(learned):
    folder, train, printed = learned
    logged = [json.loads(line[line.index("{") :]) for line in printed.splitlines() if "valid_loss" in line]
    assert float(logged[-1]["valid_accuracy"]) > 80 and float(logged[-1]["valid_loss"]) < 1
    questions = read_questions(train)
    predictions, metrics = answer(folder / "run" / "checkpoint_last.pt", folder / "data", questions)
    assert all(predictions[question.id] in question.context for question in questions) and len(questions) == 300
    assert metrics["f1_at_best_threshold"] >= metrics["f1"] >= metrics["exact"]
    assert metrics["HasAns_exact"] > 80 and metrics["NoAns_exact"] > 80


def test_answers_are_the_best_spans_of_all_windows(learned, tokenizer):
    """Compared with a brute-force search over every span of every window."""
    folder, train, _ = learned
    dictionary = load_dictionary(folder / "data")
    model = load_model(folder / "run" / "checkpoint_last.pt", dictionary)
    questions, sizes = read_questions(train)[:8], WindowSizes(30, 7, 5)
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
        assert abs(max(scores.values()) - answers.score) < 1e-3 and abs(scores[answers.text] - answers.score) < 1e-3
        assert abs(answers.no_answer - min(nothing)) < 1e-3
    assert windows_seen > len(questions)


def test_answers_without_impossible_questions_and_wrong_arguments(learned, mixed, tmp_path):
    contexts = [context for context, _ in key_paragraphs(1, 12)[::3]]  # in which the model sees no answer
    asked = [Question(context, "what ?", context, (Answer(context.split()[0], 0),)) for context in contexts]
    predictions, metrics = answer(learned[0] / "run" / "checkpoint_last.pt", mixed[0], asked)  # SQuAD 1.1
    assert all(predictions.values()) and list(metrics) == ["f1", "exact"]
    done = run("fairseq-train", mixed[0], *FINETUNE, "--max-positions", 63, "--max-update", 1, "--save-dir", tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert "error: windows of up to 64 tokens, but the model has 63 positions" in done.stdout


def test_metrics_are_those_of_torchmetrics():
    from torchmetrics.text import SQuAD

    rng = random.Random(1)
    words = ["the", "a", "An", "cat", "Cat's", "U.S.", "1990", "(dog)", "dog", "caf\u00e9", "--", "x"]

    def phrase():
        return " ".join(rng.choice(words) for _ in range(rng.randint(1, 5))) + " word"

    questions, predictions = [], {}
    for number in range(300):
        answers = [phrase() for _ in range(rng.randint(1, 4))]
        questions.append(Question(str(number), "", "", tuple(Answer(text, 0) for text in answers)))
        predictions[str(number)] = rng.choice([phrase(), answers[-1].upper(), ""])
    reference = SQuAD()(
        [{"id": name, "prediction_text": text} for name, text in predictions.items()],
        [{"id": q.id, "answers": {"text": [a.text for a in q.answers], "answer_start": [0]}} for q in questions],
    )
    ours = evaluate(predictions, questions)
    assert 20 < ours["exact"] < ours["f1"] < 80 and ours["total"] == 300
    assert abs(ours["exact"] - reference["exact_match"].item()) < 1e-3
    assert abs(ours["f1"] - reference["f1"].item()) < 1e-3
    # Without an answer, which torchmetrics does not know: an article normalises to nothing.
    for metric in (exact_match, f1):
        assert metric("", []) == metric("the", []) == 1 and metric("cat", []) == metric("", ["cat"]) == 0
    questions = [Question(name, "", "", (Answer("cat", 0),) * (name == "a")) for name in "abc"]
    scores = evaluate({"a": "cat", "b": "", "c": "cat"}, questions)
    assert (scores["HasAns_exact"], scores["NoAns_f1"], scores["NoAns_total"]) == (100, 50, 2)


def test_best_threshold():
    """Compared with trying every threshold."""
    answers = {"a": ["cat"], "b": ["dog"], "c": [], "d": []}
    questions = [Question(name, "", "", tuple(Answer(text, 0) for text in texts)) for name, texts in answers.items()]
    texts, rng = {"a": "cat", "b": "bird", "c": "cat", "d": "cat"}, random.Random(1)
    for _ in range(50):
        differences = {name: rng.randint(-3, 3) for name in "abcd"}

        def score(threshold, differences=differences):
            return evaluate({n: "" if differences[n] > threshold else texts[n] for n in texts}, questions)["f1"]

        found = best_threshold(texts, differences, questions)
        assert score(found) == max(score(x / 2) for x in range(-9, 10))


GOOD = {"id": "q1", "question": "kan ?", "answers": [{"text": "kan", "answer_start": 0}]}


def paragraph(*qas):
    return {"data": [{"paragraphs": [{"context": "kan losh", "qas": qas}]}]}


PLACE = "data: item 1: paragraphs: item 1"


@pytest.mark.parametrize(
    "content, expected",
    [
        ({"version": "1"}, "found no data; "),
        (paragraph({**GOOD, "id": 5}), f"{PLACE}: qas: item 1: id: found 5, expected a text"),
        (paragraph({"id": "q", "question": "?"}), f"{PLACE}: question 'q': found no answers, expected a list"),
        (paragraph({**GOOD, "answers": [{"text": " ", "answer_start": 0}]}), "the text of an answer is blank"),
        (paragraph({**GOOD, "is_impossible": True}), f"{PLACE}: question 'q1': is_impossible is True, but it has 1"),
        (paragraph(GOOD, GOOD), f"{PLACE}: question 'q1': its id occurs twice"),
        (paragraph(), "no questions found"),
    ],
)
def test_json_that_is_not_squads(tmp_path, content, expected):
    (tmp_path / "wrong.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match="^" + re.escape(f"{tmp_path}/wrong.json: ") + "[^\n]*" + re.escape(expected)):
        read_questions(tmp_path / "wrong.json")


def test_preparing_with_wrong_options(mixed, vocabulary, tmp_path):
    good, misplaced = tmp_path / "dev.json", tmp_path / "misplaced"
    good.write_text(json.dumps(paragraph(GOOD)))
    misplaced.write_text(json.dumps(paragraph({**GOOD, "answers": [{"text": "kan", "answer_start": 1}]})))
    right = {"--train": good, "--dev": good, "--vocabulary": vocabulary, "--dest": tmp_path / "d"}
    for option, value, expected in [
        ("--train", misplaced, "--train: no question has"),
        ("--dev", tmp_path / "nosuch", "--dev: file"),
        ("--max-tokens", 68, "leaves no room for the context"),
        ("--dest", mixed[0], "train differs; dev differs"),
        ("--vocabulary", tmp_path, f"{tmp_path}/sentencepiece.model: not found, expected a SentencePiece model"),
    ]:
        assert expected in refused(PREPARE, *[a for pair in {**right, option: value}.items() for a in pair])
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "change, expected",
    [
        (None, "not found, expected the record of a finished run"),
        (dict(format=0), "its format is 0, expected 1; prepare the data again"),
        (dict(version="../2.0"), "version: found '../2.0', expected one of 1.1, 2.0"),
        (dict(options={"stride": 0}), "--stride 0 and --max-question 64 must be over 0"),
    ],
)
def test_records_refused(mixed, tmp_path, change, expected):
    record = json.loads((mixed[0] / "squad.json").read_text())
    if change is not None:
        (tmp_path / "squad.json").write_text(json.dumps({**record, **change}))
    with pytest.raises(UsageError, match="^[^\n]*" + re.escape(expected) + "[^\n]*$"):
        load_record(str(tmp_path))
