"""SQuAD's JSON: questions, their contexts, and their answers."""

import json
import os
from typing import List, NamedTuple, Tuple

from ...base.errors import MissingFileError, UsageError


class Answer(NamedTuple):
    text: str
    start: int  # its first character in the context


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
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: not found, expected SQuAD's JSON")
    try:
        with open(path, encoding="utf-8-sig") as stream:
            content = json.load(stream)
    except ValueError as error:  # not UTF-8 either
        raise UsageError(f"{path}: not JSON ({error}), expected SQuAD's, with `data` at the top level") from None
    questions = {}
    where = path
    try:
        for i, article in enumerate(content["data"], 1):
            for j, paragraph in enumerate(article["paragraphs"], 1):
                where = f"{path}: article {i}, paragraph {j}"
                for entry in paragraph["qas"]:
                    question = read_question(entry, paragraph["context"], where)
                    if question.id in questions:
                        raise UsageError(f"{where}: question id {question.id!r} occurs twice; ids must differ")
                    questions[question.id] = question
    except (KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise UsageError(
            f"{where}: not SQuAD's format ({reason}), expected data[].paragraphs[].context and .qas[], with id,"
            " question, answers[].text and .answer_start"
        ) from None
    if not questions:
        raise UsageError(f"{path}: no questions found")
    return list(questions.values())


def read_question(entry, context, where):
    impossible = entry.get("is_impossible")
    found = entry.get("answers", []) if impossible else entry["answers"]
    answers = tuple(Answer(answer["text"], answer["answer_start"]) for answer in found)
    where = f"{where}, question {entry['id']}"
    if not all(answer.text.strip() for answer in answers):
        raise UsageError(f"{where}: the text of an answer is blank; without an answer the list is empty")
    if impossible is not None and impossible == bool(answers):
        raise UsageError(f"{where}: is_impossible is {impossible}, but it has {len(answers)} answers; correct one")
    return Question(entry["id"], entry["question"], context, answers)
