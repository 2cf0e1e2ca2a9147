"""What finished work was made from: files and options.

They are recorded beside it, and compared before it is used again.
"""

import hashlib

from .errors import UsageError
from .opening import open_to_read


def compute_sha256s(paths):
    """{path: SHA-256} of files."""
    return {path: sha256(path) for path in paths}


def check_unchanged(recorded):
    """Refuses to continue if files have changed since; `recorded` is of `compute_sha256s`."""
    for path, checksum in recorded.items():
        if sha256(path) != checksum:
            raise UsageError(
                f"{path}: has changed since this began; run the command again when nothing writes "
                "to it"
            )


def check_same_origin(path, recorded, current, advice):
    """Refuses work that was made with other options or from other inputs.

    Args:
        path: path of the work
        recorded: {name: value} of the options and inputs that it was made with
        current: those that it should be made with
        advice: what the user can do, for the message
    """
    different = []
    for name in {**recorded, **current}:
        before = recorded.get(name, "not given")
        after = current.get(name, "not given")
        if before == after:
            continue
        if is_short(before) and is_short(after):
            different.append(f"{name} was {before} and is {after}")
        else:
            different.append(f"{name} differs")
    if different:
        raise UsageError(
            f"{path}: made from different inputs or with different options: "
            f"{'; '.join(different)}; {advice}"
        )


def is_short(value):
    """Whether a value can be shown in a message."""
    return isinstance(value, (str, int, float)) and len(str(value)) < 50


def short_checksum(value):
    """Eight hexadecimal digits for the name of what was made from a value with a `repr`."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:8]


def sha256(path):
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open_to_read(path) as stream:
        for part in iter(lambda: stream.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()
