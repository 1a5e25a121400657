"""The benchmark compares like with like."""

import numpy as np
import pytest

from ottrpo.benchmarks import tabular
from ottrpo.tabular import TabularOTTRPO


@pytest.mark.parametrize("environment", ["CliffWalking-v1", "Taxi-v4"])
def test_the_loop_over_gymnasium_is_the_same_algorithm(environment):
    settings = {"discount": 0.9, "radius": 0.1, "steps_per_update": 1_500}
    ours = TabularOTTRPO(environment, seed=3, estimator="td", **settings).learn(12_000)
    by_loop = tabular.train_by_loop(environment, 12_000, 3, **settings)
    np.testing.assert_array_equal(by_loop, ours.policy_sa)
    assert not np.allclose(by_loop, 1 / by_loop.shape[1])


def test_growth_is_measured_over_both_kinds_of_cost():
    measured = tabular.growth((50, 100), (2, 4))
    assert [(g["cost"], g["states"], g["actions"]) for g in measured][:4] == [
        ("binary", 50, 4),
        ("binary", 100, 4),
        ("binary", 250, 2),
        ("binary", 250, 4),
    ]
    assert all(g["seconds"] > 0 for g in measured)
    assert [g["exponent"] is None for g in measured] == [True, False] * 4


@pytest.mark.slow
def test_the_promised_ratios():
    figures = tabular.Tabular().measure()
    assert min(t["ratio"] for t in figures["training"]) >= 100
    assert figures["seeds"]["ratio"] >= 1
    for kind in ("binary", "general"):
        grown = [g for g in figures["growth"] if g["cost"] == kind]
        in_states = [g["exponent"] for g in grown if g["states"] == 1_000_000]
        in_actions = [g["exponent"] for g in grown if g["actions"] == 256]
        assert in_states[0] < 1.1
        assert in_actions[0] < 2.0
