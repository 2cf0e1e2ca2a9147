"""A short campaign of random faults."""

import pytest

import campaign


@pytest.mark.by_chance
def test_a_short_campaign():
    assert campaign.campaign(seed=1, tries=len(campaign.KINDS)) == []
