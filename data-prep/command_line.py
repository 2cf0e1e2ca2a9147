"""What all programs here share: options, one-line errors and progress."""

import argparse
import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import time

from tqdm import tqdm

from stopping import Stopped, open_pools, stop


class InputError(ValueError):
    """An error that the user can fix: the message says where, what was found, what was expected and what to do."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports an error in one line and exits with status 1."""

    def __init__(self, description):
        super().__init__(
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )

    def error(self, message):
        self.exit(1, f"{self.prog}: error: {message} (--help lists the options)\n")


def positive(text):
    """Parses the value of an option that must be a positive integer."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return value


positive.__name__ = "int"  # argparse shows this name in its errors


def data_folder(path):
    """The value of an option that names the folder of data to write."""
    if ":" in os.path.abspath(path):
        raise argparse.ArgumentTypeError(
            f"{path!r}: fairseq-train separates folders by colons; choose a path without one"
        )
    return path


def cpu_count():
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def run(main, program=None):
    """Runs a program's `main()`; an error that the user can fix becomes one line on stderr and exit status 1.

    Args:
        program: the name to show in error messages, by default that of the script
    """
    program = program or os.path.basename(sys.argv[0])
    Stopped.too_late = False
    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if the shell has it ignored
        signal.signal(signal.SIGINT, stop)
    message = None
    try:
        try:
            main()
        except InputError as error:
            message = error
        except OSError as error:
            message = error
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                where = f" while writing {error.filename}" if error.filename else ""
                message = f"no space left on the disk{where}; free some and repeat the command: complete steps are kept"
        Stopped.too_late = True
        if Stopped.by:
            raise Stopped  # it was raised where Python ignores exceptions, such as in a finaliser
    except Stopped:
        name = signal.Signals(Stopped.by).name
        end(128 + Stopped.by, f"{program}: stopped by {name}; the same command resumes after the last complete step")
    if message:
        end(1, f"{program}: error: {message}")


def end(status, message):
    """Ends the program and its workers."""
    if not open_pools:
        say(message)
        sys.exit(status)
    # Python itself would first wait for the pools, which may never end after their workers died.
    for process in multiprocessing.active_children():
        process.kill()
        process.join(10)
    with contextlib.suppress(OSError):
        say(message)
        sys.stdout.flush()
    os._exit(status)


def say(message):
    """Prints a message for the user on stderr: stdout is for results."""
    print(message, file=sys.stderr, flush=True)


def size_text(size):
    """A number of bytes in a readable unit."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit / 10:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,} bytes"


class Progress:
    """A progress bar on a terminal, otherwise a line every ten seconds; at the end a summary with the rate.

    Args:
        what: name of the step
        total: bytes to process
    """

    def __init__(self, what, total):
        self.what, self.total, self.text = what, max(total, 1), 0
        self.start = self.last = time.time()
        self.bar = None
        if sys.stderr.isatty():
            self.bar = tqdm(
                total=total,
                desc=what,
                leave=False,
                bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
            )

    def update(self, done, text):
        """Reports progress.

        Args:
            done: bytes processed, out of the total
            text: bytes of text in them, which is more if the files are compressed
        """
        self.text = text
        now = time.time()
        if now - self.last < (0.2 if self.bar else 10):
            return
        self.last = now
        rate = text / 1e6 / (now - self.start)
        if self.bar:
            self.bar.set_description_str(f"{self.what}: {rate:.1f} MB/s", refresh=False)
            self.bar.update(min(done, self.total) - self.bar.n)
        else:
            say(f"{self.what}: {min(100, 100 * done / self.total):.0f}%, {rate:.1f} MB/s")

    def close(self):
        if self.bar:
            self.bar.close()
        seconds = time.time() - self.start
        rate = self.text / 1e6 / max(seconds, 1e-9)
        say(f"{self.what}: {size_text(self.text)} in {seconds:.1f} s, {rate:.1f} MB/s")
