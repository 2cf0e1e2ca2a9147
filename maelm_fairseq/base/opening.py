"""How files from outside are opened, and what is said of contents that cannot be used."""

import contextlib
import errno
import os
import stat

from .errors import MissingFileError, UsageError, is_out_of_memory

BUFFER = 1 << 20  # bytes read at a time


def open_to_read(path, expected="a file", allow_pipe=False):
    """Opens a file to read its bytes.

    Args:
        path: path of the file
        expected: what it should be, for the message if it is not there
        allow_pipe: whether it may be a pipe, such as `<(command)` in bash; it may have no end
    Returns: a binary stream
    Raises:
        FileNotFoundError: there is no such file
        UsageError: it is a folder, a device, or a pipe that is not allowed
        OSError: it cannot be read
    """
    name = os.fsdecode(path)
    try:
        file_type = stat.S_IFMT(os.stat(path).st_mode)
        if file_type == stat.S_IFREG:
            return open(path, "rb", buffering=BUFFER, opener=open_at_once)
        if allow_pipe and file_type == stat.S_IFIFO:
            return open(path, "rb", buffering=BUFFER)
    except FileNotFoundError:
        raise MissingFileError(f"{name}: not found, expected {expected}; check the path") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UsageError(f"{name}: found a link to itself, expected {expected}") from None
    found = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe"}.get(file_type, "a device")
    raise UsageError(f"{name}: found {found}, expected a file; give the path of one")


def open_at_once(path, flags):
    """Opens a file without waiting for a writer, in case it has become a pipe after `os.stat`."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextlib.contextmanager
def as_usage_error(path, expected, advice):
    """Whatever a library raises in the block, while it reads a file, becomes a `UsageError`.

    Exempt are errors of the operating system, lack of memory, and what ends the program.

    Args:
        path: path of the file
        expected: what it should be, for the message, such as "a complete file of fairseq-train"
        advice: what to do about it, for the message
    Raises UsageError: the block has raised something;
        `PATH: cannot be read (WHAT), expected EXPECTED; FIX`
    """
    try:
        yield
    except (UsageError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        is_of_system = isinstance(error, OSError) and error.errno is not None
        if is_of_system or is_out_of_memory(error):
            raise
        reason = type(error).__name__
        sentence = " ".join(str(error).split()).partition(". ")[0]  # the others are for programmers
        if sentence:
            reason += f": {sentence[:200]}"
        raise UsageError(
            f"{path}: cannot be read ({reason}), expected {expected}; {advice}"
        ) from None
