"""What finished work was made from: files and options, recorded beside it and compared before it is used again."""

import os

from .errors import UsageError
from .files import sha256


def file_identity(path):
    """Name, size and SHA-256 of a file."""
    return {"file": os.path.basename(path), "bytes": os.path.getsize(path), "sha256": sha256(path)}


def by_option(options):
    """A list of options as {option: its values}, such as {"--lr": ["0.001"]}; of a repeated option, the last counts."""
    values, by_name = [], {}
    for word in options:
        if word.startswith("--"):
            values = by_name[word] = []
        else:
            values.append(word)
    return by_name


def check_same(path, was, now, fix):
    """Refuses work that was made from something else.

    Args:
        path: of the work
        was, now: {name: value} of options and inputs; short values are shown
        fix: what the user can do
    Raises:
        UsageError: they differ
    """
    different = []
    for name in {**was, **now}:
        before, after = was.get(name, "not given"), now.get(name, "not given")
        if before != after:
            is_short = all(isinstance(value, (str, int, float)) and len(str(value)) < 50 for value in (before, after))
            different.append(f"{name} was {before} and is {after}" if is_short else f"{name} differs")
    if different:
        raise UsageError(f"{path}: made from different inputs or with different options: {'; '.join(different)}; {fix}")
