"""data-prep/: inputs that change while they are read, signals at random moments, killed workers."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from test_data_prep import ENVIRONMENT, PREP, arguments, command, random_documents, snapshot, succeed, write

sys.path.insert(0, PREP)
import raw_text  # noqa: E402

OPTIONS = ["--vocab-size", 300, "--workers", 2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Enough text that encoding it takes a second, and what an uninterrupted run makes of it."""
    folder = tmp_path_factory.mktemp("corpus")
    text = {
        "train": [write(folder / "train.txt", random_documents(1, 2000) * 6)],
        "valid": [write(folder / "valid.txt", random_documents(2, 50))],
    }
    start = time.time()
    succeed("prepare.sh", *arguments(text, folder / "data", *OPTIONS))
    return dict(text, dest=folder / "data", seconds=time.time() - start)


def copied(corpus, folder):
    """The texts of a corpus, as copies that a test may change."""
    return {split: [shutil.copy2(str(path), str(folder)) for path in corpus[split]] for split in ("train", "valid")}


# Inputs that change ------------------------------------------------------------------------------------------------

# Runs a program that, at the first event of a kind with NAME in one of its arguments, executes a statement.
CHANGED = """
import os, runpy, sys
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
ENCODING, SAMPLING = ("open", ".train.bin."), ("os.link", "prepare.json")  # events when these steps begin
CHANGES = {
    "appended to": "open({0!r}, 'ab').write(b'one more line')",
    "truncated": "os.truncate({0!r}, 100000)",
    "rewritten": "f = open({0!r}, 'r+b'); f.seek(333333); f.write(b'other'); f.close()",
}


def run_changed(program, when, statement, *options, environment=ENVIRONMENT):
    """Runs a program whose input changes meanwhile; returns its one line of error."""
    done = subprocess.run(
        [sys.executable, "-c", CHANGED, PREP, program, *when, statement, *map(str, options)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stdout + done.stderr
    (error,) = [line for line in done.stderr.splitlines() if "error:" in line]
    return error


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_encoded(corpus, tmp_path, change):
    text = copied(corpus, tmp_path)
    options = arguments(text, tmp_path / "data", *OPTIONS)
    error = run_changed("prepare.py", ENCODING, CHANGES[change].format(text["train"][0]), *options)
    assert f"{text['train'][0]} changed while it was being read" in error
    assert set(os.listdir(str(tmp_path / "data"))) == {
        "prepare.json", "sentencepiece.model", "sentencepiece.log", "dict.txt", "valid.bin", "valid.idx", "valid.json",
    }  # fmt: skip
    copied(corpus, tmp_path)
    succeed("prepare.sh", *options)
    assert snapshot(tmp_path / "data") == snapshot(corpus["dest"])


def test_a_file_that_changes_while_the_vocabulary_is_made(corpus, tmp_path):
    text = copied(corpus, tmp_path)
    options = arguments(text, tmp_path / "data", *OPTIONS)
    error = run_changed("prepare.py", SAMPLING, CHANGES["truncated"].format(text["train"][0]), *options)
    assert "changed while it was being read" in error and "then 100,000)" in error
    assert os.listdir(str(tmp_path / "data")) == []
    succeed("prepare.sh", *options)  # of the text as it is now


def test_glue_and_squad_notice_a_change(corpus, tmp_path):
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.tsv", [["sentence\tlabel", *(f"text {i}\t{i % 2}" for i in range(9))]], last=False)
    vocabulary = ["--vocabulary", corpus["dest"], "--dest", tmp_path / "out"]
    environment = dict(ENVIRONMENT, PYTHONPATH=os.path.dirname(PREP))
    statement = CHANGES["appended to"].format(str(tmp_path / "train.tsv"))
    options = ["--input", tmp_path.parent, "--task", tmp_path.name, *vocabulary]
    error = run_changed("glue.py", ("open", "valid.bin"), statement, *options, environment=environment)
    assert "a file changed while it was being read" in error and os.listdir(str(tmp_path / "out")) == []
    question = {"id": "q", "question": "who", "answers": [{"text": "one", "answer_start": 0}]}
    article = {"paragraphs": [{"context": "one two", "qas": [question]}]}
    (tmp_path / "squad.json").write_text(json.dumps({"data": [article]}))
    statement = CHANGES["appended to"].format(str(tmp_path / "squad.json"))
    options = [
        "--train",
        tmp_path / "squad.json",
        "--dev",
        tmp_path / "squad.json",
        *vocabulary[:3],
        tmp_path / "squad",
    ]
    error = run_changed("squad.py", ("open", "valid.bin"), statement, *options, environment=environment)
    assert "a file changed while it was being read" in error and not (tmp_path / "squad").exists()


def test_encode_alone_notices_a_change(corpus, tmp_path):
    text = copied(corpus, tmp_path)
    options = ["--input", text["train"][0], "--spm-model", corpus["dest"] / "sentencepiece.model", "--dest", tmp_path]
    statement = CHANGES["appended to"].format(text["train"][0])
    error = run_changed("encode.py", ENCODING, statement, *options, "--split", "train")
    assert "changed while" in error and sorted(os.listdir(str(tmp_path))) == ["train.txt", "valid.txt"]


def test_a_file_that_was_removed_changed(tmp_path):
    path = write(tmp_path / "text", [["one"]])
    states = raw_text.file_states([path])
    raw_text.check_unchanged(states)
    path.unlink()
    with pytest.raises(ValueError, match=r"text changed while it was being read \(removed\)"):
        raw_text.check_unchanged(states)


# Signals and kills -------------------------------------------------------------------------------------------------


def assert_group_ends(process):
    """Waits for a process; returns its errors. Nothing of its process group may be left."""
    errors = process.communicate(timeout=300)[1]  # of minutes: it takes a fraction of a second, or never ends
    with pytest.raises(ProcessLookupError):
        for _ in range(3000):  # after a SIGKILL the others notice that the first one is gone
            os.killpg(process.pid, 0)
            time.sleep(0.02)
    return errors


@pytest.mark.by_chance
@pytest.mark.parametrize(
    "number, group",
    [(signal.SIGTERM, True), (signal.SIGTERM, False), (signal.SIGINT, True), (signal.SIGKILL, True)],
)
def test_stopped_at_random_moments(corpus, tmp_path, number, group):
    """Ends at once, leaves no process, and the same command goes on: in the end nothing differs."""
    moments = random.Random(int(number) + group)
    options = arguments(corpus, tmp_path / "data", *OPTIONS)
    for _ in range(6):
        process = subprocess.Popen(
            command("prepare.sh", *options), env=ENVIRONMENT, start_new_session=True, universal_newlines=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        time.sleep(moments.uniform(0, corpus["seconds"]))
        (os.killpg if group else os.kill)(process.pid, number)
        errors = assert_group_ends(process)
        # While Python still imports modules, it reports Ctrl-C itself; its status is 1 for the very first ones.
        at_start = number == signal.SIGINT and ", in run\n" not in errors
        assert at_start or "Traceback" not in errors, errors
        if process.returncode == 0:
            shutil.rmtree(str(tmp_path / "data"))
        else:
            assert process.returncode in (1 if "import_site" in errors else -number, -number, 128 + number), errors
    succeed("prepare.sh", *options)
    assert snapshot(tmp_path / "data") == snapshot(corpus["dest"])
    assert not list((tmp_path / "data").glob(".*"))


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as stream:
        return [int(child) for child in stream.read().split()]


@pytest.fixture
def encoding(corpus, tmp_path):
    """A process of prepare.py that is encoding, and its worker, with more text waiting than fits into a pipe."""
    options = arguments(corpus, tmp_path / "data", "--spm-model", corpus["dest"] / "sentencepiece.model")
    process = subprocess.Popen(
        command("prepare.py", *options, "--workers", 1), env=ENVIRONMENT, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True,
    )  # fmt: skip
    while not list((tmp_path / "data").glob(".train.bin.*")) or not children(process.pid):
        assert process.poll() is None
    time.sleep(0.3)
    yield process, children(process.pid)
    assert not list((tmp_path / "data").glob("train.*")) and not list((tmp_path / "data").glob(".*"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_worker_is_one_error(encoding):
    process, (worker,) = encoding
    os.kill(worker, signal.SIGKILL)
    errors = assert_group_ends(process)
    assert process.returncode == 1 and "Traceback" not in errors, errors
    assert "error: a worker was killed (out of memory?); run again with fewer --workers" in errors.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("first", ["main process", "worker"])
@pytest.mark.parametrize("pause", [0, 0.001, 0.005, 0.02])
def test_a_signal_that_one_process_gets_before_the_other(encoding, first, pause):
    process, (worker,) = encoding
    for pid in [process.pid, worker] if first == "main process" else [worker, process.pid]:
        with contextlib.suppress(ProcessLookupError):  # the main process may have ended the worker already
            os.kill(pid, signal.SIGTERM)
        time.sleep(pause)
    errors = assert_group_ends(process)
    assert process.returncode in (1, 128 + signal.SIGTERM) and "Traceback" not in errors, errors


ENDING = """
import os, signal, sys, time
import command_line, stopping

stopping.open_pools.append("a pool")  # so that children are waited for

class Child:
    def kill(self): pass
    def join(self, timeout):
        os.kill(os.getpid(), signal.SIGTERM)  # arrives while the program is ending

command_line.multiprocessing.active_children = lambda: [Child()]

def main():
    try:
        raise command_line.InputError("a worker was killed")
    finally:
        if "before" in sys.argv:
            os.kill(os.getpid(), signal.SIGTERM)

command_line.run(main, "a program")
"""


@pytest.mark.parametrize("when, status, line", [
    ("after", 1, "a program: error: a worker was killed"),
    ("before", 143, "a program: stopped by SIGTERM; the same command resumes after the last complete step"),
])  # fmt: skip
def test_a_signal_while_an_error_is_reported(when, status, line):
    process = subprocess.run(
        [sys.executable, "-c", ENDING, when], env={**ENVIRONMENT, "PYTHONPATH": PREP}, stderr=subprocess.PIPE, text=True
    )
    assert (process.returncode, process.stderr) == (status, line + "\n")
