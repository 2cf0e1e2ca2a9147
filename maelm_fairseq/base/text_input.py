"""Texts that a user passes from Python: checked, paired, and turned into tokens."""

from collections.abc import Mapping

from .errors import UsageError
from .tokenizer import join_and_cut
from .utf8 import unpaired_surrogate_position


def tokens_of(tokenizer, text, pair=None, limit=None):
    """The tokens of a text or a pair, in full or up to a limit: list."""
    texts = [text] if pair is None else [text, pair]
    tokens, _ = join_and_cut([tokenizer.encode(part) for part in texts], limit)
    return tokens


def checked_text(text):
    """A text; refuses what is not a text, and what no file can contain."""
    if not isinstance(text, str):
        raise TypeError(f"found {type(text).__name__}, expected a string")
    position = unpaired_surrogate_position(text)
    if position is not None:
        raise UsageError(
            f"unpaired surrogate {text[position]!a} at position {position} of a text; remove it"
        )
    return text


def words_of_text(text):
    """The words of a text, which white space separates, or that are in a list -> list."""
    if isinstance(text, (list, tuple)):
        return checked_words(text)
    return checked_text(text).split()


def checked_words(words):
    """A list of the words of a text; refuses anything else. A word may contain white space."""
    if not isinstance(words, (list, tuple)):
        raise TypeError(f"found {type(words).__name__}, expected a list of words")
    return list(map(checked_text, words))


def texts_or_pairs(texts, pairs=None):
    """A string or a list of strings, and maybe as many others -> list of (text, pair or None)."""
    if pairs is None:
        return [(text, None) for text in list_of_texts(texts)]
    return paired(texts, pairs)


def paired(texts, pairs):
    """Two strings, or two lists of as many strings -> list of (text, pair)."""
    firsts = list_of_texts(texts)
    seconds = list_of_texts(pairs)
    if isinstance(texts, str) != isinstance(pairs, str):
        raise TypeError("found a string and a list, expected a string for a string, or two lists")
    if len(firsts) != len(seconds):
        raise UsageError(
            f"{len(firsts)} texts and {len(seconds)} pairs, expected a pair for each text"
        )
    return list(zip(firsts, seconds))


def list_of_texts(texts, check=checked_text):
    """A string, or an iterable of strings -> list of what `check` makes of each."""
    if isinstance(texts, str):
        return [check(texts)]
    try:
        items = None if isinstance(texts, (bytes, set, frozenset, Mapping)) else list(texts)
    except TypeError:  # not to be iterated over, such as an array without dimensions
        items = None
    if items is None:
        raise TypeError(f"found {type(texts).__name__}, expected a string or a list of strings")
    return list(map(check, items))
