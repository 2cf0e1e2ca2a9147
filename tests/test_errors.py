"""Wrong input: one clear error, exit status 1."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from conftest import ROOT, TINY, TINY_MODEL, binarize, command, documents, hydra, run, succeed, text_of


def refused(*arguments, real=False):
    """Runs fairseq-train, which must fail; returns its one line of error."""
    done = run("fairseq-train", *arguments, real=real)
    assert done.returncode == 1, done.stdout[-3000:]
    errors = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in done.stdout, done.stdout[-3000:]
    return errors[0]


OPTIONS = {
    "--mask-prob 0": "--mask-prob 0.0 must be over 0 and under 1",
    "--mask-prob 1": "--mask-prob 1.0 must be over 0 and under 1",
    "--random-token-prob 0.6 --leave-unmasked-prob 0.5": "--random-token-prob 0.6 add up to more than 1",
    "--random-token-prob -0.1": "--random-token-prob -0.1 must be from 0 to 1",
    "--encoder-mask-fraction 1.5": "--encoder-mask-fraction 1.5 must be from 0 to 1",
    "--tokens-per-sample 33": "--tokens-per-sample 33, but the model has 32 positions: lower it, or raise",
    "--tokens-per-sample 1": "--tokens-per-sample 1 must be at least 2",
    "--max-tokens 16": "--max-tokens must be at least --tokens-per-sample (32)",
    "--relative-position-num-buckets 31": "--relative-position-num-buckets 31 must be even",
    "--relative-position-max-distance 9": "--relative-position-max-distance 9 must be over 9",
    "--relative-position-num-buckets 0 --decoder-relative-bias": "needs --relative-position-num-buckets over 0",
    "--relative-position-num-buckets 0 --relative-position-local-init": "needs --relative-position-num-buckets over 0",
    "--encoder-attention-heads 3": "--encoder-attention-heads 3 must divide --encoder-embed-dim 32",
    "--attention-dropout 1": "--attention-dropout 1.0 must be at least 0 and less than 1",
    "--encoder-layers 0": "--encoder-layers 0 must be at least 1",
    "--decoder-layers 0": "--decoder-layers 0 needs --encoder-mask-fraction 1",
    "--mask-whole-words": "--mask-whole-words needs a SentencePiece vocabulary",
    "--bf16": "use --bf16-autocast",
    "--bf16-autocast --amp": "--bf16-autocast contradicts --amp",
}


@pytest.mark.parametrize("options", OPTIONS)
def test_options(data, tmp_path, options):
    assert OPTIONS[options] in refused(data, *TINY, "--save-dir", tmp_path, *options.split())


def test_missing_and_empty_data_folder(data, tmp_path):
    arguments = [*TINY, "--save-dir", tmp_path / "run"]
    assert f"{tmp_path}/nosuch/dict.txt: not found (no such folder)" in refused(
        tmp_path / "nosuch", *arguments, real=True
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    assert f"{empty}/dict.txt: not found (the folder is empty or has no dict.txt)" in refused(empty, *arguments)
    shutil.copy(data / "dict.txt", empty)
    assert f"{empty}/valid.idx: not found" in refused(empty, *arguments)
    for name in ["valid.bin", "valid.idx"]:
        shutil.copy(data / name, empty)
    assert f"{empty}/train.idx: not found" in refused(empty, *arguments)


def test_complete_doc_without_blank_lines(data, tmp_path):
    text = text_of(documents(5, 3)).replace("\n\n", "\n")
    folder = binarize(tmp_path / "data", {"train": text, "valid": text}, data / "dict.txt")
    error = refused(folder, *TINY, "--save-dir", tmp_path / "run")
    assert f"{folder}/valid: no blank line among" in error and "--sample-break-mode complete" in error


@pytest.mark.parametrize("workers", [0, 2])
def test_mask_in_the_data(tmp_path, workers):
    text = text_of(documents(5, 3))
    symbols = sorted(set(text.split())) + ["<mask>"]
    folder = binarize(tmp_path / "data", {"train": text + "kan <mask>\n\n", "valid": text}, symbols)
    error = refused(folder, *TINY, "--save-dir", tmp_path / "run", "--num-workers", workers)
    assert f"{folder}/train: <mask> in block" in error


def test_shards_of_different_vocabularies(data, tmp_path):
    other = binarize(tmp_path / "other", {"train": "x y\n\n"})
    arguments = [*TINY, "--save-dir", tmp_path / "run", "--max-update", 1000]
    assert f"{other}/dict.txt differs from that of {data}" in refused(f"{data}:{other}", *arguments)


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    succeed("fairseq-train", data, *TINY, "--save-dir", folder, "--max-update", 1)
    return folder / "checkpoint_last.pt"


def test_checkpoint_of_another_size(data, tmp_path, checkpoint):
    restore = ["--save-dir", tmp_path, "--restore-file", checkpoint]
    error = refused(data, *TINY, *restore, "--encoder-layers", 3, "--relative-position-num-buckets", 8)
    assert "--encoder-layers 2 in the checkpoint, 3 here;" in error
    assert "; --relative-position-num-buckets 32 in the checkpoint, 8 here" in error


def test_checkpoint_of_another_vocabulary(data, tmp_path, checkpoint):
    symbols = [line.split()[0] for line in (data / "dict.txt").read_text().splitlines()]
    text = text_of(documents(5, 3))
    restore = ["--save-dir", tmp_path / "run", "--restore-file", checkpoint]
    larger = binarize(tmp_path / "larger", {"train": text, "valid": text}, [*symbols, "more"])
    assert "vocabulary (dict.txt)" in refused(larger, *TINY, *restore)
    turned = binarize(tmp_path / "turned", {"train": text, "valid": text}, symbols[::-1])
    assert "trained with another dict.txt (of the same size)" in refused(turned, *TINY, *restore)


def test_hydra(data, tmp_path):
    arguments = hydra(tmp_path, data, TINY_MODEL)
    for override, message in {
        "+task.mask_prob=2": "--mask-prob 2.0 must be over 0 and under 1",
        "model.encoder_embed_dim=33": "--encoder-attention-heads 2 must divide --encoder-embed-dim 33",
        "task.data=/nowhere": "/nowhere/dict.txt: not found",
    }.items():
        done = subprocess.run(
            command("fairseq-hydra-train", *arguments, override),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert done.returncode == 1 and "Traceback" not in done.stderr and "Error executing" not in done.stderr
        error = done.stderr.splitlines()[-1]  # after Hydra's own warnings
        assert error.startswith("error: ") and message in error
    done = run("fairseq-hydra-train", *arguments, "optimization.lr=[]")
    assert done.returncode == 1 and "Traceback" in done.stdout


# fairseq-train on two pretended GPUs: one process that starts two.
SPAWN = "import torch; torch.cuda.device_count = lambda: 2; from fairseq_cli.train import cli_main; cli_main()"


def test_in_the_process_of_each_gpu(data, tmp_path):
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port = listening.getsockname()[1]
    options = ["--distributed-backend", "gloo", "--distributed-world-size", 2, "--mask-prob", 2]
    options += ["--distributed-init-method", f"tcp://localhost:{port}", "--save-dir", tmp_path]
    done = subprocess.run(
        [sys.executable, "-c", SPAWN, str(data), *map(str, [*TINY, *options])],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout[-3000:]
    assert done.stdout.splitlines()[-1] == "error: --mask-prob 2.0 must be over 0 and under 1"


def test_other_errors_keep_their_stack_trace():
    code = "import fairseq_cli.train, maelm_fairseq; {}['other']"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" in done.stderr and "KeyError: 'other'" in done.stderr


def test_a_fairseq_that_does_not_work_is_named_with_the_fix(tmp_path):
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq" / "__init__.py").write_text("raise ValueError('mutable default for field common')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", "import maelm_fairseq"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    kind, message = done.stderr.strip().splitlines()[-1].split(": ", 1)
    assert kind == "maelm_fairseq.errors.InstallationError" and "pip install" in message
    version = "{}.{}".format(*sys.version_info[:2])
    found = f"fairseq does not work on this Python {version} (ValueError: mutable default for field common)"
    assert message.startswith(found)
