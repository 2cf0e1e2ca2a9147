"""The machines of a run end together: with the same status when training ends, and soon when one of them is lost."""

import contextlib
import os
import signal
import sys
import time

from conftest import ROOT, script
from test_preemption import STOPPED, free_port, recipe
from training import updates

sys.path.insert(0, str(ROOT / "recipes"))
from run_training import children  # noqa: E402


def two_machines(data, save_dir, real=False):
    """Starts a recipe as on two machines, each with a process on the CPU; returns both when they train."""
    variables = dict(MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
    both = [recipe(data, save_dir, "--nodes", 2, real=real, **variables) for _ in range(2)]
    log = save_dir / "train.log"
    while not (log.exists() and "num_updates" in log.read_text()):  # written by rank 0: torchrun decides which that is
        assert all(machine.poll() is None for machine in both)
        time.sleep(0.1)
    return both


def family(pid):
    """A process and all that it has started."""
    return [pid, *(member for child in children(pid) for member in family(child))]


def test_a_signal_to_one_machine_stops_both(data, tmp_path):
    both = two_machines(data, tmp_path)
    both[0].send_signal(signal.SIGTERM)
    for machine in both:
        printed = machine.stdout.read()
        assert machine.wait() == STOPPED, printed
        assert "training stopped on request; the same command resumes" in printed and "Traceback" not in printed
    assert f"stopped on request at update {updates(tmp_path)}" in (tmp_path / "train.log").read_text()
    assert not (tmp_path / "finished").exists()


def test_a_stop_is_one_even_if_the_line_before_its_status_has_no_end(tmp_path):
    launcher = ["torchrun", "--nnodes", 1, "--nproc_per_node", 1, "--no-python", ROOT / "recipes/torchrun_worker.sh"]
    stopped = ["sh", "-c", f"printf unfinished; exit {STOPPED}"]
    script("recipes/run_training.py", tmp_path, *launcher, *stopped, status=STOPPED)
    assert not (tmp_path / "finished").exists()


def test_a_machine_ends_when_all_processes_of_the_other_are_killed(data, tmp_path):
    lost, other = two_machines(data, tmp_path, real=True)
    for pid in family(lost.pid):
        with contextlib.suppress(ProcessLookupError):  # the kernel has killed it with its parent
            os.kill(pid, signal.SIGKILL)
    printed = other.stdout.read()
    assert other.wait() == 1
    assert "training failed with exit status 1" in printed
    lost.communicate()
