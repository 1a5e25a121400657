"""Costs as knobs: what is dear moves less, by coordinate and by state; a joint that is fragile."""

import gymnasium as gym
import numpy as np
import pytest

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import OTTRPO
from ottrpo.core import Mahalanobis, Nearby, SquaredEuclidean, sensitivity_cost
from ottrpo.experiments.study import STUDIES_FOLDER, load_study

FRAGILE = "ottrpo/Fragile-v0"
SMALL = {"n_steps": 512, "gamma": 0.0, "seed": 0}


def test_straining_the_fragile_joint_is_paid_for():
    env = gym.make(FRAGILE)
    seen, _ = env.reset(seed=0)
    for action, strain in ((seen / 2, 0.0), (np.float32([0.9, 0.0]), 10.0)):
        shown = seen
        seen, reward, *_ = env.step(action)
        reached = 1.0 - 4.0 * np.mean((action - shown / 2) ** 2)
        assert reward == pytest.approx(reached - strain, abs=1e-5)
    assert env.step(np.float32([0.0, 0.9]))[1] > -9


def planned(agent):
    """The plan of an agent's second update, and the rows it is of."""
    rollout, now = agent.learn(512).collect_rollout(None), agent._now()
    state, batch = agent.algorithm.estimate(agent.train_state, rollout, now)
    draws = agent.algorithm.draw(len(batch.flat), agent.rng)
    return agent.algorithm.plan(state, batch, batch.advantage, draws, now), batch


def test_a_dear_joint_is_moved_less_by_as_much_as_it_is_dearer():
    cost = Mahalanobis([[25.0, 0.0], [0.0, 1.0]])
    plan, batch = planned(OTTRPO("MlpPolicy", FRAGILE, advantage="gae", cost=cost, **SMALL))
    mean, std, action = batch.recorded("mean", "std", "action")
    moved, slope = plan.rows["target_mean"] - mean, (action - mean) / std**2
    by_joint = (moved / slope)[np.abs(slope).min(1) > 1e-3]
    np.testing.assert_allclose(25.0 * by_joint[:, 0], by_joint[:, 1], rtol=1e-6, atol=1e-12)


def test_a_cost_that_transitions_taught_is_kept_and_certified(tmp_path):
    """The first joint pushes five times as hard: it is dear, and moves less."""
    rng = np.random.default_rng(0)
    seen, action = rng.standard_normal((400, 2)), rng.uniform(-1, 1, (400, 2))
    cost = sensitivity_cost(seen, action, seen + action * [5.0, 1.0])
    agent = OTTRPO("MlpPolicy", FRAGILE, advantage="gae", cost=cost, **SMALL)
    plan, batch = planned(agent)
    mean, _, _ = batch.recorded("mean", "std", "action")
    moved = np.abs(plan.rows["target_mean"] - mean).mean(0)
    assert moved[0] < 0.5 * moved[1]
    report = agent.learn(512).last_update
    assert 0 < report["ot/spent"] <= report["ot/radius"]
    agent.save(tmp_path / "agent")
    np.testing.assert_array_equal(OTTRPO.load(tmp_path / "agent").cost.metric, cost.metric)


def test_near_a_place_where_actions_are_dear_fewer_of_them_move():
    cost = Nearby(SquaredEuclidean(), feature=0, place=1.0, width=0.5, factor=50.0)
    settings = SMALL | {"model": "antithetic", "cost": cost, "radius": "10%"}
    agent = OTTRPO("MlpPolicy", FRAGILE, **settings)
    plan, batch = planned(agent)
    goes = (plan.rows["target"][:, 0, 0] != batch.drawn["mean"]).any(-1)
    near = np.abs(batch.state[:, 0] - 1.0) < 0.5
    assert goes[near].mean() < 0.5 * goes[~near].mean()
    report = agent.learn(512).last_update
    assert 0 < report["ot/spent"] <= report["ot/radius"]


def test_every_cell_of_the_study_can_be_planned():
    study = load_study(STUDIES_FOLDER / "costs-as-knobs.toml")
    costs = {str(cell.spec().settings["cost"]) for cell in study.cells}
    assert len(costs) == len(study.cells) == 6
