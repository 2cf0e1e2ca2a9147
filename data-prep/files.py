"""Files and folders that appear under their name only once they are complete, and the identity of a file."""

import contextlib
import glob
import hashlib
import json
import os
import shutil
import socket
import time


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
        shutil.rmtree(partial, ignore_errors=True)
        os.makedirs(partial)
        yield partial
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def publish_first(path, write):
    """Writes a file unless it exists; if several processes do so at once, the first to finish wins.

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


def remove_abandoned(folder):
    """Removes partial files of killed runs: on this machine if the process is gone, on others after a day untouched."""
    for path in glob.glob(os.path.join(glob.escape(folder), ".*.partial")):
        host, pid = path[: -len(".partial")].rsplit(".", 2)[-2:]
        try:
            if host == socket.gethostname():
                abandoned = not process_exists(int(pid))
            else:
                abandoned = time.time() - os.path.getmtime(path) > 86400
            if abandoned and os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            elif abandoned:
                os.remove(path)
        except (FileNotFoundError, ValueError):
            pass  # another run removed it first, or it is not one of ours


def process_exists(pid):
    """Whether a process with this number runs on this machine; one that has ended but is still listed does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:  # in a container whose first process waits for no orphans, they are listed for ever
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return True


def save_json(value, path):
    """Writes a value as JSON, atomically."""
    with atomic_write(path) as stream:
        json.dump(value, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def file_identity(path):
    """Name, size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return {"file": os.path.basename(path), "bytes": os.path.getsize(path), "sha256": digest.hexdigest()}
