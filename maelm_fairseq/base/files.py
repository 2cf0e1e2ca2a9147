"""Files that appear under their name only when they are complete; typed JSON records."""

import collections
import contextlib
import dataclasses
import enum
import fcntl
import functools
import glob
import hashlib
import json
import os
import re
import shutil
import socket
import time
import typing

from .errors import MissingFileError, UsageError
from .opening import opened
from .utf8 import half_character, read_text

A_DAY = 86400  # seconds

# Complete or not there --------------------------------------------------------------------------------------------


def check_new(path):
    """Refuses to write what is there already."""
    if os.path.lexists(path):
        raise UsageError(f"{path}: exists already; remove it or choose another --dest")


@contextlib.contextmanager
def temporary_path(path, new=False):
    """Gives a hidden name to write under, with the machine and the process in it.

    What is there gets the name `path` when the block ends well, and is removed when it does not. If it is `new`,
    nothing is replaced, also if something has got that name meanwhile.
    """
    folder, name = os.path.split(os.path.abspath(path))
    partial = os.path.join(folder, f".{name}.{socket.gethostname()}.{os.getpid()}.partial")
    remove_abandoned(folder, glob.escape(name))
    try:
        yield partial
        rename_into_place(partial, path, new)
        sync(folder)
    except Exception as error:
        raise with_final_path(path, partial, error) from None
    finally:
        remove(partial)


def rename_into_place(partial, path, new):
    """Gives a file or folder its name."""
    if new:
        with contextlib.suppress(OSError):  # a folder, or a file system without links
            return os.link(partial, path)
        check_new(path)
    os.replace(partial, path)


@contextlib.contextmanager
def atomic_write(path, mode="w", new=False):
    """Opens a file that gets the name `path` when it is `temporary_path`, and its contents are on the disk.

    Its folder must exist. The mode is "w" for UTF-8 text with "\\n" as line ends, or "wb" for bytes.
    """
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with temporary_path(path, new) as partial, open(partial, mode, **text) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def atomic_folder(path):
    """Makes a new folder, and those above it, which gets its name once it is `temporary_path` and on the disk."""
    with temporary_path(path, new=True) as partial:
        os.makedirs(partial)
        yield partial
        for folder, _, names in os.walk(partial):
            for name in [*names, ""]:
                sync(os.path.join(folder, name))


def with_final_path(path, partial, error):
    """An error while a file is written, with its own name in those of the operating system, such as of a full disk."""
    if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):
        error = error.__context__  # PyTorch's, which follows it
    if isinstance(error, OSError) and error.errno and not isinstance(error.filename, int):
        error.filename = os.fsdecode(error.filename or path).replace(partial, os.fspath(path))
    return error


def sync(path):
    """Has the operating system write a file or a folder to the disk, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path):
    """Removes a file or a folder, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def remove_abandoned(folder, pattern):
    """Removes what killed processes left half-written: on this machine if they are gone, on others after a day.

    The names of what was to be written match the pattern, such as `checkpoint*.pt`.
    """
    for partial in glob.glob(os.path.join(glob.escape(folder), f".{pattern}.*.partial")):
        stem, process = partial.removesuffix(".partial").rsplit(".", 1)
        with contextlib.suppress(FileNotFoundError):  # another process removes it, too
            if stem.endswith("." + socket.gethostname()):
                abandoned = not os.path.exists(f"/proc/{process}")
            else:
                abandoned = time.time() - os.path.getmtime(partial) > A_DAY
            if abandoned:
                remove(partial)


@contextlib.contextmanager
def one_at_a_time(path):
    """Lets one process of this machine into the block at a time, if the file system can; all can read `path`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# Records ----------------------------------------------------------------------------------------------------------


def save_json(value, path, new=False):
    """Writes a value as JSON by `atomic_write`; names of files that are not UTF-8 come back as they were."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    with atomic_write(path, "wb", new) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))  # of such a name's bytes, it makes JSON's escapes


def read_json(path, kind, expected, fix="remove it and run again", file_names=False):
    """Reads a JSON file, plain or gzip, in which no key of an object is there twice.

    Args:
        path: of the file
        kind: of its value, as for `typed`
        expected: what the file should be, for the error message, such as "data prepared by data-prep/glue.sh"
        fix: what to do about a damaged file, for the error message
        file_names: as for `parse_json`
    Raises:
        FileNotFoundError: there is no such file
        ValueError: it is not JSON, or its value is of another kind
        OSError: it cannot be read
    """
    if not os.path.lexists(path):
        raise MissingFileError(f"{path}: not found, expected {expected}")
    try:
        return parse_json(read_text(path), kind, path, file_names)
    except UsageError as error:
        raise UsageError(f"{error}; {path} should be {expected}; {fix}") from None


SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an unpaired surrogate, as JSON spells it
NAME_BYTE = re.compile(r"[\udc80-\udcff]")  # a byte of a file's name that is not UTF-8, as Python has it


def parse_json(text, kind, where, file_names=False):
    """A text in JSON as a value of a type, as for `typed`; no key of an object is there twice.

    Args:
        text: the JSON
        kind: of its value
        where: what error messages begin with
        file_names: whether there may be names of files in it, which need not be Unicode
    Raises ValueError: it is not JSON, contains an unpaired surrogate, or its value is of another kind
    """
    try:
        value = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error})") from None
    if SURROGATE.search(text):
        decoded = json.dumps(value, ensure_ascii=False)  # with a character for each pair of halves
        decoded = NAME_BYTE.sub("", decoded) if file_names else decoded
        place = half_character(decoded)
        if place is not None:
            before = decoded[max(0, place - 30) : place]
            raise UsageError(f"{where}: unpaired surrogate {decoded[place]!a} after {before!r}; correct it")
    return typed(kind, value, where)


def unique(pairs):
    """The pairs of a JSON object as a dict."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = collections.Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{twice!r} is there twice in an object")
    return found


# Large files have a hundred thousand objects of a kind.
type_hints = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))
KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def typed(kind, value, where):
    """A value read from a file as a value of a type, or an error that says where it is another.

    Args:
        kind: int, float, str, bool, dict, list; a dataclass, for an object whose unknown fields are ignored; an Enum of
            texts; List, Dict with texts as keys, Tuple, or Optional of these; numbers Annotated by a
            `ranges.Range`
        value: what was read
        where: for the message: the file, and the place in it
    Raises ValueError: `WHERE: found WHAT, expected WHAT`
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        number, allowed = arguments
        allowed.check(typed(number, value, where), f"{where}: found")
        return value
    if origin is typing.Union:
        return None if value is None else typed(arguments[0], value, where)
    if origin in (list, tuple) and isinstance(value, (list, tuple)):
        kinds = arguments if origin is tuple and ... not in arguments else arguments[:1] * len(value)
        if len(kinds) != len(value):
            raise UsageError(f"{where}: found a list of {len(value)}, expected a list of {len(kinds)}")
        return origin(typed(*each, f"{where}: item {i}") for i, each in enumerate(zip(kinds, value), 1))
    if origin is dict and isinstance(value, dict):
        return {
            typed(arguments[0], key, f"{where}: name"): typed(arguments[1], each, f"{where}: {key}")
            for key, each in value.items()
        }
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        fields, hints = dataclasses.fields(kind), type_hints(kind)
        for field in fields:
            if field.name not in value and field.default is field.default_factory is dataclasses.MISSING:
                raise UsageError(f"{where}: found no {field.name}")
        names = [field.name for field in fields if field.name in value]
        return kind(**{name: typed(hints[name], value[name], f"{where}: {name}") for name in names})
    if isinstance(kind, enum.EnumMeta):
        choices = [choice.value for choice in kind]
        if value in choices:
            return value
        raise UsageError(f"{where}: found {shown(value)}, expected one of {', '.join(choices)}")
    if type(value) is kind or kind is typing.Any:
        return value
    if kind is float and type(value) is int and value.bit_length() < 1024:
        return float(value)
    is_object, is_list = dict in (kind, origin) or dataclasses.is_dataclass(kind), (origin or kind) in (list, tuple)
    expected = "an object" if is_object else "a list" if is_list else KINDS.get(kind) or f"a {kind.__name__}"
    raise UsageError(f"{where}: found {shown(value)}, expected {expected}")


def shown(value):
    """A value as an error message can show it."""
    text = repr(value) if isinstance(value, (str, bytes, int, float, bool, type(None))) else f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def sha256(path):
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with opened(path) as stream:
        for part in iter(lambda: stream.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()
