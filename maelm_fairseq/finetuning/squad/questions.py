"""SQuAD's JSON: questions, their contexts, and their answers."""

import os
from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Tuple

from ...base.errors import UsageError
from ...base.files import read_json


@dataclass(frozen=True)
class Answer:
    text: str
    answer_start: int  # its first character in the context


@dataclass
class Entry:
    id: str
    question: str
    answers: Optional[List[Answer]] = None
    is_impossible: Optional[bool] = None


@dataclass
class Paragraph:
    context: str
    qas: List[Entry]


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
    answers: Tuple[Answer, ...]  # empty if the context does not answer it


def read_questions(path) -> List[Question]:
    """Reads the official JSON of SQuAD 1.1 or 2.0. Without `is_impossible`, questions with answers are answerable.

    Raises:
        FileNotFoundError: there is no such file
        ValueError: it is not SQuAD's JSON; the message says where
    """
    path = os.fspath(path)
    squad, questions = read_json(path, Squad, "SQuAD's JSON", "correct it"), {}
    for i, article in enumerate(squad.data, 1):
        for j, paragraph in enumerate(article.paragraphs, 1):
            for entry in paragraph.qas:
                where = f"{path}: data: item {i}: paragraphs: item {j}: question {entry.id!r}"
                check_entry(entry, where)
                if entry.id in questions:
                    raise UsageError(f"{where}: its id occurs twice; ids must differ")
                answers = tuple(entry.answers or ())
                questions[entry.id] = Question(entry.id, entry.question, paragraph.context, answers)
    if not questions:
        raise UsageError(f"{path}: no questions found")
    return list(questions.values())


def check_entry(entry, where):
    """Refuses a question whose answers and `is_impossible` contradict each other."""
    if entry.answers is None and not entry.is_impossible:
        raise UsageError(f"{where}: found no answers, expected a list; without an answer it is empty")
    if not all(answer.text.strip() for answer in entry.answers or ()):
        raise UsageError(f"{where}: the text of an answer is blank; without an answer the list is empty")
    if entry.is_impossible is not None and entry.is_impossible == bool(entry.answers):
        count = len(entry.answers)
        raise UsageError(f"{where}: is_impossible is {entry.is_impossible}, but it has {count} answers; correct one")
