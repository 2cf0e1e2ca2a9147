"""Files that appear when they are complete."""

import json
import os

import pytest

from maelm_fairseq.base.files import atomic_folder, atomic_write, read_json, save_json


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


def test_a_folder_appears_when_it_is_complete(tmp_path):
    with atomic_folder(tmp_path / "new" / "folder") as partial:
        with open(os.path.join(partial, "file"), "w") as stream:
            stream.write("text")
        assert not (tmp_path / "new" / "folder").exists()
    assert (tmp_path / "new" / "folder" / "file").read_text() == "text" and os.listdir(tmp_path / "new") == ["folder"]
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "new" / "other"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path / "new") == ["folder"]


def test_json(tmp_path):
    path = tmp_path / "record.json"
    value = {"text": "ä", "number": 0.1, "list": [1, None]}
    save_json(value, path)
    assert read_json(path, "a record") == value == json.loads(path.read_text(encoding="utf-8"))
    with pytest.raises(FileNotFoundError, match="nosuch.json: not found, expected a record"):
        read_json(tmp_path / "nosuch.json", "a record")
    assert read_json(path, "a record", ["text", "list"]) == value
    with pytest.raises(ValueError, match="record.json: no 'size' in it, expected a record; remove it"):
        read_json(path, "a record", ["text", "size"])
    for content in [b"", b"{", b"\xff", b"[" * 100000]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="record.json: not JSON .* expected a record; remove it") as raised:
            read_json(path, "a record")
        assert "\n" not in str(raised.value)
