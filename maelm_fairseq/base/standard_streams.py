"""Standard output and standard error: any text can be printed, and errors look alike."""

import os
import sys


def accept_any_text():
    """Lets this process print any text, wherever its output goes and whatever the locale is."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # whoever started this has closed it
            setattr(sys, name, open(os.devnull, "w"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def print_error(line):
    """Prints an error on standard error."""
    print("error: " + line, file=sys.stderr, flush=True)
