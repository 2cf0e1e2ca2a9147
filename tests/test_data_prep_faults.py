"""data-prep/: kills and signals, inputs that change while they are read, and damaged files."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from test_data_prep import ENVIRONMENT, PREP, arguments, command, fail, random_documents, run, snapshot, succeed, write

sys.path.insert(0, PREP)
import basics  # noqa: E402
import check  # noqa: E402

OPTIONS = ["--vocab-size", 300, "--workers", 2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Enough text that encoding it takes a second, and what an uninterrupted run makes of it."""
    folder = tmp_path_factory.mktemp("corpus")
    text = {
        "train": [write(folder / "train.txt", random_documents(1, 2000) * 3)],
        "valid": [write(folder / "valid.txt", random_documents(2, 50))],
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
    for name in ["prepare.json", "sentencepiece.model", "valid.idx", "train.bin", "train.json"]:
        kill = "os.kill(os.getpid(), signal.SIGKILL)"
        assert run_with("prepare.py", ("os.rename", f".{name}."), kill, *options).returncode == -signal.SIGKILL, name
        assert not (dest / name).exists() and list(dest.glob(f".{name}.*.partial"))
        assert run("check.py", dest).returncode == 1
    succeed("prepare.sh", *options)
    assert snapshot(dest) == snapshot(corpus["dest"])
    assert not list(dest.glob(".*partial"))


def test_a_signal_removes_partial_files(corpus, tmp_path):
    options = arguments(corpus, tmp_path / "data", *OPTIONS)
    stop = "os.kill(os.getpid(), signal.SIGTERM)"
    done = run_with("prepare.py", ("open", ".train.idx."), stop, *options)
    assert done.returncode == 143 and "Traceback" not in done.stderr
    assert done.stderr.endswith("stopped by SIGTERM; the same command resumes after the last complete step\n")
    assert not list((tmp_path / "data").glob("train.*")) and not list((tmp_path / "data").glob(".*"))


def test_partial_files_of_killed_runs_are_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    ended.wait()
    files = [tmp_path / f".train.bin.{socket.gethostname()}.{pid}.partial" for pid in (ended.pid, os.getpid())]
    files += [tmp_path / f".train.bin.elsewhere.{number}.partial" for number in (1, 2)]
    for path in files:
        path.write_text("in part")
    os.utime(str(files[2]), (1, 1))
    basics.remove_abandoned(str(tmp_path))
    assert [path.exists() for path in files] == [False, True, False, True]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_worker_is_one_error(corpus, tmp_path):
    options = arguments(corpus, tmp_path / "data", "--spm-model", corpus["dest"] / "sentencepiece.model")
    process = subprocess.Popen(
        command("prepare.py", *options, "--workers", 1),
        env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True,
    )  # fmt: skip
    workers = []
    while not workers:
        assert process.poll() is None
        if list((tmp_path / "data").glob(".train.bin.*")):
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as stream:
                workers = [int(child) for child in stream.read().split()]
    os.kill(workers[0], signal.SIGKILL)
    errors = process.communicate(timeout=300)[1]
    assert process.returncode == 1 and "Traceback" not in errors, errors
    assert "error: a worker was killed (out of memory?); run again with fewer --workers" in errors.splitlines()[-1]
    assert not list((tmp_path / "data").glob("train.*")) and not list((tmp_path / "data").glob(".*"))


# Inputs that change ------------------------------------------------------------------------------------------------

CHANGES = {
    "appended to": "open({0!r}, 'ab').write(b'one more line')",
    "truncated": "os.truncate({0!r}, 100000)",
}


@pytest.mark.parametrize(
    "when, change", [(("open", ".train.bin."), "appended to"), (("os.rename", "prepare.json"), "truncated")]
)
def test_a_file_that_changes_while_it_is_read(corpus, tmp_path, when, change):
    text = {split: [shutil.copy2(str(path), str(tmp_path)) for path in corpus[split]] for split in ("train", "valid")}
    options = arguments(text, tmp_path / "data", *OPTIONS)
    done = run_with("prepare.py", when, CHANGES[change].format(text["train"][0]), *options)
    assert done.returncode == 1 and f"error: file {text['train'][0]} changed while it was being read" in done.stderr
    assert "Traceback" not in done.stderr
    names = set(os.listdir(str(tmp_path / "data")))
    encoded = {"prepare.json", "sentencepiece.model", "dict.txt", "valid.bin", "valid.idx", "valid.json"}
    assert names - {"sentencepiece.log"} == (encoded if when[0] == "open" else set())


def test_glue_and_squad_notice_a_change(corpus, tmp_path):
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.tsv", [["sentence\tlabel", *(f"text {i}\t{i % 2}" for i in range(9))]], last=False)
    question = {"id": "q", "question": "who", "answers": [{"text": "one", "answer_start": 0}]}
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": "one two", "qas": [question]}]}]}))
    for program, path, inputs in [
        ("glue.py", tmp_path / "train.tsv", ["--input", tmp_path.parent, "--task", tmp_path.name]),
        ("squad.py", squad, ["--train", squad, "--dev", squad]),
    ]:
        options = [*inputs, "--vocabulary", corpus["dest"], "--dest", tmp_path / "out" / "data"]
        done = run_with(program, ("open", "valid.bin"), CHANGES["appended to"].format(str(path)), *options)
        assert done.returncode == 1 and "a file changed while it was being read" in done.stderr
        assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


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
        ("train.json", lambda content: b"{}", "is damaged: it has no input"),
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
    foreign = write(tmp_path / "foreign.txt", [["\u0434\u0430 \u043d\u0435\u0442 bada"], ["ku"]])
    text = {"train": [foreign], "valid": corpus["valid"]}
    model = corpus["dest"] / "sentencepiece.model"
    error = fail("prepare.sh", *arguments(text, tmp_path / "data", "--spm-model", model))
    assert "of the pieces are unknown, expected at most 1%" in error
