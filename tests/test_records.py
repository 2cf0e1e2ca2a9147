"""The records that data-prep/ writes and others read, damaged: each ends in one line that says what to do."""

import json
import sys

import pytest

from conftest import ROOT
from maelm_fairseq.huggingface import card
from maelm_fairseq.squad.task import load_record

sys.path[:0] = [str(ROOT / "data-prep"), str(ROOT / "recipes")]
import finetune_glue  # noqa: E402
import glue  # noqa: E402
import glue_files  # noqa: E402

NUMBERS = [None, -1, 0, 1.5, "1", True, [], {}, 10**30, float("inf"), float("nan")]
FILES = [{"file": "train.tsv", "bytes": 1, "sha256": "0"}]
TASK = {
    "task": "RTE", "pair": True, "labels": ["a", "b"], "max_tokens": 64, "inputs": FILES,
    "splits": {"train": {"examples": 4}, "valid": {"examples": 4}},
}  # fmt: skip
TASK_DAMAGES = [
    *({"max_tokens": number} for number in NUMBERS),
    *({"splits": {"train": {"examples": number}}} for number in NUMBERS),
    *({"labels": labels} for labels in [0, "ab", [], ["a"], ["a", 1], {"a": 0}, ["a", "\ud800"]]),
    *({"pair": pair} for pair in [None, 0, "true"]),
    *({"splits": splits} for splits in [None, [], {}, {"train": []}]),
    *({"inputs": inputs} for inputs in [None, {}, [[]], [{}], [{**FILES[0], "bytes": "1"}]]),
]
SQUAD = {
    "format": 1, "version": "1.1", "inputs": {}, "options": {"max_tokens": 64, "stride": 16, "max_question": 16},
    "counts": {"train": {"windows": 4}, "valid": {"windows": 4}},
}  # fmt: skip
SQUAD_DAMAGES = [
    *({"options": {**SQUAD["options"], name: number}} for name in SQUAD["options"] for number in NUMBERS),
    *({"version": version} for version in [None, 1.1, "", "3.0", "1.1/../../x", ["1.1"]]),
    *({"counts": counts} for counts in [None, {}, {"train": {"windows": 1}}, {"train": 1, "valid": 1}]),
    *({"format": number} for number in [None, 0, "1", 2]),
    {"options": {}}, {"inputs": []}, {"options": {**SQUAD["options"], "max_question": 64}},
]  # fmt: skip
TRAIN = {"documents": 1, "text_lines": 1, "tokens": 4, "shards": 1, "sample": [[0, "text"]]}
SAMPLE_DAMAGES = [{"sample": sample} for sample in [None, {}, [1], [[0]], [["0", "a"]], [[0, 1]], [[0, "\udc00"]]]]
COUNT_DAMAGES = [{name: number} for name in ["tokens", "shards"] for number in NUMBERS if number != 0]


def sample_lines(folder):
    pytest.importorskip("tokenizers")
    from maelm_fairseq.huggingface.tokenizer import sample_lines

    return sample_lines(folder)


READERS = {
    "glue.sh": (
        "task.json",
        TASK,
        TASK_DAMAGES,
        lambda folder: glue.is_done(glue_files.GLUE["RTE"], folder, 64, FILES),
    ),
    "finetune_glue.sh": ("task.json", TASK, TASK_DAMAGES, lambda folder: finetune_glue.GlueTask(folder, "RTE")),
    "squad": ("squad.json", SQUAD, SQUAD_DAMAGES, load_record),
    "export's check of the tokenizer": ("train.json", TRAIN, SAMPLE_DAMAGES, sample_lines),
    "the model card": ("train.json", TRAIN, COUNT_DAMAGES, lambda folder: card.training({"cfg": {}}, folder, None)),
}


@pytest.mark.parametrize("reader", READERS)
def test_damaged_records_are_one_error(tmp_path, reader):
    name, record, changes, read = READERS[reader]
    path = tmp_path / name
    path.write_text(json.dumps(record))
    (tmp_path / "dict.txt").write_text("a 1\n")
    read(str(tmp_path))
    whole = path.read_bytes()
    contents = [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100000,
        b"9" * 10000,
        b"null",
        b"[]",
        b'"text"',
        whole[: len(whole) // 2],
    ]
    contents += [json.dumps({**record, **change}).encode() for change in changes]
    keys = {key for change in changes for key in change}
    contents += [json.dumps({key: record[key] for key in record if key != left_out}).encode() for left_out in keys]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=name) as raised:
            read(str(tmp_path))
        message = str(raised.value)
        assert "\n" not in message and len(message) < 500, content[:100]
        assert any(advice in message for advice in ("remove", "prepare the data again")), message


def test_other_keys_in_the_options_of_squad_are_left_out(tmp_path):
    (tmp_path / "squad.json").write_text(json.dumps({**SQUAD, "options": {**SQUAD["options"], "more": 1}}))
    assert load_record(str(tmp_path))["options"] == SQUAD["options"]
