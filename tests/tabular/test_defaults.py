"""The recommended configurations reach what they promise, on seeds of their own."""

import numpy as np
import pytest

from ottrpo.experiments.run import build_agent, plan_run
from ottrpo.tabular import WPO, TabularOTTRPO, as_problem, planning


def expected_return(environment, seed):
    spec = plan_run(environment, seed=seed)
    agent = build_agent(spec).learn(spec.steps)
    return planning.capped_return(agent.problem, agent.policy_sa)


@pytest.mark.parametrize("seed", range(2000, 2010))
def test_cliff_walking_is_solved(seed):
    assert expected_return("CliffWalking-v1", seed) == pytest.approx(-13.0, abs=1e-9)


def test_taxi_is_solved():
    assert expected_return("Taxi-v4", 2000) > 7.7


def test_frozen_lake_is_solved():
    lake = as_problem("FrozenLake-v1")
    best = planning.capped_return(lake, planning.policy_iteration(lake, 0.99)[0])
    assert expected_return("FrozenLake-v1", 2000) > 0.98 * best


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2000, 2001, 2002])
def test_large_frozen_lake_comes_within_two_per_cent(seed):
    lake = as_problem("FrozenLake8x8-v1")
    best = planning.capped_return(lake, planning.policy_iteration(lake, 0.995)[0])
    assert expected_return("FrozenLake8x8-v1", seed) > 0.995 * best


@pytest.mark.parametrize(
    "settings", [{}, {"radius": 0.01}, {"cost": (9.0 * (1 - np.eye(4))).tolist()}]
)
def test_without_any_setting_at_all(settings):
    """Three lines, as in the README; and with a radius or a cost of one's own."""
    agent = TabularOTTRPO("CliffWalking-v1", seed=0, **settings).learn(200_000)
    assert agent.evaluate(5, deterministic=True).tolist() == [-13.0] * 5


def share_of_optimum(environment, seed, steps):
    agent = TabularOTTRPO(environment, seed=seed).learn(steps)
    reached = planning.capped_return(agent.problem, agent.policy_sa)
    return reached / planning.best_capped_return(agent.problem)


@pytest.mark.parametrize("number", [100, 102, 104])
@pytest.mark.parametrize("kind", ["Lake", "MDP"])
def test_problems_that_nobody_chose_are_solved(kind, number):
    assert share_of_optimum(f"ottrpo/Random{kind}{number}-v0", 2000, 200_000) > 0.9


def test_the_slope_of_the_score_alone_would_stay_in_a_worse_circle():
    """At .86 of the optimum no small change helps; the policy is led past it."""
    assert share_of_optimum("ottrpo/RandomMDP227-v0", 2000, 200_000) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Lake", "MDP"])
def test_a_hundred_problems_that_nobody_chose_are_solved(kind):
    shares = [
        share_of_optimum(f"ottrpo/Random{kind}{number}-v0", number, 1_000_000)
        for number in range(300, 400)
    ]
    assert np.mean(shares) > 0.97
    assert min(shares) > 0.9


def test_wpo_as_published_learns_taxi_as_its_authors_logs_do():
    """peers: -552 after 660 episodes, -169 after 1860, -88 after 5040; the radius is not kept."""
    spec = plan_run("Taxi-v4", agent="wpo", config="original", seed=2000)
    agent, returns, over = build_agent(spec), {}, []

    def watch(one):
        assert isinstance(one, WPO)
        returns[one.num_episodes] = one.last_update["rollout/ep_rew_mean"]
        over.append(one.last_update["ot/violation"] > 0)
        return one.num_episodes < 5040

    agent.learn(2_000_000, callback=watch)
    assert -800 < returns[60] < -700  # the uniform policy
    assert -750 < returns[660] < -400
    assert -300 < returns[1860] < -100
    assert -160 < returns[5040] < -30
    assert 0.3 < sum(over) / len(over) < 0.95
