"""A run that is asked to stop saves a checkpoint; the same command resumes at the next update."""

import os
import re
import signal
import time

import pytest

from conftest import (
    REAL_SCRIPTS_ENVIRONMENT,
    ROOT,
    SCRIPTS_ENVIRONMENT,
    TINY,
    command,
    script,
    succeed,
)
from stoppable_runs import STOPPED, finish, free_port, start, trap
from training import assert_same_weights, checkpoint, train, updates

MANY = ["--max-update", 30, "--total-num-update", 30, "--num-workers", 1, "--seed", 1]
MANY += ["--encoder-mask-fade-updates", 25, "--mask-prob", 0.3]
# The recipes' optimizer.
MANY += ["--optimizer", "torch_adamw", "--clip-norm", 1, "--weight-decay", 0.01]


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    train(data, folder, *MANY)
    return folder


VALIDATION = 'begin validation on "valid" subset'


@pytest.mark.parametrize("moment, number, group", [
    (5, signal.SIGUSR1, True),
    (11, signal.SIGTERM, False),
    (VALIDATION, signal.SIGTERM, True),
    (29, signal.SIGINT, False),
])  # fmt: skip
def test_the_run_goes_on_as_if_nothing_had_happened(data, tmp_path, whole, moment, number, group):
    options = [*TINY, *MANY, "--save-dir", tmp_path / "run", "--save-interval-updates", 12]
    # A group consists of the process and its loader workers.
    sent = trap(tmp_path, moment, number, group)
    printed = finish([start(command("fairseq-train", data, *options, *sent))], STOPPED)
    stopped = updates(tmp_path / "run")
    last = max(map(int, re.findall(r'"num_updates": "(\d+)"', printed)))
    assert stopped == last
    if moment != VALIDATION:
        assert stopped == moment + 1
    assert f"stopped on request at update {stopped}; the same command resumes" in printed
    printed += succeed("fairseq-train", data, *options)
    assert updates(tmp_path / "run") == 30
    assert_same_weights(tmp_path / "run", whole, 0)
    validations = re.findall(r'"valid_num_updates": "(\d+)"', printed)
    assert {"12", "24", "30"} <= set(validations)  # none is lost


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_stop_in_the_validation_at_the_end_of_an_epoch(data, tmp_path, epochs):
    """The next run validates as part of that epoch, for the learning rate depends on the result.

    The epoch may be the last.
    """
    options = TINY[: TINY.index("--lr-scheduler")] + TINY[TINY.index("--cpu") :]
    options += ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-shrink", 0.1]
    options += ["--lr-patience", 0, "--lr-threshold", 0.9, "--max-epoch", epochs, "--seed", 1]
    train = command("fairseq-train", data, *options, "--save-dir")
    finish([start([*train, tmp_path / "whole"])], 0)
    sent = trap(tmp_path, VALIDATION, signal.SIGTERM)
    for _ in range(2):  # the next run, too, is stopped in this validation
        finish([start([*train, tmp_path / "parts", *sent])], STOPPED)
    finish([start([*train, tmp_path / "parts"])], 0)
    assert_same_weights(tmp_path / "parts", tmp_path / "whole", 0)
    parts = checkpoint(tmp_path / "parts", "checkpoint_best.pt")["extra_state"]
    whole = checkpoint(tmp_path / "whole", "checkpoint_best.pt")["extra_state"]
    assert parts["best"] == whole["best"]
    assert parts["train_iterator"]["epoch"] == whole["train_iterator"]["epoch"]


def test_a_second_ctrl_c_stops_at_once(data, tmp_path):
    sent = trap(tmp_path, 5, signal.SIGINT, group=True, times=2)
    options = [*TINY, *MANY, "--save-dir", tmp_path / "run", *sent]
    printed = finish([start(command("fairseq-train", data, *options))], -signal.SIGINT)
    assert "Ctrl-C again stops at once" in printed
    assert "Traceback" not in printed
    assert not list((tmp_path / "run").glob("*.pt"))


def test_the_status_tells_whether_the_same_command_resumes(data, tmp_path):
    sent = trap(tmp_path, 2, signal.SIGTERM)
    options = [*TINY, "--no-save", "--save-dir", tmp_path / "run", *sent]
    printed = finish([start(command("fairseq-train", data, *options))], 1)
    assert "stopped on request at update 3; no checkpoint was saved (--no-save or" in printed


def stop(process, moment, number, group=False):
    """Sends a signal to an endless run when it prints `moment`; returns what it printed."""
    kill = os.killpg if group else os.kill
    printed = ""
    for line in process.stdout:
        printed += line
        if moment in line:
            kill(process.pid, number)
            return printed + finish([process], STOPPED)
    raise AssertionError(f"{moment!r} is not in the output: {printed[-3000:]}")


def recipe(data, save_dir, *more, real=False, **variables):
    """Starts a recipe with a tiny model; returns the process."""
    options = ["--data", data, "--save-dir", save_dir, "--gpus", 0, "--batch-size", 4]
    options += ["--arch", "mae_lm_tiny", "--encoder-layers", 1, "--decoder-layers", 1]
    options += ["--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 64]
    options += ["--update-freq", 1, "--log-interval", 1, "--num-workers", 1, *more]
    environment = REAL_SCRIPTS_ENVIRONMENT if real else SCRIPTS_ENVIRONMENT
    words = [ROOT / "recipes" / "pretrain_base.sh", *options]
    return start(words, PATH=environment["PATH"], **variables)


def test_a_recipe_stops_with_its_training_and_resumes(data, tmp_path):
    printed = stop(recipe(data, tmp_path), "update 3 of", signal.SIGINT, group=True)
    stopped = updates(tmp_path)
    assert f"stopped on request at update {stopped}; the same command resumes" in printed
    stop(recipe(data, tmp_path), f"update {stopped + 1:,} of", signal.SIGTERM)


def test_a_recipe_stops_before_it_trains(data, tmp_path):
    stop(recipe(data, tmp_path, real=True), "sequences per update", signal.SIGTERM)
    assert not list(tmp_path.glob("*.pt"))


# Every new interpreter imports this. It pretends two GPUs in the recipe and where torch has been
# imported before; elsewhere, importing torch would take seconds.
TWO_GPUS = """
import sys
if "torch" in sys.modules or sys.orig_argv[1].endswith("pretrain.py"):
    import torch
    torch.cuda.device_count = lambda: 2
"""


def test_a_recipe_with_a_process_for_each_gpu(data, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(TWO_GPUS)
    options = ["--gpus", 2, "--cpu", "--bf16-autocast"]
    options += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    # A worker would be a new interpreter; test_blocks.py sends the data to one.
    options += ["--num-workers", 0]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    process = recipe(data, tmp_path / "run", *options, PYTHONPATH=path)
    printed = stop(process, "update 3 of", signal.SIGTERM)
    assert f"stopped on request at update {updates(tmp_path / 'run')};" in printed
    assert "train_inner" not in printed
    assert "train_inner" in (tmp_path / "run" / "train.log").read_text()


def test_slurm_requeues_a_job_that_stopped(tmp_path):
    for status in [0, 1, STOPPED]:
        for name, commands in {"srun": f"exit {status}", "scontrol": 'echo "scontrol $*"'}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{commands}\n")
            (tmp_path / name).chmod(0o755)
        slurm = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_GPUS_PER_NODE": "4"}
        slurm["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        job = script("recipes/slurm/pretrain.sbatch", "recipe", status=status, **slurm)
        assert ("scontrol requeue 7" in job.stdout) == (status == STOPPED)


# Several machines ---------------------------------------------------------------------------------


def two_machines(data, save_dir):
    """Starts a recipe as on two machines, each with a process on the CPU.

    Returns both processes as soon as they train.
    """
    variables = dict(MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
    machines = [recipe(data, save_dir, "--nodes", 2, **variables) for _ in range(2)]
    log = save_dir / "train.log"  # of the first
    while not (log.exists() and "num_updates" in log.read_text()):
        ended = [machine.stdout.read() for machine in machines if machine.poll() is not None]
        assert not ended, ended
        time.sleep(0.1)
    return machines


def test_a_signal_to_one_machine_stops_both(data, tmp_path):
    machines = two_machines(data, tmp_path)
    machines[0].send_signal(signal.SIGTERM)
    for machine in machines:
        printed = machine.stdout.read()
        assert machine.wait() == STOPPED, printed
        assert "Traceback" not in printed
    log = (tmp_path / "train.log").read_text()
    assert f"stopped on request at update {updates(tmp_path)}" in log


def test_a_machine_that_waits_for_another_can_be_stopped(data, tmp_path):
    for address in ["localhost", "192.0.2.1"]:  # the first machine; and one that nobody answers
        variables = dict(MASTER_ADDR=address, MASTER_PORT=str(free_port()))
        waiting = recipe(data, tmp_path, "--nodes", 2, **variables)
        next(line for line in waiting.stdout if "sequences per update" in line)
        time.sleep(1)
        assert waiting.poll() is None
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait() == STOPPED


def test_a_machine_ends_when_the_other_is_killed(data, tmp_path):
    lost, other = two_machines(data, tmp_path)
    lost.kill()
    printed = other.stdout.read()
    assert other.wait() == 1, printed
    lost.communicate()
