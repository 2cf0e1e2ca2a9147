"""Records and tables that programs of this repository wrote, damaged or hostile: refused in one line, never obeyed."""

import copy
import json
import math
import sys

import numpy as np
import pytest

from conftest import ROOT
from maelm_fairseq.errors import UsageError
from maelm_fairseq.records import POSITIVE, read_record
from maelm_fairseq.squad.answers import answer_questions
from maelm_fairseq.squad.questions import Question
from maelm_fairseq.squad.task import load_record
from maelm_fairseq.squad.text import WindowSizes
from test_squad import refused

COUNTS = {"questions": 3, "windows": 4}
SQUAD = {
    "format": 1,
    "version": "1.1",
    "inputs": {},
    "options": {"max_tokens": 384, "stride": 128, "max_question": 64},
    "counts": {"train": COUNTS, "valid": COUNTS},
}
GLUE = {
    "task": "own",
    "pair": False,
    "labels": ["very good", "bad"],
    "max_tokens": 64,
    "splits": {"train": {"examples": 3}, "valid": {"examples": 2}, "test": {}},
}
REMOVED = object()


def changed(record, place, value):
    """A copy of a record with another value at a place such as "options.stride"; "" is the whole record."""
    if not place:
        return value
    record = copy.deepcopy(record)
    *parents, key = place.split(".")
    within = record
    for name in parents:
        within = within[name]
    within[key] = value
    if value is REMOVED:
        del within[key]
    return record


NO_NUMBERS = [0, -1, 1.5, True, "128", None, [], {}, math.nan, math.inf, REMOVED]
WRONG = [
    *(("squad", "options." + name, value) for name in WindowSizes._fields for value in NO_NUMBERS),
    *(("squad", f"counts.{split}.windows", value) for split in ["train", "valid"] for value in NO_NUMBERS),
    *(("squad", "version", v) for v in ["1.1/../../X", "../2.0", "", "3.0", 1.1, 2, None, ["1.1"], REMOVED]),
    *(("squad", "format", value) for value in [0, 2, "1", True, None, REMOVED]),
    *(("squad", place, v) for place in ["", "options", "counts", "counts.train"] for v in [None, [], "x", 3]),
    *(("squad", place, REMOVED) for place in ["options", "counts", "counts.train", "counts.valid", "inputs"]),
    ("squad", "counts.train.questions", "many"),
    ("squad", "inputs", []),
    ("squad", "options.max_question", 380),
    *(("glue", place, v) for place in ["max_tokens", "splits.train.examples"] for v in NO_NUMBERS),
    *(("glue", "pair", value) for value in [0, 1, "no", None, REMOVED]),
    *(("glue", "labels", v) for v in [[], ["one"], ["a", "a"], ["a", 1], ["a", " "], ["a", "b\tc"], "ab", 2, REMOVED]),
    *(("glue", "splits", v) for v in [[], None, {}, {**GLUE["splits"], "../../X": {}}, {"train": {}}, REMOVED]),
    *(("glue", "", value) for value in [None, [], "x", 3]),
]


@pytest.fixture(scope="module")
def read_glue():
    sys.path.insert(0, str(ROOT / "recipes"))
    import finetune_glue

    return lambda folder: read_record(folder / "task.json", "data-prep/glue.sh", finetune_glue.FIELDS)


@pytest.mark.parametrize("kind, place, value", WRONG)
def test_wrong_fields_are_refused_in_one_line(tmp_path, read_glue, kind, place, value):
    record, name, read = {
        "squad": (SQUAD, "squad.json", lambda folder: load_record(str(folder))),
        "glue": (GLUE, "task.json", read_glue),
    }[kind]
    (tmp_path / name).write_text(json.dumps(record))
    assert read(tmp_path) == record
    (tmp_path / name).write_text(json.dumps(changed(record, place, value)))
    with pytest.raises(UsageError, match=f"{name}: .*prepare the data again with data-prep/") as raised:
        read(tmp_path)
    message = str(raised.value)
    assert "\n" not in message and len(message.replace(str(tmp_path), "")) < 300
    assert place.split(".")[-1].replace("_", "-") in message.replace("_", "-")


def test_records_that_are_no_json(tmp_path):
    for content in [b"", b"{", b"\xff\xfe", b'{"a": 1} x']:
        (tmp_path / "record.json").write_bytes(content)
        with pytest.raises(UsageError, match="record.json: not JSON .* expected the record of a finished run of a.py"):
            read_record(tmp_path / "record.json", "a.py", {"a": POSITIVE})
    with pytest.raises(FileNotFoundError, match="no.json: not found"):
        read_record(tmp_path / "no.json", "a.py", {})


def test_recipes_write_nothing_elsewhere(tmp_path):
    """Names in records and options become parts of paths."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "squad.json").write_text(json.dumps(changed(SQUAD, "version", "1.1/../../X")))
    options = ["--checkpoint", "model.pt", "--data", data, "--save-dir", tmp_path / "save" / "here"]
    error = refused(ROOT / "recipes" / "finetune_squad.py", *options)
    assert "squad.json: 'version' is '1.1/../../X', expected '1.1' or '2.0': prepare the data again" in error
    (tmp_path / "task.json").write_text(json.dumps(GLUE))
    for task in ["..", "../data", ".", "", "data/", str(data), "x/../data"]:
        error = refused(ROOT / "recipes" / "finetune_glue.py", *options, "--task", task)
        assert f"--task {task}: not in {data}" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "task.json"]


def test_windows_that_would_never_end():
    question = Question("q", "kan", "kan losh", ())
    for sizes, expected in [
        (WindowSizes(stride=0), "--stride 0 must be at least 1"),
        (WindowSizes(stride=-1), "--stride -1 must be at least 1"),
        (WindowSizes(max_tokens=68), "--max-tokens 68 leaves no room for the context"),
    ]:
        with pytest.raises(UsageError, match=expected):
            answer_questions(None, [question], None, sizes)


@pytest.fixture(scope="module")
def results():
    sys.path.insert(0, str(ROOT / "recipes"))
    import finetune_results

    return finetune_results


def test_tables_of_results(results, tmp_path):
    rows = results.make_rows("own", [{"accuracy": 50.0}, {"accuracy": np.float64(60).item()}], "scratch", "settings")
    results.append_rows(str(tmp_path / "new" / "results.tsv"), rows)
    lines = results.existing_rows(str(tmp_path / "new" / "results.tsv"))
    assert len(lines) == 2 and lines[0].split("\t") == results.COLUMNS
    (tmp_path / "latin.tsv").write_bytes("\t".join(results.COLUMNS).encode() + b"\n\xe9\n")
    (tmp_path / "other.tsv").write_text("name\tscore\n")
    for name in ["new", "latin.tsv", "other.tsv"]:
        with pytest.raises(UsageError, match=f"{name}: .*choose another --results") as raised:
            results.append_rows(str(tmp_path / name), rows)
        assert "\n" not in str(raised.value)
    assert (tmp_path / "other.tsv").read_text() == "name\tscore\n"
