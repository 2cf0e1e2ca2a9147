"""data-prep/: inputs that change, signals, killed workers, damaged records and packages, odd file names."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from test_data_prep import ENVIRONMENT, PREP, arguments, command, fail, random_documents, snapshot, succeed, write

sys.path.insert(0, PREP)
import binarized  # noqa: E402
import check  # noqa: E402
import command_line  # noqa: E402
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
        if number == signal.SIGINT:  # before, Python reports it as it always does
            while not (tmp_path / "data").exists():
                time.sleep(0.01)
        time.sleep(moments.uniform(0, corpus["seconds"]))
        (os.killpg if group else os.kill)(process.pid, number)
        errors = assert_group_ends(process)
        assert "Traceback" not in errors, errors
        if process.returncode == 0:
            shutil.rmtree(str(tmp_path / "data"))
        else:
            assert process.returncode in (-number, 128 + number), errors
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
        os.kill(pid, signal.SIGTERM)
        time.sleep(pause)
    errors = assert_group_ends(process)
    assert process.returncode in (1, 128 + signal.SIGTERM) and "Traceback" not in errors, errors


# Damaged files -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder of prepared data, and the options that made it."""
    folder = tmp_path_factory.mktemp("small")
    text = {name: [write(folder / f"{name}.txt", random_documents(i, 40))] for i, name in enumerate(["train", "valid"])}
    options = arguments(text, folder / "data", "--vocab-size", 300, "--workers", 1)
    succeed("prepare.sh", *options)
    return folder / "data", options


NOT_JSON = [b"", b"{", b'{"format": 1, "train": [', b"\xff\xfe", b"[" * 100000, b"9" * 10000, b'{"a": 1}\0']
OTHER_TYPES = [b"null", b"[]", b"1", b'"text"', b"{}", b"1e999"]
DAMAGED_KEYS = {
    "prepare.json": [
        ("format", None), ("format", "1"), ("train", {}), ("train", [None]), ("train", [{"file": 1}]), ("options", []),
        ("options", {}), ("options", {"shards": 0}), ("options", {"shards": 1.5}), ("options", {"shards": 10**30}),
    ],
    "train.json": [
        ("documents", -1), ("documents", "40"), ("tokens", True), ("tokens", 10**30), ("tokens", float("nan")),
        ("checksum", None), ("checksum", [1]), ("checksum", [1, -1]), ("input", {}), ("unknown_pieces", [["a"]]),
        ("unknown_pieces", {"a": 1}), ("sample", [[0]]), ("sample", [["0", "line"]]), ("sample", [[10**9, "line"]]),
        ("sample", [[0, "\ud800"]]), ("sample", [[-1, "line"]]), ("longest_line", []), ("shards", 0),
    ],
}  # fmt: skip
DAMAGED_KEYS["valid.json"] = DAMAGED_KEYS["train.json"]


def damages(name, original):
    """Contents that the record must not have."""
    yield from NOT_JSON + OTHER_TYPES + [original[: len(original) // 2]]
    record = json.loads(original)
    for key in DAMAGED_KEYS[name]:
        yield json.dumps({**record, key[0]: key[1]}).encode()
    for key in {key for key, _ in DAMAGED_KEYS[name]}:
        yield json.dumps({other: value for other, value in record.items() if other != key}).encode()


@pytest.mark.parametrize("name", DAMAGED_KEYS)
def test_damaged_records_are_one_error(small, tmp_path, name, capsys, monkeypatch):
    folder = tmp_path / "data"
    shutil.copytree(str(small[0]), str(folder))
    monkeypatch.setattr(sys, "argv", ["check.py", str(folder)])
    check.main()
    original = (folder / name).read_bytes()
    for damage in damages(name, original):
        (folder / name).write_bytes(damage)
        with pytest.raises(
            command_line.InputError, match=f"{name} is damaged: .*; remove .* and run prepare.sh again"
        ) as error:
            check.main()
        assert "\n" not in str(error.value) and len(str(error.value)) < 500, damage[:100]


@pytest.mark.parametrize("name", DAMAGED_KEYS)
def test_the_programs_report_a_damaged_record(small, tmp_path, name):
    shutil.copytree(str(small[0]), str(tmp_path / "data"))
    (tmp_path / "data" / name).write_bytes(b'{"format": 1')
    assert f"{name} is damaged: not JSON" in fail("check.py", tmp_path / "data")
    options = [tmp_path / "data" if option == small[0] else option for option in small[1]]
    assert f"{name} is damaged: not JSON" in fail("prepare.sh", *options)


def test_damaged_data_are_one_error(small, tmp_path):
    """Cut, lengthened, and with absurd numbers; an index that says where lines begin is compared, too."""
    header = binarized.HEADER.size
    lines = json.loads((small[0] / "train.json").read_text())["input"]["lines"]
    assert lines

    def damaged(name, change):
        content = bytearray((small[0] / name).read_bytes())
        copy = tmp_path / "copy"
        shutil.rmtree(str(copy), ignore_errors=True)
        shutil.copytree(str(small[0]), str(copy))
        (copy / name).write_bytes(change(content))
        return fail("check.py", copy)

    def put(place, value):
        return lambda content: content[:place] + value + content[place + len(value) :]

    assert "not an index" in damaged("train.idx", lambda content: b"")
    assert "not an index" in damaged("train.idx", put(9, b"\x02"))  # the version
    for change in (lambda content: content[:-1], lambda content: content + b"\0", lambda content: content[:header]):
        assert "lines take" in damaged("train.idx", change)
    assert "lines take" in damaged("train.idx", put(18, b"\xff" * 8))  # the number of lines
    assert "do not follow each other" in damaged("train.idx", put(header, b"\xff\xff\xff\xff"))  # the first size: -1
    assert "do not follow each other" in damaged("train.idx", put(-8, b"\x01"))  # where the last line begins
    assert ".bin has 0 bytes, but .idx implies" in damaged("train.bin", lambda content: b"")
    shutil.copy(str(small[0] / "valid.idx"), str(tmp_path / "valid.idx"))
    assert ".bin has" in damaged("train.idx", lambda content: (tmp_path / "valid.idx").read_bytes())


DICTIONARIES = {
    "empty": lambda text: b"",
    "latin-1": lambda text: "caf\u00e9 1\n".encode("latin-1") + text,
    "without counts": lambda text: text.replace(b" 1\n", b"\n"),
    "with a duplicate": lambda text: text + text[: text.index(b"\n") + 1],
    "cut": lambda text: text[: len(text) // 2],
}


@pytest.mark.parametrize("change", DICTIONARIES)
def test_damaged_dictionaries_are_one_error(small, tmp_path, change):
    folder = tmp_path / "data"
    shutil.copytree(str(small[0]), str(folder))
    (folder / "dict.txt").write_bytes(DICTIONARIES[change]((folder / "dict.txt").read_bytes()))
    assert "dict.txt is not the dictionary of the sentencepiece.model beside it" in fail("check.py", folder)
    error = fail("glue.sh", "--input", tmp_path, "--vocabulary", folder, "--dest", tmp_path / "glue")
    assert "dict.txt is not the dictionary of the sentencepiece.model beside it" in error


def test_more_shards_than_documents_are_refused_before_anything_is_written(small, tmp_path):
    options = [tmp_path / "data" if option == small[0] else option for option in small[1]]
    for shards in (41, 10**9, 10**30):
        error = fail("prepare.sh", *options, "--shards", shards)
        assert f"found at most 40 documents (separated by blank lines), expected at least {shards}; use fewer" in error
        assert not (tmp_path / "data").exists()
    error = fail("prepare.sh", *options, "--shards", 10**9, "--shard", 10**9 - 1)
    assert "found at most 40 documents" in error


def test_lines_that_normalise_to_nothing_count_as_ends_before_shards_are_refused(small, tmp_path):
    lines = [random_documents(0, 40)[number][0] for number in range(3)]
    text = write(tmp_path / "text", [[lines[0], "\u200b", lines[1], "\u200b", lines[2]]])
    model = ["--spm-model", small[0] / "sentencepiece.model", "--workers", 1]
    succeed("prepare.sh", "--train", text, "--valid", text, "--dest", tmp_path / "data", *model, "--shards", 3)
    assert "found 3 documents" in fail(
        "prepare.sh", "--train", text, "--valid", text, "--dest", tmp_path / "four", *model, "--shards", 4
    )


def test_a_destination_that_is_a_file(small, tmp_path):
    (tmp_path / "file").write_text("text")
    options = [tmp_path / "file" if option == small[0] else option for option in small[1]]
    assert str(tmp_path / "file") in fail("prepare.sh", *options)
    assert str(tmp_path / "file") in fail("movie_reviews.py", "--dest", tmp_path / "file" / "reviews")
