#!/usr/bin/env python3
"""Random faults over the whole path, from text to a model that is used: nothing is lost, and nobody is let in.

    python tests/campaign.py --seed 1 --minutes 8 --dest report.md
    python tests/campaign.py --seed 1 --only 17

Tries are numbered, and take turns at the kinds of faults below. What a try does follows from the seed and its number,
which `--only` repeats; where a signal arrives also depends on how fast the machine is. Exit status 1 if a try failed.
"""

import argparse
import datetime
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import fairseq
import torch

import test_data_prep
from conftest import TINY, command, forks, prepare
from maelm_fairseq import compat
from maelm_fairseq.checkpoint import files as checkpoint_files
from maelm_fairseq.huggingface.export import export
from test_damaged_checkpoints import mutate, outcome, use_hub, use_model
from test_preemption import STOPPED, last_update
from test_security import HOSTILE, OURS
from training import assert_same_weights, train, updates

UPDATES, PART = 30, 18
TRAIN = ["--total-num-update", UPDATES, "--save-interval-updates", 6, "--seed", 1]
WHOLE = [*TRAIN, "--max-update", UPDATES]
POLITE = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]


class Base:
    """What uninterrupted runs make: text, data, a run of 18 updates and one of 30; and how many seconds they took."""

    def __init__(self, folder):
        self.text, self.data, self.part, self.whole = (folder / name for name in ["", "data", "part", "whole"])
        start = time.time()
        prepare(folder)
        self.preparation_seconds = time.time() - start
        train(self.data, self.part, *TRAIN, "--max-update", PART)
        start = time.time()
        train(self.data, self.whole, *WHOLE)
        self.training_seconds = time.time() - start


class Try:
    """One try: its random numbers, its folder, and what it drew and saw."""

    def __init__(self, base, seed, number, folder):
        self.base, self.folder = base, folder
        self.rng = random.Random(f"{seed}:{number}")
        self.drawn, self.lost = [], 0

    def draw(self, choices):
        chosen = self.rng.choice(choices)
        self.drawn.append(getattr(chosen, "__name__", None) or getattr(chosen, "name", None) or str(chosen))
        return chosen

    def moment(self, seconds):
        """A random moment of a run that takes so many seconds."""
        share = self.rng.uniform(0, 1.1)
        self.drawn.append(f"at {share:.0%}")
        return share * seconds


def signalled(arguments, number, seconds, group=False):
    """Runs a command, and sends it a signal after so many seconds; returns the process and what it printed."""
    process = subprocess.Popen(
        list(map(str, arguments)), start_new_session=True, text=True, env=test_data_prep.ENVIRONMENT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        (os.killpg if group else os.kill)(process.pid, number)
        printed = process.communicate()[0]  # until the last process that could write has ended
    return process, printed


def one_line(done):
    """A command must end in success, or in one line; returns whether it succeeded."""
    errors = [line for line in done.stdout.splitlines() if "error: " in line]
    assert "Traceback" not in done.stdout, done.stdout[-500:]
    assert done.returncode == 0 or done.returncode == 1 and len(errors) == 1, (done.returncode, done.stdout[-500:])
    return done.returncode == 0


def run(arguments):
    return subprocess.run(
        list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


# Kinds of faults: each takes a Try and returns the outcome, or raises an exception if the try failed ----------------


def preparation_stopped(this):
    """Signals to preparation, then the same command: the same bytes as without."""
    dest = this.folder / "data"
    options = ["--dest", dest, "--vocab-size", 100]
    for split in ["train", "valid"]:
        options += [f"--{split}", this.base.text / f"{split}.txt"]
    prepare_command = test_data_prep.command("prepare.sh", *options)
    for _ in range(this.rng.randint(1, 3)):
        number, group = this.draw([signal.SIGTERM, signal.SIGINT, signal.SIGKILL]), True
        process, printed = signalled(prepare_command, number, this.moment(this.base.preparation_seconds), group)
        # While Python still imports modules, it reports Ctrl-C itself; its status is 1 for the very first ones.
        at_start = number == signal.SIGINT and ", in run\n" not in printed
        assert at_start or "Traceback" not in printed, printed
        statuses = [0, -number, 128 + number] + [1] * ("import_site" in printed)
        assert process.returncode in statuses, (process.returncode, printed)
    done = run(prepare_command)
    assert done.returncode == 0, done.stdout
    made, expected = test_data_prep.snapshot(dest), test_data_prep.snapshot(this.base.data)
    assert made == expected, [name for name in made.keys() | expected.keys() if made.get(name) != expected.get(name)]
    assert not list(dest.glob(".*")), list(dest.glob(".*"))
    return "same bytes"


def training_stopped(this):
    """Signals to training, then the same command: the same weights, and at most one update is lost if asked to stop."""
    save = this.folder / "run"
    arguments = command("fairseq-train", this.base.data, *TINY, *WHOLE, "--save-dir", save)
    for _ in range(this.rng.randint(1, 3)):
        number = this.draw([*POLITE, signal.SIGKILL])
        process, printed = signalled(arguments, number, this.moment(this.base.training_seconds))
        assert process.returncode in (0, STOPPED, -number, 128 + number), (process.returncode, printed[-3000:])
        saved = updates(save) if (save / checkpoint_files.LAST).exists() else 0
        if number in POLITE:
            at_start = number == signal.SIGINT and "num_updates" not in printed  # as above
            assert at_start or "Traceback" not in printed, printed[-3000:]
            this.lost = max(this.lost, last_update(printed) - saved)
            assert this.lost <= 1, printed[-3000:]
    done = run(arguments)
    assert done.returncode == 0, done.stdout[-500:]
    assert updates(save) == UPDATES
    assert_same_weights(save, this.base.whole, 0)
    return "same weights"


def cut(content, rng):
    return content[: rng.randrange(len(content))]


def empty(content, rng):
    return b""


def flip(content, rng):
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def file_damaged(this):
    """A damaged file before resuming or validating: the same result as without, or one line."""
    save, data = (shutil.copytree(source, this.folder / source.name) for source in [this.base.part, this.base.data])
    files = [data / name for name in ["dict.txt", "train.idx", "train.bin", "train.json"]]
    path = this.draw([save / checkpoint_files.LAST, save / checkpoint_files.LAST, *files])
    damage = this.draw([cut, empty, flip])
    content = path.read_bytes()
    path.write_bytes(damage(content, this.rng))
    if this.draw(["resume", "validate"]) == "validate":
        last = save / checkpoint_files.LAST
        options = [*OURS, "--cpu", "--batch-size", 8, "--path", last]
        return "validated" if one_line(run(command("fairseq-validate", data, *options))) else "one line"
    if not one_line(run(command("fairseq-train", data, *TINY, *WHOLE, "--save-dir", save))):
        path.write_bytes(content)
        train(data, save, *WHOLE)
        assert_same_weights(save, this.base.whole, 0)
        return "one line; same weights after repair"
    assert updates(save) == UPDATES
    assert_same_weights(save, this.base.whole, 0)
    return "same weights"


def disk_full(this):
    """A limit on the size of files while saving: one line, the old checkpoint stays, and the run resumes."""
    save = shutil.copytree(this.base.part, this.folder / "part")
    last = save / checkpoint_files.LAST
    limit = this.rng.randint(1, last.stat().st_size // 1024 - 1)
    this.drawn.append(f"{limit} KiB")
    arguments = command("fairseq-train", this.base.data, *TINY, *WHOLE, "--save-dir", save, real=True)
    assert not one_line(run(["bash", "-c", f'ulimit -f {limit}; exec "$@"', "_", *arguments])), "no error"
    assert not any(map(checkpoint_files.damage, save.glob("checkpoint*.pt"))) and updates(save) == PART
    train(this.base.data, save, *WHOLE)
    assert_same_weights(save, this.base.whole, 0)
    return "one line; same weights afterwards"


def use_export(path, folder):
    export(str(path), str(folder), f"{path}.exported")


def checkpoint_hostile(this):
    """A checkpoint that is changed or hostile, through each entry point: a result or one line, nothing executed."""
    path, marker = this.folder / "hostile.pt", this.folder / "marker"
    state = compat.load_checkpoint(this.base.whole / checkpoint_files.LAST)
    hostile = this.draw([*HOSTILE, "changed", "changed", "changed", "changed"])
    if hostile == "changed":
        this.drawn += [mutate(state, this.rng) for _ in range(this.rng.choice([1, 2, 4]))]
    else:
        HOSTILE[hostile](state, marker)
    torch.save(state, path)
    refused = [outcome(reader, path, this.base.data) is not None for reader in [use_hub, use_model, use_export]]
    options = [*OURS, "--cpu", "--batch-size", 8, "--path", path]
    refused.append(not one_line(run(command("fairseq-validate", this.base.data, *options))))
    assert not marker.exists(), "executed"
    assert hostile == "changed" or refused[-1], "validated"
    return "one line" if any(refused) else "used"


KINDS = [preparation_stopped, training_stopped, file_damaged, disk_full, checkpoint_hostile]


def attempt(base, seed, number, say=print):
    """Makes one try; returns its kind, its outcome or None if it failed, and the updates that were lost."""
    kind = KINDS[number % len(KINDS)]
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        this = Try(base, seed, number, Path(folder))
        try:
            found = kind(this)
        except Exception as error:  # whatever it is, the try failed
            found = None
            say(f"{type(error).__name__}: {error}")
    say(f"try {number}, {kind.__name__} ({', '.join(this.drawn)}): {found or 'FAILED'}", flush=True)
    return kind, found, this.lost


def report(seed, tries):
    """Lines of Markdown: a table of the kinds, and the numbers of the tries that failed."""
    failed = [number for number, (_, found, _) in tries.items() if found is None]
    yield "| fault | tries | outcomes | updates lost at most | failed |"
    yield "|---|---|---|---|---|"
    for kind in KINDS:
        of_kind = [(found, lost) for other, found, lost in tries.values() if other is kind]
        outcomes = Counter(found for found, _ in of_kind if found)
        shown = ", ".join(f"{name}: {count}" for name, count in sorted(outcomes.items()))
        lost = max((lost for _, lost in of_kind), default=0) if kind is training_stopped else ""
        number = sum(found is None for found, _ in of_kind)
        yield f"| {kind.__name__.replace('_', ' ')} | {len(of_kind)} | {shown} | {lost} | {number} |"
    yield ""
    yield f"{len(tries)} tries, {len(failed)} failed."
    for number in failed:
        yield f"To repeat: python tests/campaign.py --seed {seed} --only {number}"


def campaign(seed, numbers, minutes=float("inf")):
    """Makes the tries with these numbers until the time is over; returns the number that failed, and the report."""
    tries = {}
    end = time.time() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        base = Base(Path(folder))
        for number in numbers:
            if time.time() > end:
                break
            tries[number] = attempt(base, seed, number)
    return sum(found is None for _, found, _ in tries.values()), list(report(seed, tries))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no try after these")
    parser.add_argument("--tries", type=int, default=sys.maxsize)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="repeat one try")
    parser.add_argument("--dest", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    numbers = range(options.tries) if options.only is None else [options.only]
    with forks():
        failed, lines = campaign(options.seed, numbers, options.minutes)
    shown = f"{datetime.date.today()}, Python {platform.python_version()}, torch {torch.__version__}, "
    text = "\n".join([f"{shown}fairseq {fairseq.__version__}, seed {options.seed}:", "", *lines, ""])
    print(text)
    if options.dest:
        options.dest.write_text(text)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
