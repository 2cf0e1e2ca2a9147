"""SQuAD's JSON: questions, their contexts, and their answers."""

from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Tuple

from ..base.errors import UsageError
from ..base.json_files import read_json
from ..base.typed_values import as_type, short_repr

SQUAD_FILES = {
    "train": ["train.json", "train-v1.1.json", "train-v2.0.json"],
    "valid": ["dev.json", "dev-v1.1.json", "dev-v2.0.json"],
    "test": ["test.json"],
}


@dataclass(frozen=True)
class GoldAnswer:
    text: str
    answer_start: int  # its first character in the context


@dataclass
class Entry:
    id: str
    question: str
    answers: Optional[List[GoldAnswer]] = None
    is_impossible: Optional[bool] = None


@dataclass
class Paragraph:
    context: str
    qas: List[dict]  # each an `Entry`


@dataclass
class Article:
    paragraphs: List[Paragraph]


@dataclass
class Squad:
    data: List[Article]


class Question(NamedTuple):
    id: str
    text: str
    context: str
    answers: Tuple[GoldAnswer, ...]  # empty if the context does not answer it


def read_questions(path, is_test=False) -> List[Question]:
    """Reads the official JSON of SQuAD 1.1 or 2.0.

    Without `is_impossible`, questions with answers are answerable. Questions of a test file may
    have no `answers`: where one has none, all are read without answers.

    Raises:
        FileNotFoundError: there is no such file
        UsageError: it is not SQuAD's JSON; the message says where
    """
    squad = read_json(path, Squad, "SQuAD's JSON", "correct it")
    paragraphs = [paragraph for article in squad.data for paragraph in article.paragraphs]
    questions = {}
    has_withheld_answers = False
    for paragraph in paragraphs:
        for qa in paragraph.qas:
            location = f"{path}: question {short_repr(qa.get('id'))}"
            entry = as_type(Entry, qa, location)
            if entry.answers is None:
                if not is_test:
                    raise UsageError(
                        f"{location}: found no answers, expected a list, empty if there are none; "
                        "correct it"
                    )
                has_withheld_answers = True
            answers = tuple(entry.answers or ())
            if entry.id in questions:
                raise UsageError(
                    f"{location}: its id occurs twice; give each question an id of its own"
                )
            if not is_test:
                check_impossible(entry, location)
            questions[entry.id] = Question(entry.id, entry.question, paragraph.context, answers)
    if not questions:
        raise UsageError(
            f"{path}: found no questions, expected `data` with paragraphs and their `qas`; check "
            "the file"
        )
    if has_withheld_answers:
        return [question._replace(answers=()) for question in questions.values()]
    return list(questions.values())


def check_impossible(entry, location):
    """Refuses a question that is called impossible and has answers, or the other way round."""
    if entry.is_impossible is None:
        return
    answers = entry.answers or ()
    if entry.is_impossible == bool(answers):
        raise UsageError(
            f"{location}: is_impossible is {entry.is_impossible}, but it has {len(answers)} "
            "answers; correct either"
        )
