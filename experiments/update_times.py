"""How long an update of each arm takes."""

import re
import statistics
import tempfile
from pathlib import Path

import torch

from arms import TIMED, options_of_arm
from measurements import Measurement
from programs import RECIPES, run_quietly

ROUNDS = 8
UPDATES_PER_TIMING = 5  # updates in a part of a timing


def seconds_of_update(arm, run_folder):
    """The seconds of an update of pretraining: the median over the parts of a short run.

    The first part is left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "train.log")
        command = ["fairseq-train", run_folder / "data", *options_of_arm(f"{arm}-1")]
        command += ["--max-update", 5 * UPDATES_PER_TIMING, "--log-file", log]
        command += ["--log-interval", UPDATES_PER_TIMING]
        command += ["--no-save", "--disable-validation"]
        command += ["--encoder-mask-fade-updates", 0]  # as it is for most of a run
        command += ["--user-dir", RECIPES.parent / "maelm_fairseq", "--save-dir", folder]
        if not torch.cuda.is_available():
            command.append("--cpu")
        run_quietly(*command)
        speeds = re.findall(r'"ups": "([\d.]+)"', log.read_text(encoding="utf-8"))
        return 1 / statistics.median(map(float, speeds[1:]))


def read_timings(run_folder):
    """Yields the seconds of an update of every arm of TIMED in each of ROUNDS rounds.

    The number of the round takes the place of the seed.
    """
    for number in range(ROUNDS):
        for arm in TIMED:
            value = round(seconds_of_update(arm, run_folder), 3)
            yield Measurement(arm=arm, seed=number, task="update", metric="seconds", value=value)
