"""SQuAD's JSON: questions, their contexts, and their answers."""

import json
import os
from typing import List, NamedTuple, Tuple

from ..errors import MissingFileError, UsageError
from ..records import NAMES, fits


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
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8, expected SQuAD's JSON in UTF-8") from None
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}), expected SQuAD's, with `data` at the top level") from None
    questions, seen = [], set()
    for i, article in enumerate(get(content, "data", list, path), 1):
        where = f"{path}: article {i}"
        for j, paragraph in enumerate(get(article, "paragraphs", list, where), 1):
            where = f"{path}: article {i}, paragraph {j}"
            context = get(paragraph, "context", str, where)
            if not context.strip():
                raise UsageError(f"{where}: 'context' is blank, expected the text that answers the questions")
            for k, entry in enumerate(get(paragraph, "qas", list, where), 1):
                question = read_question(entry, context, f"{where}, question {k}")
                if question.id in seen:
                    raise UsageError(f"{where}: question id {question.id!r} occurs twice; ids must differ")
                seen.add(question.id)
                questions.append(question)
    if not questions:
        raise UsageError(f"{path}: no questions found")
    return questions


def read_question(entry, context, where):
    name = get(entry, "id", str, where)
    where = f"{where} ({name})"
    text = get(entry, "question", str, where)
    impossible = get(entry, "is_impossible", bool, where) if "is_impossible" in entry else None
    answers = []
    if "answers" in entry or not impossible:
        for answer in get(entry, "answers", list, where):
            answers.append(Answer(get(answer, "text", str, where), get(answer, "answer_start", int, where)))
            if not answers[-1].text.strip():
                raise UsageError(f"{where}: the text of an answer is blank; without an answer the list is empty")
    if impossible is not None and impossible == bool(answers):
        raise UsageError(
            f"{where}: 'is_impossible' is {str(impossible).lower()} but 'answers' has {len(answers)}: correct one"
        )
    return Question(name, text, context, tuple(answers))


def get(value, key, kind, where):
    """Returns `value[key]`.

    Raises:
        ValueError: the key is missing, or its value is not of the expected kind
    """
    if not isinstance(value, dict) or key not in value:
        found = "keys " + ", ".join(map(repr, value)) if isinstance(value, dict) and value else repr(value)[:60]
        raise UsageError(f"{where}: no {key!r} (found {found}), expected {NAMES[kind]}, as in SQuAD's JSON")
    if type(value[key]) is not kind:
        raise UsageError(f"{where}: {key!r} is {repr(value[key])[:60]}, expected {NAMES[kind]}")
    if not fits(value[key], kind):
        raise UsageError(f"{where}: {key!r} contains half a surrogate pair, which is not a character; correct the text")
    return value[key]
