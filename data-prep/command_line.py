"""What the programs here have in common: they find the plugin, and show their progress.

A program imports this module before all others (`import command_line`): the plugin need not be installed.
"""

import os
import sys

try:
    import numpy  # noqa: F401
    import sentencepiece  # noqa: F401
    from tqdm import tqdm
except ImportError as error:
    sys.exit(f"error: {sys.executable}: {error}; run `make install`, and activate its environment")

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

tqdm.monitor_interval = 0  # no thread of tqdm's in a process that forks workers


def say(message):
    """Prints a message for the user on stderr: stdout is for results."""
    tqdm.write(str(message), file=sys.stderr)


def progress_bar(what, total):
    """A bar for a number of bytes; in a log, a line every ten seconds."""
    interval = 0.5 if sys.stderr.isatty() else 10
    return tqdm(desc=what, total=total, unit="B", unit_scale=True, mininterval=interval, miniters=1)
