"""Work that runs at the same time: each piece has a device of its own."""

import sys
import threading
import time

import pytest
import torch

from conftest import ROOT

sys.path.insert(0, str(ROOT / "recipes"))
import child_processes  # noqa: E402
import devices  # noqa: E402
from devices import Device, DeviceQueue, find_devices  # noqa: E402
from maelm_fairseq.base.errors import UsageError  # noqa: E402


@pytest.fixture(autouse=True)
def stoppable():
    yield
    child_processes.stopped = False


def pretended(*names):
    return DeviceQueue([Device({"CUDA_VISIBLE_DEVICES": name}) for name in names])


def test_each_piece_has_a_device_of_its_own_and_all_devices_work():
    together, used = threading.Barrier(3), []

    def work(item, device):
        name = device.environment["CUDA_VISIBLE_DEVICES"]
        used.append(name)
        assert used.count(name) == 1
        together.wait()  # ends only if three work at the same time
        used.remove(name)
        together.wait()
        return item, name

    results = pretended("2", "5", "7").run(work, range(9))
    assert [item for item, _ in results] == list(range(9))
    assert {name for _, name in results[:3]} == {"2", "5", "7"}


def test_after_a_failed_piece_no_further_one_begins_and_others_are_stopped():
    begun = []

    def work(item, device):
        begun.append(item)
        if item == 1:
            raise UsageError("failed")
        while not child_processes.stopped:  # by the other one
            time.sleep(0.01)

    with pytest.raises(UsageError, match="failed"):
        pretended("0", "1").run(work, range(10))
    assert sorted(begun) == [0, 1]


@pytest.mark.parametrize("visible, expected", [(None, ["0", "1", "2"]), ("4,6", ["4", "6"]), ("GPU-a1", ["GPU-a1"])])
def test_gpus_are_those_that_this_process_sees(monkeypatch, visible, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpus = [Device({"CUDA_VISIBLE_DEVICES": name}, number) for number, name in enumerate(expected)]
    assert find_devices() == gpus and find_devices(1) == gpus[:1]
    with pytest.raises(UsageError, match=f"--jobs 4, but there are {len(expected)} GPUs"):
        find_devices(4)


def test_on_the_cpu_pieces_share_the_cores(monkeypatch):
    monkeypatch.setattr(devices, "cores", lambda: 8)
    assert find_devices(3) == [Device({"OMP_NUM_THREADS": "2"})] * 3
    assert find_devices() == [Device({})]  # all of them, as the user set it


def test_a_training_sees_its_device_alone(tmp_path):
    command = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    assert child_processes.run_and_show(command, tmp_path / "log", {"CUDA_VISIBLE_DEVICES": "3"}) == 0
    assert (tmp_path / "log").read_text() == "3\n"
