"""How a program and its workers end when a signal asks them to. Nothing is done when this module is imported."""

import contextlib
import signal

STOPPING = {signal.SIGTERM, signal.SIGINT}
open_pools = []  # of worker processes


class Stopped(BaseException):
    """A signal asks this program to stop: raised so that `finally` removes partial files.

    Attributes:
        by: the number of the signal, 0 before one comes
        too_late: whether the program is ending anyway
    """

    by = 0
    too_late = False


def stop(number, frame):
    """Handles the first signal; a second one would interrupt the removal of partial files."""
    if not (Stopped.by or Stopped.too_late):
        Stopped.by = number
        raise Stopped


@contextlib.contextmanager
def held_signals():
    """Holds signals back while processes are started: a child would handle one as the parent does."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_signals_end_child():
    """For a child process that was started under `held_signals`; Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
