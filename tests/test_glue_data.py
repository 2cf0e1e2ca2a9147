"""data-prep/glue.py: small files in the official formats, read back by fairseq's task."""

import argparse
import io
import json
import os
import sys

import pytest
import sentencepiece
from fairseq.data import Dictionary
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from conftest import ROOT, documents
from maelm_fairseq.engine.errors import UsageError

PREP = ROOT / "data-prep"
sys.path.insert(0, str(PREP))

import basics  # noqa: E402
import glue  # noqa: E402
import glue_files  # noqa: E402
import write_dict  # noqa: E402

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


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A folder with the files of prepare.sh that fine-tuning needs: sentencepiece.model and dict.txt."""
    folder = tmp_path_factory.mktemp("vocabulary")
    lines = [" ".join(line) for line in ODD[:2]] + [line for document in documents(100, 1) for line in document]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=100, model_type="bpe", minloglevel=2
    )
    (folder / "sentencepiece.model").write_bytes(model.getvalue())
    write_dict.write_dict(str(folder / "sentencepiece.model"), str(folder / "dict.txt"))
    return folder


@pytest.fixture
def prepare(vocabulary, tmp_path, monkeypatch, capfd):
    """Runs glue.py with --input tmp_path/glue and --dest tmp_path/out; returns its output, or its one-line error."""

    def run(*arguments, fails=False):
        options = {"--input": tmp_path / "glue", "--vocabulary": vocabulary, "--dest": tmp_path / "out"}
        given = [str(argument) for argument in arguments]
        for option, value in options.items():
            if option not in given:
                given += [option, str(value)]
        monkeypatch.setattr(sys, "argv", ["glue.py", *given])
        capfd.readouterr()
        if not fails:
            glue.main()
            return "".join(capfd.readouterr())
        with pytest.raises((basics.InputError, OSError, UsageError)) as error:
            glue.main()
        (line,) = str(error.value).splitlines()
        return line

    return run


def write_table(path, rows, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join("\t".join(row) + end for row in rows).encode("utf-8"))


def write_own(folder, train, dev=None, test=None, header=("sentence", "label")):
    """Writes the files of a task that is not GLUE's, with these rows."""
    for name, rows in (("train", train), ("dev", train if dev is None else dev), ("test", test)):
        if rows is not None:
            write_table(folder / (name + ".tsv"), [header, *rows])


def load(folder, split, labels, regression=False):
    """The items of a split as fairseq's own task reads them: list of (token ids, target or None)."""
    cfg = argparse.Namespace(
        data=str(folder), num_classes=1 if regression else labels, init_token=0, separator_token=2, no_shuffle=True,
        shorten_method="none", shorten_data_split_list="", add_prev_output_tokens=False, max_positions=512,
        regression_target=regression, classification_head_name="head", seed=1, d2v2_multi=False,
    )  # fmt: skip
    task = SentencePredictionTask.setup_task(cfg)
    dataset = task.load_dataset(split)
    out = []
    for i in range(len(dataset)):
        item = dataset[i]
        assert len(item["net_input.src_tokens"]) == dataset.size(i)
        target = item.get("target")
        if target is not None:
            target = float(target[0]) if regression else int(target)
        out.append((item["net_input.src_tokens"].tolist(), target))
    return out


def tokens_of(vocabulary, sentences):
    """`<s> a </s>` or `<s> a </s> </s> b </s>`, by looking each piece up in the dictionary."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary / "sentencepiece.model"))
    dictionary = Dictionary.load(str(vocabulary / "dict.txt"))
    ids = [dictionary.bos()]
    for number, sentence in enumerate(sentences):
        ids += [dictionary.eos()] * number + [
            dictionary.index(piece) for piece in processor.encode(sentence, out_type=str)
        ]
        ids.append(dictionary.eos())
    return ids


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
def test_official_format(name, prepare, vocabulary, tmp_path):
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
        assert [tokens for tokens, _ in found] == [tokens_of(vocabulary, sentences) for sentences, _ in examples]
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
        assert (folder / part / "dict.txt").read_bytes() == (vocabulary / "dict.txt").read_bytes()


def test_your_own_tasks(prepare, vocabulary, tmp_path):
    header = ["extra", "label", "sentence2", "sentence1"]
    rows = [["x", label, "second", "first"] for label in ["yes", "no", "10 of 10", "yes"]]
    write_own(tmp_path / "glue" / "claims", rows, dev=rows[:1], test=rows, header=header)
    write_own(tmp_path / "glue" / "moods", [["a", "-1.5"], ["b", " 2 "]])
    prepare("--task", "claims")
    expected = tokens_of(vocabulary, ["first", "second"])
    assert load(tmp_path / "out" / "claims", "train", 3) == [(expected, target) for target in [2, 1, 0, 2]]
    assert (tmp_path / "out" / "claims" / "test.index").read_text() == "0\n1\n2\n3\n"
    assert "lacks test.tsv" in prepare("--task", "moods", "--regression")
    assert [target for _, target in load(tmp_path / "out" / "moods", "train", 1, regression=True)] == [-1.5, 2.0]


def test_long_examples_are_cut(prepare, vocabulary, tmp_path):
    """From the end of the longest sentence, until the special symbols fit too."""
    for sentences, cut in [((40, 2), [14, 2]), ((40, 40), [8, 8]), ((2, 40), [2, 14]), ((40,), [18]), ((3, 4), [3, 4])]:
        ids = [list(range(length)) for length in sentences]
        assert glue.cut(ids, 20) == (cut != [*sentences]) and ids == [list(range(length)) for length in cut]
    words = " ".join(["kan"] * 40)
    write_own(tmp_path / "glue" / "single", [[words, "0"], ["lo", "1"]])
    assert "single train (train.tsv): 2 examples, 0 malformed, 1 cut" in prepare("--task", "single", "--max-tokens", 20)
    (tokens, _), _ = load(tmp_path / "out" / "single", "train", 2)
    assert len(tokens) == 20 and tokens == tokens_of(vocabulary, [words])[:19] + [2]


def test_malformed_lines_are_named_and_counted(prepare, vocabulary, tmp_path):
    """QQP's training set really contains short lines; the byte order mark at its start is no part of a name."""
    expected = write_official(tmp_path / "glue", "QQP")
    train = tmp_path / "glue" / "QQP" / "train.tsv"
    header, *good = train.read_bytes().split(b"\n")[:-1]
    bad = [b"7\t8\t9\tonly a question", b"7\t8\t9\tno\tlabel\t "]
    train.write_bytes(b"\n".join([b"\xef\xbb\xbf" + header, *bad, *good * 100]) + b"\n")
    output = prepare()
    for number, columns in enumerate([4, 6], 2):
        assert f"{train}: line {number}: {columns} columns, is_duplicate ''; expected 6 columns" in output
    assert "600 examples, 2 malformed" in output
    found = load(tmp_path / "out" / "QQP", "train", 2)
    assert [tokens for tokens, _ in found] == 100 * [tokens_of(vocabulary, texts) for texts, _ in expected["train"]]
    train.write_bytes(train.read_bytes() + b"\n" * 7)
    error = prepare("--dest", tmp_path / "other", fails=True)
    assert f"{train}: 9 of 609 lines are malformed" in error and os.listdir(tmp_path / "other") == []


def test_a_malformed_test_line_is_an_error(prepare, tmp_path):
    """The server counts lines."""
    write_official(tmp_path / "glue", "RTE")
    test = tmp_path / "glue" / "RTE" / "test.tsv"
    test.write_text(test.read_text() + "7\n")
    assert ": 1 columns" in prepare(fails=True) and os.listdir(tmp_path / "out") == []


def test_wrong_files(prepare, tmp_path):
    source = tmp_path / "glue"
    own, task = source / "own", ["--task", "own"]

    def error(*options):
        return prepare(*options, fails=True)

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
    assert f"{source / 'sentencepiece.model'} does not exist" in error("--task", "RTE", "--vocabulary", source)


def test_checkpoint_is_compared(prepare, pretrained, tmp_path):
    data, checkpoint = pretrained
    write_own(tmp_path / "glue" / "own", [["a", "x"], ["b", "y"]])
    run = ["--task", "own", "--checkpoint", checkpoint, "--max-tokens"]
    prepare(*run, 32, "--vocabulary", data)
    assert f"{checkpoint} has 32 positions" in prepare(*run, 33, "--vocabulary", data, fails=True)
    assert f"{checkpoint}: trained with another dict.txt" in prepare(*run, 32, fails=True)  # although the data exist


def test_run_again(prepare, tmp_path):
    source, out = tmp_path / "glue", tmp_path / "out"
    write_own(source / "own", [["kan @ lo", "1"], ["b", "2"]])
    assert "of the tokens are not in the vocabulary" in prepare("--task", "own")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    write_own(source / "second", [["a", "1"], ["b", "2"]])
    assert f"{out / 'own'} is finished already" in prepare("--task", "own", "second")
    assert "--max-tokens was 512 and is 100" in prepare("--task", "own", "--max-tokens", 100, fails=True)
    assert "--regression was False and is True" in prepare("--task", "own", "--regression", fails=True)
    write_own(source / "own", [["c", "1"], ["b", "2"]], dev=[["kan @ lo", "1"], ["b", "2"]])
    error = prepare("--task", "own", fails=True)
    assert "train.tsv differs" in error and "dev.tsv" not in error
    assert {path: path.read_bytes() for path in before} == before


def test_a_file_that_changes_while_it_is_read(prepare, tmp_path, monkeypatch):
    write_own(tmp_path / "glue" / "own", [["a", "x"], ["b", "y"]])

    def read_and_change(path, *others, read=glue_files.read_table):
        found = read(path, *others)
        with open(path, "a") as stream:
            stream.write("c\tx\n")
        return found

    monkeypatch.setattr(glue, "read_table", read_and_change)
    assert "a file changed while it was being read" in prepare("--task", "own", fails=True)
    assert os.listdir(tmp_path / "out") == []
