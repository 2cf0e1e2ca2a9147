"""Processes that a recipe starts; they end with the recipe, whatever stops it."""

import contextlib
import os
import signal
import subprocess
import sys
import time

from show_progress import Progress

running = set()
starting = stopped = False  # no threading.Event: a signal amid its set() would wait for the lock that this holds


def stop_all():
    """Stops all running processes, and any that another thread starts from now on."""
    global stopped
    stopped = True
    for process in list(running):
        process.terminate()


def terminate_children_on_sigterm(status=143):
    """Makes SIGTERM stop the child processes and then this one, with a status; for a program's `main()`."""

    def handle(*_):
        again = stopped  # a further exception would cut short what the first one makes the program do
        stop_all()
        if not starting and not again:  # an exception inside Popen would leave a process that is not in `running`
            sys.exit(status)

    signal.signal(signal.SIGTERM, handle)


@contextlib.contextmanager
def program(command, **options):
    """Starts a command. The end of the block waits for it; leaving the block early stops it.

    Args:
        command, options: of :class:`subprocess.Popen`
    """
    global starting
    process, starting = None, True
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
        running.add(process)
        starting = False
        if stopped:
            sys.exit(143)
        yield process
        process.wait()
    finally:
        starting = False
        if process:
            process.terminate()
            process.wait()
            running.discard(process)


def run_and_show(command, log, variables=None, name=""):
    """Runs a fairseq command, appends its output to a log and prints its progress; returns the exit status.

    Args:
        variables: more of the environment
        name: put before each line of progress
    """
    path = os.environ["PATH"] + os.pathsep + os.path.dirname(sys.executable)  # where no environment is active
    options = dict(
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PATH": path, **(variables or {})}
    )
    progress, printed = Progress(), time.time()
    with open(log, "ab", buffering=0) as stream, program(command, **options) as process:
        for line in process.stdout:
            stream.write(line)
            shown = progress.line(line.decode("utf-8", "replace").rstrip("\n"))
            if shown and (not shown.startswith("update ") or time.time() - printed > 10):
                printed = time.time()
                print("  " + name + shown, flush=True)
    return process.returncode
