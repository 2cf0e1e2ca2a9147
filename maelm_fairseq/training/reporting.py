"""How fairseq's commands report errors: in one line where the user can do something about it."""

import logging
import os
import sys

from ..base.errors import UsageError, one_line
from ..base.running import SHOW_TRACEBACK
from ..base.standard_streams import accept_any_text, print_error
from .run_state import current_run


class Reporter:
    """The exception hook of a command.

    Before the first update every error comes from options, files or data, and is one line with its
    type. Afterwards, only errors for which `errors.one_line` has a line are; others keep their
    stack trace.
    """

    def __init__(self):
        self._others = sys.excepthook

    def install(self):
        """Makes this the exception hook; for commands, never for a program that imports us."""
        sys.excepthook = self
        accept_any_text()
        logging.raiseExceptions = False  # training continues when nobody reads its log any longer
        os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints errors itself, with a stack trace

    def __call__(self, error_class, error, traceback):
        line = self.line(error)
        if line is None or SHOW_TRACEBACK in os.environ:
            self._others(error_class, error, traceback)
        if line is not None:
            print_error(line)

    def line(self, error):
        """The line that reports an error; None if its stack trace is to be shown."""
        line = one_line(error)
        if line is not None or current_run.was_trained or not isinstance(error, Exception):
            return line
        text = " ".join(str(error).split())[:500]
        if text in ("", "None"):  # the latter where fairseq looks up what was not given
            text = "for no reason given; are --arch, --task and --criterion there?"
        if isinstance(error, AssertionError):  # fairseq's own checks of options
            return text
        if isinstance(error, SyntaxError):  # fairseq evaluates some options
            text = (
                f"an option has the value {error.text!r}, expected a number or a list ({error.msg})"
            )
        return f"{type(error).__name__}: {text} ({SHOW_TRACEBACK}=1 shows where)"

    @staticmethod
    def line_of_trace(text):
        """The line that reports an error of another process, from its stack trace.

        None if that is to be shown.
        """
        last = text.strip().splitlines()[-1]
        name, _, message = last.partition(": ")
        own = [UsageError, *UsageError.__subclasses__()]
        if name in {f"{error.__module__}.{error.__qualname__}" for error in own}:
            return message
        return None if "in train_step" in text else last


reporter = Reporter()
