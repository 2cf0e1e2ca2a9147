"""Both of fairseq's command lines, and relative paths."""

import os

from conftest import PLUGIN, TINY, TINY_MODEL, hydra, succeed
from training import assert_same_weights, train, updates


def test_hydra_is_the_legacy_command_line(data, tmp_path):
    """Also in the sizes that neither names, which are those of the architecture."""
    succeed("fairseq-hydra-train", *hydra(tmp_path, data, TINY_MODEL), cwd=tmp_path, real=True)
    train(data, tmp_path / "legacy")
    assert updates(tmp_path / "hydra") == updates(tmp_path / "legacy") == 4
    assert_same_weights(tmp_path / "hydra", tmp_path / "legacy", 1e-6)


def test_relative_paths_work_from_any_folder(data, tmp_path):
    user_dir, folder = os.path.relpath(PLUGIN, tmp_path), os.path.relpath(data, tmp_path)
    arguments = [user_dir if a == PLUGIN else a for a in TINY]
    succeed("fairseq-train", folder, *arguments, "--save-dir", "run", "--max-update", 2, cwd=tmp_path)
    assert updates(tmp_path / "run") == 2
