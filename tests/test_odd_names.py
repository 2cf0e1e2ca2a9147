"""File names with spaces, line breaks, quotes, dollar signs and leading dashes through the recipes; no colons."""

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


def script(folder, name, *options, status=0):
    done = subprocess.run(
        [str(ROOT / name), *map(str, options)],
        cwd=str(folder), env=SCRIPTS_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == status, done.stdout[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder with an odd name: text, data, and a checkpoint, all of them with odd names too."""
    folder = tmp_path_factory.mktemp("odd") / ODD
    folder.mkdir()
    for split, seed in [("train", 1), ("valid", 2)]:
        (folder / (split + ODD)).write_text(text_of(documents(100, seed)), encoding="utf-8")
    inputs = ["--train", folder / ("train" + ODD), "--valid", "valid" + ODD]
    script(folder, "data-prep/prepare.sh", *inputs, f"--dest={ODD}data", "--vocab-size", 100, "--workers", 1)
    relative = ["--gpus", 0, "--data", ODD + "data", "--save-dir", ODD + "save"]
    script(folder, "recipes/pretrain_small.sh", *relative, *MODEL)
    return folder


def test_fine_tuning(odd):
    checkpoint = ["--checkpoint", odd / (ODD + "save") / "checkpoint_last.pt"]
    (odd / "tasks" / ODD).mkdir(parents=True)
    for name in ("train", "dev", "test"):
        rows = "".join(f"kan losh mipo\t{'ab'[number % 2]}\n" for number in range(20))
        (odd / "tasks" / ODD / f"{name}.tsv").write_text("sentence\tlabel\n" + rows)
    task, given = "--task=" + ODD, ["--input", "tasks", f"--vocabulary={ODD}data", "--max-tokens", 30]
    script(odd, "data-prep/glue.sh", *given, task, *checkpoint, f"--dest={ODD}glue")
    script(odd, "recipes/finetune_glue.sh", task, *checkpoint, f"--data={ODD}glue", f"--save-dir={ODD}runs", *FINETUNE)
    assert (odd / (ODD + "runs") / "submission" / (ODD + ".tsv")).exists()


def test_colons_in_the_path_of_data_are_refused(odd, tmp_path):
    """fairseq would take them for several folders."""
    train = odd / ("train" + ODD)
    os.symlink(str(odd / (ODD + "data")), str(tmp_path / "c:d"))
    prepare = ["--train", train, "--valid", train, "--vocab-size", 100, "--dest", tmp_path / "a:b"]
    pretrain = ["--gpus", 0, "--data", tmp_path / "c:d", "--save-dir", tmp_path / "save"]
    for name, options in [("data-prep/prepare.sh", prepare), ("recipes/pretrain_small.sh", pretrain)]:
        printed = script(tmp_path, name, *options, status=1)
        assert "Traceback" not in printed and "separates folders by colons" in printed
