"""Questions on contexts: windows, answers and their scores."""

import random

import numpy as np
import pytest
import torch

import labelled
from conftest import refuses
from huggingface_cases import byte_level_roberta
from labelled import question, task_with_split, write_squad
from maelm_fairseq import metrics
from maelm_fairseq.base.vocabulary_files import read_tokenizer
from maelm_fairseq.finetuning import squad_metrics
from maelm_fairseq.finetuning.squad import SquadTask
from maelm_fairseq.finetuning.windows import best_in_window, log_probabilities, pieces_of
from maelm_fairseq.runs.split_scores import SplitScores


@pytest.fixture
def questions(prepared, tmp_path):
    """A function that reads paragraphs as a split, for a model with 64 positions."""

    def read(paragraphs, split="valid"):
        for name in ["train", "dev"]:
            write_squad(tmp_path / f"{name}.json", paragraphs)
        task = task_with_split(SquadTask, prepared, tmp_path, split, max_tokens=64)
        return task, task.datasets[split]

    return read


def test_answers_of_pieces_come_back_from_every_window(questions):
    rng = random.Random(1)
    words_with_odd_ones = [*labelled.WORDS, "1990", "(5%)", "na\u00efve"]
    words_with_odd_ones += ["\u6f22\u5b57", "\U0001f600", "x\u00a0y"]
    paragraphs = []
    for number in range(30):
        words = [rng.choice(words_with_odd_ones) for _ in range(50)]
        first = rng.randrange(45)
        answer = " ".join(words[first : first + 4])
        begin = len(" ".join(words[:first]))
        if first > 0:
            begin += 1  # the space after the words before it
        asked = question(str(number), "kan losh mipo ru " * 5, (answer, begin))
        paragraphs.append((" ".join(words), [asked]))
    _, dataset = questions(paragraphs)
    answered = set()
    seen = {}  # {number of the question: the places of its context that windows show}
    for i in range(len(dataset)):
        _, tokens, target = dataset[i]
        window = dataset.windows[i]
        owner = dataset.example_of_sequence[i]
        asked = dataset.questions[owner]
        context = dataset.contexts[asked.context]
        part = tokens.tolist()[window.offset : -1]
        assert len(tokens) <= 64
        assert part == context.tokens[window.first : window.first + len(part)]
        seen.setdefault(owner, set()).update(range(window.first, window.first + len(part)))
        start, end = target.tolist()
        if end:
            first = start - window.offset + window.first
            last = end - window.offset + window.first
            text = asked.context[context.begins[first] : context.ends[last]]
            assert text == asked.answers[0].text
            answered.add(owner)
    assert answered == set(range(30))  # no answer is lost
    for owner, places in seen.items():
        context = dataset.contexts[dataset.questions[owner].context]
        assert len(places) == len(context.tokens)


def test_pieces_say_which_characters_they_are(prepared, questions):
    task, _ = questions([("kan lo", [question("a", "?", ("kan", 0))])])
    for text in [
        "kan  losh\tmi",
        " kan",
        "\u0130 ka\u0301n \ufb01n",
        "\u6f22\u5b57 \U0001f600 kan",
        "\u200b",
        "",
    ]:
        pieces = pieces_of(task.tokenizer, text)
        assert pieces.tokens == task.tokenizer.encode(text)
        covered = "".join(text[begin:end] for begin, end in zip(pieces.begins, pieces.ends))
        assert [c for c in covered if c.isalnum()] == [c for c in text if c.isalnum()]


def test_a_question_may_contain_what_special_tokens_are_called(questions, tmp_path):
    """To `encode` of byte-level BPE, `</s>` is a token, which would end the question."""
    theirs, _, _ = byte_level_roberta(tmp_path / "bytes", [" kan lo"])
    task, _ = questions([("kan lo", [question("a", "?", ("kan", 0))])])
    task.tokenizer = read_tokenizer(theirs)
    asked = question("a", "kan </s> lo ?", ("kan", 0))
    write_squad(tmp_path / "dev.json", [("kan lo", [asked])])
    task.load_dataset("valid")
    (tokens,) = task.datasets["valid"].sequences
    assert (np.asarray(tokens) == task.dictionary.eos()).sum() == 3


def test_what_cannot_be_used_is_left_out_of_training_and_counted(questions):
    context = "kan losh the ru , mipo"
    moved = question("moved", "?", ("losh", 5))
    qas = [question("good", "?", ("losh", 4)), moved, question("none", "?")]
    qas.append(question("second", "?", ("x", 0), ("kan", 0)))
    _, train = questions([(context, qas)], "train")
    used = [train.questions[owner].id for owner in train.example_of_sequence]
    assert used == ["good", "none", "second"]
    message = "1 answers not at their answer_start, such as of moved: left out"
    assert message in train.summary
    task, dev = questions([(context, qas)])
    assert "not at their answer_start, such as of moved: scored by their texts" in dev.summary
    assert dev.example_of_sequence == [0, 1, 2, 3]
    assert task.state.may_be_empty
    refuses("no answer is at its answer_start", questions, [(context, [moved])], "train")


def test_the_best_answer_is_that_of_a_search_over_all_spans(questions):
    text = "kan  losh \t mipo ru sen " * 12
    task, dataset = questions([(text, [question("a", "kan ?", ("losh", 5))])])
    torch.manual_seed(1)
    sample = dataset.collater([dataset[i] for i in range(len(dataset))])
    logits = torch.randn(*sample["net_input"]["src_tokens"].shape, 2)
    output = task.compute_output(lambda **inputs: (logits, None), sample["net_input"])
    torch.testing.assert_close(output.exp().sum(1), torch.ones(len(dataset), 2))
    best, nothing, (first, last) = searched(dataset, output.double())
    predictions = dict(enumerate(task.compute_predictions(output, sample, dataset)))
    assert len(predictions) > 1
    assert max(row[0] for row in predictions.values()) == pytest.approx(best)
    assert min(row[3] for row in predictions.values()) == pytest.approx(nothing)
    asked = dataset.questions[0].context
    context = dataset.contexts[asked]
    expected = asked[context.begins[first] : context.ends[last]]
    assert task.answer_texts(dataset, predictions) == {0: expected}  # every question has an answer
    task.record_state(may_be_empty=True)
    assert task.answer_texts(dataset, predictions) == {0: "" if nothing > best else expected}
    assert task.answer_texts(dataset, {0: (-5.0, 0, 3, -4.0)}) == {0: ""}


def searched(dataset, output):
    """The scores of the best answer and of no answer, and the answer's first and last token.

    All spans of at most 30 tokens are tried, in all windows.
    """
    best = -np.inf
    nothing = np.inf
    for window, scores, sequence in zip(dataset.windows, output, dataset.sequences):
        nothing = min(nothing, scores[0].sum().item())
        for i in range(window.offset, len(sequence) - 1):
            for j in range(i, min(i + 30, len(sequence) - 1)):
                score = (scores[i, 0] + scores[j, 1]).item()
                if score > best:
                    best = score
                    span = (i - window.offset + window.first, j - window.offset + window.first)
    return best, nothing, span


def test_squads_scores_are_those_of_torchmetrics():
    from torchmetrics.text import SQuAD

    predictions, answers = squad_predictions()
    reference = SQuAD()(
        [{"id": str(i), "prediction_text": text} for i, text in enumerate(predictions)],
        [
            {"id": str(i), "answers": {"text": texts, "answer_start": [0]}}
            for i, texts in enumerate(answers)
        ],
    )
    scores = [squad_metrics.exact_and_f1(*pair) for pair in zip(predictions, answers)]
    exact, f1 = 100 * np.mean(scores, axis=0)
    assert 20 < exact < f1 < 80
    expected = (reference["exact_match"].item(), reference["f1"].item())
    assert (exact, f1) == pytest.approx(expected, abs=1e-3)
    # Two entities are not one.
    assert metrics.entity_scores([["U-X", "U-X", "O"]], [["B-X", "L-X", "O"]])["f1"] == 0
    # Questions without an answer, which torchmetrics does not know: an article becomes nothing.
    for pair, score in {("", ()): 1, ("the", ()): 1, ("cat", ()): 0, ("", ("cat",)): 0}.items():
        assert squad_metrics.exact_and_f1(*pair) == (score, score)


def squad_predictions():
    """300 random predictions, some of them right, and the correct answers of each."""
    rng = random.Random(1)
    words = [
        "the",
        "a",
        "An",
        "cat",
        "Cat's",
        "U.S.",
        "1990",
        "(dog)",
        "dog",
        "caf\u00e9",
        "--",
        "x",
    ]
    predictions = []
    answers = []
    for _ in range(300):
        texts = []
        for _ in range(rng.randint(1, 4)):
            texts.append(" ".join(rng.choices(words, k=rng.randint(1, 5))) + " word")
        wrong = " ".join(rng.choices(words, k=3))
        predictions.append(rng.choice([wrong, texts[-1].upper(), ""]))
        answers.append(texts)
    return predictions, answers


def test_errors_are_over_questions_also_where_contexts_are_split(pretrained, tmp_path):
    folder = labelled.squad(tmp_path)
    task = task_with_split(SquadTask, pretrained[0], folder, "valid", max_tokens=20)
    dataset = task.datasets["valid"]
    assert len(dataset) > len(dataset.questions)
    predictions = {}
    rng = np.random.default_rng(1)
    for index, window in enumerate(dataset.windows):
        scores = log_probabilities(
            torch.from_numpy(rng.normal(size=(1, len(window.tokens), 2))),
            torch.tensor([window.tokens]),
        )[0].numpy()
        pieces = dataset.contexts[dataset.questions[dataset.example_of_sequence[index]].context]
        predictions[index] = best_in_window(scores, window, pieces)
    scores = SplitScores(task, "valid", predictions)
    texts = task.answer_texts(dataset, predictions)
    exact = []
    for question_of, text in texts.items():
        answers = [answer.text for answer in dataset.questions[question_of].answers]
        exact.append(100 * squad_metrics.exact_and_f1(text, answers)[0])
    error = np.std(exact, ddof=1) / len(exact) ** 0.5
    assert scores.standard_errors["exact"] == pytest.approx(error)
