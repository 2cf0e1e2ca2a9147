"""Errors that a user can fix, reported in one line without a stack trace."""

import argparse
import logging
import os
import sys
import warnings

OPTIONAL = {"matplotlib", "safetensors", "tokenizers"}  # packages of the extras that are imported when they are needed


class UsageError(ValueError):
    """A one-line message that names the file or option, what was found, what was expected, and what to do."""


class MissingFileError(UsageError, FileNotFoundError):
    """A file or folder that does not exist."""


class InstallationError(UsageError, ImportError):
    """A package that is missing or does not work."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, with exit status 1."""

    def error(self, message):
        raise UsageError(f"{message} (--help lists the options)")


def run(main):
    """Runs the `main()` of one of this project's programs: quietly, with a :class:`UsageError` shown in one line."""
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    show_in_one_line()
    main()


def show_in_one_line():
    """Makes this process print a :class:`UsageError` in one line; for commands, never for a program that imports us."""
    if sys.excepthook is not _show:
        _show.others, sys.excepthook = sys.excepthook, _show
        os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints errors itself, with a stack trace


def _usage_error(error):
    """The UsageError that an exception is, or was raised while handling; else None."""
    while error is not None and not isinstance(error, UsageError):
        error = error.__cause__ or error.__context__
    return error


def _show(kind, error, traceback):
    usage_error = _usage_error(error)
    if usage_error is not None:
        # An error from a data loader's worker comes with that process's stack trace in front of the message.
        message = str(usage_error).strip().splitlines()[-1].split("UsageError: ", 1)[-1]
    elif isinstance(error, ModuleNotFoundError) and error.name.partition(".")[0] in OPTIONAL:
        message = f"{error}: pip install -c constraints.txt '.[demo,huggingface]'"
    elif isinstance(error, SyntaxError) and error.filename in ("<string>", "<unknown>"):
        message = f"an option has the value {error.text!r}, expected a number or a list ({error.msg})"  # fairseq's eval
    elif isinstance(error, AssertionError) and str(error) and _raised_in(traceback).startswith("fairseq_cli."):
        message = str(error)  # fairseq's own checks of options
    else:
        return _show.others(kind, error, traceback)
    print("error: " + message, file=sys.stderr)


def _raised_in(traceback):
    """The name of the module that raised an error."""
    while traceback.tb_next:
        traceback = traceback.tb_next
    return getattr(traceback.tb_frame.f_globals.get("__spec__"), "name", "")
