"""What every program here shares: options, one-line errors and progress."""

import argparse
import errno
import os
import signal
import sys
import time

from tqdm import tqdm


class InputError(ValueError):
    """Something the user can mend: the message says where, what was found, what was expected and what to do."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line and exit status 1."""

    def __init__(self, description):
        super().__init__(
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )

    def error(self, message):
        self.exit(1, f"{self.prog}: error: {message} (--help lists the options)\n")


def positive(text):
    """Parses an option that counts something: an integer from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return value


positive.__name__ = "int"  # argparse names the type in its errors


def cpu_count():
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def run(main, program=os.path.basename(sys.argv[0])):
    """Runs a program's `main()`; what the user can mend becomes one line on stderr and exit status 1."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that what is half done is removed
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(f"{program}: interrupted; the same command goes on from the last complete step")
    except InputError as error:
        sys.exit(f"{program}: error: {error}")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            error = (
                f"no room left on the disk{' while writing ' + error.filename if error.filename else ''}; free some and"
                " run the same command again: complete steps are kept"
            )
        sys.exit(f"{program}: error: {error}")


def say(message):
    """Tells the user what happens, on stderr: stdout carries results only."""
    print(message, file=sys.stderr, flush=True)


def size_text(size):
    """A number of bytes, to be read by people."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit / 10:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,} bytes"


class Progress:
    """A progress bar on a terminal, else a line every ten seconds; a summary with the rate at the end.

    Args:
        what: name of the step
        total: bytes to go through
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
        """`done`: bytes gone through, of the total; `text`: bytes of text that were in them (more where packed)."""
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
