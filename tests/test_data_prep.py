"""data-prep/: the real programs on generated text.

Their output is read back with fairseq and sentencepiece.
"""

import concurrent.futures
import gzip
import json
import lzma
import os
import random
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

import prepare
from conftest import binarize, documents, error_of, error_of_script, refuses, script
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.utf8 import read_lines
from maelm_fairseq.base.vocabulary_files import read_tokenizer
from maelm_fairseq.data.blocks import TokenBlocks
from maelm_fairseq.preparation import binarized
from maelm_fairseq.preparation.encode import Shard
from maelm_fairseq.preparation.manifest import SplitRecord
from raw_text import PREP, arguments, snapshot, write
from vocabularies import vocabulary

NEXT_LINE, LINE_SEPARATOR, ZERO_WIDTH = "\x85", "\u2028", "\u200b"
UNUSUAL = [
    ["A literal <s> and </s>, <unk>, <pad> and <mask> are text.", "<mask>", "</s>"],
    [
        "one" + LINE_SEPARATOR + "line",
        "next" + NEXT_LINE + "line",
        "vertical\x0btab form\x0cfeed file\x1cseparator",
    ],
    ["caf\u00e9 \u6f22\u5b57 \U0001f600 unknown", "\u3000 ideographic space first", "old\rmac"],
    ["long " + "ever onward " * 20000],
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Files of raw text, and the documents in them."""
    folder = tmp_path_factory.mktemp("text") / "-odd \"na'me $HOME *"
    folder.mkdir()
    train = [documents(300, 1), documents(200, 2), UNUSUAL]
    valid = documents(30, 3)
    first = write(folder / "first.txt", train[0], last=False)
    # A byte order mark and four different blank lines at the start; no end of line at the end.
    blank_lines = b"\n \n\t\r\n" + ZERO_WIDTH.encode() + b"\n"
    first.write_bytes(b"\xef\xbb\xbf" + blank_lines + first.read_bytes())
    second = write(folder / "second.txt.gz", train[1], "\r\n")
    third = write(folder / "odd.txt", UNUSUAL)
    return {
        "train": [first, second, third],
        "valid": [write(folder / "valid.txt", valid)],
        "train_documents": sum(train, []),
        "valid_documents": valid,
    }


OPTIONS = ["--vocab-size", 150, "--lowercase", "--workers", 3]


@pytest.fixture(scope="module")
def prepared(text):
    dest = text["valid"][0].parent / "data"
    words = arguments(text, dest, *OPTIONS)
    result = script("data-prep/prepare.sh", *words, PYTHONPROFILEIMPORTTIME="1")
    return {"dest": dest, "result": result}


def documents_of(folder, split):
    """The documents that fairseq reads, each with the blank line after it.

    A document is a list of lines, and a line is a list of token ids.
    """
    dictionary = Dictionary.load(os.path.join(folder, "dict.txt"))
    read = [[]]
    for line in data_utils.load_indexed_dataset(os.path.join(folder, split), dictionary):
        read[-1].append(line.tolist())
        if len(line) == 1:
            read.append([])
    assert read.pop() == []
    return read


def test_data_are_byte_for_byte_what_fairseq_preprocess_writes(text, prepared, tmp_path):
    dest = prepared["dest"]
    model = str(dest / "sentencepiece.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    assert processor.encode("BADA Ku") == processor.encode(
        "bada ku"
    )  # The model itself lowercases.
    splits = {"train": "", "valid": ""}
    for split in splits:
        for document in text[split + "_documents"]:
            for line in document:
                pieces = map(processor.id_to_piece, processor.encode(line))
                splits[split] += " ".join(pieces) + "\n"
            splits[split] += "\n"
    by_fairseq = binarize(tmp_path / "data", splits, dest / "dict.txt")
    for name in ("train.bin", "train.idx", "valid.bin", "valid.idx"):
        assert (dest / name).read_bytes() == (by_fairseq / name).read_bytes(), name


@pytest.mark.parametrize("symbols, dtype", [(65500, np.uint16), (65501, np.uint32)])
def test_large_vocabularies_take_four_bytes_a_token(symbols, dtype):
    assert binarized.token_dtype(symbols) == dtype == best_fitting_int_dtype(symbols - 1)


def test_an_index_larger_than_the_buffer(tmp_path, monkeypatch):
    monkeypatch.setattr(binarized, "BUFFER", 12)
    sizes = np.arange(1, 21, dtype=np.int32) * 100_000_000  # together over 2**31 bytes
    path = tmp_path / "data.idx"
    with open(str(tmp_path / "sizes"), "w+b") as stream, open(str(path), "wb") as index:
        stream.write(sizes.tobytes())
        binarized.write_index(index, stream, np.uint16)
    read = MMapIndexedDataset.Index(str(path))
    assert read.dtype == np.uint16
    assert read.sizes.tolist() == sizes.tolist()
    ends = np.cumsum(2 * sizes.astype(np.int64))
    assert read._pointers.tolist() == [0, *ends[:-1].tolist()]


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_report_and_running_again(text, prepared):
    dest, output = prepared["dest"], prepared["result"].stdout
    lines = sum(map(len, text["train_documents"]))
    assert output.splitlines()[-1] == str(dest)
    assert f"{lines:,} with text" in output
    assert "+ 1 that normalise to nothing" in output
    counts = json.loads((dest / "train.json").read_text(encoding="utf-8"))["input"]
    kinds = ["text_lines", "blank_lines", "lines_normalised_to_nothing"]
    assert counts["lines"] == sum(counts[kind] for kind in kinds)
    before = times(dest)
    again = script("data-prep/prepare.sh", *arguments(text, dest, *OPTIONS))
    assert again.stderr == ""
    assert again.stdout == output
    assert times(dest) == before


def prepare_three_shards(dest, *options):
    """Three processes start at once, as on three machines; returns the folders."""
    options = ["--dest", dest, *options, *OPTIONS, "--workers", 1, "--shards", 3, "--shard"]
    with concurrent.futures.ThreadPoolExecutor() as machines:
        done = machines.map(lambda shard: script("data-prep/prepare.sh", *options, shard), range(3))
    folders = list(done)[-1].stdout.splitlines()[-1].split(":")
    assert folders == [str(dest / f"shard{number}") for number in range(3)]
    return folders


def check_shards(folders, documents, model):
    """Shard n has every third document from document n on."""
    for number, folder in enumerate(folders):
        assert documents_of(folder, "train") == documents[number::3]
        assert os.path.exists(os.path.join(folder, "valid.idx")) == (number == 0)
        assert snapshot(folder)["sentencepiece.model"] == model


@pytest.mark.parametrize("held_out", [0, 7])
def test_shards_by_several_machines_at_once(text, prepared, tmp_path, held_out):
    dest = tmp_path / "data"
    reference = snapshot(prepared["dest"])
    valid = ["--valid-documents", held_out] if held_out else ["--valid", *text["valid"]]
    folders = prepare_three_shards(dest, "--train", *text["train"], *valid)
    expected = documents_of(prepared["dest"], "train")
    count = len(expected)
    assert count == len(text["train_documents"])
    report = f"{count:,} documents"
    if held_out:
        report += ", of which 7 are held out for validation"
    checked = script("data-prep/check.py", dest).stdout
    assert report + "\n" in checked
    assert re.search(r"^valid: found only [\d,]+ tokens, expected 20,000", checked, re.M)
    if held_out:
        # At even intervals, each once, and nothing else is missing.
        numbers = [expected.index(document) for document in documents_of(folders[0], "valid")]
        assert len(numbers) == 7
        intervals = np.diff([*numbers, numbers[0] + count])
        assert np.abs(intervals - count / 7).max() < 1
        expected = [document for i, document in enumerate(expected) if i not in numbers]
    else:
        assert snapshot(folders[0])["valid.bin"] == reference["valid.bin"]
    check_shards(folders, expected, reference["sentencepiece.model"])


def test_the_sample_of_a_split_is_from_all_of_it():
    shard = Shard(None, None, SplitRecord(None, 0, 0, 0, []))
    for number in range(4000):
        shard.add(f"line {number}")
    sample = shard.finish().sample
    assert len(sample) == 500
    assert sample == sorted(sample)
    assert all(f"line {i}" == line for i, line in sample)
    counts, _ = np.histogram([place for place, _ in sample], 4, (0, 4000))
    assert np.abs(counts - 125).max() < 40


def test_pretraining_counts_the_same_lines(prepared):
    """Also of files that do not end with a blank line."""
    printed = prepared["result"].stdout
    for split in ["train", "valid"]:
        prefix = str(prepared["dest"] / split)
        (of_split,) = re.findall(rf"^{re.escape(prefix)}:\n +(.*?) blank", printed, re.M)
        blocks = str(TokenBlocks(prefix, 32, "complete_doc"))
        assert blocks.startswith(f"{prefix}: {of_split} blank, ")


def test_preparing_text_takes_neither_torch_nor_fairseq_nor_an_installed_plugin(prepared, tmp_path):
    """Nor do the workers. Packages can be imported, but not the plugin, which a .pth file adds."""
    runs = [prepared["result"].stderr]
    packages = os.path.dirname(os.path.dirname(np.__file__))
    environment = dict(os.environ, PYTHONPATH=packages)
    for program in ["check", "movie_reviews", "fetch_labelled"]:
        command = [sys.executable, "-S", "-X", "importtime", f"{PREP}/{program}.py", "--help"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        runs.append(done.stderr)
    for printed in runs:
        imported = set(re.findall(r"^import time:.*\| *(\S+)$", printed, re.M))
        assert "maelm_fairseq.base.errors" in imported
        assert not imported & {"torch", "fairseq"}


def test_names_of_folders_are_any_text(text, prepared, tmp_path):
    """Recorded, printed as they are, and compared."""
    odd = tmp_path / "${x} [*] 'n\xe4me'"
    odd.mkdir()
    raw = shutil.copy(text["valid"][0], odd / "text")
    model = prepared["dest"] / "sentencepiece.model"
    options = ["--train", raw, "--valid", raw, "--dest", odd / "data"]
    options += ["--vocabulary", model, "--workers", 1]
    for again in [False, True]:
        done = script("data-prep/prepare.sh", *options)
        assert done.stdout.splitlines()[-1] == str(odd / "data")
        lines = done.stderr.splitlines()
        (warning,) = [line for line in lines if "warning: " in line]
        assert (lines == [warning]) == again
        assert warning.endswith("text: it is not held out")
    assert len(documents_of(odd / "data", "train")) == len(text["valid_documents"])


def test_names_that_are_not_utf8_are_refused(text, tmp_path):
    odd = tmp_path / "\udcff"
    error = error_of_script("data-prep/prepare.sh", *arguments(text, odd))
    assert "\\udcff': found a name that is not UTF-8; rename the file or folder" in error
    assert os.listdir(tmp_path) == []


def test_a_text_that_is_given_twice_is_warned_of(text, tmp_path):
    raw = text["valid"][0]
    done = script(
        "data-prep/prepare.sh", "--train", raw, raw, "--valid", text["train"][0],
        "--dest", tmp_path / "twice", "--vocab-size", 100,
    )  # fmt: skip
    assert ": it counts again\n" in done.stderr


def test_each_program_says_in_one_line_what_it_lacks(tmp_path):
    bare = tmp_path / "bare python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    assert "make install" in error_of_script("data-prep/prepare.sh", "--help", PYTHON=str(bare))


# Wrong input --------------------------------------------------------------------------------------


PREPARE = "data-prep/prepare.py"


def test_missing_empty_and_undecodable_files(text, tmp_path):
    def error(name, content=None, further=text["valid"]):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        files = dict(text, train=[*further, tmp_path / name])
        return error_of_script(PREPARE, *arguments(files, tmp_path / "dest", "--vocab-size", 300))

    assert f"{tmp_path / 'missing.txt'} does not exist" in error("missing.txt")
    assert "empty.txt is empty" in error("empty.txt", b"")
    assert f"{tmp_path} is a folder; give its files, such as {tmp_path}/*.txt" in error(".")
    invisible = "\u200b\n\n\u200b\u200b\n".encode()
    assert "zero.txt: normalisation leaves none of its" in error("zero.txt", invisible, further=[])
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is not a file; expected text in a file" in error("pipe")
    message = error("latin.txt", "ab\n\ncd caf\u00e9 ef\n".encode("latin-1"))
    assert "latin.txt: line 3" in message
    assert "0xe9" in message
    assert "byte 7" in message
    utf16 = "ab cd\n\nef gh\n".encode("utf-16-le")
    for name, content in [("utf16.txt", utf16), ("utf16.gz", gzip.compress(utf16))]:
        message = error(name, content)
        assert "line 1 contains a NUL character (byte 2 of the line), as UTF-16LE does" in message
        assert "iconv -f UTF-16LE -t" in message
    packed = gzip.compress(random.Random(1).randbytes(1000).hex().encode())
    assert "it is not a text file; decompress it" in error("text.xz", lzma.compress(packed))
    assert "cut.gz: corrupt gzip after line" in error("cut.gz", packed[:500])
    message = error("plain.txt.gz", b"not packed")
    assert "plain.txt.gz: corrupt gzip after line 0 (Not a gzipped file" in message


ENCODINGS = ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE", "UTF-8", "latin1"]
LINES = [
    "plain words",
    "caf\u00e9 au lait",
    "\u4e00\u56db\u6c49\u5b57\u3002",
    "\U0001f600 x",
    "x\0 y",
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line", LINES)
def test_text_in_another_encoding_is_refused_with_its_name(tmp_path, encoding, mark, line):
    path = tmp_path / "text"
    path.write_bytes((mark + (line + "\n") * 2000).encode(encoding, "ignore"))
    is_utf8 = encoding == "UTF-8" or (encoding == "latin1" and "\u00e9" not in line)
    if is_utf8 and "\0" not in line:
        expected = line.encode(encoding, "ignore").decode()
        assert [text for _, text in read_lines(path)] == [expected] * 2000
        return
    message = f"{path}: line 1 (is not UTF-8|contains a NUL character)"
    with pytest.raises(UsageError, match=message) as error:
        list(read_lines(path))
    remedy = r"tr -d '\000'" if is_utf8 else f"iconv -f {encoding} -t UTF-8"
    assert remedy in str(error.value)
    assert ("expected text without any" in str(error.value)) == is_utf8


def test_a_wrong_size_of_the_vocabulary_and_the_corrected_command(text, tmp_path):
    text = dict(text, train=text["valid"])
    command = [PREPARE, *arguments(text, tmp_path / "dest", "--only-vocabulary")]
    error = error_of_script(*command, "--vocab-size", 2**31 - 1)
    assert "--vocab-size 2147483647: too large for this text; give at most" in error
    error = error_of_script(*command, "--vocab-size", 9, "--byte-fallback")
    assert "--vocab-size 9: too small for its characters; give at least 2" in error
    error = error_of_script(*command)
    assert "--vocab-size 8000: too large for this text; give at most" in error
    most = error.split()[-1]
    assert most.isdigit()
    script(*command, "--vocab-size", most)
    lines = (tmp_path / "dest" / "dict.txt").read_text(encoding="utf-8").split("\n")
    assert len(lines) == int(most) - 3 + 1


def test_a_destination_with_another_corpus_or_other_options(text, prepared, tmp_path):
    dest = prepared["dest"]
    before = snapshot(dest)
    error = error_of_script(PREPARE, *arguments(text, dest, "--vocab-size", 700, "--shards", 2))
    assert "--vocab-size was 150 and is 700" in error
    assert "--lowercase was True and is False" in error
    assert "--shards was 1 and is 2" in error
    options = ["--train", *text["train"], "--valid-documents", 9, "--dest", dest, *OPTIONS]
    error = error_of_script(PREPARE, *options)
    assert "valid differs; --valid-documents was not given and is 9" in error
    other = dict(text, train=text["train"][:2] + text["valid"])
    assert "train differs" in error_of_script(PREPARE, *arguments(other, dest, *OPTIONS))
    assert snapshot(dest) == before
    for name in ["train.json", "train.bin"]:
        (tmp_path / name).write_bytes(b"x")
        error = error_of_script(PREPARE, *arguments(text, tmp_path, *OPTIONS))
        assert f"contains {name} but no prepare.json" in error


def test_fewer_documents_than_shards(text, prepared, tmp_path):
    text = dict(text, train=[write(tmp_path / "train.txt", documents(3, 6))])
    vocabulary = ["--vocabulary", prepared["dest"] / "sentencepiece.model"]
    shards = ["--shards", 4, "--shard", 1, "--workers", 1]
    error = error_of_script(PREPARE, *arguments(text, tmp_path / "four", *vocabulary, *shards))
    assert "3 documents" in error
    assert "use fewer --shards" in error
    assert not list((tmp_path / "four" / "shard1").glob("train*"))
    options = ["--train", *text["train"], "--valid-documents", 3, "--dest", tmp_path / "three"]
    error = error_of_script(PREPARE, *options, *vocabulary)
    assert "--valid-documents 3: found 3 documents" in error
    assert not (tmp_path / "three").exists()


NOT_ALLOWED = "argument --valid-documents: not allowed with argument --valid"
NO_SIZE = "argument --vocab-size: expected an integer from 1 to 2147483647, found '0'"


@pytest.mark.parametrize("options, message", [
    ("--valid-documents 9", NOT_ALLOWED),
    ("--vocab-size 0", NO_SIZE),
    ("--vocab-size 300 --shards 2 --shard 2", "--shard 2: expected 0 to 1"),
    ("--dest a:b", "separates folders by colons"),
    ("--vocabulary some.model --lowercase", "--lowercase is for training a model"),
])  # fmt: skip
def test_options_that_contradict_each_other(text, tmp_path, options, message):
    words = arguments(text, tmp_path / "dest", *options.split())
    assert message in error_of(prepare.main, *words)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("piece", ["a" + NEXT_LINE + "b", "<pad>", "<mask>"])
def test_models_that_fairseq_would_misread(tmp_path, piece):
    folder = vocabulary(tmp_path / "data", user_defined_symbols=[piece])
    refuses(re.escape(f"piece {piece!r} is a duplicate"), read_tokenizer, folder)
