"""Errors that a user can mend: said in one line, without a stack trace."""

import sys


class UsageError(ValueError):
    """Names the file or option, what was found, what was expected, and what to do; in one line."""


class MissingFileError(UsageError, FileNotFoundError):
    """A file or folder that is not there."""


class InstallationError(UsageError, ImportError):
    """A package that is missing or cannot work."""


def _usage_error(error):
    """The UsageError that an exception is, or was raised while handling; else None."""
    while error is not None and not isinstance(error, UsageError):
        error = error.__cause__ or error.__context__
    return error


def _show(kind, error, traceback):
    usage_error = _usage_error(error)
    if usage_error is None:
        return _show_others(kind, error, traceback)
    # From a loader's worker it comes with that process's stack trace before it.
    message = str(usage_error).strip().splitlines()[-1]
    print("error: " + message.split("UsageError: ", 1)[-1], file=sys.stderr)


_show_others, sys.excepthook = sys.excepthook, _show
