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

from conftest import ROOT, documents

PREP = str(ROOT / "data-prep")
sys.path.insert(0, PREP)
import basics  # noqa: E402
import binarized  # noqa: E402
import prepare  # noqa: E402
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


UNUSUAL = [
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
    train = [documents(300, 1), documents(200, 2), UNUSUAL]
    valid = [documents(30, 3)]
    first = write(folder / "first.txt", train[0], last=False)
    # A byte order mark and four different blank lines at the start; no end of line at the end.
    first.write_bytes(b"\xef\xbb\xbf\n \n\t\r\n" + ZERO_WIDTH.encode() + b"\n" + first.read_bytes())
    return {
        "train": [
            first,
            write(folder / "second.txt.gz", train[1], "\r\n", packed=True),
            write(folder / "odd.txt", UNUSUAL),
        ],
        "valid": [write(folder / "valid.txt", valid[0])],
        "train_documents": sum(train, []),
        "valid_documents": valid[0],
    }


def arguments(text, dest, *more):
    return ["--train"] + text["train"] + ["--valid"] + text["valid"] + ["--dest", dest] + list(more)


OPTIONS = ["--vocab-size", 150, "--lowercase", "--workers", 3]


@pytest.fixture(scope="module")
def prepared(text, tmp_path_factory):
    dest = tmp_path_factory.mktemp("prepared") / "data"
    result = succeed("prepare.sh", *arguments(text, dest, *OPTIONS))
    return {"dest": dest, "result": result}


def assert_same_text(folder, split, documents):
    """Checks that fairseq reads these documents: each line has SentencePiece's ids, and a blank line ends each."""
    from fairseq.data import Dictionary, data_utils

    processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "sentencepiece.model"))
    dictionary = Dictionary.load(os.path.join(folder, "dict.txt"))
    assert len(dictionary) == processor.get_piece_size() + 1
    data = data_utils.load_indexed_dataset(os.path.join(folder, split), dictionary)
    lines = [line for document in documents for line in [*document, ""]]
    assert len(data) == len(lines)
    for item, line in zip(data, lines):
        expected = processor.encode(line)
        assert item.tolist() == [number + 1 if number else dictionary.unk() for number in expected] + [dictionary.eos()]
        if 0 not in expected:
            assert "".join(dictionary[number] for number in item[:-1]) == processor.normalize(line)


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


def test_shards_by_several_machines_at_once(text, prepared, tmp_path):
    """Three shards of the same text, by three processes that start at once, as on three machines."""
    dest = tmp_path / "data"
    options = ["--shards", 3, "--vocab-size", 150, "--lowercase", "--workers", 1]
    processes = [
        subprocess.Popen(
            command("prepare.sh", *arguments(text, dest, "--shard", shard, *options)),
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for shard in range(3)
    ]  # fmt: skip
    for process in processes:
        output, errors = process.communicate()
        assert process.returncode == 0, output + errors
    folders = output.splitlines()[-1].split(":")
    assert folders == [str(dest / f"shard{number}") for number in range(3)]
    for number, folder in enumerate(folders):
        assert_same_text(folder, "train", text["train_documents"][number::3])
        assert os.path.exists(os.path.join(folder, "valid.idx")) == (number == 0)
        assert snapshot(folder)["sentencepiece.model"] == snapshot(prepared["dest"])["sentencepiece.model"]
    assert_same_text(folders[0], "valid", text["valid_documents"])
    output = succeed("check.py", dest).stdout
    assert "train: " in output and f"{len(text['train_documents']):,} documents" in output


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


@pytest.fixture
def refused(monkeypatch):
    """A function that runs prepare.py in this process with options that it must refuse; returns its one line."""

    def run_main(*options):
        monkeypatch.setattr(sys, "argv", ["prepare.py", *map(str, options)])
        with pytest.raises((basics.InputError, FileNotFoundError)) as error:
            prepare.main()
        (line,) = str(error.value).splitlines()
        return line

    return run_main


def test_missing_empty_and_undecodable_files(text, tmp_path, refused):
    def error(name, content=None):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        options = ["--train", *text["valid"], tmp_path / name, "--valid", *text["valid"], "--vocab-size", 300]
        return refused(*options, "--dest", tmp_path / "dest")

    assert f"{tmp_path / 'missing.txt'} does not exist" in error("missing.txt")
    assert "empty.txt is empty" in error("empty.txt", b"")
    message = error("latin.txt", "ab\n\ncd caf\u00e9 ef\n".encode("latin-1"))
    assert "latin.txt: line 3" in message and "0xe9" in message and "byte 7" in message
    packed = gzip.compress(random.Random(1).randbytes(1000))
    assert "cut.gz: corrupt gzip after line" in error("cut.gz", packed[:500])
    assert "plain.txt.gz: corrupt gzip after line 0 (Not a gzipped file" in error("plain.txt.gz", b"not packed")


def test_a_wrong_size_of_the_vocabulary_and_the_corrected_command(text, tmp_path, refused):
    valid = text["valid"][0]
    options = ["--train", valid, "--valid", valid, "--dest", tmp_path / "dest", "--only-vocabulary", "--vocab-size"]
    error = refused(*options, 50000)
    most = error.split()[-1]
    assert "--vocab-size 50000 is too large" in error and most.isdigit()
    succeed("prepare.sh", *options, most)
    assert len((tmp_path / "dest" / "dict.txt").read_text(encoding="utf-8").split("\n")) == int(most) - 3 + 1


def test_a_destination_with_another_corpus_or_other_options(text, prepared, tmp_path, refused):
    before = snapshot(prepared["dest"])
    error = refused(*arguments(text, prepared["dest"], "--vocab-size", 700, "--shards", 2))
    for change in ["--vocab-size was 150 and is 700", "--lowercase was True and is False", "--shards was 1 and is 2"]:
        assert change in error
    other = dict(text, train=text["train"][:2] + text["valid"])
    assert "train differs" in refused(*arguments(other, prepared["dest"], *OPTIONS))
    assert snapshot(prepared["dest"]) == before
    (tmp_path / "train.bin").write_bytes(b"x")
    assert "contains train.bin but no prepare.json" in refused(*arguments(text, tmp_path, *OPTIONS))


def test_fewer_documents_than_shards(text, prepared, tmp_path, refused):
    text = dict(text, train=[write(tmp_path / "train.txt", documents(3, 6))])
    options = ["--spm-model", prepared["dest"] / "sentencepiece.model", "--shards", 4, "--shard", 1, "--workers", 1]
    error = refused(*arguments(text, tmp_path / "four", *options))
    assert "3 documents" in error and "use fewer --shards" in error
    assert not list((tmp_path / "four" / "shard1").glob("train*"))


@pytest.mark.parametrize(
    "options, words",
    [
        ([], "give --vocab-size, or a trained model with --spm-model"),
        (["--vocab-size", "0"], "argument --vocab-size: 0 is not a positive integer"),
        (["--vocab-size", "300", "--shards", "2", "--shard", "2"], "--shard 2: expected 0 to 1"),
        (["--spm-model", "some.model", "--lowercase"], "--lowercase is for training a model"),
    ],
)
def test_options_that_contradict_each_other(text, tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.setattr(sys, "argv", ["prepare.py", *map(str, arguments(text, tmp_path, *options))])
    with pytest.raises(SystemExit, match="1"):
        prepare.parse_args()
    assert words in capsys.readouterr().err


def test_models_that_fairseq_would_misread(tmp_path):
    lines = [line for document in documents(50, 7) for line in document]
    with open(tmp_path / "model", "wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=writer, vocab_size=40, minloglevel=2,
            user_defined_symbols=["a" + NEXT_LINE + "b"],
        )  # fmt: skip
    with pytest.raises(basics.InputError, match=r"piece 'a\\x85b' is a special symbol"):
        write_dict.load_model(str(tmp_path / "model"))
