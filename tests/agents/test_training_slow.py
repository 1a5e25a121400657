"""Whole trainings: minutes, not seconds."""

import numpy as np
import pytest

from ottrpo import OTTRPO
from ottrpo.benchmarks import train as benchmark

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("Hopper-v5", {}),
        ("Pendulum-v1", {"learn_std": True, "radius": "1%"}),
        ("MountainCarContinuous-v0", {"use_sde": True, "sde_sample_freq": 128}),
        ("CartPole-v1", {}),
    ],
)
def test_no_update_of_a_whole_run_leaves_the_region(env, settings):
    agent = OTTRPO("MlpPolicy", env, seed=0, **settings)
    updates = []
    train = agent.train
    agent.train = lambda rollout: updates.append(train(rollout)) or updates[-1]
    agent.learn(60_000)
    assert len(updates) == 30
    assert all(update["ot/spent"] <= update["ot/radius"] for update in updates)
    assert all(update["ot/violation"] == 0 for update in updates)
    assert all(update["ot/dual_gap"] < 1e-6 for update in updates)


@pytest.mark.parametrize(("env", "score"), [("CartPole-v1", 499), ("Acrobot-v1", -95)])
def test_discrete_actions(env, score):
    agent = OTTRPO("MlpPolicy", env, seed=3).learn(120_000)
    assert agent.evaluate(30, deterministic=True, seed=1).mean() >= score


def test_a_valley_that_needs_a_swing():
    agent = OTTRPO("MlpPolicy", "MountainCarContinuous-v0", seed=5).learn(100_000)
    assert agent.evaluate(10, deterministic=True, seed=1).mean() > 90


def test_memory_does_not_grow():
    figures = benchmark.memory_growth(updates=60)
    assert figures["growth"] < 10  # megabytes


def test_the_benchmark_measures_what_it_should():
    figures = benchmark.Train(envs=("MountainCarContinuous-v0",), quick=True).measure()
    times = {(row["agent"], row["settings"]): row["relative_time"] for row in figures["training"]}
    assert times["ppo", "matched"] > 5  # twenty and more on a quiet machine
    assert times["trpo", "own"] > 1
    (parts,) = figures["parts"]
    assert parts.pop("at") == "MountainCarContinuous-v0"
    assert {"environment", "acting", "buffers", "dual", "update"} <= set(parts)
    assert np.isfinite(list(parts.values())).all()
