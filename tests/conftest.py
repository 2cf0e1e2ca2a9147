"""What the tests share: a tiny corpus, binarized by fairseq, and ways to run commands.

Commands that tests start are forks of a process that has imported fairseq and torch (`forks.py`),
except where a test passes `real=True`. `TESTS_FORK=0` in the environment makes all of them real
processes.
"""

import gc
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import forks

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "maelm_fairseq"
BIN = Path(sys.executable).parent

# Several torch processes on few cores would otherwise slow each other down by busy waiting.
os.environ["OMP_NUM_THREADS"] = "1"
# A suite that runs in the background ignores SIGINT, and the processes it starts would too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests import the programs of these folders, and the modules that lie beside them.
FOLDERS = ["", "recipes", "recipes/demo", "experiments", "data-prep", "benchmarks"]
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]
# The commands must use this repository's package, too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

from maelm_fairseq.base.errors import UsageError, one_line  # noqa: E402

# The commands that forks can stand in for.
FORKED = [
    "python",
    "fairseq-train",
    "fairseq-hydra-train",
    "fairseq-validate",
    "fairseq-preprocess",
]


def stand_ins():
    """A temporary folder of commands that run in forks: `python`, and fairseq's console scripts."""
    folder = Path(tempfile.mkdtemp(prefix="forks-"))
    (folder / "environment.json").write_text(json.dumps(forks.read_at_start(os.environ)))
    for name in FORKED:
        stand_in = [sys.executable, "-IS", forks.__file__, folder / "socket", BIN / name]
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(map(str, stand_in))} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ  # of a process that distributes the tests
FORKS = BIN
if os.environ.get("TESTS_FORK") != "0":
    FORKS = Path(os.environ["TESTS_FORKS"]) if IS_WORKER else stand_ins()
    os.environ["TESTS_FORKS"] = str(FORKS)  # all workers share a server

# For tests that start programs and scripts of the repository themselves: `PYTHON` takes the place
# of `sys.executable`.
PYTHON = str(FORKS / "python")
REAL_PATH = f"{BIN}:{os.environ['PATH']}"
REAL_SCRIPTS_ENVIRONMENT = dict(os.environ, PATH=REAL_PATH, PYTHON=sys.executable)
SCRIPTS_ENVIRONMENT = dict(REAL_SCRIPTS_ENVIRONMENT, PATH=f"{FORKS}:{REAL_PATH}")

# Interpreters of environments with transformers, which `make test` creates.
TRANSFORMERS = [path for path in os.environ.get("TESTS_TRANSFORMERS", "").split(os.pathsep) if path]

TINY = [
    "--user-dir", PLUGIN, "--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_tiny",
    "--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 64,
    "--tokens-per-sample", 32, "--max-positions", 32, "--batch-size", 8,
    "--optimizer", "adam", "--lr", 0.001, "--lr-scheduler", "polynomial_decay",
    "--warmup-updates", 2, "--total-num-update", 40, "--max-update", 4,
    "--cpu", "--num-workers", 0, "--log-format", "json", "--log-interval", 1,
]  # fmt: skip

# Options of fairseq-validate.
VALIDATE = ["--user-dir", PLUGIN, "--task", "mae_lm", "--cpu", "--batch-size", 8]
TINY_MODEL = {
    "_name": "mae_lm_tiny",
    "encoder_embed_dim": 32,
    "encoder_ffn_embed_dim": 64,
    "max_positions": 32,
}


def pytest_collection_finish():
    gc.freeze()  # The garbage collector need not visit what has been imported.


def pytest_configure(config):
    """Starts the process that the commands in FORKS are forks of.

    Should the process of the tests be killed, the server's standard input is closed.
    """
    config.fork_server = None
    if FORKS != BIN and not IS_WORKER:
        command = [sys.executable, forks.__file__, FORKS / "socket"]
        config.fork_server = subprocess.Popen(
            command, stdin=subprocess.PIPE, start_new_session=True
        )


def pytest_unconfigure(config):
    if config.fork_server is not None:
        config.fork_server.stdin.close()
        config.fork_server.wait()
        shutil.rmtree(FORKS)


@pytest.fixture(scope="session", autouse=True)
def fork_server():
    """Waits until commands can be forked."""
    while FORKS != BIN and not (FORKS / "socket").exists():
        assert FORKS.exists(), "the server of forks has ended"
        time.sleep(0.05)


def command(program, *arguments, real=False):
    """A console script of this environment, with its arguments, as a list of strings."""
    folder = FORKS if (FORKS / program).exists() and not real else BIN
    return [str(folder / program), *map(str, arguments)]


def run(program, *arguments, cwd=None, real=False):
    """Runs a console script; returns the finished process, its standard error within `stdout`."""
    return subprocess.run(
        command(program, *arguments, real=real),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",  # names of files need not be UTF-8
    )


def succeed(program, *arguments, cwd=None, real=False):
    """Runs a console script that must exit with 0; returns what it printed."""
    done = run(program, *arguments, cwd=cwd, real=real)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def script(path, *arguments, status=0, cwd=None, **environment):
    """Runs a script, or a Python program, that must end with this status.

    Returns the finished process.
    """
    interpreter = [PYTHON] if path.endswith(".py") else []
    done = subprocess.run(
        [*interpreter, str(ROOT / path), *map(str, arguments)],
        env={**SCRIPTS_ENVIRONMENT, **environment},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == status, (done.stdout + done.stderr)[-5000:]
    return done


def error_of_script(path, *arguments, **options):
    """Runs a script that must fail; returns its one line of error."""
    done = script(path, *arguments, status=1, **options)
    assert "Traceback" not in done.stdout + done.stderr
    (error,) = [line for line in done.stderr.splitlines() if "error: " in line]
    return error


def run_main(main, *arguments, **environment):
    """Runs a program's `main()` with these arguments, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["program", *map(str, arguments)])
        for name, value in environment.items():
            patch.setenv(name, value)
        return main()


def error_of(main, *arguments, **environment):
    """Runs a program's `main()`, which must refuse these arguments; returns its one line of error.

    It runs in this process.
    """
    with pytest.raises(UsageError) as raised:
        run_main(main, *arguments, **environment)
    # As the program prints it.
    return one_line(raised.value).encode("utf-8", "backslashreplace").decode()


def refuses(message, call, *arguments, error=ValueError, **options):
    """Checks that a call refuses its arguments in one line that a regular expression matches."""
    with pytest.raises(error, match=message) as raised:
        call(*arguments, **options)
    assert "\n" not in str(raised.value)


def hydra(tmp_path, data, model, **options):
    """Writes a complete YAML file for `fairseq-hydra-train`; returns its arguments."""
    log = {"log_format": "json", "log_interval": 1}
    schedule = {"_name": "polynomial_decay", "warmup_updates": 2, "total_num_update": 40}
    config = {
        "common": {"user_dir": str(PLUGIN), "cpu": True, **log, "seed": 1},
        "task": {"_name": "mae_lm", "data": str(data), "tokens_per_sample": 32},
        "criterion": {"_name": "mae_lm"},
        "model": model,
        "dataset": {"batch_size": 8, "num_workers": 1},
        "optimizer": {"_name": "adam"},
        "optimization": {"lr": [0.001], "max_update": 4, **options},
        "lr_scheduler": schedule,
        "checkpoint": {"save_dir": str(tmp_path / "hydra")},
    }
    (tmp_path / "run.yaml").write_text("# @package _group_\n" + json.dumps(config))
    outputs = f"hydra.run.dir={tmp_path}/outputs"
    return ["--config-dir", tmp_path, "--config-name", "run", outputs]


def documents(count, seed, lines=6):
    """Documents of generated text, as lists of lines.

    Each word is followed by one of three others, so that there is something for a model to learn.
    """
    rng = random.Random(seed)
    beginnings = ["ka", "lo", "mi", "ru", "se", "ti"]
    endings = ["n", "sh", "po", "la"]
    stems = [beginning + ending for beginning in beginnings for ending in endings]
    followers = {stem: random.Random(stem).sample(stems, 3) for stem in stems}
    generated = []
    for _ in range(count):
        document = []
        for _ in range(rng.randint(1, lines)):
            words = [rng.choice(stems)]
            for _ in range(rng.randint(0, 9)):
                words.append(rng.choice(followers[words[-1]]))
            document.append(" ".join(words))
        generated.append(document)
    return generated


def binarize(folder, splits, dictionary=None):
    """Writes lines of tokens as data that fairseq reads.

    `dictionary` is a list of symbols, or the path of a dict.txt to use.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["--only-source", "--destdir", folder, "--workers", 1]
    for split, text in splits.items():
        raw = folder.parent / f"{folder.name}.{split}.txt"
        raw.write_text(text, encoding="utf-8")
        arguments += [f"--{split}pref", raw]
    if dictionary is not None:
        if not isinstance(dictionary, Path):
            entries = [f"{symbol} 1\n" for symbol in dictionary]
            dictionary = folder.parent / f"{folder.name}.dict.txt"
            dictionary.write_text("".join(entries), encoding="utf-8")
        arguments += ["--srcdict", dictionary]
    succeed("fairseq-preprocess", *arguments)
    return folder


def text_of(docs):
    """The text of documents: each of their lines on its own, a blank line after each document."""
    text = ""
    for document in docs:
        for line in document:
            text += line + "\n"
        text += "\n"
    return text


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder of binarized text: train and valid, documents separated by blank lines."""
    folder = tmp_path_factory.mktemp("corpus") / "data"
    splits = {"train": text_of(documents(120, 1)), "valid": text_of(documents(20, 2))}
    return binarize(folder, splits)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Generated text, prepared by data-prep/prepare.sh: a folder of data and their vocabulary."""
    folder = tmp_path_factory.mktemp("prepared")
    for split, seed in [("train", 1), ("valid", 2)]:
        (folder / f"{split}.txt").write_text(text_of(documents(100, seed)), encoding="utf-8")
    texts = ["--train", folder / "train.txt", "--valid", folder / "valid.txt"]
    options = ["--dest", folder / "data", "--vocab-size", 100, "--lowercase"]
    script("data-prep/prepare.sh", *options, *texts)
    return folder / "data"


@pytest.fixture(scope="session")
def pretrained(prepared, tmp_path_factory):
    """Data with a vocabulary, and the checkpoint of a tiny model with 32 positions."""
    folder = tmp_path_factory.mktemp("pretrained")
    succeed("fairseq-train", prepared, *TINY, "--max-update", 2, "--save-dir", folder)
    return prepared, folder / "checkpoint_last.pt"
