"""What a run knows comes from its checkpoint and from no other run.

This is about early stopping, sweeps, data and options.
"""

import shutil
import signal

import pytest

from conftest import TINY, TINY_MODEL, binarize, command, documents, hydra, run, succeed, text_of
from labelled import of_fairseq
from maelm_fairseq.base.signals import EXIT_STOPPED
from stoppable_runs import finish, start, trap
from training import assert_same_weights, checkpoint, error_of_command, train, updates

# The loss never falls: every validation counts towards patience.
PATIENCE = [
    "--lr",
    1e-12,
    "--warmup-updates",
    0,
    "--patience",
    5,
    "--validate-interval-updates",
    1,
    "--save-interval-updates",
    1,
    "--max-update",
    30,
]


def test_patience_goes_on(data, tmp_path):
    """The run ends after update 6, as one does that is never stopped."""
    save = tmp_path / "run"
    sent = trap(tmp_path, 3, signal.SIGTERM)
    options = [*TINY, *PATIENCE, "--save-dir", save, *sent]
    finish([start(command("fairseq-train", data, *options))], EXIT_STOPPED)
    assert updates(save) == 4
    assert "early stop" in train(data, save, *PATIENCE)
    assert updates(save) == 6
    assert "nothing to train: the last 5 validations were no better" in train(data, save, *PATIENCE)
    assert updates(save) == 6


def test_a_second_job_of_a_sweep_knows_nothing_of_the_first(data, tmp_path):
    config = hydra(tmp_path, data, TINY_MODEL, lr=[0.01])[:-1]
    jobs = [tmp_path / "good", tmp_path / "bad"]
    sweep = ["-m", f"hydra.sweep.dir={tmp_path}/sweep", "optimization.max_update=2"]
    sweep.append(f"checkpoint.save_dir={','.join(map(str, jobs))}")
    sweep.append("+common.tensorboard_logdir=${checkpoint.save_dir}/tb")
    printed = succeed("fairseq-hydra-train", *config, *sweep, cwd=tmp_path)
    assert printed.count("update 1 of 2 done") == len(jobs)
    for job in jobs:
        assert updates(job) == 2
        assert (job / "checkpoint_best.pt").exists()
        assert list(job.glob("tb/*/events*"))
        extra_state = checkpoint(job)["extra_state"]
        assert extra_state["best"] == extra_state["val_loss"]


def test_jobs_of_a_sweep_in_one_folder_are_refused(data, tmp_path):
    config = hydra(tmp_path, data, TINY_MODEL)[:-1]
    sweep = ["-m", f"hydra.sweep.dir={tmp_path}/sweep"]
    sweep += [f"checkpoint.save_dir={tmp_path}/same", "optimization.lr=[0.001],[0.01]"]
    done = run("fairseq-hydra-train", *config, *sweep, cwd=tmp_path)
    assert done.returncode == 1
    assert "an earlier job of this sweep uses it; give each job" in done.stdout


def test_fairseqs_own_task_of_fine_tuning_stops_and_resumes_too(data, tmp_path):
    lines = [line for document in documents(30, 3) for line in document]
    labels = [str("ka" in line) for line in lines]
    arguments = of_fairseq(tmp_path / "mine", lines, labels, data / "dict.txt")
    arguments += ["--max-update", 12, "--seed", 1, "--shorten-method", "truncate", "--save-dir"]
    succeed("fairseq-train", *arguments, tmp_path / "whole")
    # The signal of a terminal that is closed.
    sent = trap(tmp_path, '"num_updates": "3"', signal.SIGHUP)
    process = start(command("fairseq-train", *arguments, tmp_path / "run", *sent))
    assert "stopped on request" in finish([process], EXIT_STOPPED)
    assert updates(tmp_path / "run") in (3, 4)
    succeed("fairseq-train", *arguments, tmp_path / "run")
    assert_same_weights(tmp_path / "run", tmp_path / "whole", 0)


def test_a_signal_that_is_ignored_stays_so(data, tmp_path):
    """nohup has SIGHUP ignored."""
    program = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    program += "from fairseq_cli.train import cli_main; cli_main()"
    sent = trap(tmp_path, 2, signal.SIGHUP)
    succeed("python", "-c", program, data, *TINY, "--save-dir", tmp_path / "run", *sent)
    assert updates(tmp_path / "run") == 4


def test_other_text_within_an_epoch_is_noticed(data, tmp_path):
    save = tmp_path / "run"
    train(data, save, "--max-update", 3)
    reversed_text = text_of(documents(120, 1)[::-1])
    texts = {"train": reversed_text, "valid": "kan\n\n"}
    other = binarize(tmp_path / "other", texts, data / "dict.txt")
    error = error_of_command(other, *TINY, "--save-dir", save, "--max-update", 6)
    place = "its place within epoch 1 is in other data, or in another"
    assert f"{save}/checkpoint_last.pt: {place}" in error
    assert error.count("151 items of") == 2
    assert error.count("in the order of --seed 1, with the checksum") == 2
    error = error_of_command(data, *TINY, "--save-dir", save, "--max-update", 6, "--seed", 2)
    assert "in the order of --seed 2, with the checksum" in error
    train(other, save, "--max-update", 6, "--reset-dataloader")
    assert updates(save) == 6


def test_a_finished_run_says_so_and_leaves_its_files_alone(data, tmp_path):
    train(data, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").glob("*.pt")}
    for last in [4, 3]:
        printed = train(data, tmp_path / "run", "--max-update", last)
        message = f"nothing to train: the checkpoint is of update 4, and --max-update is {last}"
        assert message in printed
        assert "begin validation" not in printed
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").glob("*.pt")}


ODD = ["a 'b' \"c\"", "[1] {x} (y) *", "a,b=c", "#a ~b", "$a $(b)"]
ODD.append(b"\xff".decode("utf-8", "surrogateescape"))


def test_folders_may_have_odd_names(data, tmp_path):
    folder = tmp_path.joinpath(*ODD)
    train(shutil.copytree(data, folder / "data"), folder / "run", "--max-update", 1)
    assert updates(folder / "run") == 1


@pytest.mark.parametrize("name", ["${x}", "end\\"])
def test_names_that_fairseq_reads_as_others_are_refused(data, tmp_path, name):
    error = error_of_command(data, *TINY, "--save-dir", tmp_path / name)
    assert f"--save-dir {tmp_path}/{name}: in fairseq, ${{...}}" in error
    assert list(tmp_path.iterdir()) == []


def test_new_validation_data_beside_the_old_ones_are_named(data, tmp_path):
    extended = shutil.copytree(data, tmp_path / "data")
    for ending in ["bin", "idx"]:
        shutil.copy(data / f"valid.{ending}", extended / f"valid1.{ending}")
    assert "Valid paths" in error_of_command(extended, *TINY, "--save-dir", tmp_path / "run")
