"""SQuAD's JSON: questions, their contexts, and their answers."""

import json
import os
from typing import List, NamedTuple, Tuple

from ...engine.errors import MissingFileError, UsageError

NAMES = {str: "a string", int: "a whole number", bool: "true or false", list: "a list"}


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
    for i, article in enumerate(get(content, "data", list, path), 1):
        for j, paragraph in enumerate(get(article, "paragraphs", list, f"{path}: article {i}"), 1):
            where = f"{path}: article {i}, paragraph {j}"
            context = get(paragraph, "context", str, where)
            if not context.strip():
                raise UsageError(f"{where}: 'context' is blank, expected the text that answers the questions")
            for k, entry in enumerate(get(paragraph, "qas", list, where), 1):
                question = read_question(entry, context, f"{where}, question {k}")
                if question.id in questions:
                    raise UsageError(f"{where}: question id {question.id!r} occurs twice; ids must differ")
                questions[question.id] = question
    if not questions:
        raise UsageError(f"{path}: no questions found")
    return list(questions.values())


def read_question(entry, context, where):
    name = get(entry, "id", str, where)
    where = f"{where} ({name})"
    impossible = get(entry, "is_impossible", bool, where) if "is_impossible" in entry else None
    found = get(entry, "answers", list, where) if "answers" in entry or not impossible else []
    answers = tuple(Answer(get(a, "text", str, where), get(a, "answer_start", int, where)) for a in found)
    if not all(answer.text.strip() for answer in answers):
        raise UsageError(f"{where}: the text of an answer is blank; without an answer the list is empty")
    if impossible is not None and impossible == bool(answers):
        raise UsageError(
            f"{where}: 'is_impossible' is {str(impossible).lower()} but 'answers' has {len(answers)}: correct one"
        )
    return Question(name, get(entry, "question", str, where), context, answers)


def get(value, key, kind, where):
    """Returns `value[key]`; refuses another kind, and text with half a surrogate pair, which cannot be encoded."""
    if not isinstance(value, dict) or key not in value:
        found = "keys " + ", ".join(map(repr, value)) if isinstance(value, dict) and value else repr(value)[:60]
        raise UsageError(f"{where}: no {key!r} (found {found}), expected {NAMES[kind]}, as in SQuAD's JSON")
    found = value[key]
    if type(found) is not kind or kind is str and any("\ud800" <= character <= "\udfff" for character in found):
        raise UsageError(f"{where}: {key!r} is {ascii(found)[:60]}, expected {NAMES[kind]}")
    return found
