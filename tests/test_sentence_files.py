"""Labelled files as people have them: forms that are read, lines skipped, and files refused."""

import gzip
import re
from typing import NamedTuple

import pytest

from conftest import refuses
from labelled import question, write_squad
from maelm_fairseq.finetuning import sentence_files
from maelm_fairseq.finetuning.labelled_files import find_file
from maelm_fairseq.finetuning.sentence_files import SENTENCE_FILES, read_sentences
from maelm_fairseq.finetuning.squad_files import read_questions
from maelm_fairseq.finetuning.tagged_files import read_tagged


class Glue(NamedTuple):
    """A task of GLUE as it is distributed."""

    header: str | None  # of the training file; None if it has none
    line: str  # of the training file
    texts: list  # that are read from this line
    label: str  # that is read from this line
    test_header: str  # of the test file
    test_line: str  # of the test file


GLUE = {
    "CoLA": Glue(
        header=None,
        line="gj04\t1\t\tThey ate.",
        texts=["They ate."],
        label="1",
        test_header="index\tsentence",
        test_line="0\tHe left.",
    ),
    "SST-2": Glue(
        header="sentence\tlabel",
        line='a "b c\t0',
        texts=['a "b c'],
        label="0",
        test_header="index\tsentence",
        test_line="0\tgood",
    ),
    "MRPC": Glue(
        header="\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        line="1\t7\t8\tHe said .\tShe said .",
        texts=["He said .", "She said ."],
        label="1",
        test_header="index\t#1 ID\t#2 ID\t#1 String\t#2 String",
        test_line="0\t1\t2\ta\tb",
    ),
    "QQP": Glue(
        header="id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        line="133273\t1\t2\tWhy ?\tHow ?\t0",
        texts=["Why ?", "How ?"],
        label="0",
        test_header="id\tquestion1\tquestion2",
        test_line="5\ta\tb",
    ),
    "STS-B": Glue(
        header="index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\t"
        "sentence1\tsentence2\tscore",
        line="0\tn\tf\t2012\t1\tx\ty\tA cat.\tA dog.\t2.500",
        texts=["A cat.", "A dog."],
        label="2.500",
        test_header="index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\t"
        "sentence1\tsentence2",
        test_line="3\tn\tf\t2012\t1\tx\ty\tA\tB",
    ),
    "STS-B, single": Glue(
        header="sentence\tscore",
        line="A cat.\t-2.5",
        texts=["A cat."],
        label="-2.5",
        test_header="index\tsentence",
        test_line="3\tA",
    ),
    "MNLI": Glue(
        header="index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        line="0\t1\t2\tg\tp\tp\tp\tp\tOne.\tTwo.\tneutral\tentailment",
        texts=["One.", "Two."],
        label="entailment",
        test_header="index\tpromptID\tpairID\tgenre\tb\tb\tp\tp\tsentence1\tsentence2",
        test_line="9\t1\t2\tg\tp\tp\tp\tp\tOne.\tTwo.",
    ),
    "QNLI": Glue(
        header="index\tquestion\tsentence\tlabel",
        line="0\tWho ?\tHe.\tentailment",
        texts=["Who ?", "He."],
        label="entailment",
        test_header="index\tquestion\tsentence",
        test_line="4\tWho ?\tHe.",
    ),
    "RTE": Glue(
        header="index\tsentence1\tsentence2\tlabel",
        line="0\tA.\tB.\tnot_entailment",
        texts=["A.", "B."],
        label="not_entailment",
        test_header="index\tsentence1\tsentence2",
        test_line="4\tA.\tB.",
    ),
}


def write(path, *lines):
    """Writes lines of text; those that are bytes are written as they are."""
    encoded = [line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines]
    path.write_bytes(b"".join(encoded))
    return path


METRICS = {
    "CoLA": ["matthews"],
    "STS-B": ["pearson", "spearman"],
    "MRPC": ["accuracy", "f1"],
    "QQP": ["accuracy", "f1"],
}


@pytest.mark.parametrize("task", GLUE)
def test_glues_files(tmp_path, task):
    glue = GLUE[task]
    lines = [glue.line, glue.line]
    if glue.header is not None:
        lines.insert(0, glue.header)
    table = read_sentences(write(tmp_path / "train.tsv", *lines))
    examples = [(list(example.texts), example.label) for example in table.examples]
    assert examples == [(glue.texts, glue.label)] * 2
    assert table.schema.is_regression == task.startswith("STS-B")
    assert table.schema.metrics == METRICS.get(task.partition(",")[0], ["accuracy"])
    test_file = write(tmp_path / "test.tsv", glue.test_header, glue.test_line)
    (example,) = read_sentences(test_file, is_test=True).examples
    assert len(example.texts) == len(glue.texts)
    assert example.label is None
    assert example.id == glue.test_line.split("\t")[0]


def test_the_file_of_each_split(tmp_path):
    for name in ["train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"]:
        write(tmp_path / name, "x")
    for split, name in [
        ("train", "train.tsv"),
        ("valid", "dev_matched.tsv"),
        ("valid1", "dev_mismatched.tsv"),
    ]:
        path = find_file(tmp_path, split, SENTENCE_FILES)
        assert path.split("/")[-1] == name
    assert find_file(tmp_path, "test", SENTENCE_FILES, required=False) is None
    message = "expected test.tsv or test_matched.tsv, found: dev_matched.tsv, dev_"
    refuses(message, find_file, tmp_path, "test", SENTENCE_FILES, error=FileNotFoundError)
    write(tmp_path / "test.tsv.gz", gzip.compress(b"x"))
    assert find_file(tmp_path, "test", SENTENCE_FILES) == str(tmp_path / "test.tsv.gz")
    (tmp_path / "dev.tsv").symlink_to("nowhere")
    message = "found dev.tsv and dev_matched.tsv, expected one of them"
    refuses(message, find_file, tmp_path, "valid", SENTENCE_FILES)
    (tmp_path / "test_mismatched.tsv").mkdir()
    message = "test_mismatched.tsv: not a regular file; replace it with one"
    refuses(message, find_file, tmp_path, "test1", SENTENCE_FILES, False)
    nowhere = tmp_path / "none"
    refuses("no such folder", find_file, nowhere, "train", SENTENCE_FILES, error=FileNotFoundError)


def test_odd_text_is_read_as_it_is(tmp_path):
    long = "x" * 200_000
    lines = ["\ufeffsentence\tlabel\tnote\r", 'say "a\t1\t', "lone\rreturn\t0\t", f"{long}\t1\t"]
    path = write(tmp_path / "train.tsv", *lines, "", "last\u2028one\t0\t", "\r")
    examples = read_sentences(path).examples
    texts = [example.texts[0] for example in examples]
    assert texts == ['say "a', "lone\rreturn", long, "last\u2028one"]
    assert [example.id for example in examples] == ["0", "1", "2", "3"]
    assert examples[-1].line == 6
    test_file = write(tmp_path / "test.tsv", "sentence", "a", "", "")
    assert len(read_sentences(test_file, is_test=True).examples) == 1


def test_labels_of_a_test_file(tmp_path):
    """They are read where there are any. A label that all lines share stands for secret labels."""

    def labels(*lines, **options):
        path = write(tmp_path / "test.tsv", *lines)
        return [example.label for example in read_sentences(path, is_test=True, **options).examples]

    assert labels("sentence\tlabel", "a\tyes", "b\tno", "c\t ") == ["yes", "no", None]
    assert labels("sentence\tlabel", "a\t-1", "b\t-1") == [None, None]
    assert labels("index\tsentence", "0\ta", "1\tb") == [None, None]
    pairs = ["sentence1\tsentence2\tgold_label", "a\tb\t-", "c\td\tneutral", "e\tf\tentailment"]
    assert labels(*pairs) == [None, "neutral", "entailment"]
    schema = read_sentences(write(tmp_path / "train.tsv", "sentence\tscore", "a\t0.5")).schema
    assert labels("sentence\tscore", "a\t0.5", "b\t?", "c\t2", training_schema=schema) == [
        "0.5",
        None,
        "2",
    ]


def test_labels_are_classes_also_beside_scores(tmp_path):
    path = write(tmp_path / "train.tsv", "sentence1\tsentence2\tlabel\tscore", "a\tb\tyes\t0.9")
    described = read_sentences(path).schema.described()
    assert described == "read as pairs, sentence1 and sentence2 with classes"


def test_what_is_skipped_is_counted(tmp_path):
    good = ["a\tb\tentailment"] * 300
    bad = ["a\tb\t-", "a\tb\t-", "a\tb\t ", "a\tb"]
    header = "sentence1\tsentence2\tgold_label"
    table = read_sentences(write(tmp_path / "train.tsv", header, *good, *bad))
    assert table.skipped == {
        "its annotators do not agree": [302, 303],
        "the label is empty": [304],
        "2 fields where there are 3 columns": [305],
    }
    assert (
        "300 examples, read as MNLI or SNLI; "
        "2 skipped, from line 302: its annotators do not agree; 1 skipped"
    ) in str(table)
    for label in ["", " ", "nan", "inf", "1e39", "1_0", "\u0661", "x"]:
        lines = ["good\t1.5"] * 150 + [f"bad\t{label}"]
        path = write(tmp_path / "train.tsv", "sentence\tlabel", *lines)
        table = read_sentences(path, regression=True)
        assert len(table.examples) == 150
        assert sum(map(len, table.skipped.values())) == 1


CLASSES = sentence_files.TableSchema("sentences", ["sentence"], "label")
NUMBERS = CLASSES._replace(metrics=["pearson", "spearman"])


@pytest.mark.parametrize("lines, options, message", [
    (["sentence\tlabel", "a\t1", "b\t"], {},
     "1 of 2 lines cannot be used, as line 3: the label is empty; "),
    (["sentence1\tsentence2\tgold_label", "a\tb\t-", "a\tb\tneutral", "a\tb"], {},
     "1 of 3 lines cannot be used, as line 4: 2 fields where there are 3 columns; "),
    (["text\tclass", "a\t1"], {},
     "found the columns text, class; expected those of GLUE's files, or a header"),
    ([], {}, "it is empty; expected a header"),
    (["sentence\tsentence\tlabel", "a\tb\t1"], {},
     "2 columns are called sentence; rename all but one"),
    (["sentence\tsentence", "a\tb"], dict(is_test=True, training_schema=CLASSES),
     "2 columns are called sentence; rename all"),
    (["sentence\tlabel"], {}, "no examples; expected one per line"),
    (["sentence\tlabel", "caf\u00e9\t1".encode("latin-1")], {},
     "line 2 is not UTF-8 (byte 0xe9 at byte 4 of"),
    (["sentence\tlabel", "a\tyes"], dict(regression=True, training_schema=NUMBERS),
     "1 of 1 lines cannot be used, as line 2: the label is 'yes', expected a number"),
    (["sentence1\tsentence2\tscore", "a\tb\t1"], dict(training_schema=CLASSES),
     "read as STS-B, sentence1 and sentence2 with numbers; "
     "the training file is read as sentences, sentence with classes; use files of one form"),
    (["sentence\tscore", "a\t1"], dict(is_test=True, training_schema=CLASSES),
     "found the column score, expected label, as in the training file; rename it"),
    (["index\tsentence", "0\ta", "1"], dict(is_test=True),
     "line 3: 1 fields where there are 2 columns; every"),
    (["index\tsentence", "7\ta", "8\tb", "7\tc"], dict(is_test=True),
     "duplicate index '7', 2 times; indices"),
    (["sentence", "a", "", "b"], dict(is_test=True),
     "line 3: it is blank; every line of a test file is predicted"),
])  # fmt: skip
def test_tables_refused(tmp_path, lines, options, message):
    path = write(tmp_path / "train.tsv", *lines)
    refuses(re.escape(f"{path}: {message}"), read_sentences, path, **options)


def test_a_test_file_has_the_schema_of_the_training_file(tmp_path):
    cola = read_sentences(write(tmp_path / "train.tsv", "x\t1\t\ta")).schema
    test_file = write(tmp_path / "test.tsv", "index\tsentence", "0\ta")
    assert read_sentences(test_file, True, training_schema=cola).schema == cola


@pytest.mark.parametrize("is_test", [False, True])
def test_files_of_other_forms_are_scored_as_the_training_file(tmp_path, is_test):
    qqp = read_sentences(
        write(tmp_path / "train.tsv", "question1\tquestion2\tis_duplicate", "a\tb\t1")
    ).schema
    lines = ["sentence1\tsentence2\tlabel", "c\td\t0", "e\tf\t1"]
    table = read_sentences(write(tmp_path / "other.tsv", *lines), is_test, training_schema=qqp)
    assert table.schema.metrics == qqp.metrics == ["accuracy", "f1"]
    assert [example.label for example in table.examples] == ["0", "1"]


@pytest.mark.parametrize("classes, metrics", [
    (["0", "1"], ["accuracy", "f1"]),
    (["duplicate", "not_duplicate"], ["accuracy"]),
    (["0", "1", "2"], ["accuracy"]),
])  # fmt: skip
def test_f1_is_that_of_class_1(classes, metrics):
    qqp = sentence_files.TableSchema("QQP", ["a", "b"], "label", ["accuracy", "f1"])
    assert qqp.metrics_of(classes) == metrics


def test_conlls_columns(tmp_path):
    lines = ["-DOCSTART- -X- O O", ""]
    lines += ["EU NNP B-NP B-ORG", "rejects VBZ B-VP O\r", "", ""]
    lines += ["10\u00a0000\tCD X O"]
    first, second = read_tagged(write(tmp_path / "train.txt", *lines))
    assert first == (["EU", "rejects"], ["B-ORG", "O"], [3, 4])
    assert second == (["10\u00a0000"], ["O"], [7])
    (sentence,) = read_tagged(write(tmp_path / "test.txt", "one", "word"), is_test=True)
    assert sentence.words == ["one", "word"]
    assert sentence.tags == []
    (tagged,) = read_tagged(write(tmp_path / "test.txt", "one B-X", "word O"), is_test=True)
    assert tagged.tags == ["B-X", "O"]
    for lines, message in [
        (["a B-X", "b"], "line 2: found 1 column, expected 2 as in line 1; correct it"),
        (["a"], "line 1: found 1 column, expected a word and its tag"),
        (["a\tx\tO", "b\tx y\tO"], "expected 3 as in line 1, where spaces separate columns, too"),
        (["", "-DOCSTART- O"], "no sentences"),
    ]:
        refuses(message, read_tagged, write(tmp_path / "train.txt", *lines))


def conllu(*rows):
    """Lines of ten columns, of which ID, FORM, UPOS and XPOS are given."""
    lines = []
    for number, form, upos, xpos in rows:
        lines.append("\t".join([number, form, "_", upos, xpos, "_", "0", "root", "_", "_"]))
    return lines


def test_conllu(tmp_path):
    """The words of a range have tags; the range itself and an empty node such as 2.1 have none."""
    rows = [
        ("1-2", "dal", "_", "_"),
        ("1", "da", "ADP", "E"),
        ("2", "il", "DET", "RD"),
        ("2.1", "x", "_", "_"),
    ]
    lines = ["# newdoc", "# text = dal", *conllu(*rows), ""]
    lines += ["# 1\tx", *conllu(("1", "3 000", "NUM", "N"))]
    path = write(tmp_path / "train.txt", *lines)
    first, second = read_tagged(path)
    assert first == (["da", "il"], ["ADP", "DET"], [4, 5])
    assert second == (["3 000"], ["NUM"], [9])
    tags = [sentence.tags for sentence in read_tagged(path, column="xpos")]
    assert tags == [["E", "RD"], ["N"]]
    message = "the column feats is '_' for every word, .* to another of upos,"
    refuses(message, read_tagged, path, column="feats")
    assert read_tagged(path, is_test=True, column="feats")[1] == (["3 000"], [], [9])
    broken = write(tmp_path / "broken.txt", *lines, "x\ty")
    refuses("line 10: found 2 columns, expected the 10 of CoNLL-U", read_tagged, broken)
    columns = write(tmp_path / "columns.txt", "# O", "kan B-X")  # no comment in CoNLL
    assert read_tagged(columns)[0].words == ["#", "kan"]


UNFIT = {  # rows of CoNLL-U, and the message that refuses them
    "a blank line is missing": (
        [("1", "a", "X", "_"), ("1", "b", "X", "_")],
        "line 2: found the ID '1', expected 2",
    ),
    "begins at 2": ([("2", "a", "X", "_")], "line 1: found the ID '2', expected 1"),
    "skips": (
        [("1", "a", "X", "_"), ("3", "b", "X", "_")],
        "line 2: found the ID '3', expected 2",
    ),
    "no number": ([("x", "a", "X", "_")], "line 1: found the ID 'x', expected 1"),
    "other digits": ([("\u0661", "a", "X", "_")], "line 1: found the ID '\u0661', expected 1"),
    "range without words": (
        [("1-3", "a", "_", "_"), ("1", "b", "X", "_")],
        "line 1: found a range of words up to 3",
    ),
    "range backwards": ([("2-1", "a", "_", "_")], "line 1: found the ID '2-1', expected 1"),
    "no word": ([("1", "", "X", "_")], "line 1: the column form is '', expected text"),
    "space before the tag": (
        [("1", "a", " X", "_")],
        "line 1: the column upos is ' X', expected text",
    ),
    "no tag": (
        [("1", "a", "X", "_"), ("2", "b", "_", "_")],
        "line 2: the column upos is '_', expected a tag, as other",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_conllu_is_refused(name, tmp_path):
    rows, message = UNFIT[name]
    refuses(message, read_tagged, write(tmp_path / "train.conllu", *conllu(*rows)))


def test_conllu_is_known_by_its_name_or_its_first_number(tmp_path):
    rows = conllu(("1", "a", "X", "_"), ("2", "b", "Y", "_"))
    spaced = [row.replace("\t", " ") for row in rows]
    path = write(tmp_path / "a.conllu", *spaced)
    refuses("found 1 column, expected the 10", read_tagged, path)
    path = write(tmp_path / "b.txt", *spaced)
    refuses("found CoNLL-U with spaces between its columns", read_tagged, path)
    (year,) = conllu(("1999", "a", "X", "_"))  # ten columns of CoNLL
    path = write(tmp_path / "c.txt", year)
    assert read_tagged(path)[0].words == ["1999"]
    message = "--conllu-column xpos: .*c.txt is not CoNLL-U"
    refuses(message, read_tagged, str(path), column="xpos")


def test_words_with_spaces_stand_between_tabs(tmp_path):
    path = write(tmp_path / "train.txt", "New York\tB-LOC", "he went \tO")
    assert read_tagged(path)[0][:2] == (["New York", "he went"], ["B-LOC", "O"])
    refuses("line 1: found a carriage return", read_tagged, write(tmp_path / "cr.txt", "a X\rb Y"))


def test_squads_json(tmp_path):
    qas = [question("a", "who ?", ("losh", 4)), question("b", "who ?", is_impossible=True)]
    write_squad(tmp_path / "dev.json", [("kan losh mipo", qas)])
    first, second = read_questions(tmp_path / "dev.json")
    assert (first.id, first.text, first.context) == ("a", "who ?", "kan losh mipo")
    assert first.answers[0].text == "losh"
    assert second.answers == ()
    path = tmp_path / "test.json"
    secret = {**qas[0], "answers": [], "is_impossible": False}
    write_squad(path, [("kan losh mipo", [secret])])
    assert read_questions(path, is_test=True)[0].answers == ()
    write_squad(path, [("kan losh mipo", [qas[0]])])
    assert read_questions(path, is_test=True)[0].answers[0].text == "losh"
    without_answers = {"id": "c", "question": "who ?"}
    write_squad(path, [("kan losh mipo", [qas[0], without_answers])])
    answers = [question.answers for question in read_questions(path, is_test=True)]
    assert answers == [(), ()]


@pytest.mark.parametrize("context, qas, message", [
    (None, [], "context: found None, expected a string"),
    ("kan", [question("a", "?", ("x", "8"))],
     "question 'a': answers: item 1: answer_start: found '8', expected a"),
    ("kan", [question("a", "?", ("x", 0))] * 2, "question 'a': its id occurs twice"),
    ("kan", [question("a", "?", ("x", 0), is_impossible=True)],
     "'a': is_impossible is True, but it has 1 answers"),
    ("kan", [{"id": 3, "question": "?"}], "question 3: id: found 3, expected a string"),
    ("kan", [{"id": "a", "question": "?"}],
     "question 'a': found no answers, expected a list, empty if there are"),
    ("kan", [], "found no questions"),
])  # fmt: skip
def test_squads_json_refused(tmp_path, context, qas, message):
    write_squad(tmp_path / "dev.json", [(context, qas)])
    refuses(re.escape(message), read_questions, tmp_path / "dev.json")
