"""Checks of the arguments that the hub's functions take: texts, pairs of texts, and tokens.

Each refusal is one line that names the argument, what was found, and what was expected: a TypeError for a value of the
wrong type, a UsageError (a ValueError) for one of the right type that cannot be used.
"""

import os
import re
from collections.abc import Iterable, Mapping, Set

import torch

from .errors import UsageError

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
NO_LISTS = (str, bytes, bytearray, memoryview, Set, Mapping, torch.Tensor)  # without an order, or not of strings
SURROGATE = re.compile("[\ud800-\udfff]")


def described(value):
    """What was found, for a message."""
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).replace('torch.', '')} {tuple(value.shape)}"
    found = ascii(value)
    return f"{type(value).__name__} ({found if len(found) <= 40 else found[:37] + '...'})"


def check_text(text, name, expected="a string"):
    """Refuses an argument that is not a string, or that contains half a surrogate pair."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be {expected}, not {described(text)}")
    found = SURROGATE.search(text)
    if found:
        raise UsageError(
            f"{name} has half a surrogate pair, U+{ord(found[0]):X} at {found.start()}, which is not a character: "
            "expected a string of whole characters; correct the text"
        )


def text_list(texts, name, expected="a list of strings"):
    """Checks an argument that must be a list of strings, or another ordered collection of them; returns a list."""
    if isinstance(texts, NO_LISTS) or not isinstance(texts, Iterable):
        raise TypeError(f"{name} must be {expected}, not {described(texts)}")
    texts = list(texts)
    for i, text in enumerate(texts):
        check_text(text, f"{name}[{i}]")
    return texts


def text_pairs(texts, pairs, names):
    """Texts with their second texts: list of (text, pair or None).

    Args:
        texts: a string or a list of strings
        pairs: None for single texts; a string if `texts` is one, else a list of as many strings
        names: of both arguments
    Returns:
        the list, of one for a string; and whether `texts` is a string
    """
    name, pair_name = names
    if isinstance(texts, str):
        check_text(texts, name)
        if pairs is not None:
            check_text(pairs, pair_name, f"a string, as {name} is one")
        return [(texts, pairs)], True
    texts = text_list(texts, name, "a string or a list of strings")
    if pairs is None:
        return [(text, None) for text in texts], False
    pairs = text_list(pairs, pair_name, f"a list of strings, as {name} is one")
    if len(pairs) != len(texts):
        raise UsageError(
            f"{pair_name} has {len(pairs)} strings and {name} has {len(texts)}: expected as many, a pair for each text"
        )
    return list(zip(texts, pairs)), False


def check_tokens(tokens, name, vocabulary, dims=(1,)):
    """Checks an argument that must be a tensor of tokens.

    Args:
        tokens: of integers from 0 to `vocabulary` - 1
        name: of the argument
        vocabulary: number of symbols
        dims: the numbers of dimensions allowed: 1 for (T,), 2 for (B, T)
    Returns:
        int64, the same shape
    """
    shape = " or ".join({1: "(T,)", 2: "(B, T)"}[dim] for dim in dims)
    expected = f"a tensor of tokens, int64 {shape} as encode() returns"
    if not isinstance(tokens, torch.Tensor) or tokens.dtype not in INTEGERS:
        raise TypeError(f"{name} must be {expected}, not {described(tokens)}")
    if tokens.dim() not in dims:
        raise UsageError(f"{name} is {described(tokens)}, expected {expected}")
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        raise UsageError(
            f"{name} has tokens from {int(tokens.min())} to {int(tokens.max())}, expected 0 to {vocabulary - 1}: use "
            "tokens of this model's vocabulary"
        )
    return tokens.long()


def check_padding(tokens, name, pad):
    """Refuses padding before or between tokens, and rows without any token.

    The model numbers positions from the left, and features are returned where their tokens are: padding elsewhere than
    at the end would silently shift both.

    Args:
        tokens: int64 (T,) or (B, T)
        name: of the argument
        pad: the padding token
    Returns:
        int64 (1,) or (B,): tokens of each row, without padding
    """
    rows = tokens if tokens.dim() == 2 else tokens[None]
    real = rows.ne(pad)
    lengths = real.sum(1)
    if not rows.numel() or not lengths.all():
        at = f"row {int(lengths.eq(0).nonzero()[0])} of {name}" if rows.numel() and len(rows) > 1 else name
        raise UsageError(f"{at} has no tokens ({described(tokens)}), expected at least one, such as <s>")
    ends = real.flip(1).int().argmax(1)  # padding at the end of each row
    wrong = (rows.size(1) - ends).ne(lengths)
    if wrong.any():
        at = f"row {int(wrong.nonzero()[0])} of {name}" if tokens.dim() == 2 else name
        raise UsageError(
            f"{at} has padding (token {pad}) before or between its tokens, expected it at the end only, as encode() "
            "pads: move it there"
        )
    return lengths


def check_path(path, name):
    """Returns a path as a string."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise TypeError(f"{name} must be a path, a string or a pathlib.Path, not {described(path)}")
    return os.fspath(path)
