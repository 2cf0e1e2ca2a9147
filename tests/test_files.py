"""Files that appear when they are complete, and what is read from JSON."""

import errno
import gzip
import json
import os
import socket
import threading
import typing
from dataclasses import dataclass

import pytest

import adapt
import evaluate
import fetch_labelled
import label_texts
import movie_reviews
from conftest import error_of, refuses
from maelm_fairseq import effective_rank, predict
from maelm_fairseq.base.destinations import check_new, check_new_file, check_output_folder
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_folder, atomic_write
from maelm_fairseq.base.json_files import read_json, save_json
from maelm_fairseq.base.locks import logger as logger_of_locks
from maelm_fairseq.base.locks import one_at_a_time
from maelm_fairseq.base.provenance import sha256
from maelm_fairseq.base.typed_values import as_type
from maelm_fairseq.baselines import bag_of_words, crf
from maelm_fairseq.config import MaeLmConfig
from maelm_fairseq.huggingface import export, import_roberta


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as stream:
        stream.write("ä\n")
        assert not path.exists()
    assert path.read_bytes() == "ä\n".encode()
    assert os.listdir(tmp_path) == ["file"]
    with atomic_write(path, "wb") as stream:
        stream.write(b"\x00")
        stream.flush()
        assert path.read_bytes() == "ä\n".encode()
    assert path.read_bytes() == b"\x00"
    assert os.listdir(tmp_path) == ["file"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as stream:
        stream.write("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_errors_name_the_file(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail():
        raise full

    def fail_as_torch_save_does():  # which hides the error of the disk
        try:
            raise full
        finally:
            raise RuntimeError("unexpected pos")

    for write in [fail_as_torch_save_does, fail]:
        full.filename = None
        with pytest.raises(OSError, match="No space left on device: '/.*file'$"):
            with atomic_write(tmp_path / "file"):
                write()
    with pytest.raises(OSError, match="No such file or directory: '/.*folder/a/b'$"):
        with atomic_folder(tmp_path / "folder") as partial:
            open(os.path.join(partial, "a", "b"))
    assert os.listdir(tmp_path) == []


def test_a_folder_appears_when_it_is_complete(tmp_path):
    above = tmp_path / "new"
    with atomic_folder(above / "folder") as partial:
        with open(os.path.join(partial, "file"), "w") as stream:
            stream.write("text")
        assert not (above / "folder").exists()
    assert (above / "folder" / "file").read_text() == "text"
    assert os.listdir(above) == ["folder"]
    with pytest.raises(KeyboardInterrupt), atomic_folder(above / "other"):
        raise KeyboardInterrupt
    assert os.listdir(above) == ["folder"]


def test_what_is_new_replaces_nothing_that_came_meanwhile(tmp_path, monkeypatch):
    path = tmp_path / "x"
    fault = "x: exists already; remove it or choose another"
    for has_links in [True, False]:  # some file systems have no hard links
        if not has_links:
            monkeypatch.setattr(os, "link", lambda *_: os.stat(tmp_path / "nowhere"))
        for write in [lambda: atomic_write(path, must_be_new=True), lambda: atomic_folder(path)]:
            with pytest.raises(UsageError, match=fault), write():
                path.write_text("theirs")
            assert os.listdir(tmp_path) == ["x"]
            assert path.read_text() == "theirs"
            path.unlink()
        with atomic_write(path, must_be_new=True) as stream:
            stream.write("ours")
        assert os.listdir(tmp_path) == ["x"]
        assert path.read_text() == "ours"
        path.unlink()


@pytest.fixture
def unwritable(tmp_path):
    """{why it cannot be written: path}"""
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("nowhere")
    return {
        "file: Not a directory": tmp_path / "file" / "new",
        "link: No such file or directory": tmp_path / "link" / "new",
        f"{tmp_path}: File name too long": tmp_path / ("x" * 250),
        "/proc: No such file or directory": "/proc/new",
    }


def test_what_cannot_be_written_is_refused_before_work(tmp_path, unwritable):
    before = sorted(tmp_path.iterdir())
    for reason, path in unwritable.items():
        for check in [check_new, check_new_file, check_output_folder]:
            refuses(f"{path}: cannot be written .*{reason}.; choose another --dest", check, path)
    (tmp_path / "nowhere").mkdir()
    for path in [tmp_path / "a" / "b" / ("x" * 250), tmp_path / ("x" * 250) / "a"]:
        refuses(f"{path}: cannot be written .*File name too long", check_new, path)
    refuses("file: exists already", check_new, tmp_path / "file")
    refuses("file: exists already", check_new_file, tmp_path / "file")
    refuses("file: found a file, expected a folder", check_output_folder, tmp_path / "file")
    missing = tmp_path / "missing" / "new"
    refuses(f"its folder {tmp_path}/missing does not exist; make it", check_new_file, missing)
    check_new(missing)
    check_output_folder(missing)
    check_output_folder(tmp_path, ["file", "new"])
    refuses(
        "found a folder called nowhere, expected a file", check_output_folder, tmp_path, ["nowhere"]
    )
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "nowhere"])


@pytest.mark.parametrize("program, inputs", [
    (predict, ["--checkpoint", "none", "--data", "none", "--texts", "none"]),
    (label_texts, ["--labelled", "none", "--texts", "none"]),
    (bag_of_words, ["--labelled", "none"]),
    (crf, ["--labelled", "none"]),
    (effective_rank, ["--checkpoint", "none", "--data", "none"]),
    (export, ["--checkpoint", "none", "--data", "none"]),
    (import_roberta, ["--checkpoint", "none", "--data", "none"]),
    (evaluate, ["--checkpoint", "none", "--data", "none"]),
    (adapt, ["--model", "none", "--train", "none", "--valid-documents", 1]),
    (fetch_labelled, []),
    (movie_reviews, []),
])  # fmt: skip
def test_programs_refuse_what_they_cannot_write_before_all_else(program, inputs, tmp_path):
    (tmp_path / "file").write_text("text")
    for place in ["file", "file/new"]:
        error = error_of(program.main, *inputs, "--dest", tmp_path / place)
        assert error.startswith(f"{tmp_path}/{place}")
        assert "choose another --dest" in error
    assert os.listdir(tmp_path) == ["file"]


def test_who_waits_for_another_says_so(tmp_path, monkeypatch):
    steps = []
    waiting = threading.Event()

    def warn(message):
        steps.append(message)
        waiting.set()

    def work():
        with one_at_a_time(tmp_path):
            steps.append("the second at work")
            waiting.set()

    monkeypatch.setattr(logger_of_locks, "warning", warn)
    second = threading.Thread(target=work)
    with one_at_a_time(tmp_path):
        second.start()
        waiting.wait()
        steps.append("the first has finished")
    second.join()
    assert steps == [
        f"{tmp_path}: waiting for another process that is at work in it",
        "the first has finished",
        "the second at work",
    ]


def test_a_pipe_is_no_file_with_a_checksum(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refuses("pipe: found a pipe, expected a file", sha256, tmp_path / "pipe")


def test_its_contents_are_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    steps = []  # "named", or the path of what was written to the disk

    def log_path(descriptor):
        steps.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def logged(function):
        def call(*paths):
            steps.append("named")
            return function(*paths)

        return call

    monkeypatch.setattr(os, "fsync", log_path)
    monkeypatch.setattr(os, "replace", logged(os.replace))
    monkeypatch.setattr(os, "rename", logged(os.rename))
    with atomic_write(tmp_path / "file"):
        pass
    with atomic_folder(tmp_path / "folder") as partial:
        (tmp_path / partial / "inside").touch()
    of_file = [steps[0], "named", str(tmp_path)]
    of_folder = [f"{partial}/inside", partial, "named", str(tmp_path)]
    assert steps == of_file + of_folder
    assert ".file." in steps[0]


def test_what_a_killed_process_left_goes_the_next_time(tmp_path):
    host = socket.gethostname()
    dead = 2**22 + 1  # higher than the number of any process
    of_dead_process = tmp_path / f".file.{host}.{dead}.partial"
    of_live_process = tmp_path / f".file.{host}.{os.getppid()}.partial"
    of_another_host = tmp_path / ".file.elsewhere.1.partial"
    of_another_file = tmp_path / f".other.{host}.{dead}.partial"
    for path in [of_dead_process, of_live_process, of_another_host, of_another_file]:
        path.touch()
    os.utime(of_another_host, (0, 0))  # very old
    folder_of_dead_process = tmp_path / f".folder.{host}.{dead}.partial"
    folder_of_dead_process.mkdir()
    save_json(1, tmp_path / "file")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert not of_dead_process.exists()
    assert of_live_process.exists()
    assert not of_another_host.exists()
    assert of_another_file.exists()
    assert not folder_of_dead_process.exists()


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
    path.write_text(json.dumps({**GOOD, "name": "\udcff", "pairs": [[1, "a"]]}))
    with pytest.raises(ValueError, match="record.json: unpaired surrogate '.udcff' after"):
        read_json(path, Record, "a record")
    # A pair of surrogates, as other programs write one character.
    path.write_text(json.dumps({**GOOD, "name": "\ud83d\ude00"}))
    assert read_json(path, Record, "a record").name == "\U0001f600"
    with pytest.raises(FileNotFoundError, match="nosuch.json: not found, expected a record"):
        read_json(tmp_path / "nosuch.json", Record, "a record")
    path.write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    assert read_json(path, Record, "a record").name == GOOD["name"]
    fault = "record.json: (not JSON|line 1 is not UTF-8) .*"
    fault += "record.json should be a record; remove it"
    for content in [b"", b"{", b"\xff", b"[" * 100000, b'{"a": {"b": 1, "b": 2}}']:
        path.write_bytes(content)
        refuses(fault, read_json, path, Record, "a record")
    save_json({**GOOD, "parts": [{}]}, path)
    fault = "parts: item 1: found no sizes; .*record.json should be a record; remove"
    with pytest.raises(ValueError, match=fault):
        read_json(path, Record, "a record")


@pytest.mark.parametrize("kind, value, message", [
    (Record, [], "found a list, expected an object"),
    (Record, {**GOOD, "name": None}, "name: found None, expected a string"),
    (Record, {**GOOD, "counts": {"a": True}}, "counts: a: found True, expected an integer"),
    (Record, {**GOOD, "parts": {}}, "parts: found a dict, expected a list"),
    (Record, {**GOOD, "pairs": [["1", "a"]]},
     "pairs: item 1: item 1: found '1', expected an integer"),
    (Record, {**GOOD, "pairs": [[1]]}, "pairs: item 1: found a list of 1, expected a list of 2"),
    (Record, {**GOOD, "other": 5}, "other: found 5, expected a string"),
    (Part, {"sizes": [1, "2"]}, "sizes: item 2: found '2', expected an integer"),
    (Part, {"sizes": [], "share": "1"}, "share: found '1', expected a number"),
    (Part, {"sizes": [], "share": 10**400}, "share: found 1000.*, expected a number"),
    (MaeLmConfig, {"encoder_layers": 3.5}, "encoder_layers: found 3.5, expected an integer"),
    (MaeLmConfig, {"classification_pooling": "last"}, "found 'last', expected one of first, mean"),
])  # fmt: skip
def test_values_of_another_type(kind, value, message):
    refuses("^file: .*" + message, as_type, kind, value, "file")
