"""A test that hangs fails instead, and shows where: its processes are aborted, and print what they are doing."""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "recipes"))
from run_training import children  # noqa: E402

HANGING = 1800  # seconds; the longest test takes a twentieth of that
PRINTING = 10  # seconds; for the stack of one process


def command_line(pid):
    """The command line of a process; nothing once it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8") as stream:
        return stream.read().replace("\0", " ")


def abort_processes(pid, spared=()):
    """Aborts what a process has started, and what that has; Python then prints its stack if PYTHONFAULTHANDLER is set.

    Args:
        spared: numbers of processes that go on
    """
    for child in children(pid):
        abort_processes(child, spared)
        command = child not in spared and command_line(child)
        if command:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGABRT)
            print(f"aborted {child}: {command}", file=sys.__stderr__, flush=True)
            deadline = time.monotonic() + PRINTING
            while command_line(child) and time.monotonic() < deadline:  # the next end might kill it
                time.sleep(0.01)


@contextlib.contextmanager
def watched(name, spared, seconds=HANGING):
    """Aborts the processes of a test that takes longer.

    Args:
        name: of the test
        spared: function that returns the numbers of processes that other tests need, too
    """

    def abort():
        print(f"{name} has not ended after {seconds} s", file=sys.__stderr__, flush=True)
        abort_processes(os.getpid(), spared())

    timer = threading.Timer(seconds, abort)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
