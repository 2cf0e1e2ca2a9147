"""Resumed runs, and runs of several processes, end with the same weights as a single run."""

import pytest

from conftest import BIN, FORKS, TINY, succeed
from training import NO_DROPOUT, assert_same_weights, train, updates


@pytest.mark.parametrize("workers", [0, 2])
def test_ten_and_ten_updates_are_twenty(data, tmp_path, workers):
    arguments = ["--num-workers", workers]
    train(data, tmp_path / "whole", "--max-update", 20, *arguments)
    train(data, tmp_path / "parts", "--max-update", 10, *arguments)
    assert updates(tmp_path / "parts") == 10
    train(data, tmp_path / "parts", "--max-update", 20, *arguments)
    assert updates(tmp_path / "whole") == updates(tmp_path / "parts") == 20
    assert_same_weights(tmp_path / "whole", tmp_path / "parts", 1e-6)


def train_with_two_processes(data, save_dir, program, *arguments):
    launch = [
        "--no-python", "--nproc_per_node", 2, "--standalone",
        "bash", "-c", 'exec "$0" "$@" --distributed-rank $RANK', program, data, *TINY,
        "--save-dir", save_dir, "--seed", 1, "--distributed-backend", "gloo", "--distributed-world-size", 2,
        "--distributed-no-spawn", "--distributed-init-method", "env://", "--ddp-backend", "legacy_ddp",
    ]  # fmt: skip
    return succeed("torchrun", *launch, *arguments)


def test_two_processes_equal_one_with_twice_the_accumulation_and_resume(data, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    options = [*NO_DROPOUT, "--mask-prob", 0.3]
    train(data, one, "--update-freq", 2, "--max-update", 6, *options)
    train_with_two_processes(data, two, BIN / "fairseq-train", "--max-update", 3, *options)
    assert updates(two) == 3
    train_with_two_processes(data, two, FORKS / "fairseq-train", "--max-update", 6, *options)
    assert updates(one) == updates(two) == 6
    assert_same_weights(one, two, 1e-5)
