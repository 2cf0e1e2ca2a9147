"""data-prep/: damaged records, data and dictionaries, more shards than documents: each ends in one line."""

import json
import shutil
import sys

import pytest

from test_data_prep import PREP, arguments, fail, random_documents, succeed, write

sys.path.insert(0, PREP)
import binarized  # noqa: E402
import check  # noqa: E402
import command_line  # noqa: E402


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
