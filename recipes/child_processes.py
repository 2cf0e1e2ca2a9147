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
exit_status = 143  # after a SIGTERM


def stop_all():
    """Stops all running processes, and any that another thread starts from now on."""
    global stopped
    stopped = True
    for process in list(running):
        process.terminate()


def terminate_children_on_sigterm(status=143):
    """Makes SIGTERM stop the child processes and then this one, with a status; for a program's `main()`."""
    global exit_status
    exit_status = status
    signal.signal(signal.SIGTERM, _handle_sigterm)


def _handle_sigterm(*_):
    again = stopped  # a further exception would cut short what the first one makes the program do
    stop_all()
    if not starting and not again:  # an exception inside Popen would leave a process that is not in `running`
        sys.exit(exit_status)


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
            sys.exit(exit_status)
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
