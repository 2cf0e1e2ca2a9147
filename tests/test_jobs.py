"""Programs that run at the same time, each on a device of its own."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from conftest import (
    ROOT,
    refuses,
)
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.runs import jobs


@pytest.fixture
def programs(monkeypatch):
    """A function that makes Jobs for GPUs that do not exist."""

    def make(*names):
        gpus = [{"CUDA_VISIBLE_DEVICES": name} for name in names]
        monkeypatch.setattr(jobs, "device_variables", lambda count: gpus)
        return jobs.Jobs()

    return make


def test_each_program_has_a_device_of_its_own_and_all_devices_work(programs):
    together = threading.Barrier(3)
    used = []

    def work(item, environment):
        name = environment["CUDA_VISIBLE_DEVICES"]
        used.append(name)
        assert used.count(name) == 1
        together.wait()  # ends only if three work at the same time
        used.remove(name)
        together.wait()
        return item, name

    results = programs("2", "5", "7").map(work, range(9))
    assert [item for item, _ in results] == list(range(9))
    assert {name for _, name in results[:3]} == {"2", "5", "7"}


def test_after_a_failure_no_further_program_begins_and_others_are_stopped(programs, tmp_path):
    several = programs("0", "1")
    begun = []

    def work(item, environment):
        begun.append(item)
        if item == 1:
            while not several.running:
                time.sleep(0.01)
            raise UsageError("failed")
        several.execute(["sleep", 600], tmp_path / "log", environment)

    refuses("failed", several.map, work, range(10))
    assert sorted(begun) == [0, 1]
    assert not several.running


@pytest.mark.parametrize("visible, expected", [
    (None, ["0", "1", "2"]),
    ("4,6", ["4", "6"]),
    ("GPU-a1", ["GPU-a1"]),
])  # fmt: skip
def test_gpus_are_those_that_this_process_sees(monkeypatch, visible, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpus = [{"CUDA_VISIBLE_DEVICES": name} for name in expected]
    assert jobs.device_variables() == gpus
    assert jobs.device_variables(1) == gpus[:1]
    refuses(f"--jobs 4, but there are {len(expected)} GPUs", jobs.device_variables, 4)


def test_on_the_cpu_programs_share_the_cores(monkeypatch):
    monkeypatch.setattr(jobs.os, "sched_getaffinity", lambda _: range(8))
    assert jobs.device_variables(3) == [{"OMP_NUM_THREADS": "2"}] * 3
    assert jobs.device_variables() == [{}]  # all of them, as the user set it


def test_a_program_sees_its_device_alone(programs, tmp_path):
    log = tmp_path / "log"
    lines = []
    command = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 3"]
    status = programs("3").execute(command, log, {"CUDA_VISIBLE_DEVICES": "3"}, lines.append)
    assert status == 3
    assert log.read_text() == "3\n"
    assert lines == ["3"]


def test_programs_end_with_a_recipe_that_is_killed(tmp_path):
    code = "from maelm_fairseq.runs.jobs import Jobs; "
    code += "Jobs().execute(['sh', '-c', 'echo $$ >pid; exec sleep 600'], 'log')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    recipe = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment)
    pid = tmp_path / "pid"
    while not pid.exists() or not pid.read_text():
        assert recipe.poll() is None
        time.sleep(0.1)
    recipe.kill()
    recipe.wait()
    while Path("/proc", pid.read_text().strip()).exists():
        time.sleep(0.1)
