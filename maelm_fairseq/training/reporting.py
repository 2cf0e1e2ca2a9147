"""How fairseq's commands report errors, in one line where the user can do something about them; and first updates."""

import datetime
import logging
import os
import sys
import time

from ..base.errors import SHOW_TRACEBACK, UsageError, one_line, print_error, show_anything

logger = logging.getLogger(__name__)

SIGNS_OF_LIFE = (1, 10, 25)  # updates of a process, before fairseq's own log begins


class FirstUpdates:
    """Says after a process's first updates how long one takes, and how long all that are left will take."""

    def __init__(self):
        self.first = None  # the number of its first update, and the time at its end
        self.reported = set()

    def report(self, update, last):
        """To be called after each update; `last` is the number of the run's last one, 0 if there is none."""
        now = time.monotonic()
        if self.first is None:
            self.first = update, now
        made = update - self.first[0]  # since the first, which has to allocate memory and is slower
        if made + 1 not in SIGNS_OF_LIFE or made in self.reported:
            return
        self.reported.add(made)
        of = f" of {last:,}" if last else ""
        if not made:
            logger.info(f"update {update:,}{of} is made")
            return
        seconds = (now - self.first[1]) / made
        left = f", {datetime.timedelta(seconds=int(seconds * (last - update)))} left" if last else ""
        logger.info(f"update {update:,}{of}: {seconds:.2g} seconds an update{left}")


class Reporter:
    """The exception hook of a command.

    Before the first update every error comes from options, files or data, and is one line with its type. Afterwards
    those of `errors.one_line` are; others keep their stack trace.
    """

    def __init__(self):
        self.trained = False  # whether an update was made
        self._others = sys.excepthook

    def install(self):
        """Makes this process report errors so; for commands, never for a program that imports us."""
        sys.excepthook = self
        show_anything()
        logging.raiseExceptions = False  # training continues when nobody reads its log any more
        os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints errors itself, with a stack trace

    def __call__(self, kind, error, traceback):
        line = self.line(error)
        if line is None or SHOW_TRACEBACK in os.environ:
            self._others(kind, error, traceback)
        if line is not None:
            print_error(line)

    def line(self, error):
        """The line that reports an error; None if its stack trace does."""
        line = one_line(error)
        if line is not None or self.trained or not isinstance(error, Exception):
            return line
        text = " ".join(str(error).split())[:500] or "for no reason given; are --arch, --task and --criterion there?"
        if isinstance(error, AssertionError):  # fairseq's own checks of options
            return text
        if isinstance(error, SyntaxError):  # fairseq evaluates some options
            text = f"an option has the value {error.text!r}, expected a number or a list ({error.msg})"
        return f"{type(error).__name__}: {text} ({SHOW_TRACEBACK}=1 shows where)"

    @staticmethod
    def line_of_trace(text):
        """The line that reports an error of another process, from its stack trace; None if that should be shown."""
        last = text.strip().splitlines()[-1]
        name, _, message = last.partition(": ")
        if name in {f"{kind.__module__}.{kind.__qualname__}" for kind in [UsageError, *UsageError.__subclasses__()]}:
            return message
        return None if "in train_step" in text else last


reporter = Reporter()
