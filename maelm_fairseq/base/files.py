"""Files and folders that get their name only when they are complete, or make room for others."""

import contextlib
import glob
import itertools
import os
import shutil
import socket
import time

from .errors import UsageError

A_DAY = 86400  # seconds


def check_absent(path):
    """Refuses to write what is there already."""
    if os.path.lexists(path):
        raise UsageError(f"{path}: exists already; remove it or choose another --dest")


def set_aside(path, ending):
    """Renames a file or folder to its name with this ending, and a number if that name is taken.

    Returns: the new path
    """
    new_path = path + ending
    numbers = itertools.count(2)
    while os.path.lexists(new_path):
        new_path = f"{path}{ending}{next(numbers)}"
    os.rename(path, new_path)
    return new_path


def partial_path(path):
    """The hidden name of what is being written, with the machine and the process in it."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name}.{socket.gethostname()}.{os.getpid()}.partial")


@contextlib.contextmanager
def scratch_path(path):
    """Yields the path of `partial_path` to write to, and removes in the end what is left there.

    What killed processes left under such names is removed, too.
    """
    folder, name = os.path.split(os.path.abspath(path))
    partial = partial_path(path)
    remove_abandoned(folder, glob.escape(name))
    try:
        yield partial
    except Exception as error:
        raise with_final_path(path, partial, error) from None
    finally:
        remove(partial)


@contextlib.contextmanager
def atomic_path(path, must_be_new=False):
    """Yields the path of `partial_path` to write to.

    What was written gets the name `path` when the block ends without an error, and is removed
    otherwise. If it `must_be_new`, it replaces nothing, not even a file that has appeared under
    that name in the meantime.
    """
    with scratch_path(path) as partial:
        yield partial
        rename_into_place(partial, path, must_be_new)
        sync(os.path.dirname(os.path.abspath(path)))


def rename_into_place(partial, path, must_be_new):
    """Gives a file or folder its name."""
    if must_be_new:
        with contextlib.suppress(OSError):  # a folder, or a file system without links
            os.link(partial, path)
            return
        check_absent(path)
    os.replace(partial, path)


@contextlib.contextmanager
def atomic_write(path, mode="w", must_be_new=False):
    """Opens a file that gets the name `path` when it is complete and on the disk.

    Until then it has the name of `partial_path`. Its folder must exist. The mode is "w" for UTF-8
    text with "\\n" as line ends, or "wb" for bytes.
    """
    options = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with atomic_path(path, must_be_new) as partial, open(partial, mode, **options) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def atomic_folder(path):
    """Makes a new folder, and those above it; it gets its name when it is complete and on the disk.

    Until then it has the name of `partial_path`.
    """
    with atomic_path(path, must_be_new=True) as partial:
        os.makedirs(partial)
        yield partial
        for folder, _, names in os.walk(partial):
            for name in [*names, ""]:
                sync(os.path.join(folder, name))


@contextlib.contextmanager
def scratch_folder(path):
    """Makes a folder beside `path`, and removes it afterwards."""
    with scratch_path(path) as partial:
        os.mkdir(partial)
        yield partial


def with_final_path(path, partial, error):
    """An error that occurred while a file was written, with the final name of the file.

    An error of the operating system, of a full disk for example, names the hidden file.
    """
    if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):
        error = error.__context__  # the cause of PyTorch's own error
    if isinstance(error, OSError) and error.errno and not isinstance(error.filename, int):
        error.filename = os.fsdecode(error.filename or path).replace(partial, os.fspath(path))
    return error


def sync(path):
    """Asks the system to write a file or a folder to the disk, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path):
    """Removes a file or a folder, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.remove(path)


def remove_abandoned(folder, pattern):
    """Removes what killed processes left half-written.

    What a process of this machine wrote is removed if it is gone; what one of another machine
    wrote, after a day. The names of what was to be written match the pattern, such as
    `checkpoint*.pt`.
    """
    partial_paths = os.path.join(glob.escape(folder), f".{pattern}.*.partial")
    for partial in glob.glob(partial_paths):
        stem, process = partial.removesuffix(".partial").rsplit(".", 1)
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            if stem.endswith("." + socket.gethostname()):
                abandoned = not os.path.exists(f"/proc/{process}")
            else:
                abandoned = time.time() - os.path.getmtime(partial) > A_DAY
            if abandoned:
                remove(partial)
