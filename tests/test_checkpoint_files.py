"""Whatever happens to the files of a save folder, a run resumes from a whole checkpoint or says in one line why not."""

import os
import shutil
import signal
import subprocess

import pytest
import torch

from conftest import PLUGIN, TINY, command, run
from maelm_fairseq.checkpoints import checkpoint_files, reading
from test_errors import refused
from training import assert_same_weights, checkpoint, train, updates

INTERVAL = ["--save-interval-updates", 2, "--max-update", 5]


@pytest.fixture(scope="module")
def run_of_five(data, tmp_path_factory):
    """A save folder with checkpoints of updates 2, 4 and 5."""
    folder = tmp_path_factory.mktemp("five")
    train(data, folder, *INTERVAL)
    return folder


@pytest.fixture
def saved(run_of_five, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(run_of_five, tmp_path / "saved")


def truncate(path):
    os.truncate(path, path.stat().st_size - 1000)


def flip(path):
    """Changes one byte of the largest tensor."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def without_optimizer(path):
    state = reading.load_checkpoint(path)
    del state["last_optimizer_state"]
    torch.save(state, path)


def dangle(path):
    path.unlink()
    path.symlink_to("nowhere")


DAMAGE = [
    (truncate, "its end"),
    (flip, "checksum"),
    (without_optimizer, "no state of the optimizer"),
    (lambda path: torch.save({"model": 3, "last_optimizer_state": {}}, path), "no checkpoint of a run"),
    (lambda path: path.write_bytes(bytes(5000)), "no checkpoint of a run"),
    (dangle, "not a file"),
]


@pytest.mark.parametrize("damage, reason", DAMAGE)
def test_a_run_resumes_from_the_newest_good_checkpoint(data, run_of_five, saved, damage, reason):
    damage(saved / "checkpoint_last.pt")
    damage(saved / "checkpoint_best.pt")
    printed = train(data, saved, *INTERVAL)
    (warning,) = [line for line in printed.splitlines() if "is damaged" in line]
    assert f"{saved}/checkpoint_last.pt" in warning and reason in warning
    assert f"resuming from {saved}/checkpoint_1_4.pt, the newest good checkpoint, at update 4" in printed
    assert os.path.lexists(saved / "checkpoint_last.pt.damaged")
    assert_same_weights(saved, run_of_five, 0)


@pytest.mark.parametrize("contents", [{}, 3, {"model": {}}, {"optimizer_history": []}])
def test_a_run_does_not_start_from_what_is_no_checkpoint(data, tmp_path, contents):
    path = tmp_path / "other.pt"
    torch.save(contents, path)
    error = refused(data, *TINY, "--save-dir", tmp_path / "run", "--restore-file", path)
    assert f"--restore-file {path}: it " in error and "give a checkpoint of fairseq-train" in error


def test_the_last_checkpoint_need_not_be_the_newest(data, saved):
    """Saving may have ended before the newest was copied, or the copy is lost."""
    for name in ["checkpoint_last.pt", "checkpoint_best.pt"]:
        (saved / name).unlink()
    assert "checkpoint_1_4.pt, the newest good checkpoint, at update 4" in train(data, saved, "--max-update", 5)
    shutil.copy(saved / "checkpoint_1_2.pt", saved / "checkpoint_last.pt")
    assert "at update 5" in train(data, saved, "--max-update", 6) and updates(saved) == 6  # from checkpoint_best.pt


def test_damaged_checkpoints_that_nothing_can_replace(data, saved, tmp_path):
    damaged = saved / "checkpoint_1_2.pt"
    flip(damaged)
    expected = f"the newest good checkpoint is {saved}/checkpoint_"
    validate = [data, "--user-dir", PLUGIN, "--task", "mae_lm", "--cpu", "--batch-size", 8, "--path", damaged]
    done = run("fairseq-validate", *validate)
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert f"error: {damaged}: damaged: the checksum" in done.stdout and expected in done.stdout
    assert expected in refused(data, *TINY, "--save-dir", tmp_path / "run", "--restore-file", damaged)
    for path in saved.glob("checkpoint*.pt"):
        truncate(path)
    error = refused(data, *TINY, "--save-dir", saved)
    assert f"{saved}/checkpoint_last.pt: damaged: its end is missing" in error and "no other checkpoint" in error


def test_starting_points(data, saved, tmp_path):
    """They must be files, and a run that has a checkpoint of its own resumes without them."""
    start = saved.rename(tmp_path / "start")
    option = [data, *TINY, "--save-dir", tmp_path / "run", "--finetune-from-model"]
    assert f"--finetune-from-model {tmp_path}/nosuch.pt does not exist" in refused(*option, tmp_path / "nosuch.pt")
    assert f"--finetune-from-model {start} is a folder" in refused(*option, start)
    arguments = ["--finetune-from-model", start / "checkpoint_last.pt"]
    train(data, tmp_path / "run", *arguments)
    shutil.rmtree(start)
    train(data, tmp_path / "run", "--max-update", 6, *arguments)
    assert updates(tmp_path / "run") == 6


# A --user-dir that is the plugin's, and is killed in the middle of writing the checkpoint with a certain name.
TRAP = """
import contextlib, os, signal
import maelm_fairseq.plugin
from maelm_fairseq.checkpoints import checkpoint_files

class Trap:
    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, content):
        self.stream.write(content)
        self.stream.flush()
        if self.stream.tell() > 10000:
            os.kill(os.getpid(), signal.SIGKILL)

@contextlib.contextmanager
def atomic_write(path, mode, original=checkpoint_files.atomic_write):
    with original(path, mode) as stream:
        yield Trap(stream) if os.path.basename(path) == "{name}" else stream

checkpoint_files.atomic_write = atomic_write
"""


@pytest.mark.parametrize("name", ["checkpoint_1_4.pt", "checkpoint_last.pt"])  # one is saved, one copied
def test_a_kill_during_saving_leaves_a_folder_that_resumes(data, run_of_five, tmp_path, name):
    plugin = tmp_path / "plugin_with_trap"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(TRAP.format(name=name))
    save = tmp_path / "save"
    train(data, save, "--save-interval-updates", 2, "--max-update", 3)
    options = [data, *TINY, "--seed", 1, *INTERVAL, "--save-dir", save, "--user-dir", plugin]
    done = run("fairseq-train", *options)
    assert done.returncode == -signal.SIGKILL, done.stdout[-2000:]
    assert list(save.glob(".checkpoint*.partial"))
    assert not any(map(checkpoint_files.damage, save.glob("checkpoint*.pt")))
    train(data, save, *INTERVAL)
    assert not list(save.glob(".checkpoint*.partial"))
    assert_same_weights(save, run_of_five, 0)


def test_a_full_disk(data, saved):
    """A limit on the size of files stands in for it."""
    before = checkpoint(saved)["optimizer_history"]
    limit = (saved / "checkpoint_last.pt").stat().st_size // 2048
    training = command("fairseq-train", data, *TINY, "--save-dir", saved, "--max-update", 7, real=True)
    done = subprocess.run(
        ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "_", *training],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout[-3000:]
    assert "error: the checkpoint of update 7 cannot be written (File too large); the newest good checkpoint is" in (
        done.stdout
    )
    assert checkpoint(saved)["optimizer_history"] == before and not list(saved.glob(".checkpoint*.partial"))


def test_numbers_that_are_not_finite_stop_the_run(data, tmp_path):
    arguments = ["--lr", 1e30, "--warmup-updates", 0, "--save-interval-updates", 1, "--save-dir", tmp_path]
    error = refused(data, *TINY, *arguments, "--max-update", 9)
    assert "not finite after update" in error and "a lower --lr" in error
    assert "the newest good checkpoint is" in error


def test_a_second_run_in_the_same_folder_is_refused(data, tmp_path):
    options = [data, *TINY, "--save-dir", tmp_path]
    first = subprocess.Popen(
        command("fairseq-train", *options, "--max-update", 100000, "--num-workers", 2, real=True),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    for line in first.stdout:
        if "train_inner" in line:
            break
    assert f"in use by another run, process {first.pid} on" in refused(*options)
    first.kill()
    first.wait()
    train(data, tmp_path)  # the lock has ended with the process
