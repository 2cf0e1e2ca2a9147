"""What the programs here share: one-line errors, options, progress, and files that are complete or not there."""

import argparse
import contextlib
import errno
import glob
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import time

pools = []  # of worker processes, while they are open


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


class Stopped(SystemExit):
    """A signal asks this program to stop: raised so that `finally` removes partial files."""


def stop(number, frame):
    """Handles the first signal; a second one ends the program where it is."""
    let_signals_end()
    raise Stopped(128 + number)


def let_signals_end():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def run(main, program=None):
    """Runs a program's `main()`; an error that the user can fix becomes one line on stderr and exit status 1.

    Args:
        program: the name to show in error messages, by default that of the script
    """
    program = program or os.path.basename(sys.argv[0])
    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if the shell has it ignored
        signal.signal(signal.SIGINT, stop)
    try:
        main()
    except Stopped as stopped:
        name = signal.Signals(stopped.code - 128).name
        end(stopped.code, f"{program}: stopped by {name}; the same command resumes after the last complete step")
    except (InputError, OSError) as error:
        message = error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"no space left on the disk ({error}); free some and repeat the command: complete steps are kept"
        end(1, f"{program}: error: {message}")


def end(status, message):
    """Ends the program and its workers."""
    let_signals_end()
    say(message)
    if not pools:
        sys.exit(status)
    # Python itself would first wait for the pools, which may never end after their workers died.
    for process in multiprocessing.active_children():
        process.kill()
        process.join(10)
    sys.stdout.flush()
    os._exit(status)


def say(message):
    """Prints a message for the user on stderr: stdout is for results."""
    print(message, file=sys.stderr, flush=True)


class Progress:
    """Prints a line every ten seconds, and at the end a summary with the rate.

    Args:
        what: name of the step
        total: bytes to process
    """

    def __init__(self, what, total):
        self.what, self.total, self.text = what, max(total, 1), 0
        self.start = self.last = time.time()

    def update(self, done, text):
        """Reports progress.

        Args:
            done: bytes processed, out of the total
            text: bytes of text in them, which is more if the files are compressed
        """
        self.text = text
        if time.time() - self.last > 10:
            self.last = time.time()
            say(f"{self.what}: {min(100, 100 * done / self.total):.0f}%, {self.rate()}")

    def rate(self):
        return f"{self.text / 1e6 / max(time.time() - self.start, 1e-9):.1f} MB/s"

    def close(self):
        say(f"{self.what}: {self.text / 1e6:,.1f} MB in {time.time() - self.start:.1f} s, {self.rate()}")


# Files -------------------------------------------------------------------------------------------------------------


def partial_name(path):
    """The name under which `path` is written until it is complete: hidden, with the machine and the process in it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{socket.gethostname()}.{os.getpid()}.partial")


@contextlib.contextmanager
def atomic_write(path, mode="w"):
    """Opens a file that is renamed to `path` when the block succeeds, and removed when it fails."""
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
    partial = partial_name(path)
    try:
        os.makedirs(partial)
        yield partial
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_abandoned(folder):
    """Removes partial files of killed runs: on this machine if the process is gone, on others after a day untouched."""
    for path in glob.glob(os.path.join(glob.escape(folder), ".*.partial")):
        host, pid = path[: -len(".partial")].rsplit(".", 2)[-2:]
        with contextlib.suppress(FileNotFoundError, ValueError):  # removed meanwhile, or not one of ours
            if host == socket.gethostname():
                abandoned = not process_exists(int(pid))
            else:
                abandoned = time.time() - os.path.getmtime(path) > 86400
            if abandoned and os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            elif abandoned:
                os.remove(path)


def process_exists(pid):
    """Whether a process with this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def save_json(value, path):
    """Writes a value as JSON, atomically."""
    with atomic_write(path) as stream:
        json.dump(value, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def load_json(path, keys, fix):
    """The record in a JSON file that one of the programs here wrote, or None if the file does not exist.

    Args:
        keys: what the record must have
        fix: what to do about a damaged file, for the error message
    Raises:
        InputError: the file is not JSON, or lacks a key
    """
    try:
        with open(path, encoding="utf-8") as stream:
            record = json.load(stream)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: not JSON ({error}); {fix}") from None
    missing = [key for key in keys if not isinstance(record, dict) or key not in record]
    if missing:
        raise InputError(f"{path} is damaged: it has no {', '.join(missing)}; {fix}")
    return record


def refuse_different(dest, different):
    """Raises InputError if there are differences between what `dest` was prepared from and what is given."""
    if different:
        raise InputError(
            f"--dest: {dest} was prepared from different inputs or with different options: {'; '.join(different)};"
            " choose another --dest, or remove this one"
        )


def file_identity(path):
    """Name, size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return {"file": os.path.basename(path), "bytes": os.path.getsize(path), "sha256": digest.hexdigest()}
