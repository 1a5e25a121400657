import pytest

from ottrpo.benchmarks.checkpoint import measure


@pytest.mark.slow
def test_a_checkpoint_of_hopper_is_cheap_and_small():
    """Under 1 % of the training between two, under 1 MB; see `ottrpo bench checkpoint`."""
    cost = measure("Hopper-v5", steps=8_192)
    print(cost)
    assert cost["share"] < 0.01
    assert cost["size"] < 1_000_000
