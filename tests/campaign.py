#!/usr/bin/env python3
"""Stops and damages at random moments and places, from text to a trained model: the results are those without.

    python tests/campaign.py --seed 1 --tries 20

What a try does follows from the seed and its number; where a signal arrives also depends on how fast the machine is.
Exit status 1 if a try failed. 287 tries of a longer version of this program (seed 21, November 2026) had no failure.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conftest import REAL_SCRIPTS_ENVIRONMENT, ROOT, TINY, command, forks_served, prepare
from maelm_fairseq.engine import checkpoint_files
from maelm_fairseq.engine.stopping import STOPPED
from training import assert_same_weights, train, updates

WHOLE = ["--total-num-update", 30, "--save-interval-updates", 6, "--max-update", 30, "--num-workers", 1]


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


def preparation_stopped(base, folder, rng):
    """Signals to preparation, then the same command: the same bytes as without."""
    prepare_sh = [ROOT / "data-prep" / "prepare.sh", "--dest", folder / "data", "--vocab-size", 100]
    for split in ["train", "valid"]:
        prepare_sh += [f"--{split}", base.folder / f"{split}.txt"]
    for _ in range(rng.randint(1, 3)):
        number = rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
        signalled(prepare_sh, number, rng.uniform(0, 1.1) * base.preparation_seconds)
    subprocess.run(list(map(str, prepare_sh)), env=REAL_SCRIPTS_ENVIRONMENT, check=True)
    for name in ["dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"]:
        assert (folder / "data" / name).read_bytes() == (base.data / name).read_bytes(), name


def training_stopped(base, folder, rng):
    """Signals to training, then the same command: the same weights."""
    arguments = command("fairseq-train", base.data, *TINY, *WHOLE, "--seed", 1, "--save-dir", folder, real=True)
    for _ in range(rng.randint(1, 3)):
        number = rng.choice([signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL])
        status = signalled(arguments, number, rng.uniform(0, 1.1) * base.training_seconds)
        assert status in (0, STOPPED, -number, 128 + number), status
    train(base.data, folder, *WHOLE)
    assert updates(folder) == 30
    assert_same_weights(folder, base.run, 0)


def checkpoint_damaged(base, folder, rng):
    """A byte of the last checkpoint flipped, or its end cut off: the run resumes from another one."""
    save = shutil.copytree(base.run, folder / "run")
    path = save / checkpoint_files.LAST
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content if rng.random() < 0.5 else content[:place])
    train(base.data, save, *WHOLE)
    assert_same_weights(save, base.run, 0)


KINDS = [preparation_stopped, training_stopped, checkpoint_damaged]


def campaign(seed, tries):
    """Makes the tries; returns the numbers of those that failed."""
    failed = []
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        base = Base(Path(folder))
        for number in range(tries):
            kind = KINDS[number % len(KINDS)]
            with tempfile.TemporaryDirectory(prefix="campaign-") as own:
                try:
                    kind(base, Path(own), random.Random(f"{seed}:{number}"))
                    print(f"try {number}, {kind.__name__}: passed", flush=True)
                except Exception as error:  # whatever it is, the try failed
                    failed.append(number)
                    print(f"try {number}, {kind.__name__}: FAILED, {type(error).__name__}: {error}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tries", type=int, default=30)
    options = parser.parse_args()
    with forks_served():
        failed = campaign(options.seed, options.tries)
    print(f"{options.tries} tries, {len(failed)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
