"""Texts that a user passes from Python: checked, paired, and turned into tokens."""

from collections.abc import Iterable, Mapping

from .errors import UsageError
from .subwords import sequence
from .utf8 import half_character


def tokens_of(tokenizer, text, pair=None, limit=None):
    """The tokens of a text or a pair, in full or up to a limit: list."""
    return sequence([tokenizer.encode(part) for part in (text, pair) if part is not None], limit)[0]


def checked(text):
    """A text; refuses what is none, and what no file can contain."""
    if not isinstance(text, str):
        raise TypeError(f"found {type(text).__name__}, expected a string")
    half = half_character(text)
    if half is not None:
        raise UsageError(f"unpaired surrogate {text[half]!a} at position {half} of a text; remove it")
    return text


def is_words(text):
    """Whether a text is given as a list of its words; refuses words that white space would split."""
    if isinstance(text, str) or not isinstance(text, (list, tuple)):
        return False
    for word in text:
        if checked(word).split() != [word]:
            raise UsageError(f"found the word {word!r}, expected words without white space")
    return True


def text_pairs(texts, pairs=None):
    """A string or a list of strings, alone or with as many others -> list of (text, pair or None)."""
    columns = [texts] if pairs is None else [texts, pairs]
    singles = [isinstance(column, str) for column in columns]
    lists = [isinstance(column, Iterable) and not isinstance(column, (bytes, Mapping)) for column in columns]
    if len(set(singles)) > 1 or not all(lists):
        raise TypeError("expected a string or a list of strings, and pairs as the texts are")
    columns = [list(map(checked, [column] if single else column)) for column, single in zip(columns, singles)]
    if len({len(column) for column in columns}) > 1:
        raise UsageError(f"{len(columns[0])} texts and {len(columns[1])} pairs, expected a pair for each text")
    return list(zip(*columns)) if pairs is not None else [(text, None) for text in columns[0]]
