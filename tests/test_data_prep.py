"""data-prep/: the real programs on generated text; their output is read back with fairseq and sentencepiece."""

import gzip
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece

HERE = os.path.dirname(os.path.abspath(__file__))
PREP = os.path.join(os.path.dirname(HERE), "data-prep")
sys.path.insert(0, PREP)
import basics  # noqa: E402
import binarized  # noqa: E402
import raw_text  # noqa: E402
import write_dict  # noqa: E402

ENVIRONMENT = dict(os.environ, PYTHON=sys.executable, OMP_NUM_THREADS="1")
NEXT_LINE, LINE_SEPARATOR, ZERO_WIDTH = "\x85", "\u2028", "\u200b"


def command(program, *arguments):
    first = ["bash"] if program.endswith(".sh") else [sys.executable]
    return first + [os.path.join(PREP, program)] + [str(argument) for argument in arguments]


def run(program, *arguments, environment=ENVIRONMENT):
    return subprocess.run(
        command(program, *arguments), env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
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
        return " ".join(picked).capitalize() + rng.choice(
            [".", "?", "! 1987", ". </br>", " (%d%%)" % rng.randint(1, 99)]
        )

    return [[line() for _ in range(rng.randint(1, 9))] for _ in range(count)]


ODD = [
    ["A literal <s> and </s>, <unk>, <pad> and <mask> are text.", "<mask>", "</s>"],
    ["one" + LINE_SEPARATOR + "line", "next" + NEXT_LINE + "line", "vertical\x0btab form\x0cfeed file\x1cseparator"],
    ["caf\u00e9 \u6f22\u5b57 \U0001f600 unknown", "\u3000 ideographic space first", "nul\x00byte, old\rmac"],
    ["long " + "ever onward " * 20000],
]


def write(path, documents, end="\n", last=True, packed=False):
    text = (end + end).join(end.join(document) for document in documents) + (end + end if last else "")
    path.write_bytes(gzip.compress(text.encode("utf-8")) if packed else text.encode("utf-8"))
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Files of raw text, and the documents in them."""
    folder = tmp_path_factory.mktemp("text")
    train = [random_documents(1, 300), random_documents(2, 200), ODD]
    valid = [random_documents(3, 30)]
    first = write(folder / "first.txt", train[0], last=False)
    # A byte order mark and four different blank lines at the start; no end of line at the end.
    first.write_bytes(b"\xef\xbb\xbf\n \n\t\r\n" + ZERO_WIDTH.encode() + b"\n" + first.read_bytes())
    return {
        "train": [
            first,
            write(folder / "second.txt.gz", train[1], "\r\n", packed=True),
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
    for ids, line in zip(sum(found, []), sum(documents, [])):
        expected = processor.encode(line)
        assert [number - 1 if number != dictionary.unk() else 0 for number in ids] == expected
        if 0 not in expected:
            assert "".join(dictionary[number] for number in ids) == processor.normalize(line)


def test_data_are_byte_for_byte_what_fairseq_preprocess_writes(text, prepared, tmp_path):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(prepared["dest"] / "sentencepiece.model"))
    assert processor.encode("BADA Ku") == processor.encode("bada ku")  # the model itself lowercases
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


def snapshot(folder):
    """Contents of the data files of a folder."""
    return {
        name: open(os.path.join(str(folder), name), "rb").read()
        for name in os.listdir(str(folder))
        if not name.startswith(".") and not name.endswith(".log")
    }


def test_report_and_running_again(text, prepared):
    output, lines = prepared["result"].stdout, sum(map(len, text["train_documents"]))
    assert output.splitlines()[-1] == str(prepared["dest"])
    assert f"{lines:,} with text" in output and "+ 1 that normalise to nothing" in output
    read = json.loads((prepared["dest"] / "train.json").read_text(encoding="utf-8"))["input"]
    assert read["lines"] == read["text_lines"] + read["blank_lines"] + read["lines_normalised_to_nothing"]
    assert "trainer_interface" not in output + prepared["result"].stderr  # SentencePiece's log is in a file
    before = {path.name: path.stat().st_mtime_ns for path in prepared["dest"].iterdir()}
    again = succeed("prepare.sh", *arguments(text, prepared["dest"], *OPTIONS))
    assert again.stderr == "" and again.stdout == output
    assert {path.name: path.stat().st_mtime_ns for path in prepared["dest"].iterdir()} == before


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
            text=True,
        )  # fmt: skip
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


def test_a_unigram_model_of_a_sample_and_fewer_documents_than_shards(tmp_path):
    documents = random_documents(6, 100)
    text = {
        "train": [write(tmp_path / "train.txt", documents)],
        "valid": [write(tmp_path / "valid.txt", documents[:3])],
    }
    options = ["--vocab-size", 300, "--model-type", "unigram", "--sample-lines", 200]
    succeed("prepare.sh", *arguments(text, tmp_path / "data", *options))
    assert_same_text(tmp_path / "data", "train", documents)
    text = dict(text, train=text["valid"])
    options = ["--spm-model", tmp_path / "data" / "sentencepiece.model", "--shards", 4, "--shard", 1]
    error = fail("prepare.sh", *arguments(text, tmp_path / "four", *options))
    assert "3 documents" in error and "use fewer --shards" in error
    assert not list((tmp_path / "four" / "shard1").glob("train*"))


def test_reservoir_samples_are_uniform_and_repeatable():
    def sample(items, size, seed=1):
        drawn = raw_text.Reservoir(size, seed)
        for item in items:
            drawn.add(item)
        return drawn.items

    assert sample(range(5), 5) == sample(range(5), 9) == [0, 1, 2, 3, 4]
    assert sample(range(100), 10) == sample(range(100), 10)
    samples = [sample(range(40), 10, seed) for seed in range(2000)]
    times, share = np.bincount(np.concatenate(samples), minlength=40), 1 / 4
    assert np.abs(times - 2000 * share).max() < 4.5 * (2000 * share * (1 - share)) ** 0.5


def test_only_fine_tuning_data_need_fairseq(tmp_path):
    """Each program says in one line what it lacks."""
    programs = {name[:-3] for name in os.listdir(PREP) if name.endswith(".py")} - {"glue", "squad", "pretrained"}
    code = "import sys, " + ", ".join(sorted(programs))
    code += "; print(*{'fairseq', 'torch', 'maelm_fairseq'}.intersection(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=PREP) == b"\n"
    (tmp_path / "fairseq.py").write_text("raise ValueError('mutable default')")
    error = fail("glue.sh", "--help", environment=dict(ENVIRONMENT, PYTHONPATH=str(tmp_path)))
    assert "fairseq does not work" in error and "ValueError: mutable default" in error and "make install" in error
    bare = tmp_path / "bare python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    error = fail("prepare.sh", "--help", environment=dict(ENVIRONMENT, PYTHON=str(bare)))
    assert str(bare) in error and "make install" in error


# Wrong input -------------------------------------------------------------------------------------------------------


def test_missing_empty_and_undecodable_files(text, tmp_path):
    good = text["valid"][0]

    def error(train):
        options = ["--train", good, train, "--valid", good, "--dest", tmp_path / "dest", "--vocab-size", 300]
        return fail("prepare.sh", *options)

    assert f"{tmp_path / 'missing.txt'} does not exist" in error(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_bytes(b"")
    assert "empty.txt is empty" in error(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes("ab\n\ncd caf\u00e9 ef\n".encode("latin-1"))
    message = error(tmp_path / "latin.txt")
    assert "latin.txt: line 3" in message and "0xe9" in message and "byte 7" in message
    packed = gzip.compress(os.urandom(1000).hex().encode() * 3)
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])
    assert "cut.gz: corrupt gzip after line" in error(tmp_path / "cut.gz")
    write(tmp_path / "plain.txt.gz", [["not packed"]])
    assert "plain.txt.gz: corrupt gzip after line 0 (Not a gzipped file" in error(tmp_path / "plain.txt.gz")


def test_a_wrong_size_of_the_vocabulary_and_the_corrected_command(text, tmp_path):
    valid = text["valid"][0]
    prepare = ["--train", valid, "--valid", valid, "--dest", tmp_path / "dest", "--only-vocabulary", "--vocab-size"]
    error = fail("prepare.sh", *prepare, 50000)
    most = error.split()[-1]
    assert "--vocab-size 50000 is too large" in error and most.isdigit()
    error = fail("prepare.sh", *prepare, 5)
    assert "--vocab-size 5 is too small" in error and error.split()[-1].isdigit()
    succeed("prepare.sh", *prepare, most)
    assert len((tmp_path / "dest" / "dict.txt").read_text(encoding="utf-8").split("\n")) == int(most) - 3 + 1


def test_a_destination_with_another_corpus_or_other_options(text, prepared, tmp_path):
    before = snapshot(prepared["dest"])
    error = fail("prepare.sh", *arguments(text, prepared["dest"], "--vocab-size", 700, "--workers", 2))
    assert "--vocab-size was 600 and is 700" in error and "--lowercase was True and is False" in error
    other = dict(text, train=text["train"][:2] + text["valid"])
    error = fail("prepare.sh", *arguments(other, prepared["dest"], *OPTIONS))
    assert "--train: other files, or other text" in error
    assert "--shards was 1 and is 2" in fail("prepare.sh", *arguments(text, prepared["dest"], "--shards", 2, *OPTIONS))
    assert snapshot(prepared["dest"]) == before
    (tmp_path / "train.bin").write_bytes(b"x")
    assert "contains train.bin but no prepare.json" in fail("prepare.sh", *arguments(text, tmp_path, *OPTIONS))


@pytest.mark.parametrize(
    "options, words",
    [
        ([], "give --vocab-size, or a trained model with --spm-model"),
        (["--vocab-size", "0"], "argument --vocab-size: 0 is not a positive integer"),
        (["--vocab-size", "300", "--shards", "2", "--shard", "2"], "--shard 2: expected 0 to 1"),
        (["--spm-model", "some.model", "--lowercase"], "--lowercase is for training a model"),
        (["--spm-model", "no-such.model"], "SentencePiece model no-such.model does not exist"),
    ],
)
def test_wrong_options(text, tmp_path, options, words):
    assert words in fail("prepare.sh", *arguments(text, tmp_path / "dest", *options))


@pytest.mark.parametrize(
    "options, error",
    [
        ({"user_defined_symbols": ["a" + NEXT_LINE + "b"]}, r"piece 3 is 'a\\x85b'; expected"),
        ({"pad_id": 0, "unk_id": 3}, "pieces 0 to 2 are <pad>"),
    ],
)
def test_models_that_fairseq_would_misread(tmp_path, options, error):
    lines = [line for document in random_documents(7, 50) for line in document]
    with open(tmp_path / "model", "wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=writer, vocab_size=200, minloglevel=2, **options
        )
    with pytest.raises(basics.InputError, match=error):
        write_dict.load_model(str(tmp_path / "model"))
