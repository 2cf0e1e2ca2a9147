"""Files that appear when they are complete."""

import json
import os
import signal
import subprocess
import sys

import pytest

from conftest import ROOT
from maelm_fairseq.files import atomic_folder, atomic_write, read_json, save_json, sha256
from maelm_fairseq.records import count, one_of, positive


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


def test_a_killed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    code = f"""
import os
from maelm_fairseq.files import atomic_write
with atomic_write({str(path)!r}) as stream:
    stream.write("new")
    stream.flush()
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL and path.read_text() == "old"


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
    for content in [b"", b"{", b"\xff", b"[" * 100000]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="record.json: not JSON .* expected a record; remove it") as raised:
            read_json(path, "a record")
        assert "\n" not in str(raised.value)


def test_sha256(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


RECORD = {
    "text": str,
    "count": count,
    "size": positive,
    "flag": bool,
    "pairs": [(str, count)],
    "inner": {"rate": float},
    "counts": {"all": positive, str: count},
    "splits": {one_of("a", "b"): dict},
}
GOOD = {
    "text": "a", "count": 0, "size": 1, "flag": False, "pairs": [["a", 1]], "inner": {"rate": 0.5}, "more": None,
    "counts": {"all": 1, "some": 0}, "splits": {"b": {}},
}  # fmt: skip
DAMAGES = [
    (None, "the record is None, expected an object"),
    ([], r"the record is \[\], expected an object"),
    ({}, "no 'text', expected a string"),
    ({"text": 1}, "'text' is 1, expected a string"),
    ({"text": "\ud800"}, "'text' is .*, expected a string"),
    ({"count": -1}, r"'count' is -1, expected a whole number from 0 to 2\*\*64 - 1"),
    ({"count": 1 << 64}, r"'count' is 1844\d+, expected"),
    ({"count": True}, "'count' is True, expected"),
    ({"count": 1.0}, "'count' is 1.0, expected"),
    ({"size": 0}, r"'size' is 0, expected a whole number from 1 to 2\*\*31 - 1"),
    ({"flag": 0}, "'flag' is 0, expected true or false"),
    ({"pairs": {}}, "'pairs' is {}, expected a list"),
    ({"pairs": [["a", 1], ["a"]]}, r"'pairs\[1\]' is \['a'\], expected a list of 2 values"),
    ({"pairs": [["a", "b"]]}, r"'pairs\[0\]\[1\]' is 'b', expected a whole number"),
    ({"inner": {}}, "no 'inner.rate', expected a number"),
    ({"inner": {"rate": float("nan")}}, "'inner.rate' is nan, expected a number"),
    ({"inner": {"rate": "x" * 1000}}, r"'inner.rate' is 'x+\.\.\., expected a number"),
    ({"counts": {"some": 1}}, "no 'counts.all', expected a whole number"),
    ({"counts": {"all": 1, "some": -1}}, "'counts.some' is -1, expected a whole number from 0"),
    ({"counts": {"all": 1, "some": 1, "\ud800": 1}}, r"'counts' has the key '\\ud800', expected a string"),
    ({"splits": {"a": {}, "../x": {}}}, "'splits' has the key '../x', expected 'a' or 'b'"),
    ({"splits": {"a": []}}, r"'splits.a' is \[\], expected an object"),
]


@pytest.mark.parametrize("damage, message", DAMAGES)
def test_json_of_another_form(tmp_path, damage, message):
    path = tmp_path / "record.json"
    save_json(GOOD, path)
    assert read_json(path, "a record", RECORD) == GOOD
    path.write_text(json.dumps({**GOOD, **damage} if damage else damage))
    with pytest.raises(ValueError, match=f"record.json: {message}.*; remove it") as raised:
        read_json(path, "a record", RECORD)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_json_too_deep_to_show(tmp_path):
    path = tmp_path / "record.json"
    for depth in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit()):
        path.write_text('{"text": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(ValueError, match="record.json: .*, expected a"):
            read_json(path, "a record", RECORD)


def test_records_need_nothing_of_the_package():
    """data-prep/ loads this module by its path, so that its programs start in a fraction of a second."""
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*{'torch', 'fairseq'}.intersection(sys.modules))"
    path = ROOT / "maelm_fairseq" / "records.py"
    assert subprocess.run([sys.executable, "-c", code, path], check=True, stdout=subprocess.PIPE).stdout == b"\n"
