"""The machines of a run end together: with the same status when training ends, and soon when one of them is lost."""

import signal
import time

from test_preemption import STOPPED, free_port, recipe
from training import updates


def two_machines(data, save_dir):
    """Starts a recipe as on two machines, each with a process on the CPU; returns both when they train."""
    variables = dict(MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
    both = [recipe(data, save_dir, "--nodes", 2, **variables) for _ in range(2)]
    log = save_dir / "train.log"
    while not (log.exists() and "num_updates" in log.read_text()):  # written by the first
        ended = [machine.stdout.read() for machine in both if machine.poll() is not None]
        assert not ended, ended
        time.sleep(0.1)
    return both


def test_a_signal_to_one_machine_stops_both(data, tmp_path):
    both = two_machines(data, tmp_path)
    both[0].send_signal(signal.SIGTERM)
    for machine in both:
        printed = machine.stdout.read()
        assert machine.wait() == STOPPED, printed
        assert "Traceback" not in printed
    assert f"stopped on request at update {updates(tmp_path)}" in (tmp_path / "train.log").read_text()


def test_a_machine_that_waits_for_another_can_be_stopped(data, tmp_path):
    for address in ["localhost", "192.0.2.1"]:  # the first machine; and one that no other answers
        waiting = recipe(data, tmp_path, "--nodes", 2, MASTER_ADDR=address, MASTER_PORT=str(free_port()))
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
