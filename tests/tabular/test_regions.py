"""Regions and modes of `TabularOTTRPO`: none is left, and one mode reproduces the other."""

import math
import warnings

import numpy as np
import ot
import pytest
from scipy.special import rel_entr

from ottrpo.cli import main
from ottrpo.core import TableCost, finite_problem
from ottrpo.tabular import RegionSettings, TabularOTTRPO
from ottrpo.tabular.agents import improved

ROUND = [[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]
REGIONS = [{"region": "transport"}, {"region": "sinkhorn", "entropy": 0.01}, {"region": "kl"}]


def updates(steps=8_000, **settings):
    """The updates of a training, each with the policy before it."""
    seen, policies = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # short runs may not see the goal
        agent = TabularOTTRPO("FrozenLake-v1", seed=2, steps_per_update=400, **settings)
        policies.append(agent.policy_sa)

        def keep(agent):
            seen.append((policies[-1], agent.last_improvement, agent.last_update))
            policies.append(agent.policy_sa)

        agent.learn(steps, callback=keep)
    assert len(seen) >= 15
    return seen


def transport_by_pot(improvement, cost):
    problem = improvement.problem
    old_sa, new_sa = problem.policy_sa, improvement.policy_sa
    return sum(
        rho * ot.emd2(old_a / old_a.sum(), new_a / new_a.sum(), cost)
        for rho, old_a, new_a in zip(problem.occupancy_s, old_sa, new_sa, strict=True)
        if rho > 0
    )


@pytest.mark.parametrize("entropy", [None, 1e-4])
def test_no_update_leaves_a_sinkhorn_region_nor_the_transport_region_around_it(entropy):
    cost, binding = np.array(ROUND, float), 0
    for policy_sa, improvement, report in updates(region="sinkhorn", cost=ROUND, entropy=entropy):
        problem = improvement.problem
        np.testing.assert_array_equal(problem.policy_sa, policy_sa)
        assert report["ot/violation"] == 0
        # C(π, π̃) ≤ what the plan transports ≤ S_τ ≤ ε
        exact = transport_by_pot(improvement, cost)
        assert exact <= report["ot/transport"] + 1e-12
        assert report["ot/transport"] <= report["ot/spent"] <= report["ot/radius"]
        assert report["ot/dual_gap"] == pytest.approx(0, abs=1e-12)
        visited_s = problem.occupancy_s > 0
        assert (improvement.policy_sa[~visited_s] == policy_sa[~visited_s]).all()
        binding += report["ot/multiplier"] > 0
    assert binding > 3


def test_no_update_leaves_the_region_of_kullback_and_leibler():
    binding = 0
    for policy_sa, improvement, report in updates(region="kl"):
        divergence_s = rel_entr(improvement.policy_sa, policy_sa).sum(1)
        divergence = improvement.problem.occupancy_s @ divergence_s
        assert divergence == pytest.approx(report["ot/spent"], abs=1e-12)
        assert divergence <= report["ot/radius"] * (1 + 1e-9)
        assert report["ot/violation"] == 0
        binding += report["ot/multiplier"] > 0
    assert binding > 3


@pytest.mark.parametrize("settings", REGIONS, ids=lambda settings: settings["region"])
def test_the_multiplier_of_a_budget_and_its_proximal_step_take_the_same_step(settings):
    rng = np.random.default_rng(0)
    settings = RegionSettings(**settings)
    for _ in range(350):
        policy_sa, occupancy_s = rng.dirichlet(np.ones(4), 8), rng.dirichlet(np.ones(8))
        cost = TableCost(rng.uniform(0.2, 2, (4, 4)) * (1 - np.eye(4)))
        gain_sa = rng.standard_normal((8, 4))
        problem = finite_problem(policy_sa, occupancy_s, gain_sa, cost, 0.05)
        budget = improved(problem, settings, None)
        assert budget.multiplier > 0
        priced = improved(problem, settings, budget.multiplier)
        if settings.region == "transport":
            # at its own price the mass that the budget splits stays: the rest moves alike
            left = np.abs(priced.policy_sa - budget.policy_sa).sum(1) / 2
            assert occupancy_s @ left <= budget.split_mass + 1e-12
            worth = [one.value - budget.multiplier * one.spent for one in (priced, budget)]
            assert worth[0] == pytest.approx(worth[1], rel=1e-12)
            if priced.spent > 0:
                arrays = policy_sa, occupancy_s, gain_sa, cost
                again = improved(finite_problem(*arrays, priced.spent), settings, None)
                left = np.abs(priced.policy_sa - again.policy_sa).sum(1)
                assert occupancy_s @ left <= 1e-12
        else:
            np.testing.assert_allclose(priced.policy_sa, budget.policy_sa, atol=1e-12)
            assert priced.spent == pytest.approx(0.05, rel=1e-12)
        # just above the price at which mass is indifferent, lest rounding decides for it
        step = 0.5 / (budget.multiplier * (1 + 1e-9))
        proximal = RegionSettings(step=step, region=settings.region, entropy=settings.entropy)
        again = improved(problem, settings, proximal.multiplier_at(1.0))
        np.testing.assert_allclose(again.policy_sa, priced.policy_sa, atol=1e-7)


def test_a_step_is_the_multiplier_it_stands_for_all_through_training():
    by_step, by_multiplier = updates(step=0.25), updates(multiplier=2.0)
    for (_, left, report), (_, right, _) in zip(by_step, by_multiplier, strict=True):
        np.testing.assert_array_equal(left.policy_sa, right.policy_sa)
        assert report["ot/multiplier"] == 2.0
        assert report["ot/spent"] == report["ot/radius"]


def test_prices_may_be_schedules():
    reports = [report for *_, report in updates(multiplier={"start": 4.0, "end": 1.0})]
    prices = [report["ot/multiplier"] for report in reports]
    assert prices[0] == 4.0
    assert all(np.diff(prices) < 0)
    assert prices[-1] == pytest.approx(1.0, abs=0.5)


@pytest.mark.parametrize(
    "settings",
    [
        {"region": "sinkhorn", "entropy": 1e-3, "radius": 0.05},
        {"region": "kl"},
        {"multiplier": {"start": 0.5, "end": 0.1}},
        {"step": lambda remaining: 2.0},
    ],
    ids=["sinkhorn", "kl", "price", "step"],
)
def test_saved_it_trains_on_as_if_nothing_had_happened(settings, tmp_path):
    whole = TabularOTTRPO("FrozenLake-v1", seed=5, **settings)
    whole.learn(3_000, callback=lambda agent: agent.num_updates < 2)
    whole.save(tmp_path / "half")
    again = {name: value for name, value in settings.items() if callable(value)}
    half = TabularOTTRPO.load(tmp_path / "half", **again)
    assert half.settings == whole.settings
    for agent in (whole, half):
        agent.learn(4_000)
    np.testing.assert_array_equal(half.policy_sa, whole.policy_sa)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"region": "kullback"}, "region must be one of transport, sinkhorn, kl"),
        ({"radius": 0.1, "multiplier": 1.0}, "give one of radius, multiplier, step; got radius an"),
        ({"step": 1.0, "multiplier": 1.0}, "got multiplier and step"),
        ({"multiplier": 0.0}, "multiplier must be positive"),
        ({"step": {"start": 1.0}}, "a step schedule has a 'start' and an 'end'"),
        ({"entropy": 0.1}, "entropy needs region 'sinkhorn', got region 'transport'"),
        ({"region": "sinkhorn", "entropy": -1}, "entropy must be positive"),
        ({"region": "sinkhorn", "step": 1.0}, "region 'sinkhorn' with a step needs an entropy"),
        ({"region": "kl", "cost": ROUND}, "cost has no meaning for region 'kl'"),
    ],
)
def test_settings_that_would_be_ignored_or_mean_nothing_are_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        TabularOTTRPO("FrozenLake-v1", **settings)


def test_an_entropy_too_large_for_the_radius_is_told_with_the_least_radius():
    agent = TabularOTTRPO("FrozenLake-v1", region="sinkhorn", entropy=1.0, radius=0.01)
    with pytest.raises(ValueError, match=r"the radius must be above 0\.\d+, which the entropy"):
        agent.learn(100)


def test_the_default_entropy_takes_a_tenth_of_the_radius():
    settings = RegionSettings(region="sinkhorn")
    entropy = settings.entropy_for(radius=0.2, occupancy=1.0, n_actions=4)
    assert entropy * math.log(4) == pytest.approx(0.02)


def test_spo_learns_the_cliff_from_the_command_line(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", "CliffWalking-v1", "--config", "spo", "--out", out]) == 0
    assert "score -13.00 ± 0.00" in capsys.readouterr().out
