"""What the programs of data preparation print while they work.

It goes to stderr, as stdout is for results.
"""

import sys

from tqdm import tqdm


def log_to_stderr(message):
    """Prints a message for the user."""
    tqdm.write(str(message), file=sys.stderr)


def progress_bar(title, total):
    """A bar for a number of bytes; in a log, a line every ten seconds."""
    tqdm.monitor_interval = 0  # no thread of tqdm's in a process that forks workers
    interval = 0.5 if sys.stderr.isatty() else 10
    return tqdm(
        desc=title, total=total, unit="B", unit_scale=True, mininterval=interval, miniters=1
    )
