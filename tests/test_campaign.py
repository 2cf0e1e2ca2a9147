"""A short campaign of random faults, and that a failed try shows."""

import pytest

import campaign


@pytest.mark.by_chance
def test_a_short_campaign():
    failed, lines = campaign.campaign(seed=1, numbers=range(len(campaign.KINDS)))
    assert not failed, lines
    assert f"{len(campaign.KINDS)} tries, 0 failed." in lines
    for kind in campaign.KINDS:
        (row,) = [line for line in lines if line.startswith(f"| {kind.__name__.replace('_', ' ')} | 1 |")]
        assert row.endswith("| 0 |")


def test_a_failed_try_shows_and_can_be_repeated(monkeypatch):
    drawn = []

    def broken(this):
        drawn.append(this.draw(range(1000)))
        assert drawn[-1] < 0, "lost"

    monkeypatch.setattr(campaign, "Base", lambda folder: None)
    monkeypatch.setattr(campaign, "KINDS", [broken])
    failed, lines = campaign.campaign(seed=3, numbers=range(4))
    assert failed == 4 and len(set(drawn)) == 4
    assert "To repeat: python tests/campaign.py --seed 3 --only 2" in lines
    campaign.campaign(seed=3, numbers=[2])
    assert drawn[-1] == drawn[2]
