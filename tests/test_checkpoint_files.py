"""A run resumes from the last checkpoint of its folder, or says in one line why it does not.

The files that it writes are complete, or not there.
"""

import os
import re
import shutil
import signal
import subprocess

import pytest
import torch

from conftest import TINY, VALIDATE, command, run
from hostile_files import spoil
from maelm_fairseq.checkpoints import reading
from training import assert_same_weights, checkpoint, error_of_command, train, updates

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


@pytest.mark.parametrize("name, reason", [
    ("flipped_bit", "checksum"),
    ("empty", "it is empty"),
    ("zeros", "its end"),
    ("flipped_bit_in_the_directory", ""),
    ("a_link_to_nowhere", "not found"),
    ("a_pipe", "found a pipe"),
    ("another_vocabulary", "another dict.txt"),
    ("without_last_optimizer_state", "no state of the optimizer"),
    ("moments_of_three_numbers", "exp_avg has the"),
    ("a_link_to_itself", "found a link to itself"),
])  # fmt: skip
def test_an_unusable_last_checkpoint_is_kept_and_the_newest_of_an_interval_used(
    data, run_of_five, saved, name, reason
):
    spoil(saved / "checkpoint_last.pt", name)
    (saved / "checkpoint_1_3.pt.part").touch()
    printed = train(data, saved, *INTERVAL)
    (warning,) = [line for line in printed.splitlines() if "renamed to" in line]
    assert f"{saved}/checkpoint_last.pt: " in warning
    assert reason in warning
    assert f"Loaded checkpoint {saved}/checkpoint_1_4.pt" in printed
    assert os.path.lexists(saved / "checkpoint_last.pt.unusable")
    assert_same_weights(saved, run_of_five, 0)


def test_checkpoints_of_another_run_beside_a_damaged_one_are_passed_over(
    data, run_of_five, saved, tmp_path
):
    """Nothing takes the place of the last checkpoint before the run has accepted it."""
    train(data, tmp_path / "other", "--encoder-layers", 1, "--max-update", 1)
    shutil.copy(tmp_path / "other/checkpoint_last.pt", saved / "checkpoint_1_30.pt")
    foreign = (saved / "checkpoint_1_30.pt").read_bytes()
    spoil(saved / "checkpoint_last.pt", "cut_in_half")
    damaged = (saved / "checkpoint_last.pt").read_bytes()
    printed = train(data, saved, *INTERVAL)
    assert "checkpoint_1_30.pt: the checkpoint is of another model: --encoder-layers" in printed
    assert f"Loaded checkpoint {saved}/checkpoint_1_4.pt" in printed
    assert (saved / "checkpoint_1_30.pt.unusable").read_bytes() == foreign
    assert (saved / "checkpoint_last.pt.unusable").read_bytes() == damaged
    assert_same_weights(saved, run_of_five, 0)


def test_checkpoints_whose_place_is_in_other_data_are_passed_over(
    data, run_of_five, saved, tmp_path
):
    """One is of another seed, whose epochs have another order.

    Another one has a name with a wrong number of updates.
    """
    train(data, tmp_path / "other", "--seed", 2, "--max-update", 3)
    shutil.copy(tmp_path / "other/checkpoint_last.pt", saved / "checkpoint_1_3.pt")
    shutil.copy(saved / "checkpoint_1_2.pt", saved / "checkpoint_1_30.pt")
    (saved / "checkpoint_1_4.pt").unlink()
    spoil(saved / "checkpoint_last.pt", "empty")
    printed = train(data, saved, *INTERVAL)
    of_other_data = "its place within epoch 1 is in other data, or in another order"
    assert f"{saved}/checkpoint_1_3.pt: {of_other_data}" in printed
    wrong_name = "its name says update 30, and it is of update 2"
    assert f"{saved}/checkpoint_1_30.pt: {wrong_name}" in printed
    assert f"Loaded checkpoint {saved}/checkpoint_1_2.pt" in printed
    assert (saved / "checkpoint_1_3.pt.unusable").exists()
    assert (saved / "checkpoint_1_30.pt.unusable").exists()
    assert_same_weights(saved, run_of_five, 0)


def test_data_that_no_checkpoint_is_of_are_named_once(data, saved, tmp_path):
    """All checkpoints are refused for one reason, which is not their fault, so they are kept."""
    damaged = shutil.copytree(data, tmp_path / "data")
    os.truncate(damaged / "train.bin", 10)
    before = sorted(saved.iterdir())
    message = error_of_command(damaged, *TINY, "--save-dir", saved, *INTERVAL)
    assert message.count("train.bin") == 1
    assert "no checkpoint" not in message
    assert sorted(saved.iterdir()) == before


def test_a_run_whose_checkpoints_have_a_suffix_resumes(data, run_of_five, tmp_path):
    options = [*INTERVAL, "--checkpoint-suffix", "_x"]
    train(data, tmp_path, *options, "--max-update", 4)
    (tmp_path / "checkpoint_best_x.pt").unlink()
    assert "@ 4 updates" in train(data, tmp_path, *options)
    assert (tmp_path / "checkpoint_best_x.pt").exists()
    spoil(tmp_path / "checkpoint_last_x.pt", "cut_in_half")
    assert f"Loaded checkpoint {tmp_path}/checkpoint_1_4_x.pt" in train(data, tmp_path, *options)
    shutil.copy(tmp_path / "checkpoint_last_x.pt", tmp_path / "checkpoint_last.pt")
    assert_same_weights(tmp_path, run_of_five, 0)


def test_a_whole_last_checkpoint_is_used_and_nothing_else_is_looked_at(data, saved):
    """An earlier checkpoint may take its place, and other files do not matter."""
    shutil.copy(saved / "checkpoint_1_2.pt", saved / "checkpoint_last.pt")
    for name in ["checkpoint_best.pt", "checkpoint_1_1.pt", "checkpoint_pretrained.pt"]:
        (saved / name).unlink(missing_ok=True)
        os.mkfifo(saved / name)
    assert "@ 2 updates" in train(data, saved, "--max-update", 3)
    assert updates(saved) == 3


def test_a_run_that_was_taken_back_keeps_its_own_checkpoints_and_those_that_it_has_left(
    data, saved
):
    shutil.copy(saved / "checkpoint_1_2.pt", saved / "checkpoint_last.pt")
    later = (saved / "checkpoint_1_4.pt").read_bytes()
    keep = ["--save-interval-updates", 1, "--keep-interval-updates", 1, "--max-update", 3]
    assert f"renamed the later {saved}/checkpoint_1_4.pt to" in train(data, saved, *keep)
    names = sorted(path.name for path in saved.glob("checkpoint_1*"))
    assert names == ["checkpoint_1_3.pt", "checkpoint_1_4.pt.superseded"]
    assert (saved / "checkpoint_1_4.pt.superseded").read_bytes() == later
    spoil(saved / "checkpoint_last.pt", "cut_in_half")
    assert "Loaded checkpoint" in train(data, saved, *keep)
    assert updates(saved) == 3


def test_an_explicit_restore_file_is_checked_wherever_it_is(data, saved):
    """Also if it is the last checkpoint of the folder."""
    path = saved / "checkpoint_last.pt"
    spoil(path, "another_vocabulary")
    before = path.read_bytes()
    error = error_of_command(data, *TINY, "--save-dir", saved, *INTERVAL, "--restore-file", path)
    assert f"{path}: " in error
    assert path.read_bytes() == before


def test_without_last_checkpoints_a_run_does_not_begin_anew(data, tmp_path):
    options = ["--no-last-checkpoints", "--max-epoch", 1, "--max-update", 0]
    train(data, tmp_path, *options)
    before = (tmp_path / "checkpoint1.pt").read_bytes()
    error = error_of_command(data, *TINY, "--save-dir", tmp_path, *options)
    assert f"{tmp_path}: found no checkpoint_last.pt and no checkpoint of" in error
    assert (tmp_path / "checkpoint1.pt").read_bytes() == before


def test_a_last_checkpoint_that_nothing_renews_is_the_last_choice(data, tmp_path):
    train(data, tmp_path, "--max-update", 2)
    options = ["--no-last-checkpoints", "--save-interval-updates", 2]
    train(data, tmp_path, *options, "--max-update", 4)
    printed = train(data, tmp_path, *options, "--max-update", 5)
    assert f"Loaded checkpoint {tmp_path}/checkpoint_1_4.pt" in printed


def test_the_number_in_a_name_is_checked_when_the_optimizer_begins_anew(data, saved):
    shutil.copy(saved / "checkpoint_1_2.pt", saved / "checkpoint_1_30.pt")
    spoil(saved / "checkpoint_last.pt", "empty")
    printed = train(data, saved, *INTERVAL, "--reset-optimizer")
    assert f"Loaded checkpoint {saved}/checkpoint_1_4.pt" in printed


def test_a_missing_last_checkpoint(data, saved, tmp_path):
    """The newest of an interval takes its place, also in a run with --finetune-from-model."""
    start = shutil.copy(saved / "checkpoint_best.pt", tmp_path / "start.pt")
    (saved / "checkpoint_last.pt").unlink()
    copy = shutil.copytree(saved, tmp_path / "copy")
    printed = train(data, copy, "--finetune-from-model", start)
    assert f"Loaded checkpoint {copy}/checkpoint_1_4.pt" in printed
    printed = train(data, saved, "--max-update", 5)
    assert f"Loaded checkpoint {saved}/checkpoint_1_4.pt" in printed
    assert updates(saved) == 5


def test_a_run_never_starts_anew_over_checkpoints(data, saved):
    """Even where there is neither a last checkpoint nor one of an interval to resume from."""
    for path in [saved / "checkpoint_last.pt", *saved.glob("checkpoint_1_*.pt")]:
        path.unlink()
    before = (saved / "checkpoint_best.pt").read_bytes()
    error = error_of_command(data, *TINY, "--save-dir", saved)
    assert f"{saved}: found no checkpoint_last.pt and no checkpoint of" in error
    assert "another one (checkpoint_best.pt), if it is whole, copy it to" in error
    assert (saved / "checkpoint_best.pt").read_bytes() == before
    start = shutil.copy(saved / "checkpoint_best.pt", saved.parent / "start.pt")
    train(data, saved, *INTERVAL, "--finetune-from-model", start)


@pytest.mark.parametrize("damaged", ["nothing", "checkpoint_last.pt", "checkpoint_1_4.pt"])
def test_the_error_says_how_to_resume_from_another_checkpoint(data, saved, damaged):
    path = saved / "checkpoint_last.pt"
    for checkpoint_file in [path, *saved.glob("checkpoint_1_*.pt")]:
        if checkpoint_file.name == damaged:
            spoil(checkpoint_file, "empty")
        else:
            checkpoint_file.unlink()
    error = error_of_command(data, *TINY, "--save-dir", saved)
    assert (
        f"; to resume from another one (checkpoint_best.pt), if it is whole, copy it to {path}"
        in error
    )
    shutil.copy(saved / "checkpoint_best.pt", path)
    assert "@ 5 updates" in train(data, saved, "--max-update", 6)


def test_without_a_last_checkpoint_of_its_own_a_run_goes_on_from_the_newest(data, tmp_path):
    options = ["--no-last-checkpoints", *INTERVAL]
    for last, loaded in [(2, "No existing"), (4, "@ 2 updates"), (6, "@ 4 updates")]:
        assert loaded in train(data, tmp_path, *options, "--max-update", last)
    names = sorted(path.name for path in tmp_path.glob("*_1_*"))
    assert names == ["checkpoint_1_2.pt", "checkpoint_1_4.pt", "checkpoint_1_6.pt"]
    assert not (tmp_path / "checkpoint_last.pt").exists()


def test_the_best_checkpoint_is_written_when_a_kill_came_before_it(data, saved):
    (saved / "checkpoint_best.pt").unlink()
    train(data, saved, "--max-update", 6, "--disable-validation")
    best = checkpoint(saved, "checkpoint_best.pt")
    assert best["optimizer_history"][-1]["num_updates"] == 5


def test_training_on_keeps_the_best_checkpoint_of_a_finished_run(data, saved):
    best = (saved / "checkpoint_best.pt").read_bytes()
    kept = f"checkpoint_best.pt is also kept as {saved}/checkpoint_best_5.pt"
    assert kept in train(data, saved, "--max-update", 8, "--save-interval-updates", 2)
    assert (saved / "checkpoint_best_5.pt").read_bytes() == best
    # A run that was only interrupted has no best checkpoint to keep.
    shutil.copy(saved / "checkpoint_1_6.pt", saved / "checkpoint_last.pt")
    (saved / "checkpoint_best.pt").unlink()
    shutil.copy(saved / "checkpoint_1_6.pt", saved / "checkpoint_best.pt")
    assert "is also kept" not in train(data, saved, "--max-update", 8)
    assert [path.name for path in saved.glob("checkpoint_best_*")] == ["checkpoint_best_5.pt"]


@pytest.mark.parametrize("was_best", [True, False])
def test_going_back_keeps_the_best_checkpoint_also_if_it_is_a_link(data, saved, was_best):
    """The run goes back to a checkpoint that was, or was not, the best one of its time."""
    best = (saved / "checkpoint_best.pt").read_bytes()
    (saved / "checkpoint_best.pt").rename(saved / "its_best.pt")
    (saved / "checkpoint_best.pt").symlink_to("its_best.pt")
    earlier = checkpoint(saved, "checkpoint_1_2.pt")
    assert earlier["extra_state"]["val_loss"] == earlier["extra_state"]["best"]
    if not was_best:
        earlier["extra_state"]["val_loss"] += 1
    torch.save(earlier, saved / "checkpoint_last.pt")
    assert "is also kept" in train(data, saved, "--max-update", 5)
    (saved / "its_best.pt").unlink()
    assert (saved / "checkpoint_best_5.pt").read_bytes() == best


def test_an_explicit_restore_file_is_used_as_given(data, saved, tmp_path):
    second = saved / "checkpoint_1_2.pt"
    (saved / "checkpoint_best.pt").unlink()
    shutil.copy(saved / "checkpoint_last.pt", saved / "its_best.pt")
    train(data, tmp_path / "other", "--restore-file", saved / "its_best.pt", "--max-update", 6)
    # The folder of another run stays as it is.
    assert not (saved / "checkpoint_best.pt").exists()
    assert "@ 2 updates" in train(data, saved, "--restore-file", second, "--max-update", 3)
    assert updates(saved) == 3
    spoil(second, "flipped_bit")
    error = error_of_command(data, *TINY, "--save-dir", saved, "--restore-file", second)
    assert f"{second}: damaged: the checksum" in error
    assert updates(saved) == 3


def test_the_log_names_checkpoints_that_are_removed(data, tmp_path):
    keep = ["--save-interval-updates", 1, "--keep-interval-updates", 1, "--no-epoch-checkpoints"]
    printed = train(data, tmp_path, *keep, "--max-update", 3)
    removed = [line for line in printed.splitlines() if "removed /" in line]
    assert len(removed) == 2
    for update, line in enumerate(removed, 1):
        path = tmp_path / f"checkpoint_1_{update}.pt"
        assert line.endswith(f"removed {path}, because of --keep-interval-updates 1")
        assert not path.exists()


def test_damaged_checkpoints_that_nothing_can_replace(data, saved):
    names = sorted(path.name for path in saved.glob("checkpoint*.pt"))
    for path in saved.glob("checkpoint*.pt"):
        spoil(path, "cut_in_half")
    for _ in range(2):  # The second time, what is damaged must not be taken for missing.
        error = error_of_command(data, *TINY, "--save-dir", saved)
        assert "none of 3 checkpoints can be resumed from: " in error
        assert f"{saved}/checkpoint_last.pt: damaged: its end is missing" in error
    assert sorted(path.name for path in saved.glob("checkpoint*")) == names
    done = run("fairseq-validate", data, *VALIDATE, "--path", saved / "checkpoint_best.pt")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    assert f"error: {saved}/checkpoint_best.pt: damaged: its end is missing" in done.stdout


# Complete checkpoints by their names in hostile_files.py, and why no run resumes from them.
UNUSABLE = {
    "without_last_optimizer_state": (
        "it has no state of the optimizer, so no run can resume from it"
    ),
    "no_number_of_updates": "its number of updates is missing",
    "many_updates": "num_updates: found 1000000000000000000000000000000 must be from 0 to",
    "epoch_0": "train_iterator: epoch: found 0 must be from 1 to",
    "a_negative_position": "iterations_in_epoch: found -1 must be from 0 to",
    "negative_batches": "consumed: item 1: batches: found -3 must be from 0 to",
    "consumed_that_is_a_number": "consumed: found 3, expected a list",
    "data_that_are_a_number": "data: found 3, expected a string",
    "meters_that_are_none": "metrics: default: found None, expected a list",
    "a_loss_that_is_a_text": "val_loss: found '5', expected a number",
    "labels_that_are_numbers": "labels: item 1: found 1, expected a string",
    "a_form_of_another_type": "form: found a list of 1, expected a list of 4",
    "a_form_of_an_unknown_metric": (
        "form: item 4: item 1: found 'nope', expected one of accuracy, f1, matthews"
    ),
    "moments_of_three_numbers": "state of weight 0: exp_avg has the shape (3,), expected (33, 32)",
    "moments_that_are_a_text": "state of weight 0: exp_avg_sq has the shape none, expected",
    "steps_that_differ": "steps with its weights",
    "moments_that_are_negative": "exp_avg_sq contains negative numbers",
    "no_step": "step is not a number from 1 on",
    "no_moments": "exp_avg has the shape none",
    "moments_missing": "state of weight 0: exp_avg has the shape none, expected",
    "updates_that_are_a_text": "num_updates: found '5', expected an integer",
    "an_iterator_that_is_a_list": "train_iterator: found a list, expected an object",
    "weights_that_are_numbers": "not a checkpoint of MAE-LM",
    "a_weight_that_is_not_finite": (
        "weight 'encoder.layers.0.ffn.0.weight' contains NaN or infinity"
    ),
    "an_optimizer_of_other_sizes": "the run cannot resume from it",
    "an_optimizer_of_fp16": "the run was with fp16 and is without: keep the same precision",
}


def test_whole_checkpoints_from_which_no_run_resumes_are_refused_and_stay(
    data, run_of_five, tmp_path
):
    """One run tries them all: what one leaves in the trainer hides no fault of the next."""
    paths = {}
    for update, name in enumerate(UNUSABLE, start=10):
        state = checkpoint(run_of_five)
        state["optimizer_history"][-1]["num_updates"] = update
        for moments in state["last_optimizer_state"]["state"].values():
            moments["step"] = torch.tensor(float(update))
        paths[name] = tmp_path / f"checkpoint_1_{update}.pt"
        torch.save(state, paths[name])
        spoil(paths[name], name)
    before = {path.name: path.read_bytes() for path in paths.values()}
    error = error_of_command(data, *TINY, "--save-dir", tmp_path)
    assert f"none of {len(paths)} checkpoints can be resumed from: " in error
    path_pattern = r"\S+/checkpoint_1_\d+\.pt"
    reasons = dict(re.findall(rf"({path_pattern}): (.*?)(?=; {path_pattern}: |$)", error))
    wrong = {}
    for name, path in paths.items():
        if UNUSABLE[name] not in reasons[str(path)]:
            wrong[name] = reasons[str(path)]
    assert wrong == {}
    assert {path.name: path.read_bytes() for path in tmp_path.glob("checkpoint*")} == before


OTHER_OPTIMIZER = "--optimizer was adam and is torch_adamw: use the same, or add"
OTHER_SCHEDULER = "--lr-scheduler was polynomial_decay and is inverse_sqrt"
OTHER_LAYERS = "--share-decoder-layers False in the checkpoint, True here"


@pytest.mark.parametrize("options, message", [
    (["--optimizer", "torch_adamw"], OTHER_OPTIMIZER),
    (["--lr-scheduler", "inverse_sqrt"], OTHER_SCHEDULER),
    (["--share-decoder-layers"], OTHER_LAYERS),
])  # fmt: skip
def test_a_checkpoint_of_a_run_with_other_components_is_refused_and_stays(
    data, saved, options, message
):
    last = saved / "checkpoint_last.pt"
    for path in saved.glob("checkpoint_1_*.pt"):
        path.unlink()
    before = last.read_bytes()
    tiny = TINY
    if "--lr-scheduler" in options:
        place = TINY.index("--total-num-update")
        tiny = [*TINY[:place], *TINY[place + 2 :]]
    error = error_of_command(data, *tiny, *options, "--save-dir", saved)
    assert f"{last}: " in error
    assert message in error
    assert last.read_bytes() == before
    assert not list(saved.glob("*.unusable"))


def test_the_optimizer_may_begin_anew(data, saved):
    spoil(saved / "checkpoint_last.pt", "without_last_optimizer_state")
    train(data, saved, "--reset-optimizer", "--optimizer", "torch_adamw", "--max-update", 1)
    assert checkpoint(saved)["optimizer_history"][-1]["optimizer_name"] == "TorchAdamW"


def test_starting_points(data, saved, tmp_path):
    """They must be files outside the save folder.

    A run that has a checkpoint of its own resumes without them.
    """
    start = saved.rename(tmp_path / "start")
    command = [data, *TINY, "--save-dir", tmp_path / "run", "--finetune-from-model"]
    missing = tmp_path / "nosuch.pt"
    assert f"--finetune-from-model {missing} does not exist" in error_of_command(*command, missing)
    assert f"--finetune-from-model {start} is a folder" in error_of_command(*command, start)
    best, link = start / "checkpoint_best.pt", tmp_path / "link.pt"
    link.symlink_to(best)
    command = [data, *TINY, "--save-dir", start, "--finetune-from-model"]
    for path in [best, link]:
        assert "the run would overwrite what it starts from" in error_of_command(*command, path)
    arguments = ["--finetune-from-model", start / "checkpoint_last.pt", "--decoder-layers", 2]
    printed = train(data, tmp_path / "run", *arguments)
    assert "decoder is newly initialised" in printed  # The decoder of the checkpoint has one layer.
    shutil.rmtree(start)
    train(data, tmp_path / "run", "--max-update", 6, *arguments)
    assert updates(tmp_path / "run") == 6


# A --user-dir that imports the plugin, and kills the process when a checkpoint is about to get a
# certain name.
TRAP = """
import os, signal, sys
import maelm_fairseq.plugin

def audit(event, arguments):
    if event == "os.rename" and os.path.basename(os.fsdecode(arguments[1])) == "{name}":
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(audit)
"""


# The first one is written as a copy, the second one is saved.
@pytest.mark.parametrize("name", ["checkpoint_1_4.pt", "checkpoint_last.pt"])
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
    for path in save.glob("checkpoint*.pt"):
        reading.read_torch_file(path)
    if name == "checkpoint_1_4.pt":
        assert updates(save) == 4  # The last checkpoint is written first.
    train(data, save, *INTERVAL)
    assert not list(save.glob(".checkpoint*.partial"))
    assert_same_weights(save, run_of_five, 0)


# fairseq-train with a limit on the size of files, which stands in for a full disk.
LIMITED = """
import resource, sys
from fairseq_cli.train import cli_main

resource.setrlimit(resource.RLIMIT_FSIZE, 2 * [int(sys.argv.pop(1))])
cli_main()
"""


def test_a_full_disk(data, saved):
    last = saved / "checkpoint_last.pt"
    before = checkpoint(saved)["optimizer_history"]
    options = [data, *TINY, "--save-dir", saved, "--max-update", 7]
    done = run("python", "-c", LIMITED, last.stat().st_size // 2, *options)
    assert done.returncode == 1, done.stdout[-3000:]
    assert "Traceback" not in done.stdout, done.stdout[-3000:]
    error = "error: the checkpoint of update 7 cannot be written (File too large)"
    assert f"{error}; the same command resumes from {last}" in done.stdout
    assert checkpoint(saved)["optimizer_history"] == before
    assert not list(saved.glob(".checkpoint*.partial"))


def test_numbers_that_are_not_finite_stop_the_run(data, tmp_path):
    arguments = ["--lr", 1e30, "--warmup-updates", 0, "--save-interval-updates", 1]
    error = error_of_command(data, *TINY, *arguments, "--max-update", 9, "--save-dir", tmp_path)
    assert "not finite after update" in error
    assert "a lower --lr" in error
    assert "the same command resumes from" in error
    assert not (tmp_path / "crash.pt").exists()


# fairseq-train, which first prints the id of its process.
WITH_ID = """
import os
print(os.getpid(), flush=True)
from fairseq_cli.train import cli_main
cli_main()
"""


def test_a_second_run_in_the_same_folder_is_refused(data, tmp_path):
    options = [data, *TINY, "--save-dir", tmp_path]
    first = subprocess.Popen(
        command("python", "-c", WITH_ID, *options, "--max-update", 0, "--num-workers", 2),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    process = int(first.stdout.readline())
    next(line for line in first.stdout if "train_inner" in line)
    assert f"in use by another run, process {process} on" in error_of_command(*options)
    os.kill(process, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    train(data, tmp_path)  # The lock has ended with the process.
