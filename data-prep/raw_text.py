"""Reads raw text: UTF-8, plain or gzip, one sentence or paragraph per line, a blank line after each document."""

import gzip
import hashlib
import os
import zlib
from collections import namedtuple

from command_line import InputError

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BUFFER = 1 << 20


def check_files(paths, option):
    """Raises FileNotFoundError or InputError unless every path is a file that is not empty."""
    for path in paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"{option}: file {path} does not exist; expected a text file; check the path")
        if not os.path.isfile(path):
            raise InputError(f"{option}: {path} is not a regular file; expected one, as it is read more than once")
        if os.path.getsize(path) == 0:
            raise InputError(f"{option}: file {path} is empty; expected UTF-8 text; leave it out or fill it")
        with open(path, "rb") as stream:
            if path.endswith(".gz") and stream.read(2) != GZIP_MAGIC:
                raise InputError(f"{option}: file {path} ends in .gz but is not gzip; unpack it or correct its name")


def fingerprint(path):
    """Name, size and a hash of 64 parts of a file, including the first and last: quick, and differs between corpora."""
    size, part = os.path.getsize(path), 1 << 16
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for number in range(64):
            stream.seek(max(0, size - part) * number // 63)
            digest.update(stream.read(part))
            if size <= part:
                break
    return {"file": os.path.basename(path), "bytes": size, "sha256_of_samples": digest.hexdigest()}


FileState = namedtuple("FileState", "path fingerprint modified")
FileState.__doc__ = """A file as it is now. modified: when its contents were last changed, in nanoseconds"""


def file_states(paths):
    """The FileState of each file."""
    # The time first: a change while the fingerprint is taken must count as one.
    times = [os.stat(path).st_mtime_ns for path in paths]
    return [FileState(path, fingerprint(path), modified) for path, modified in zip(paths, times)]


def check_unchanged(states):
    """Compares files with what `file_states` returned.

    Raises:
        InputError: a file was changed since, or removed
    """
    for before in states:
        try:
            (now,) = file_states([before.path])
        except FileNotFoundError:
            now = None
        if now != before:
            sizes = f"{before.fingerprint['bytes']:,} bytes, then {now.fingerprint['bytes']:,}" if now else "removed"
            raise InputError(
                f"file {before.path} changed while it was being read ({sizes}); run again when it is complete, with"
                " another --dest if this one is refused"
            )


def read_lines(paths, progress=None, file_end=None):
    """Yields the lines of files as bytes, without the `\\n` or `\\r\\n` at their end; nothing else ends a line.

    Keeps one line in memory. Skips a byte order mark at the start of a file.

    Args:
        progress: a `command_line.Progress` over the sum of the files' sizes
        file_end: yielded after each file, if not None
    Raises:
        InputError: a gzip file is corrupt or truncated
    """
    done = text = reported = 0
    for path in paths:
        with open(path, "rb", buffering=BUFFER) as packed:
            stream = gzip.GzipFile(fileobj=packed) if packed.peek(2)[:2] == GZIP_MAGIC else packed
            number = 0
            try:
                for line in stream:
                    if number == 0 and line.startswith(BYTE_ORDER_MARK):
                        line = line[len(BYTE_ORDER_MARK) :]
                    number += 1
                    text += len(line)
                    if progress and text - reported > BUFFER:
                        reported = text
                        progress.update(done + packed.tell(), text)
                    yield line.rstrip(b"\r\n")
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputError(
                    f"file {path}: corrupt gzip after line {number} ({error}); copy or download it again"
                ) from None
            done += os.fstat(packed.fileno()).st_size  # not by its path: the file may have been removed meanwhile
        if file_end is not None:
            yield file_end
    if progress:
        progress.update(done, text)


def check_documents(paths, shards):
    """Refuses files that certainly have fewer documents than there are shards; reads no more than tells.

    The bound is not exact where lines begin with anything but visible ASCII: a model may normalise them to nothing.
    """
    found, inside = 0, False
    for line in read_lines(paths, file_end=b""):
        if not line.strip():
            inside = False
        elif 32 < line[0] < 127:
            found += not inside
            inside = True
        else:  # text, or an end of a document
            found += 1
            inside = False
        if found >= shards:
            return
    raise too_few_documents(paths, f"at most {found}", shards)


def too_few_documents(paths, found, shards):
    """The InputError for files with fewer documents than there are shards."""
    return InputError(
        f"{', '.join(map(str, paths))}: found {found} documents (separated by blank lines), expected at least {shards};"
        f" {'use fewer --shards' if shards > 1 else 'give files with text'}"
    )


def not_utf8(paths):
    """The InputError for files that contain a line which is not UTF-8; names the first such line."""
    for path in paths:
        for number, line in enumerate(read_lines([path]), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return InputError(
                    "file {}: line {} is not UTF-8 (byte 0x{:02x} at byte {} of the line); expected UTF-8; "
                    "convert it, for example with iconv -f latin1 -t utf-8".format(
                        path, number, line[error.start], error.start + 1
                    )
                )
    return InputError(f"one of {', '.join(paths)} changed while it was being read; run again when it is complete")
