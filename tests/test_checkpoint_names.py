"""The names of checkpoints, and their order."""

from maelm_fairseq.base.checkpoint_names import (
    interval_checkpoint_paths,
    other_checkpoint_paths,
    resumable_checkpoint_paths,
)


def test_checkpoints_of_intervals_are_in_the_order_of_their_updates(tmp_path):
    """They are ordered as numbers, not as text, and those with another suffix do not count."""
    for name in [
        "checkpoint_1_4.pt",
        "checkpoint_1_10.pt",
        "checkpoint_2_9_x.pt",
        "checkpoint_last.pt",
        "checkpoint2.pt",
        "checkpoint_1_3.pt.part",
    ]:
        (tmp_path / name).touch()
    newest = str(tmp_path / "checkpoint_1_10.pt")
    older = str(tmp_path / "checkpoint_1_4.pt")
    assert interval_checkpoint_paths(tmp_path) == {newest: 10, older: 4}
    assert [*interval_checkpoint_paths(tmp_path)] == [newest, older]
    with_suffix = str(tmp_path / "checkpoint_2_9_x.pt")
    assert interval_checkpoint_paths(tmp_path, "_x") == {with_suffix: 9}
    last = str(tmp_path / "checkpoint_last.pt")
    assert resumable_checkpoint_paths(tmp_path) == [last, newest, older]
    others = [str(tmp_path / name) for name in ["checkpoint2.pt", "checkpoint_2_9_x.pt"]]
    assert other_checkpoint_paths(tmp_path) == others
