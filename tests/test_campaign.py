"""Stops at random moments, from text to a trained model: the results are those without.

    CAMPAIGN_SEED=1 CAMPAIGN_TRIES=20 python -m pytest -m nightly tests/test_campaign.py

What a try does follows from the seed and its number; where a signal arrives also depends on how fast the machine is.
287 tries of a longer version of this program (seed 21, November 2026) had no failure.
"""

import os
import random
import signal
import subprocess
import time

import pytest

from conftest import REAL_SCRIPTS_ENVIRONMENT, ROOT, TINY, command, prepare
from maelm_fairseq.engine.stopping import STOPPED
from training import assert_same_weights, train, updates

SEED, TRIES = (int(os.environ.get(f"CAMPAIGN_{name}", default)) for name, default in [("SEED", 1), ("TRIES", 1)])
WHOLE = ["--total-num-update", 30, "--save-interval-updates", 6, "--max-update", 30, "--num-workers", 1]
pytestmark = [pytest.mark.nightly, pytest.mark.parametrize("number", range(TRIES))]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with data and a run without interruptions, and how many seconds each took."""
    folder, start = tmp_path_factory.mktemp("base"), time.time()
    prepare(folder)
    prepared = time.time()
    train(folder / "data", folder / "run", *WHOLE)
    return folder, prepared - start, time.time() - prepared


@pytest.fixture
def rng(number, request):
    return random.Random(f"{SEED}:{request.function.__name__}:{number}")


def interrupted(arguments, rng, numbers, seconds):
    """Starts a command up to three times, and sends its process group a signal; yields (signal, exit status)."""
    for _ in range(rng.randint(1, 3)):
        number = rng.choice(numbers)
        process = subprocess.Popen(
            list(map(str, arguments)), start_new_session=True, env=REAL_SCRIPTS_ENVIRONMENT, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            process.wait(rng.uniform(0, 1.1) * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, number)
        yield number, process.wait()


def test_preparation_stopped(base, tmp_path, rng):
    """Signals to preparation, then the same command: the same bytes as without."""
    folder, seconds, _ = base
    prepare_sh = [ROOT / "data-prep" / "prepare.sh", "--dest", tmp_path, "--vocab-size", 100, "--lowercase"]
    prepare_sh += ["--train", folder / "train.txt", "--valid", folder / "valid.txt"]
    for number, status in interrupted(prepare_sh, rng, [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], seconds):
        assert status in (0, -number, 128 + number), status
    subprocess.run(list(map(str, prepare_sh)), env=REAL_SCRIPTS_ENVIRONMENT, check=True)
    for name in ["dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"]:
        assert (tmp_path / name).read_bytes() == (folder / "data" / name).read_bytes(), name


def test_training_stopped(base, tmp_path, rng):
    """Signals to training, then the same command: the same weights."""
    folder, _, seconds = base
    options = [folder / "data", *TINY, *WHOLE, "--seed", 1, "--save-dir", tmp_path]
    numbers = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL]
    for number, status in interrupted(command("fairseq-train", *options, real=True), rng, numbers, seconds):
        assert status in (0, STOPPED, -number, 128 + number), status
    train(folder / "data", tmp_path, *WHOLE)
    assert updates(tmp_path) == 30
    assert_same_weights(tmp_path, folder / "run", 0)
