"""data-prep/: kills and signals, inputs that change while they are read, and damaged files."""

import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from conftest import documents
from test_data_prep import ENVIRONMENT, PREP, arguments, fail, snapshot, succeed, write

sys.path.insert(0, PREP)
import basics  # noqa: E402
import check  # noqa: E402
import encode  # noqa: E402
import raw_text  # noqa: E402

OPTIONS = ["--vocab-size", 100, "--workers", 2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text, and what an uninterrupted run makes of it."""
    folder = tmp_path_factory.mktemp("corpus")
    text = {
        "train": [write(folder / "train.txt", documents(1000, 1))],
        "valid": [write(folder / "valid.txt", documents(50, 2))],
    }
    succeed("prepare.sh", *arguments(text, folder / "data", *OPTIONS))
    return dict(text, dest=folder / "data")


# Runs a program that, at the first event of a kind with NAME in one of its arguments, executes a statement.
AT = """
import os, runpy, signal, sys
folder, program, kind, name, statement = sys.argv[1:6]
del sys.argv[:5]
done = []
def change(event, arguments):
    if event == kind and not done and any(isinstance(part, str) and name in part for part in arguments):
        done.append(event)
        exec(statement)
sys.addaudithook(change)
sys.path.insert(0, folder)
sys.argv[0] = os.path.join(folder, program)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_with(program, when, statement, *options):
    return subprocess.run(
        [sys.executable, "-c", AT, PREP, program, *when, statement, *map(str, options)],
        env=dict(ENVIRONMENT, PYTHONPATH=os.path.dirname(PREP)), capture_output=True, text=True,
    )  # fmt: skip


# Kills and signals -------------------------------------------------------------------------------------------------


def test_killed_at_any_step_and_run_again(corpus, tmp_path):
    """Killed when a complete file is about to get its final name; in the end nothing differs."""
    dest = tmp_path / "data"
    options = arguments(corpus, dest, *OPTIONS)
    for name, number in [
        ("sentencepiece.model", signal.SIGTERM),
        ("train.bin", signal.SIGKILL),
        ("train.json", signal.SIGINT),
    ]:
        kill = f"os.kill(os.getpid(), {int(number)})"
        done = run_with("prepare.py", ("os.rename", f".{name}."), kill, *options)
        assert done.returncode == -number and "Traceback" not in done.stderr, name
        assert not (dest / name).exists() and list(dest.glob(f".{name}.*.partial"))
    assert fail("check.py", dest).endswith("the preparation was not finished; run prepare.sh again")
    succeed("prepare.sh", *options)
    assert snapshot(dest) == snapshot(corpus["dest"])
    assert not list(dest.glob(".*partial"))


def test_partial_files_of_killed_runs_are_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    ended.wait()
    files = [tmp_path / f".train.bin.{socket.gethostname()}.{pid}.partial" for pid in (ended.pid, os.getppid())]
    files += [tmp_path / f".train.bin.else.where.{number}.partial" for number in (1, 2)]
    for path in files:
        path.write_text("in part")
    os.utime(files[2], (1, 1))
    basics.remove_abandoned(str(tmp_path / "train.bin"))
    assert [path.exists() for path in files] == [False, True, False, True]


@pytest.fixture
def encode_train(corpus, tmp_path):
    """Encodes the corpus in this process with a trained model; it must fail, and leave nothing."""

    def run_encode(fingerprints, error):
        model = str(corpus["dest"] / "sentencepiece.model")
        with pytest.raises(basics.InputError, match=error):
            encode.encode(list(map(str, corpus["valid"])), fingerprints, str(tmp_path), "train", model, workers=1)
        assert os.listdir(tmp_path) == []

    return run_encode


def test_a_killed_worker_is_one_error(corpus, encode_train, monkeypatch):
    monkeypatch.setattr(encode, "start_worker", lambda model: os.kill(os.getpid(), signal.SIGKILL))
    encode_train([], r"a worker was killed \(out of memory\?\); run again with fewer --workers")


def test_a_file_that_changes_while_it_is_read(corpus, encode_train):
    before = dict(raw_text.fingerprint(corpus["valid"][0]), bytes=1)
    encode_train([before], "valid.txt changed while it was being read")


# Damaged files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(corpus, tmp_path, monkeypatch):
    """A function that changes a file in a copy of the data; returns the one error of check.py."""

    def run_check(name, change):
        copy = tmp_path / "copy"
        shutil.rmtree(str(copy), ignore_errors=True)
        shutil.copytree(str(corpus["dest"]), str(copy))
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(change(content))
        assert (copy / name).read_bytes() != content
        monkeypatch.setattr(sys, "argv", ["check.py", str(copy)])
        with pytest.raises(basics.InputError) as error:
            check.main()
        assert "\n" not in str(error.value)
        return str(error.value)

    return run_check


@pytest.mark.parametrize(
    "name, change, error",
    [
        ("prepare.json", lambda content: content[:10], "is damaged: not JSON"),
        (
            "train.json",
            lambda content: content.replace(b'"sample": [', b'"sample": [[0, "more"],'),
            "does not decode to",
        ),
        ("train.idx", lambda content: b"", "not an index"),
        ("train.idx", lambda content: content + b"\0", "but the index implies"),
        ("train.idx", lambda content: content[:-8] + b"\1" + content[-7:], "do not follow"),  # the last line's begin
        ("train.bin", lambda content: content[:-2], "but the index implies"),
        (
            "train.bin",
            lambda content: content[4:6] + content[2:4] + content[:2] + content[6:],
            "checksum of the tokens",
        ),
        ("dict.txt", lambda content: content[: len(content) // 2], "is not the dictionary of the sentencepiece.model"),
    ],
)
def test_damaged_files(damaged, name, change, error):
    assert error in damaged(name, change)


def test_text_of_unknown_characters(corpus, tmp_path):
    foreign = write(tmp_path / "foreign.txt", [["\u0434\u0430 \u043d\u0435\u0442 kan"], ["ku"]])
    text = {"train": [foreign], "valid": corpus["valid"]}
    model = corpus["dest"] / "sentencepiece.model"
    error = fail("prepare.sh", *arguments(text, tmp_path / "data", "--spm-model", model))
    assert "of the pieces are unknown, expected at most 1%" in error
