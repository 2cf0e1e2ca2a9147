"""fairseq's settings that make no sense: one line instead of a run that does nothing or something else."""

import pytest

from conftest import TINY, hydra, prepare, run, succeed
from test_errors import refused

REFUSED = {
    "--lr -1": "--lr -1.0 must be at least 0",
    "--batch-size 0": "--batch-size 0 must be at least 1",
    "--max-update -3": "--max-update -3 must be at least 0",
    "--update-freq 0": "--update-freq 0 must be at least 1",
    "--update-freq 2,0": "--update-freq 0 must be at least 1",
    "--clip-norm -1": "--clip-norm -1.0 must be at least 0",
    "--num-workers -1": "--num-workers -1 must be at least 0",
    "--seed -1": "--seed -1 must be at least 0",
    "--warmup-updates -1": "--warmup-updates -1 must be at least 0",
    "--save-interval-updates -1": "--save-interval-updates -1 must be at least 0",
    "--warmup-updates 40": "--warmup-updates 40 must be less than --total-num-update 40, when the learning rate",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("options", REFUSED)
def test_refused(options, data, tmp_path):
    assert REFUSED[options] in refused(data, *TINY, "--save-dir", tmp_path / "run", *options.split())
    assert not (tmp_path / "run").exists()


def test_refused_under_hydra(data, tmp_path):
    model = {"_name": "mae_lm_tiny", "max_positions": 32}
    done = run("fairseq-hydra-train", *hydra(tmp_path, data, model, lr=[-1.0]))
    assert done.returncode == 1 and "error: --lr -1.0 must be at least 0" in done.stdout, done.stdout[-3000:]


def test_a_warm_up_longer_than_the_run_is_reported(data, tmp_path):
    printed = succeed("fairseq-train", data, *TINY, "--save-dir", tmp_path / "run", "--warmup-updates", 9)
    assert "--warmup-updates 9 is more than --max-update 4: the learning rate never reaches --lr" in printed
