"""Texts that a user passes from Python: checked, paired, and turned into tokens."""

from collections.abc import Iterable, Mapping

from .errors import UsageError
from .subwords import sequence
from .utf8 import half_character


def tokens_of(tokenizer, text, pair=None, limit=None):
    """The tokens of a text or a pair, in full or up to a limit: list."""
    texts = [text] if pair is None else [text, pair]
    tokens, _ = sequence([tokenizer.encode(part) for part in texts], limit)
    return tokens


def checked(text):
    """A text; refuses what is not a text, and what no file can contain."""
    if not isinstance(text, str):
        raise TypeError(f"found {type(text).__name__}, expected a string")
    place = half_character(text)
    if place is not None:
        raise UsageError(
            f"unpaired surrogate {text[place]!a} at position {place} of a text; remove it"
        )
    return text


def is_words(text):
    """Whether a text is given as a list of its words; refuses words that contain white space."""
    if isinstance(text, str) or not isinstance(text, (list, tuple)):
        return False
    for word in text:
        if checked(word).split() != [word]:
            raise UsageError(f"found the word {word!r}, expected words without white space")
    return True


def text_pairs(texts, pairs=None):
    """A string or a list of strings, and maybe as many others -> list of (text, pair or None)."""
    columns = [texts] if pairs is None else [texts, pairs]
    kinds = {isinstance(column, str) for column in columns}
    if len(kinds) > 1 or not all(map(may_be_texts, columns)):
        raise TypeError("expected a string or a list of strings, and pairs as the texts are")
    columns = [[column] if isinstance(column, str) else column for column in columns]
    columns = [list(map(checked, column)) for column in columns]
    if pairs is None:
        return [(text, None) for text in columns[0]]
    texts, pairs = columns
    if len(texts) != len(pairs):
        raise UsageError(
            f"{len(texts)} texts and {len(pairs)} pairs, expected a pair for each text"
        )
    return list(zip(texts, pairs))


def may_be_texts(column):
    """Whether a value is a string, or may be a list of strings."""
    return isinstance(column, Iterable) and not isinstance(column, (bytes, Mapping))
