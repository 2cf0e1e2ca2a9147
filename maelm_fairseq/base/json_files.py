"""JSON: files that are written whole, and read as values of a type."""

import collections
import json
import os
import re

from .errors import MissingFileError, UsageError
from .files import atomic_write
from .typed_values import as_type
from .utf8 import read_text, unpaired_surrogate_position


def save_json(value, path, must_be_new=False):
    """Writes a value as JSON by `atomic_write`."""
    with atomic_write(path, "w", must_be_new) as stream:
        stream.write(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path, value_type, expected, advice="remove it and run again"):
    """Reads a JSON file, plain or gzip; no object in it may have a key twice.

    Args:
        path: path of the file
        value_type: type of its value, as for `as_type`
        expected: what the file should be, for the error message, such as
            "the scores of this run"
        advice: what to do about a damaged file, for the error message
    Raises:
        FileNotFoundError: there is no such file
        UsageError: it is not JSON, or its value is of another type
        OSError: it cannot be read
    """
    if not os.path.lexists(path):
        raise MissingFileError(f"{path}: not found, expected {expected}")
    try:
        return parse_json(read_text(path), value_type, path)
    except UsageError as error:
        raise UsageError(f"{error}; {path} should be {expected}; {advice}") from None


# The beginning of a surrogate, half of a character of UTF-16, as JSON spells it.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text, value_type, location):
    """A text in JSON as a value of a type, as for `as_type`; no object may have a key twice.

    Args:
        text: the JSON
        value_type: type of its value
        location: what error messages begin with
    Raises UsageError: it is not JSON, contains an unpaired surrogate, or its value is of another
        type
    """
    try:
        value = json.loads(text, object_pairs_hook=object_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{location}: not JSON ({error})") from None
    if SURROGATE.search(text):
        decoded = json.dumps(value, ensure_ascii=False)  # a pair of surrogates is one character
        position = unpaired_surrogate_position(decoded)
        if position is not None:
            surrogate = decoded[position]
            before = decoded[max(0, position - 30) : position]
            raise UsageError(
                f"{location}: unpaired surrogate {surrogate!a} after {before!r}; correct it"
            )
    return as_type(value_type, value, location)


def object_without_duplicates(pairs):
    """The pairs of a JSON object as a dict."""
    unique_pairs = dict(pairs)
    if len(unique_pairs) < len(pairs):
        twice, _ = collections.Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"duplicate key {twice!r} in an object")
    return unique_pairs
