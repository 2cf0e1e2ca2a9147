"""What the programs here share: one-line errors, options, progress, and files that are complete or not there.

The plugin has modules for some of this, but importing them loads torch, which preparing text does not need.
"""

import argparse
import contextlib
import glob
import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import time

from tqdm import tqdm

tqdm.monitor_interval = 0  # no thread of tqdm's in a process that forks workers


class InputError(ValueError):
    """An error that the user can fix: the message says where, what was found, what was expected and what to do."""


# Programs ----------------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports an error in one line and exits with status 1."""

    def __init__(self, description):
        formatter = argparse.ArgumentDefaultsHelpFormatter
        super().__init__(description=description, allow_abbrev=False, formatter_class=formatter)

    def error(self, message):
        self.exit(1, f"{self.prog}: error: {message} (--help lists the options)\n")


def positive(text):
    """Parses the value of an option that must be a positive integer."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return value


def data_folder(path):
    """The value of an option that names the folder of data to write."""
    if ":" in os.path.abspath(path):
        raise argparse.ArgumentTypeError(
            f"{path!r}: fairseq-train separates folders by colons; choose a path without one"
        )
    return path


def cpu_count():
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def run(main, program=None, *errors):
    """Runs a program's `main()`; an error that the user can fix becomes one line on stderr and exit status 1.

    SIGTERM and Ctrl-C end the program where it is: what is not complete has no final name, and the next run removes it.

    Args:
        program: the name to show in error messages, by default that of the script
        errors: classes of exceptions that the user can fix, besides InputError and OSError
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if the shell has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        main()
    except (InputError, OSError, *errors) as error:
        say(f"{program or os.path.basename(sys.argv[0])}: error: {error}")
        sys.stdout.flush()
        os._exit(1)  # sys.exit would wait for a pool of processes, which may never end after one was killed


def say(message):
    """Prints a message for the user on stderr: stdout is for results."""
    tqdm.write(str(message), file=sys.stderr)


def progress_bar(what, total):
    """A bar for a number of bytes; in a log, a line every ten seconds."""
    interval = 0.5 if sys.stderr.isatty() else 10
    return tqdm(desc=what, total=total, unit="B", unit_scale=True, mininterval=interval, miniters=1)


# Files -------------------------------------------------------------------------------------------------------------


def partial_name(path):
    """The name under which `path` is written until it is complete: hidden, with the machine and the process in it."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name}.{socket.gethostname()}.{os.getpid()}.partial")


@contextlib.contextmanager
def atomic_write(path, mode="w"):
    """Opens a file that is renamed to `path` when the block succeeds, and removed when it fails."""
    remove_abandoned(path)
    partial = partial_name(path)
    try:
        with open(partial, mode, **({} if "b" in mode else {"encoding": "utf-8", "newline": "\n"})) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)


@contextlib.contextmanager
def atomic_folder(path):
    """Makes a hidden folder that is renamed to `path` when the block succeeds, and removed when it fails."""
    remove_abandoned(path)
    partial = partial_name(path)
    try:
        os.makedirs(partial)
        yield partial
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_abandoned(path):
    """Removes what killed runs left of `path`: on this machine if the process is gone, on others after a day."""
    folder, name = os.path.split(os.path.abspath(path))
    for partial in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*.partial")):
        stem, process = partial[: -len(".partial")].rsplit(".", 1)
        with contextlib.suppress(FileNotFoundError):  # another process removes it, too
            if stem.endswith("." + socket.gethostname()):
                abandoned = not os.path.exists(f"/proc/{process}")
            else:
                abandoned = time.time() - os.path.getmtime(partial) > 86400
            if abandoned:
                shutil.rmtree(partial) if os.path.isdir(partial) else os.remove(partial)


# Records -----------------------------------------------------------------------------------------------------------


def save_json(value, path):
    """Writes a value as JSON, atomically."""
    with atomic_write(path) as stream:
        json.dump(value, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def load_json(path, fix):
    """The contents of a JSON file that one of the programs here wrote; None if it does not exist.

    Args:
        fix: what to do about a damaged file, for the error message
    """
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"{path} is damaged: not JSON ({error}); {fix}") from None


def finished_record(dest, name):
    """The record that is written last into the folder `dest`; None if there is no such folder, or it is empty.

    Raises:
        InputError: the folder contains something else
    """
    there = sorted(os.listdir(dest)) if os.path.exists(dest) else []
    if there and name not in there:
        raise InputError(f"--dest: {dest} contains {there[0]} but no {name}; expected an empty folder; choose another")
    return load_json(os.path.join(dest, name), f"remove {dest} and run again")


def file_identity(path):
    """Name, size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return {"file": os.path.basename(path), "bytes": os.path.getsize(path), "sha256": digest.hexdigest()}


def check_same(dest, was, now):
    """Raises InputError unless `dest` was prepared from the same inputs with the same options.

    Args:
        was, now: {name: value} of the options, and of the inputs, whose values are lists or dicts and not shown
    """
    different = []
    for name in {**was, **now}:
        before, after = was.get(name, "not given"), now.get(name, "not given")
        if before != after:
            is_input = isinstance(before, (dict, list)) or isinstance(after, (dict, list))
            change = f"--{name.replace('_', '-')} was {before} and is {after}"
            different.append(f"{name} differs" if is_input else change)
    if different:
        raise InputError(
            f"--dest: {dest} was prepared from different inputs or with different options: {'; '.join(different)};"
            " choose another --dest, or remove this one"
        )
