"""Files and folders that appear under their name only when they are complete, and what identifies a file."""

import contextlib
import glob
import hashlib
import os
import shutil
import socket
import time


def partial_name(path):
    """Where `path` is written until it is complete: a hidden name that tells machine and process."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{socket.gethostname()}.{os.getpid()}.partial")


@contextlib.contextmanager
def atomic_write(path, mode="w"):
    """Opens a file that gets the name `path` when the block ends well, and vanishes when it does not."""
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
    """Gives the block a hidden folder, which gets the name `path` when the block ends well, and vanishes when not."""
    partial = partial_name(path)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        os.makedirs(partial)
        yield partial
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def publish_first(path, write):
    """Writes a file unless it is there; of several processes that start at once, the first to finish wins.

    Args:
        write: called with the name to write to
    """
    partial = partial_name(path)
    try:
        write(partial)
        try:
            os.link(partial, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)


def file_identity(path):
    """Name, size and hash of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return {"file": os.path.basename(path), "bytes": os.path.getsize(path), "sha256": digest.hexdigest()}


def remove_abandoned(folder):
    """Removes what killed runs left unfinished: those of this machine that are gone, and others untouched for a day."""
    for path in glob.glob(os.path.join(glob.escape(folder), ".*.partial")):
        host, pid = path[: -len(".partial")].rsplit(".", 2)[-2:]
        try:
            running = host == socket.gethostname() and process_exists(int(pid))
            abandoned = not running and (host == socket.gethostname() or time.time() - os.path.getmtime(path) > 86400)
            if abandoned and os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            elif abandoned:
                os.remove(path)
        except (FileNotFoundError, ValueError):
            pass  # another run was faster, or it is not ours


def process_exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
