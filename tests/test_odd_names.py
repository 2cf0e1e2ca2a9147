"""File names with spaces, line breaks, quotes, dollar signs and leading dashes through every recipe; no colons."""

import json
import os
import subprocess

import pytest

from conftest import ROOT, SCRIPTS_ENVIRONMENT, documents, text_of

ODD = "-odd \"na'me\n$HOME *"
MODEL = [
    "--arch", "mae_lm_tiny", "--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 64, "--encoder-layers", 2,
    "--encoder-attention-heads", 4, "--tokens-per-sample", 32, "--max-positions", 64, "--max-update", 2,
    "--total-num-update", 40, "--warmup-updates", 1, "--batch-size", 8, "--num-workers", 0,
]  # fmt: skip
FINETUNE = ["--seeds", 1, "--epochs", 1, "--lr", 1e-4, "--warmup-ratio", 0.1, "--batch-size", 8]


def script(folder, name, *options):
    return subprocess.run(
        [str(ROOT / name), *map(str, options)],
        cwd=str(folder), env=SCRIPTS_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def succeed(folder, name, *options):
    done = script(folder, name, *options)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder with an odd name: text, data, and a checkpoint, all of them with odd names too."""
    folder = tmp_path_factory.mktemp("odd") / ODD
    folder.mkdir()
    for split, seed in [("train", 1), ("valid", 2)]:
        (folder / (split + ODD)).write_text(text_of(documents(100, seed)), encoding="utf-8")
    inputs = ["--train", folder / ("train" + ODD), "--valid", "valid" + ODD]
    succeed(folder, "data-prep/prepare.sh", *inputs, f"--dest={ODD}data", "--vocab-size", 100, "--workers", 1)
    relative = ["--gpus", 0, "--data", ODD + "data", "--save-dir", ODD + "save"]
    succeed(folder, "recipes/pretrain_small.sh", *relative, *MODEL)
    return folder


def test_pretraining(odd):
    """In the folder itself, where names begin with a dash, and from another one."""
    assert {"checkpoint_last.pt", "finished", "train.log"} <= set(os.listdir(str(odd / (ODD + "save"))))
    absolute = ["--gpus", 0, "--data", odd / (ODD + "data"), "--save-dir", odd / "a:b"]
    succeed(ROOT, "recipes/pretrain_small.sh", *absolute, *MODEL)
    assert "has finished" in succeed(ROOT, "recipes/pretrain_small.sh", *absolute, *MODEL)


def test_fine_tuning(odd):
    checkpoint, vocabulary = odd / (ODD + "save") / "checkpoint_last.pt", f"--vocabulary={ODD}data"
    (odd / "tasks" / ODD).mkdir(parents=True)
    for name in ("train", "dev", "test"):
        rows = "".join(f"kan losh mipo\t{'ab'[number % 2]}\n" for number in range(20))
        (odd / "tasks" / ODD / f"{name}.tsv").write_text("sentence\tlabel\n" + rows)
    task, checkpoint = "--task=" + ODD, ["--checkpoint", checkpoint]
    options = ["--input", "tasks", task, vocabulary, "--max-tokens", 30, *checkpoint]
    succeed(odd, "data-prep/glue.sh", *options, f"--dest={ODD}glue")
    succeed(odd, "recipes/finetune_glue.sh", task, *checkpoint, f"--data={ODD}glue", f"--save-dir={ODD}runs", *FINETUNE)
    assert (odd / (ODD + "runs") / "submission" / (ODD + ".tsv")).exists()
    questions = [
        {"id": str(i), "question": "kan ?", "answers": [{"text": "losh", "answer_start": 4}]} for i in range(12)
    ]
    content = {"data": [{"paragraphs": [{"context": "kan losh mipo rula sesh tipo", "qas": questions}]}]}
    (odd / (ODD + "questions")).write_text(json.dumps(content))
    options = [f"--train={ODD}questions", f"--dev={ODD}questions", vocabulary, "--max-tokens", 30, "--max-question", 9]
    succeed(odd, "data-prep/squad.sh", *options, *checkpoint, f"--dest={ODD}squad")
    succeed(odd, "recipes/finetune_squad.sh", *checkpoint, f"--data={ODD}squad", f"--save-dir={ODD}runs", *FINETUNE)
    assert (odd / (ODD + "runs") / "submission" / "squad_1.1.json").exists()


def test_miniature(odd):
    assert "to do: mlm-1" in succeed(odd, "recipes/reproduce.sh", "--dry-run", "--updates", 4, f"--dest={ODD}miniature")


def refused(folder, name, *options):
    done = script(folder, name, *options)
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "separates folders by colons" in line]
    assert "path without one" in line


def test_colons_in_the_path_of_data_are_refused(odd, tmp_path):
    """fairseq would take them for several folders."""
    dest = ["--dest", tmp_path / "a:b"]
    train = odd / ("train" + ODD)
    refused(odd, "data-prep/prepare.sh", "--train", train, "--valid", train, "--vocab-size", 100, *dest)
    refused(odd, "data-prep/glue.sh", "--input", "tasks", "--vocabulary", odd, *dest)
    refused(odd, "data-prep/squad.sh", "--train", train, "--dev", train, "--vocabulary", odd, *dest)
    os.symlink(str(odd / (ODD + "data")), str(tmp_path / "c:d"))
    refused(odd, "recipes/pretrain_small.sh", "--gpus", 0, "--data", tmp_path / "c:d", "--save-dir", tmp_path / "save")
