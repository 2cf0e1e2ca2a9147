"""data-prep/glue.py: small files in the official formats, read back by fairseq's task."""

import argparse
import functools
import json
import os
import sys

import numpy as np
import pytest
import sentencepiece
from fairseq.data import Dictionary
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from conftest import ROOT, refused, script

sys.path.insert(0, str(ROOT / "data-prep"))
import glue  # noqa: E402
import glue_files  # noqa: E402

NEXT_LINE, LINE_SEPARATOR = "\x85", "\u2028"
ODD = [
    'He said "kan" and "lo',
    "next" + NEXT_LINE + "line, " + LINE_SEPARATOR + "and another",
    "",
    "caf\u00e9 </s> <s> <mask> of old\rmacs",
    "  spaces  around  ",
    "'",
]
PAIRS = [(first, ODD[(i + 1) % len(ODD)]) for i, first in enumerate(ODD)]


@pytest.fixture
def prepare(prepared, tmp_path):
    """Runs glue.py with --input tmp_path/glue and --dest tmp_path/out; returns its output, or its one-line error."""

    def run(*arguments, fails=False):
        options = ["--input", tmp_path / "glue", "--vocabulary", prepared, "--dest", tmp_path / "out", *arguments]
        if fails:
            return refused("data-prep/glue.py", *options)
        done = script("data-prep/glue.py", *options)
        return done.stdout + done.stderr

    return run


def write_table(path, rows, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join("\t".join(row) + end for row in rows).encode("utf-8"))


def write_own(folder, train, dev=None, header=("sentence", "label")):
    """Writes the files of a task that is not GLUE's, with these rows."""
    for name, rows in [("train", train), ("dev", train if dev is None else dev)]:
        write_table(folder / (name + ".tsv"), [header, *rows])


def load(folder, split, labels, regression=False):
    """The items of a split as fairseq's own task reads them: list of (token ids, target or None)."""
    cfg = argparse.Namespace(
        data=str(folder), num_classes=1 if regression else labels, init_token=0, separator_token=2, no_shuffle=True,
        shorten_method="none", shorten_data_split_list="", add_prev_output_tokens=False, max_positions=512,
        regression_target=regression, classification_head_name="head", seed=1, d2v2_multi=False,
    )  # fmt: skip
    dataset = SentencePredictionTask.setup_task(cfg).load_dataset(split)
    items = [dataset[i] for i in range(len(dataset))]
    assert [len(item["net_input.src_tokens"]) for item in items] == [dataset.size(i) for i in range(len(dataset))]
    targets = [np.ravel(item.get("target")).tolist() for item in items]  # a list of one, of a tensor, or of None
    return [(item["net_input.src_tokens"].tolist(), target) for item, (target,) in zip(items, targets)]


def tokens_of(vocabulary, sentences):
    """`<s> a </s>` or `<s> a </s> </s> b </s>`, by looking each piece up in the dictionary."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary / "sentencepiece.model"))
    dictionary = Dictionary.load(str(vocabulary / "dict.txt"))
    symbols = ["<s>"]
    for sentence in sentences:
        symbols += ["</s>"] * (len(symbols) > 1) + processor.encode(sentence, out_type=str) + ["</s>"]
    return [dictionary.index(symbol) for symbol in symbols]


# The official formats ----------------------------------------------------------------------------------------------

MNLI_START = ["index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse",
              "sentence1_parse", "sentence2_parse", "sentence1", "sentence2"]  # fmt: skip
STSB_START = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2"]
# Headers of training, dev and test files, names of the sentences, the label and the index, labels, end of a line.
FORMATS = {
    "CoLA": (["source", "label", "mark", "sentence"], None, ["index", "sentence"],
             ["sentence"], "label", "index", ["0", "1"], "\n"),
    "SST-2": (["sentence", "label"], ["sentence", "label"], ["index", "sentence"],
              ["sentence"], "label", "index", ["0", "1"], "\r\n"),
    "MRPC": (["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], None,
             ["index", "#1 ID", "#2 ID", "#1 String", "#2 String"],
             ["#1 String", "#2 String"], "Quality", "index", ["0", "1"], "\r\n"),
    "QQP": (["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], None, ["id", "question1", "question2"],
            ["question1", "question2"], "is_duplicate", "id", ["0", "1"], "\n"),
    "STS-B": (STSB_START + ["score"], None, STSB_START,
              ["sentence1", "sentence2"], "score", "index", None, "\n"),
    "MNLI": (MNLI_START + ["label1", "gold_label"], MNLI_START + ["label1", "label2", "gold_label"], MNLI_START,
             ["sentence1", "sentence2"], "gold_label", "index", ["contradiction", "neutral", "entailment"], "\n"),
    "QNLI": (["index", "question", "sentence", "label"], None, ["index", "question", "sentence"],
             ["question", "sentence"], "label", "index", ["not_entailment", "entailment"], "\n"),
    "RTE": (["index", "sentence1", "sentence2", "label"], None, ["index", "sentence1", "sentence2"],
            ["sentence1", "sentence2"], "label", "index", ["not_entailment", "entailment"], "\r\n"),
}  # fmt: skip
SCORES = ["0.000", "5.0", "3.25", "2", "4.8", "1.500"]


def write_official(folder, name):
    """Writes a task's files; returns the (sentences, label or index) of each split."""
    train, dev, test, columns, label, index, labels, end = FORMATS[name]
    expected = {}
    for number, split in enumerate(glue_files.GLUE[name].files):
        header = test if split.startswith("test") else dev if dev and split.startswith("valid") else train
        rows, expected[split] = [], []
        for i in range(6 - number):
            sentences = list(PAIRS[i - number][: len(columns)])
            answer = str(10 * i + 7) if split.startswith("test") else (labels or SCORES)[i % len(labels or SCORES)]
            values = dict.fromkeys(header, "filler")
            values.update(zip(columns, sentences), **{index if split.startswith("test") else label: answer})
            rows.append([values[column] for column in header])
            expected[split].append((sentences, answer))
        no_header = name == "CoLA" and not split.startswith("test")
        write_table(folder / name / glue_files.GLUE[name].files[split], rows if no_header else [header, *rows], end)
    return expected


@pytest.mark.parametrize("name", FORMATS)
def test_official_format(name, prepare, prepared, tmp_path):
    """fairseq's own task reads every example with its tokens and its label, in order."""
    expected = write_official(tmp_path / "glue", name)
    output = prepare()
    folder = tmp_path / "out" / name
    labels = FORMATS[name][6]
    record = json.loads((folder / "task.json").read_text())
    assert (record["task"], record["labels"], record["max_tokens"]) == (name, labels, 512)
    assert record["pair"] == (len(FORMATS[name][3]) == 2) == (folder / "input1").exists()
    assert list(record["splits"]) == list(expected)
    for split, examples in expected.items():
        found = load(folder, split, len(labels or []), regression=labels is None)
        assert [tokens for tokens, _ in found] == [tokens_of(prepared, sentences) for sentences, _ in examples]
        if split.startswith("test"):
            assert {target for _, target in found} == {None}
            assert (folder / (split + ".index")).read_text() == "".join(index + "\n" for _, index in examples)
        else:
            read = labels.index if labels else float
            assert [target for _, target in found] == [read(label) for _, label in examples]
        counts = record["splits"][split]
        assert [counts[key] for key in ("examples", "malformed", "cut")] == [len(examples), 0, 0]
        assert f"{name} {split} ({counts['file']}): {len(examples)} examples" in output
    for part in ["", "input0", "input1"][: 2 + record["pair"]]:
        assert (folder / part / "dict.txt").read_bytes() == (prepared / "dict.txt").read_bytes()


def test_your_own_tasks(prepare, prepared, tmp_path):
    header = ["extra", "label", "sentence2", "sentence1"]
    rows = [["x", label, "second", "first"] for label in ["yes", "no", "10 of 10", "yes"]]
    write_own(tmp_path / "glue" / "claims", rows, dev=rows[:1], header=header)
    write_table(tmp_path / "glue" / "claims" / "test.tsv", [header, *rows])
    write_own(tmp_path / "glue" / "moods", [["a", "-1.5"], ["b", " 2 "]])
    prepare("--task", "claims")
    expected = tokens_of(prepared, ["first", "second"])
    assert load(tmp_path / "out" / "claims", "train", 3) == [(expected, target) for target in [2, 1, 0, 2]]
    assert (tmp_path / "out" / "claims" / "test.index").read_text() == "0\n1\n2\n3\n"
    assert "lacks test.tsv" in prepare("--task", "moods", "--regression")
    assert [target for _, target in load(tmp_path / "out" / "moods", "train", 1, regression=True)] == [-1.5, 2.0]


def test_long_examples_are_cut(prepare, prepared, tmp_path):
    """From the end of the longest sentence, until the special symbols fit too."""
    for sentences, cut in [((40, 2), [14, 2]), ((40, 40), [8, 8]), ((2, 40), [2, 14]), ((40,), [18]), ((3, 4), [3, 4])]:
        ids = [list(range(length)) for length in sentences]
        assert glue.cut(ids, 20) == (cut != [*sentences]) and ids == [list(range(length)) for length in cut]
    words = " ".join(["kan"] * 40)
    write_own(tmp_path / "glue" / "own", [[words, "0"], ["lo", "1"]])
    assert "own train (train.tsv): 2 examples, 0 malformed, 1 cut" in prepare("--task", "own", "--max-tokens", 20)
    (tokens, _), _ = load(tmp_path / "out" / "own", "train", 2)
    assert len(tokens) == 20 and tokens == tokens_of(prepared, [words])[:19] + [2]


def test_malformed_lines_are_named_and_counted(prepare, prepared, tmp_path):
    """QQP's training set really contains short lines; the byte order mark at its start is no part of a name."""
    expected = write_official(tmp_path / "glue", "QQP")
    train, test = (tmp_path / "glue" / "QQP" / f"{split}.tsv" for split in ["train", "test"])
    header, *good = train.read_bytes().split(b"\n")[:-1]
    bad = [b"7\t8\t9\tonly a question", b"7\t8\t9\tno\tlabel\t "]
    train.write_bytes(b"\n".join([b"\xef\xbb\xbf" + header, *bad, *good * 100]) + b"\n")
    output = prepare()
    for number, columns in enumerate([4, 6], 2):
        assert f"{train}: line {number}: {columns} columns, is_duplicate ''; expected 6 columns" in output
    assert "600 examples, 2 malformed" in output
    found = load(tmp_path / "out" / "QQP", "train", 2)
    assert [tokens for tokens, _ in found] == 100 * [tokens_of(prepared, texts) for texts, _ in expected["train"]]
    other = ["--dest", tmp_path / "other"]
    test.write_text(test.read_text() + "7\n")  # the server counts lines
    assert f"{test}: line 6: 1 columns" in prepare(*other, fails=True)
    train.write_bytes(train.read_bytes() + b"\n" * 7)
    assert f"{train}: 9 of 609 lines are malformed" in prepare(*other, fails=True)
    assert os.listdir(tmp_path / "other") == []


def test_wrong_files(prepare, tmp_path):
    source = tmp_path / "glue"
    own, task = source / "own", ["--task", "own"]

    error = functools.partial(prepare, fails=True)

    assert f"--input: {source} is not a folder" in error()
    write_own(own, [["a", "x"], ["b", "y"]], dev=[["a", "x"], ["b", "z"]])
    assert f"{own / 'dev.tsv'}: line 3: the label 'z' is not one of the task's, x, y" in error(*task)
    assert "2 of 2 lines are malformed" in error(*task, "--regression")
    write_own(own, [["a", "x"]], header=["sentence", "target"])
    assert "no column label among sentence, target" in error(*task)
    (own / "train.tsv").write_bytes("sentence\tlabel\ncaf\u00e9\tx\n".encode("latin-1"))
    assert "line 2 is not UTF-8" in error(*task)
    (own / "dev.tsv").unlink()
    assert f"{own / 'dev.tsv'} does not exist" in error(*task)
    assert "none of the folders CoLA" in error()
    write_official(source, "RTE")
    assert "--regression: the labels of RTE are classes" in error("--task", "RTE", "--regression")
    assert f"{source / 'sentencepiece.model'}: not found" in error("--task", "RTE", "--vocabulary", source)


def test_checkpoint_is_compared(prepare, pretrained, tmp_path):
    data, checkpoint = pretrained
    write_own(tmp_path / "glue" / "own", [["a", "x"], ["b", "y"]])
    run = ["--task", "own", "--checkpoint", checkpoint, "--max-tokens"]
    prepare(*run, 32)
    assert f"{checkpoint} has 32 positions" in prepare(*run, 33, fails=True)
    text, other = data.parent / "train.txt", tmp_path / "other"
    options = ["--train", text, "--valid", text, "--vocab-size", 60, "--only-vocabulary", "--dest", other]
    script("data-prep/prepare.sh", *options)
    error = prepare(*run, 32, "--vocabulary", other, fails=True)  # although the data exist
    assert f"{checkpoint}: trained with another dict.txt" in error


def test_run_again(prepare, tmp_path):
    source, out = tmp_path / "glue", tmp_path / "out"
    write_own(source / "own", [["kan @ lo", "1"], ["b", "2"]])
    assert "of the tokens are not in the vocabulary" in prepare("--task", "own")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert f"{out / 'own'} is finished already" in prepare("--task", "own")
    error = prepare("--task", "own", "--max-tokens", 100, "--regression", fails=True)
    assert "--max-tokens was 512 and is 100" in error and "--regression was False and is True" in error
    record = out / "own" / "task.json"
    for right, wrong, found in [(b"512", b'"512"', "max_tokens: found '512'"), (b'"train.tsv"', b"[]", "found a list")]:
        record.write_bytes(before[record].replace(right, wrong))
        error = prepare("--task", "own", fails=True)
        assert error.startswith(f"error: {record}: ") and f"{found}, expected a" in error
    record.write_bytes(before[record])
    write_own(source / "own", [["c", "1"], ["b", "2"]], dev=[["kan @ lo", "1"], ["b", "2"]])
    error = prepare("--task", "own", fails=True)
    assert "train.tsv differs" in error and "dev.tsv" not in error
    assert {path: path.read_bytes() for path in before} == before
