"""data-prep/: kills and signals, inputs that change while they are read, and damaged files."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import check
from conftest import error_of, error_of_script, script
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.preparation import encode, raw_text
from raw_text import PREP, arguments, snapshot, write

OPTIONS = ["--vocab-size", 100, "--workers", 2]


@pytest.fixture
def corpus(prepared):
    """Text, and what an uninterrupted run makes of it."""
    folder = prepared.parent
    return {
        "train": [folder / "train.txt"],
        "valid": [folder / "valid.txt"],
        "dest": prepared,
    }


# Runs prepare.py, and sends it a signal when a file whose name contains a word is about to get its
# final name.
AT = """
import os, runpy, sys
program, name, number = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))
def audit(event, arguments):
    if event == "os.rename" and name in arguments[0]:
        os.kill(os.getpid(), number)
sys.addaudithook(audit)
sys.argv[0] = program
sys.path.insert(0, os.path.dirname(program))
runpy.run_path(program, run_name="__main__")
"""


# Kills and signals --------------------------------------------------------------------------------


def test_killed_at_any_step_and_run_again(corpus, tmp_path):
    """Killed when a complete file is about to get its final name; in the end, nothing differs."""
    dest = tmp_path / "data"
    options = ["--train", *corpus["train"], "--valid-documents", 9, *OPTIONS, "--dest"]
    script("data-prep/prepare.sh", *options, tmp_path / "uninterrupted", "--workers", 1)
    options.append(dest)
    for name, number in [
        ("sentencepiece.model", signal.SIGTERM),
        ("documents.json", signal.SIGKILL),
        ("train.bin", signal.SIGKILL),
        ("train.json", signal.SIGINT),
    ]:
        program = os.path.join(PREP, "prepare.py")
        command = [sys.executable, "-c", AT, program, f".{name}.", int(number), *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == -number, name
        assert "Traceback" not in done.stderr, name
        assert not (dest / name).exists()
        has_partial_files = bool(list(dest.glob(".*.partial")))
        assert has_partial_files == (number != signal.SIGINT)
    error = error_of_script("data-prep/check.py", dest)
    assert error.endswith("the preparation was not finished; run prepare.sh again")
    script("data-prep/prepare.sh", *options)
    assert snapshot(dest) == snapshot(tmp_path / "uninterrupted")
    assert not list(dest.glob(".*partial"))


def test_ctrl_c_ends_the_workers_too_and_leaves_nothing_half_written(corpus, tmp_path):
    """The terminal sends the signal to all processes at once; nobody shows a stack trace."""
    dest, model = tmp_path / "data", corpus["dest"] / "sentencepiece.model"
    text = dict(corpus, train=corpus["train"] * 2000)  # seconds of work
    options = arguments(text, dest, "--vocabulary", model, "--workers", 1)
    command = list(map(str, [sys.executable, os.path.join(PREP, "prepare.py"), *options]))
    streams = dict(stderr=subprocess.PIPE, text=True)
    with subprocess.Popen(command, start_new_session=True, **streams) as process:
        while not any(partial.stat().st_size for partial in dest.glob(".train.bin.*.partial")):
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        _, printed = process.communicate()
    assert process.returncode == -signal.SIGINT, printed
    assert "Traceback" not in printed, printed
    assert not list(dest.glob(".*.partial"))
    assert not list(dest.glob("train*"))


def test_a_full_disk_is_one_line_that_names_the_file(corpus, tmp_path):
    """A limit on the size of files and a full standard output stand in for a full disk.

    When there is room, the same command resumes.
    """
    dest, limited = tmp_path / "data", tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -f 2\nexec "{sys.executable}" "$@"\n')
    limited.chmod(0o755)
    options = arguments(corpus, dest, *OPTIONS)
    error = error_of_script("data-prep/prepare.sh", *options, PYTHON=str(limited))
    assert error == f"error: {dest / 'sentencepiece.model'}: File too large"
    assert sorted(os.listdir(dest)) == ["prepare.json", "sentencepiece.log"]
    script("data-prep/prepare.sh", *options)
    with open("/dev/full", "w") as full:
        command = [sys.executable, os.path.join(PREP, "check.py"), dest]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_a_failed_encoding_is_one_error_and_leaves_nothing(corpus, tmp_path, monkeypatch):
    model = str(corpus["dest"] / "sentencepiece.model")
    files = list(map(str, corpus["valid"]))
    before = dict(raw_text.file_fingerprint(files[0]), bytes=1)
    with pytest.raises(UsageError, match="valid.txt changed while it was being read"):
        encode.encode(files, [before], {0: str(tmp_path)}, "train", model, workers=1)
    monkeypatch.setattr(encode, "start_worker", lambda model: os.kill(os.getpid(), signal.SIGKILL))
    message = r"a worker was killed \(out of memory\?\); run again with fewer"
    with pytest.raises(UsageError, match=message):
        encode.encode(files, [], {0: str(tmp_path)}, "train", model, workers=1)
    assert os.listdir(tmp_path) == []


# Damaged files ------------------------------------------------------------------------------------


def replaced(old, new):
    return lambda content: content.replace(old, new)


@pytest.mark.parametrize("name, change, error", [
    ("prepare.json", replaced(b'"shards": 1', b'"shards": "1"'), "shards: found '1'"),
    ("prepare.json", replaced(b'"shards": 1', b'"shards": 0'), "found 0, expected 1 or"),
    ("train.json", replaced(b'"sample": [', b'"sample": [[0, "more"],'), "line 1 does not have"),
    ("train.json", replaced(b'"sample": [', b'"sample": [["0", ""],'), "found '0', exp"),
    ("sentencepiece.model", replaced(b"<s>", b"<\xff>"), "expected a SentencePiece model"),
    ("sentencepiece.model", replaced(b"nmt_nfkc", b"nmt_nfkd"), "has changed since"),
    ("train.idx", lambda c: b"", "not an index"),
    ("train.idx", lambda c: c + b"\0", "but its header implies"),
    # The place where a line begins.
    ("train.idx", lambda c: c[:-16] + b"\1" + c[-15:], "has changed since"),
    ("train.bin", lambda c: c[:-2], "but .idx implies"),
    ("train.bin", lambda c: c[2:4] + c[:2] + c[4:], "train.bin has changed since"),
    ("dict.txt", lambda c: c[: len(c) // 2], "is not the dictionary of the sentencepiece.model"),
])  # fmt: skip
def test_damaged_files(corpus, tmp_path, name, change, error):
    copy = shutil.copytree(corpus["dest"], tmp_path / "copy")
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(change(content))
    assert (copy / name).read_bytes() != content
    assert error in error_of(check.main, copy)


def test_files_of_another_part(corpus, tmp_path):
    """They match each other and their record, but do not belong in the place of others."""
    copy = shutil.copytree(corpus["dest"], tmp_path / "copy")
    for ending in [".bin", ".idx", ".json"]:
        shutil.copy(copy / f"valid{ending}", copy / f"train{ending}")
    assert "train.* are of another split, shard or text" in error_of(check.main, copy)


def test_text_of_unknown_characters(corpus, tmp_path):
    vocabulary = ["--vocabulary", corpus["dest"] / "sentencepiece.model"]
    foreign = write(tmp_path / "foreign.txt", [["\u0434\u0430 \u043d\u0435\u0442 kan"], ["ku"]])
    text = {"train": [foreign], "valid": corpus["valid"]}
    error = error_of_script(
        "data-prep/prepare.sh", *arguments(text, tmp_path / "data", *vocabulary)
    )
    assert "of the characters are unknown, expected at most 1%" in error
    # A line in a foreign script is one unknown piece, and all of its characters count.
    foreign = write(tmp_path / "more.txt", [["kan lo " * 40], ["\u0434\u0430 " * 3]])
    text = {"train": [foreign], "valid": corpus["valid"]}
    error = error_of_script(
        "data-prep/prepare.sh", *arguments(text, tmp_path / "more", *vocabulary)
    )
    assert "2.1% of the characters are unknown" in error
