"""Files that appear when they are complete, and what is read from JSON."""

import errno
import gzip
import json
import os
import socket
import typing
from dataclasses import dataclass

import pytest

from conftest import refuses
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_folder, atomic_write
from maelm_fairseq.base.json_files import read_json, save_json
from maelm_fairseq.base.provenance import sha256
from maelm_fairseq.base.typed_values import typed
from maelm_fairseq.config import MaeLmConfig


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as stream:
        stream.write("ä\n")
        assert not path.exists()
    assert path.read_bytes() == "ä\n".encode() and os.listdir(tmp_path) == ["file"]
    with atomic_write(path, "wb") as stream:
        stream.write(b"\x00")
        stream.flush()
        assert path.read_bytes() == "ä\n".encode()
    assert path.read_bytes() == b"\x00" and os.listdir(tmp_path) == ["file"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as stream:
        stream.write("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_errors_name_the_file(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")

    def hidden():  # as by torch.save
        try:
            raise full
        finally:
            raise RuntimeError("unexpected pos")

    for write in [hidden, lambda: (_ for _ in ()).throw(full)]:
        full.filename = None
        with pytest.raises(OSError, match="No space left on device: '/.*file'$"), atomic_write(tmp_path / "file"):
            write()
    with pytest.raises(OSError, match="No such file or directory: '/.*folder/a/b'$"):
        with atomic_folder(tmp_path / "folder") as partial:
            open(os.path.join(partial, "a", "b"))
    assert os.listdir(tmp_path) == []


def test_a_folder_appears_when_it_is_complete(tmp_path):
    with atomic_folder(tmp_path / "new" / "folder") as partial:
        with open(os.path.join(partial, "file"), "w") as stream:
            stream.write("text")
        assert not (tmp_path / "new" / "folder").exists()
    assert (tmp_path / "new" / "folder" / "file").read_text() == "text" and os.listdir(tmp_path / "new") == ["folder"]
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "new" / "other"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path / "new") == ["folder"]


def test_what_is_new_replaces_nothing_that_came_meanwhile(tmp_path, monkeypatch):
    for links in [True, False]:  # which some file systems lack
        if not links:
            monkeypatch.setattr(os, "link", lambda *_: os.stat(tmp_path / "nowhere"))
        for write in [lambda: atomic_write(tmp_path / "x", new=True), lambda: atomic_folder(tmp_path / "x")]:
            with pytest.raises(UsageError, match="x: exists already; remove it or choose another"), write():
                (tmp_path / "x").write_text("theirs")
            assert os.listdir(tmp_path) == ["x"] and (tmp_path / "x").read_text() == "theirs"
            (tmp_path / "x").unlink()
        with atomic_write(tmp_path / "y", new=True) as stream:
            stream.write("ours")
        assert os.listdir(tmp_path) == ["y"] and (tmp_path / "y").read_text() == "ours"
        (tmp_path / "y").unlink()


def test_a_pipe_is_no_file_with_a_checksum(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refuses("pipe: found a pipe, expected a file", sha256, tmp_path / "pipe")


def test_its_contents_are_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    monkeypatch.setattr(os, "replace", lambda *paths, original=os.replace: done.append("named") or original(*paths))
    monkeypatch.setattr(os, "rename", lambda *paths, original=os.rename: done.append("named") or original(*paths))
    with atomic_write(tmp_path / "file"):
        pass
    with atomic_folder(tmp_path / "folder") as partial:
        (tmp_path / partial / "inside").touch()
    assert done == [done[0], "named", str(tmp_path), f"{partial}/inside", partial, "named", str(tmp_path)]
    assert ".file." in done[0]


def test_what_a_killed_process_left_goes_the_next_time(tmp_path):
    host, dead = socket.gethostname(), 2**22 + 1  # over the highest number of a process
    left = [tmp_path / f".file.{host}.{process}.partial" for process in (dead, os.getppid())]
    left += [tmp_path / ".file.elsewhere.1.partial", tmp_path / f".other.{host}.{dead}.partial"]
    for path in left:
        path.touch()
    os.utime(left[2], (0, 0))
    (tmp_path / f".folder.{host}.{dead}.partial").mkdir()
    save_json(1, tmp_path / "file")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert [path.exists() for path in left] == [False, True, False, True]
    assert not (tmp_path / f".folder.{host}.{dead}.partial").exists()


@dataclass
class Part:
    sizes: typing.Tuple[int, ...]
    share: float = 0.5


@dataclass
class Record:
    name: str
    parts: typing.List[Part]
    counts: typing.Dict[str, int]
    other: typing.Optional[str] = None
    pairs: typing.Tuple[typing.Tuple[int, str], ...] = ()


GOOD = {"name": "ä", "parts": [{"sizes": [1, 2], "share": 1, "unknown": 3}], "counts": {"a": 1}}


def test_json(tmp_path):
    path = tmp_path / "record.json"
    save_json(GOOD, path)
    assert json.loads(path.read_text(encoding="utf-8")) == GOOD
    assert read_json(path, Record, "a record") == Record("ä", [Part((1, 2), 1.0)], {"a": 1})
    save_json({**GOOD, "name": "\udcff", "pairs": [[1, "a"]]}, path)  # as of a file whose name is not UTF-8
    read = read_json(path, Record, "a record", file_names=True)
    assert read == Record("\udcff", [Part((1, 2), 1.0)], {"a": 1}, pairs=((1, "a"),))
    with pytest.raises(ValueError, match="record.json: unpaired surrogate '.udcff' after"):
        read_json(path, Record, "a record")
    save_json({**GOOD, "name": "\ud83d\ude00"}, path)  # as others write a character that is there whole
    assert read_json(path, Record, "a record").name == "\U0001f600"
    with pytest.raises(FileNotFoundError, match="nosuch.json: not found, expected a record"):
        read_json(tmp_path / "nosuch.json", Record, "a record")
    path.write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    assert read_json(path, Record, "a record").name == GOOD["name"]
    for content in [b"", b"{", b"\xff", b"[" * 100000, b'{"a": {"b": 1, "b": 2}}']:
        path.write_bytes(content)
        fault = "record.json: (not JSON|line 1 is not UTF-8) .*record.json should be a record; remove it"
        refuses(fault, read_json, path, Record, "a record")
    save_json({**GOOD, "parts": [{}]}, path)
    with pytest.raises(ValueError, match="parts: item 1: found no sizes; .*record.json should be a record; remove"):
        read_json(path, Record, "a record")


@pytest.mark.parametrize("kind, value, message", [
    (Record, [], "found a list, expected an object"),
    (Record, {**GOOD, "name": None}, "name: found None, expected a text"),
    (Record, {**GOOD, "counts": {"a": True}}, "counts: a: found True, expected a whole number"),
    (Record, {**GOOD, "parts": {}}, "parts: found a dict, expected a list"),
    (Record, {**GOOD, "pairs": [["1", "a"]]}, "pairs: item 1: item 1: found '1', expected a whole number"),
    (Record, {**GOOD, "pairs": [[1]]}, "pairs: item 1: found a list of 1, expected a list of 2"),
    (Record, {**GOOD, "other": 5}, "other: found 5, expected a text"),
    (Part, {"sizes": [1, "2"]}, "sizes: item 2: found '2', expected a whole number"),
    (Part, {"sizes": [], "share": "1"}, "share: found '1', expected a number"),
    (Part, {"sizes": [], "share": 10**400}, "share: found 1000.*, expected a number"),
    (MaeLmConfig, {"encoder_layers": 3.5}, "encoder_layers: found 3.5, expected a whole number"),
    (MaeLmConfig, {"classification_pooling": "last"}, "found 'last', expected one of first, mean"),
])  # fmt: skip
def test_values_of_another_type(kind, value, message):
    refuses("^file: .*" + message, typed, kind, value, "file")
