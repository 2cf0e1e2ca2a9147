"""The machines of a run end together: with the same status when training ends, and soon when one of them is lost."""

import queue
import signal
import socket
import sys
import time

import pytest

from conftest import ROOT, SCRIPTS_ENVIRONMENT
from test_preemption import STOPPED, free_port, start
from training import updates

sys.path.insert(0, str(ROOT / "recipes"))
from machines import Machines  # noqa: E402


def connected(port):
    """Two machines that know each other: themselves, and the queues of what they hear of each other."""
    heard = [queue.Queue(), queue.Queue()]
    pair = [Machines("localhost", port, messages.put) for messages in heard]
    for machine in pair:
        machine.watch()
    while not all(machine.connections for machine in pair):
        time.sleep(0.01)
    return pair, heard


@pytest.mark.parametrize("ending", [0, 1])
def test_a_machine_that_fails_is_reported_to_the_other(ending):
    pair, heard = connected(free_port())
    pair[ending].end(fine=False)
    assert heard[1 - ending].get().startswith(f"lost machine {socket.gethostname()}: ")
    assert heard[ending].empty()


def test_a_machine_that_ends_well_is_not_reported():
    (first, second), heard = connected(free_port())
    first.end(fine=True)
    second.thread.join()  # has heard the end of the connection, too
    assert heard[1].empty()


def test_other_programs_are_no_machines():
    port, messages = free_port(), queue.Queue()
    with socket.create_server(("", port)) as other:
        second = Machines("localhost", port, messages.put)
        second.watch()
        connection, _ = other.accept()
        connection.sendall(b"SSH-2.0\n")
        connection.close()
    first = Machines("localhost", port, messages.put)
    first.watch()
    while not first.connections or not second.connections:
        time.sleep(0.01)
    assert messages.empty()


def recipe(data, save_dir, port, path):
    """Starts a recipe as on one of two machines, each with a process on the CPU."""
    options = ["--arch", "mae_lm_tiny", "--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 32]
    options += ["--encoder-ffn-embed-dim", 64, "--update-freq", 1, "--log-interval", 1, "--num-workers", 1]
    command = [ROOT / "recipes" / "pretrain_base.sh", "--gpus", 0, "--nodes", 2, "--batch-size", 4, *options]
    command += ["--data", data, "--save-dir", save_dir]
    return start(command, MASTER_ADDR="localhost", MASTER_PORT=str(port), PATH=path)


def wait_until_training(save_dir, machines):
    """Waits for an update. Only the process of rank 0 logs them, and torchrun decides which that is."""
    log = save_dir / "train.log"
    while not (log.exists() and "num_updates" in log.read_text()):
        assert all(machine.poll() is None for machine in machines)
        time.sleep(0.1)


def two_machines(data, save_dir):
    """Starts a recipe as on two machines; returns both when they train."""
    port = free_port()
    both = [recipe(data, save_dir, port, SCRIPTS_ENVIRONMENT["PATH"]) for _ in range(2)]
    wait_until_training(save_dir, both)
    return both


def test_a_signal_to_one_machine_stops_both(data, tmp_path):
    both = two_machines(data, tmp_path)
    both[0].send_signal(signal.SIGTERM)
    for machine in both:
        printed = machine.stdout.read()
        assert machine.wait() == STOPPED, printed
        assert "training stopped on request; the same command resumes" in printed and "Traceback" not in printed
    assert f"stopped on request at update {updates(tmp_path)}" in (tmp_path / "train.log").read_text()
    assert not (tmp_path / "finished").exists()


def test_a_machine_ends_when_the_other_is_lost(data, tmp_path):
    lost, other = two_machines(data, tmp_path)
    lost.kill()
    printed = other.stdout.read()
    assert other.wait() == 1
    assert (
        f"error: lost machine {socket.gethostname()}: its training failed, or was killed; ending the training"
        in printed
    )
    lost.communicate()  # its training fails for want of the other
