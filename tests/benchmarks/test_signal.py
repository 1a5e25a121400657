"""`ottrpo bench signal`: variants of an update, side by side on rows held out."""

import pytest

from ottrpo import OTTRPO
from ottrpo.benchmarks.signal import VARIANTS, Signal, gains


def test_every_variant_is_ranked_and_the_agent_stays_as_it_is():
    agent = OTTRPO("MlpPolicy", "Pendulum-v1", advantage="gae", n_steps=256, seed=0)
    agent.learn(256)
    before = agent.get_parameters()
    rows = gains(agent, 2)
    assert {row["variant"] for row in rows} == set(VARIANTS)
    ranked = [row["held_out"] for row in rows]
    assert ranked == sorted(ranked, reverse=True)
    assert all(0 < row["spent_of_radius"] <= 1 for row in rows)
    paced = next(row for row in rows if row["variant"].startswith("paced"))
    as_it_is = next(row for row in rows if row["variant"] == "as it is")
    assert paced["spent_of_radius"] > as_it_is["spent_of_radius"]
    after = agent.get_parameters()
    assert all((before[key] == after[key]).all() for key in before)


def test_too_few_rollouts_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        Signal(rollouts=1)
