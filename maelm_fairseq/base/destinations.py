"""Destinations that cannot be written are refused, before any work is done."""

import os

from .errors import MissingFileError, UsageError
from .files import check_absent, partial_path, remove


def check_new(path):
    """Refuses, before any work is done, a file or folder that exists or cannot be written.

    Folders above it may be missing.
    """
    check_absent(path)
    check_writable(path)


def check_new_file(path):
    """Like `check_new`, for a file that `atomic_write` writes; its folder must exist."""
    if str(path).endswith(os.sep):
        raise UsageError(f"{path}: found the name of a folder, expected that of a file")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.lexists(folder):
        advice = "make it, or choose another --dest"
        raise MissingFileError(f"{path}: its folder {folder} does not exist; {advice}")
    check_new(path)


def check_output_folder(path, names=(), option="--dest"):
    """Refuses, before any work is done, a folder that cannot be written; it may be missing.

    Args:
        names: names of the files that are to be written there
        option: that gives the folder
    """
    if not os.path.isdir(path):
        if os.path.lexists(path):
            raise UsageError(f"{path}: found a file, expected a folder; choose another {option}")
        check_writable(path, option)
        return
    check_writable(os.path.join(path, "file"), option)
    for name in names:
        if os.path.isdir(os.path.join(path, name)):
            found = f"found a folder called {name}, expected a file, or none yet"
            raise UsageError(f"{path}: {found}; choose another {option}")


def all_exist(paths):
    """Whether all files of a program exist, so that it is done; refuses a part of them."""
    missing = [path for path in paths if not os.path.lexists(path)]
    present = [path for path in paths if os.path.lexists(path)]
    if missing and present:
        raise UsageError(
            f"{present[0]}: exists already, but {missing[0]} does not; remove it, or choose "
            "another --dest"
        )
    return not missing


def check_writable(path, option="--dest"):
    """Refuses a file or folder that cannot be written; folders above it may be missing.

    It makes folders of hidden names, and removes them: permissions do not tell whether a disk is
    read-only, or a name too long.
    """
    path = os.path.abspath(path)
    first = path  # what would be made first
    while not os.path.lexists(os.path.dirname(first)):
        first = os.path.dirname(first)
    folder = os.path.dirname(first)
    trial = partial_path(first)
    try:
        os.mkdir(trial)
        try:
            os.makedirs(os.path.join(trial, os.path.relpath(partial_path(path), folder)))
        finally:
            remove(trial)
    except OSError as error:
        reason = f"{folder}: {error.strerror}"
        advice = f"choose another {option}"
        raise UsageError(f"{path}: cannot be written ({reason}); {advice}") from None
