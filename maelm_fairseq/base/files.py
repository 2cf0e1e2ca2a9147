"""Files that appear under their name only when they are complete, and JSON records."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket

from .errors import MissingFileError, UsageError


def partial_name(path, process=None):
    """The name of `path` until it is complete; it says which process writes it, so that two never collide.

    Args:
        process: its number; None for this process
    """
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(folder, f".{name}.{socket.gethostname()}.{process or os.getpid()}.partial")


@contextlib.contextmanager
def atomic_write(path, mode="w"):
    """Opens a file that gets the name `path` when the block ends well, and is removed when it does not.

    Args:
        path: of the finished file; its folder must exist
        mode: "w" for UTF-8 text with "\\n" as line ends, "wb" for bytes
    """
    partial = partial_name(path)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with open(partial, mode, **text) as stream:
            yield stream
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)


@contextlib.contextmanager
def atomic_folder(path):
    """Makes a folder that gets the name `path` when the block ends well, and is removed when it does not.

    Args:
        path: of the finished folder, which must not exist
    """
    path = os.path.abspath(path)
    partial = partial_name(path)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        os.makedirs(partial)
        yield partial
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def one_at_a_time(path):
    """Lets one process of this machine into the block at a time; yields whether it can, which some file systems cannot.

    Args:
        path: of a file or folder that all of them can read
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        locked = True
    except OSError:
        locked = False
    try:
        yield locked
    finally:
        os.close(descriptor)


def save_json(value, path):
    """Writes a value as JSON, atomically."""
    with atomic_write(path) as stream:
        json.dump(value, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def read_json(path, expected, fields=(), fix="remove it and run again"):
    """Reads a JSON file.

    Args:
        path: of the file
        expected: what the file should be, for the error message, such as "data prepared by data-prep/glue.sh"
        fields: names of what the object in the file must contain; () if it may be anything
        fix: what to do about a damaged file, for the error message
    Raises:
        FileNotFoundError: there is no such file
        ValueError: it cannot be read, is not JSON, or a field is missing
    """
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: not found, expected {expected}")
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}), expected {expected}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON ({error}), expected {expected}; {fix}") from None
    missing = [name for name in fields if not isinstance(value, dict) or name not in value]
    if missing:
        raise UsageError(f"{path}: no {missing[0]!r} in it, expected {expected}; {fix}")
    return value


def sha256(path):
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for part in iter(lambda: stream.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()
