"""Records that programs of this repository wrote, damaged or hostile: refused in one line, never obeyed."""

import copy
import json
import math
import sys
from types import SimpleNamespace

import pytest

from conftest import ROOT
from maelm_fairseq.errors import UsageError
from maelm_fairseq.files import read_json
from maelm_fairseq.huggingface import card
from maelm_fairseq.records import positive
from maelm_fairseq.squad.answers import answer_questions
from maelm_fairseq.squad.questions import Question
from maelm_fairseq.squad.task import load_record
from maelm_fairseq.squad.text import WindowSizes
from test_squad import refused

sys.path[:0] = [str(ROOT / "data-prep"), str(ROOT / "recipes")]
import finetune  # noqa: E402
import finetune_glue  # noqa: E402
import finetune_results  # noqa: E402
import glue  # noqa: E402
import glue_files  # noqa: E402

COUNTS = {"questions": 3, "windows": 4}
SQUAD = {
    "format": 1,
    "version": "1.1",
    "inputs": {},
    "options": {"max_tokens": 384, "stride": 128, "max_question": 64},
    "counts": {"train": COUNTS, "valid": COUNTS},
}
FILES = [{"file": "train.tsv", "bytes": 1, "sha256": "0"}]
GLUE = {
    "task": "RTE",
    "pair": False,
    "labels": ["very good", "bad"],
    "max_tokens": 64,
    "splits": {"train": {"examples": 3}, "valid": {"examples": 2}, "test": {}},
    "inputs": FILES,
}
TRAIN = {"documents": 1, "text_lines": 1, "tokens": 4, "shards": 1, "sample": [[0, "text"]]}
RUN = {"options": ["--seed", "1"]}
METRICS = {"pearson": 50.0, "spearman": math.nan}  # a correlation with a constant is not defined


def read_sample(folder):
    pytest.importorskip("tokenizers")
    from maelm_fairseq.huggingface.tokenizer import sample_lines

    return sample_lines(folder)


def is_done(folder):
    return glue.is_done(glue_files.GLUE["RTE"], folder, 64, FILES)


def finished_run(folder):
    recipe = SimpleNamespace(folder=lambda settings, seed: folder, identity=lambda settings, seed: RUN)
    return list(finetune.Recipe.run(recipe, None, 1, None))


READERS = {  # file, a good record, what reads it, what it returns then, and the advice if the record is damaged
    "squad": ("squad.json", SQUAD, load_record, SQUAD, "prepare the data again with data-prep/squad.py"),
    "glue": (
        "task.json", GLUE, lambda folder: finetune_glue.GlueTask(folder, "RTE").record, GLUE,
        "prepare the data again with data-prep/glue.sh",
    ),
    "glue.sh": ("task.json", GLUE, is_done, True, "remove .* and run glue.sh again"),
    "sample": ("train.json", TRAIN, read_sample, ["text"], "prepare the data again with data-prep/prepare.sh"),
    "card": (
        "train.json", TRAIN, lambda folder: card.training({"cfg": {}}, folder, None)[0],
        "Data: 1 documents, 1 lines, 4 tokens", "prepare the data again with data-prep/prepare.sh",
    ),
    "run": ("run.json", RUN, finished_run, list(METRICS), "remove "),
    "metrics": ("metrics.json", METRICS, finished_run, list(METRICS), "remove it"),
}  # fmt: skip
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


NO_NUMBERS = [0, -1, 1.5, True, "128", None, [], {}, 10**30, math.nan, math.inf, REMOVED]
NO_LABELS = [
    0, 2, "ab", [], ["one"], {"a": 0}, ["a", "a"], ["a", 1], ["a", " "], ["a", "b\tc"], ["a", "\ud800"], REMOVED,
]  # fmt: skip
NO_SAMPLES = [None, {}, [1], [[0]], [["0", "a"]], [[-1, "a"]], [[0, 1]], [[0, "\udc00"]], REMOVED]
NO_FILES = [None, {}, [[]], [{}], [{**FILES[0], "bytes": "1"}], REMOVED]
WRONG = [
    *(("squad", "options." + name, value) for name in WindowSizes._fields for value in NO_NUMBERS),
    *(("squad", f"counts.{split}.windows", value) for split in ["train", "valid"] for value in NO_NUMBERS),
    *(("squad", "version", v) for v in ["1.1/../../X", "../2.0", "", "3.0", 1.1, 2, None, ["1.1"], REMOVED]),
    *(("squad", "format", value) for value in [0, 2, "1", True, None, REMOVED]),
    *(("squad", place, v) for place in ["", "options", "counts", "counts.train"] for v in [None, [], {}, "x", 3]),
    *(("squad", place, REMOVED) for place in ["options", "counts", "counts.train", "counts.valid", "inputs"]),
    *(("squad", "counts.train.questions", value) for value in ["many", -1]),
    ("squad", "inputs", []),
    ("squad", "options.max_question", 380),
    *((kind, place, v) for kind in ["glue", "glue.sh"] for place, values in {
        "max_tokens": NO_NUMBERS,
        "splits.train.examples": NO_NUMBERS,
        "pair": [0, 1, "no", None, REMOVED],
        "labels": NO_LABELS,
        "splits": [[], None, {}, {**GLUE["splits"], "../../X": {}}, {"train": {}}, {"train": []}, REMOVED],
        "splits.valid": [None, [], REMOVED],
        "inputs": NO_FILES,
        "": [None, [], "x", 3],
    }.items() for v in values),
    *(("sample", "sample", value) for value in NO_SAMPLES),
    *(("card", name, value) for name in ["tokens", "shards"] for value in NO_NUMBERS if (name, value) != ("tokens", 0)),
    *(("run", "", value) for value in [None, [], "x", 3]),
    *(("metrics", "", value) for value in [None, [], {}, 3, {"accuracy": "x"}, {"accuracy": None}, {"accuracy": True}]),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """What the readers need beside their records."""
    (tmp_path / "dict.txt").write_text("a 1\n")
    (tmp_path / "metrics.json").write_text(json.dumps(METRICS))
    return tmp_path


def error_of(kind, folder):
    """The one-line error that a reader must give; it names the file and says what to do."""
    name, _, read, _, advice = READERS[kind]
    with pytest.raises(ValueError, match=f"{name}.*; {advice}") as raised:
        read(str(folder))
    message = str(raised.value).replace(str(folder), "")
    assert "\n" not in message and len(message) < 300
    return message


@pytest.mark.parametrize("kind, place, value", WRONG)
def test_wrong_fields_are_refused_in_one_line(folder, kind, place, value):
    name, record, read, expected, _ = READERS[kind]
    (folder / name).write_text(json.dumps(record))
    assert read(str(folder)) == expected
    (folder / name).write_text(json.dumps(changed(record, place, value)))
    message = error_of(kind, folder)
    assert place.split(".")[-1].replace("_", "-") in message.replace("_", "-")
    assert "expected" in message or "leaves no room" in message


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b'{"a": 1} x', b"[" * 100000, b"9" * 10000, b'"text"', None]
)
def test_records_that_are_no_json(folder, kind, content):
    name, record = READERS[kind][:2]
    whole = json.dumps(record).encode()
    (folder / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert ", expected " in error_of(kind, folder)


def test_what_was_expected(tmp_path):
    path, expected = tmp_path / "record.json", "the record of a finished run of a.py"
    for content in [b"", b"{", b"\xff\xfe", b'{"a": 1} x']:
        path.write_bytes(content)
        with pytest.raises(UsageError, match=f"record.json: not JSON .*, expected {expected}; remove it"):
            read_json(path, expected, {"a": positive})
    with pytest.raises(FileNotFoundError, match=f"no.json: not found, expected {expected}"):
        read_json(tmp_path / "no.json", expected, {})


def test_other_keys_in_the_options_of_squad_are_left_out(tmp_path):
    (tmp_path / "squad.json").write_text(json.dumps(changed(SQUAD, "options.more", 1)))
    assert load_record(str(tmp_path)) == SQUAD


def test_recipes_write_nothing_elsewhere(tmp_path):
    """Names in records and options become parts of paths."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "squad.json").write_text(json.dumps(changed(SQUAD, "version", "1.1/../../X")))
    options = ["--checkpoint", "model.pt", "--data", data, "--save-dir", tmp_path / "save" / "here"]
    error = refused(ROOT / "recipes" / "finetune_squad.py", *options)
    assert "squad.json: 'version' is '1.1/../../X', expected '1.1' or '2.0'; prepare the data again" in error
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


def test_tables_of_results(tmp_path):
    rows = finetune_results.make_rows("own", [{"accuracy": 50.0}, {"accuracy": 60.0}], "scratch", "settings")
    finetune_results.append_rows(str(tmp_path / "new" / "results.tsv"), rows)
    lines = finetune_results.existing_rows(str(tmp_path / "new" / "results.tsv"))
    assert len(lines) == 2 and lines[0].split("\t") == finetune_results.COLUMNS
    (tmp_path / "latin.tsv").write_bytes("\t".join(finetune_results.COLUMNS).encode() + b"\n\xe9\n")
    (tmp_path / "other.tsv").write_text("name\tscore\n")
    for name in ["new", "latin.tsv", "other.tsv"]:
        with pytest.raises(UsageError, match=f"{name}: .*choose another --results") as raised:
            finetune_results.append_rows(str(tmp_path / name), rows)
        assert "\n" not in str(raised.value)
    assert (tmp_path / "other.tsv").read_text() == "name\tscore\n"
