"""Opening files: only regular ones are opened, and errors of libraries become one line."""

import errno
import os

import pytest

from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.opening import as_usage_error, open_to_read


def test_only_files_are_opened(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    with open_to_read(tmp_path / "file") as stream:
        assert stream.read() == b"1"
    os.mkfifo(tmp_path / "pipe")
    for path, kind in [
        (tmp_path / "pipe", "a pipe"),
        (tmp_path, "a folder"),
        ("/dev/zero", "a device"),
    ]:
        with pytest.raises(UsageError, match=f"{path}: found {kind}, expected a file"):
            open_to_read(path)
    with pytest.raises(FileNotFoundError, match="nosuch: not found, expected a file"):
        open_to_read(tmp_path / "nosuch")


def test_a_pipe_that_is_allowed():
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    with open_to_read(f"/dev/fd/{reader}", allow_pipe=True) as stream:
        assert stream.read() == b"text"
    os.close(reader)


class Panic(BaseException):
    """An exception as libraries that are written in Rust raise it."""


@pytest.mark.parametrize("error", [
    ValueError("no\nnumber"),
    RecursionError(),
    Panic("it panicked"),
    OSError("no archive"),
    AssertionError(),
])  # fmt: skip
def test_what_libraries_raise_is_explained(error):
    message = "^file: cannot be read .*, expected a list; write one$"
    with pytest.raises(UsageError, match=message) as raised:
        with as_usage_error("file", "a list", "write one"):
            raise error
    assert type(error).__name__ in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("error", [
    OSError(errno.EIO, "disk"),
    MemoryError(),
    KeyboardInterrupt(),
    SystemExit(3),
    UsageError("known"),
])  # fmt: skip
def test_what_is_not_the_files_fault_passes(error):
    with pytest.raises(type(error)) as raised:
        with as_usage_error("file", "a list", "write one"):
            raise error
    assert raised.value is error
