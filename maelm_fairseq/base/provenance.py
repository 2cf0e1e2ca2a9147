"""What finished work was made from: files and options, recorded beside it and compared before it is used again."""

import hashlib

from .errors import UsageError
from .opening import opened


def checksums(paths):
    """{path: SHA-256} of files."""
    return {path: sha256(path) for path in paths}


def check_unchanged(was):
    """Refuses to continue with files that are no longer what `checksums` found."""
    for path, checksum in was.items():
        if sha256(path) != checksum:
            raise UsageError(f"{path}: has changed since this began; run the command again when nothing writes to it")


def check_same(path, was, now, fix):
    """Refuses work that was made from other {name: value} of options and inputs, of which short ones are shown.

    `fix` says what the user can do.
    """
    different = []
    for name in {**was, **now}:
        before, after = was.get(name, "not given"), now.get(name, "not given")
        if before != after:
            is_short = all(isinstance(value, (str, int, float)) and len(str(value)) < 50 for value in (before, after))
            different.append(f"{name} was {before} and is {after}" if is_short else f"{name} differs")
    if different:
        raise UsageError(f"{path}: made from different inputs or with different options: {'; '.join(different)}; {fix}")


def sha256(path):
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with opened(path) as stream:
        for part in iter(lambda: stream.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()
