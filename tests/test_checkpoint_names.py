"""The names of checkpoints, and their order."""

from maelm_fairseq.base.checkpoint_names import interval_checkpoints, other_checkpoints, resumable_checkpoints


def test_checkpoints_of_intervals_are_in_the_order_of_their_updates(tmp_path):
    """Of numbers, not of letters; those of another suffix are others."""
    names = ["checkpoint_1_4.pt", "checkpoint_1_10.pt", "checkpoint_2_9_x.pt", "checkpoint_last.pt", "checkpoint2.pt"]
    for name in [*names, "checkpoint_1_3.pt.part"]:
        (tmp_path / name).touch()
    newest, older = str(tmp_path / "checkpoint_1_10.pt"), str(tmp_path / "checkpoint_1_4.pt")
    assert interval_checkpoints(tmp_path) == {newest: 10, older: 4}
    assert [*interval_checkpoints(tmp_path)] == [newest, older]
    assert interval_checkpoints(tmp_path, "_x") == {str(tmp_path / "checkpoint_2_9_x.pt"): 9}
    assert resumable_checkpoints(tmp_path) == [str(tmp_path / "checkpoint_last.pt"), newest, older]
    assert other_checkpoints(tmp_path) == ["checkpoint2.pt", "checkpoint_2_9_x.pt"]
