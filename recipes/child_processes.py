"""Programs that a recipe runs; whatever stops the recipe stops them."""

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


def stop_all():
    """Stops what runs, and whatever another thread starts from now on."""
    stopped.set()
    for process in list(running):
        process.terminate()


def handle_sigterm(*_):
    stop_all()
    if not starting.is_set():  # an exception amid that would leave a process that nobody knows of
        sys.exit(143)


signal.signal(signal.SIGTERM, handle_sigterm)


@contextlib.contextmanager
def program(command, **options):
    """The process of a command. The end of the block waits for it; where the block is left early, it is stopped.

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
            sys.exit(143)
        yield process
        process.wait()
    finally:
        starting.clear()
        if process:
            process.terminate()
            process.wait()
            running.discard(process)


def run_and_show(command, log):
    """Runs a command, its output appended to a log; shows what a person wants to know of it. Gives the exit status."""
    environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    output = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    progress, shown = Progress(), time.time()
    with open(log, "a", encoding="utf-8") as stream, program(command, env=environment, **output) as process:
        for line in process.stdout:
            stream.write(line)
            message = progress.line(line.rstrip("\n"))
            if message and (not message.startswith("update ") or time.time() - shown > 10):
                shown = time.time()
                print("  " + message, flush=True)
    return process.returncode
