"""Processes that a recipe starts; they end with the recipe, whatever stops it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

from show_progress import Progress

running = set()
starting, stopped = threading.Event(), threading.Event()
exit_status = 143  # after a SIGTERM


def stop_all():
    """Stops all running processes, and any that another thread starts from now on."""
    stopped.set()
    for process in list(running):
        process.terminate()


def terminate_children_on_sigterm(status=143):
    """Makes SIGTERM stop the child processes and then this one, with a status; for a program's `main()`."""
    global exit_status
    exit_status = status
    signal.signal(signal.SIGTERM, _handle_sigterm)


def _handle_sigterm(*_):
    stop_all()
    if not starting.is_set():  # an exception inside Popen would leave a process that is not in `running`
        sys.exit(exit_status)


@contextlib.contextmanager
def program(command, **options):
    """Starts a command. The end of the block waits for it; leaving the block early stops it.

    Args:
        command, options: of :class:`subprocess.Popen`
    """
    process = None
    starting.set()
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
        running.add(process)
        starting.clear()
        if stopped.is_set():
            sys.exit(exit_status)
        yield process
        process.wait()
    finally:
        starting.clear()
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
    environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    environment.update(variables or {})
    output = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    progress, shown = Progress(), time.time()
    with open(log, "a", encoding="utf-8") as stream, program(command, env=environment, **output) as process:
        for line in process.stdout:
            stream.write(line)
            message = progress.line(line.rstrip("\n"))
            if message and (not message.startswith("update ") or time.time() - shown > 10):
                shown = time.time()
                print("  " + name + message, flush=True)
    return process.returncode
