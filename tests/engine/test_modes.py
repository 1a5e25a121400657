"""Budget, multiplier and proximal step of the deep agent: one method in three modes."""

import gymnasium as gym
import jax
import numpy as np
import pytest

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import OTTRPO
from ottrpo.cli import main
from ottrpo.core import (
    Ordinal,
    SinkhornProblem,
    TableCost,
    finite_problem,
    kl_problem,
    push_plan,
    solve_at,
)
from ottrpo.core.entropic import least_spent, sinkhorn_at
from ottrpo.engine.algorithms.ottrpo import TrustRegion
from ottrpo.engine.models.base import Price
from ottrpo.engine.models.divergence import labels_kl_plan, labels_sinkhorn_plan
from tests.engine import certified

SMALL = {"n_steps": 128, "batch_size": 64, "n_epochs": 2, "seed": 0}
PENDULUM, MATCH = "Pendulum-v1", "ottrpo/Match-v0"
# settings, and a price at which an update is neither nothing nor everything
CASES = {
    "linear": (PENDULUM, {"advantage": "gae"}, 20.0),
    "linear, sigma learnt": (PENDULUM, {"learn_std": True}, 20.0),
    "linear, KL": (PENDULUM, {"region": "kl"}, 5.0),
    "linear, KL, sigma learnt": (PENDULUM, {"region": "kl", "learn_std": True}, 5.0),
    "sample": (PENDULUM, {"model": "sample"}, 3.0),
    "antithetic": (PENDULUM, {"model": "antithetic"}, 3.0),
    "candidates": (PENDULUM, {"advantage": "network", "model": "candidates"}, 0.3),
    "mixture": (PENDULUM, {"policy_kwargs": {"mixture": 2}}, 0.3),
    "flow": (PENDULUM, {"policy_kwargs": {"flow": 2}}, 0.3),
    "labels": (MATCH, {"advantage": "gae", "update": "regression"}, 4.0),
    "labels, KL": (MATCH, {"region": "kl", "update": "regression"}, 8.0),
    "bins": (PENDULUM, {"policy_kwargs": {"bins": 7}, "update": "regression"}, 6.0),
}


def updated(env, settings):
    """What one update reports, and where its plan sends the policy."""
    agent = OTTRPO("MlpPolicy", env, **SMALL, **settings)
    plans, plan = [], TrustRegion.plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrustRegion, "plan", lambda *given: plans.append(plan(*given)) or plans[-1])
        (report,) = certified.learn(agent, 1)
    rows = plans[0].rows
    if "share" in rows:  # of candidates
        share = np.broadcast_to(np.asarray(rows["share"]), rows["target"].shape[:3])
        return report, (share[..., None] * rows["target"]).sum(2)
    targets = [np.asarray(rows[name]) for name in sorted(rows) if name.startswith("target")]
    return report, np.concatenate(targets, axis=1)


@pytest.mark.parametrize("name", CASES)
def test_a_budget_of_what_a_price_spends_has_the_same_plan(name):
    env, settings, multiplier = CASES[name]
    priced, there = updated(env, settings | {"multiplier": multiplier})
    assert priced["ot/multiplier"] == pytest.approx(multiplier, rel=1e-12)
    assert priced["ot/radius"] > 1e-6
    within, same = updated(env, settings | {"radius": float(priced["ot/radius"])})
    np.testing.assert_allclose(same, there, rtol=1e-9, atol=1e-10)
    assert within["ot/radius"] == priced["ot/radius"]


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("linear")])
def test_the_multiplier_of_a_budget_is_the_price_that_makes_its_plan(name):
    env, settings, _ = CASES[name]
    within, there = updated(env, settings | {"radius": 0.01})
    priced, same = updated(env, settings | {"multiplier": float(within["ot/multiplier"])})
    assert priced["ot/radius"] == pytest.approx(0.01, rel=1e-9)
    np.testing.assert_allclose(same, there, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_no_update_spends_more_than_the_plan_of_its_price(name):
    env, settings, multiplier = CASES[name]
    agent = OTTRPO("MlpPolicy", env, multiplier=multiplier, **SMALL, **settings)
    reports = certified.learn(agent, 4)
    assert [r["ot/multiplier"] for r in reports] == pytest.approx([multiplier] * 4, rel=1e-5)
    assert len({float(r["ot/radius"]) for r in reports}) == 4  # each has a radius of its own


def test_a_proximal_step_is_the_multiplier_it_stands_for():
    told = {"multiplier": 20.0}, {"step": 0.025}, {"multiplier": {"start": 20.0, "end": 20.0}}
    one, *others = (updated(PENDULUM, mode)[1] for mode in told)
    assert all((other == one).all() for other in others)


def test_a_price_may_be_a_schedule_and_can_change():
    agent = OTTRPO("MlpPolicy", PENDULUM, multiplier={"start": 30.0, "end": 10.0}, **SMALL)
    found = [float(r["ot/multiplier"]) for r in certified.learn(agent, 4)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 20.0 > found[-1]
    agent.multiplier = 50.0
    (report,) = certified.learn(agent, 1)
    assert report["ot/multiplier"] == pytest.approx(50.0)


def test_where_nothing_moves_at_a_price_the_policy_stays():
    agent = OTTRPO("MlpPolicy", MATCH, advantage="gae", multiplier=1e9, **SMALL).learn(128)
    report = agent.last_update
    assert report["ot/active_fraction"] == report["ot/violation"] == 0
    assert report["ot/spent"] <= report["ot/radius"] == 1e-6  # rounding


def test_labels_in_nats_at_a_price_are_the_core_s():
    rng = np.random.default_rng(0)
    for _ in range(1_000):
        policy_sa, gain_sa = rng.dirichlet(np.ones(4), 3), rng.standard_normal((3, 4))
        multiplier = 10.0 ** rng.uniform(-1, 2)
        problem = kl_problem(policy_sa, np.full(3, 1 / 3), gain_sa, 1.0)
        expected = solve_at(problem, multiplier)
        everything = np.ones((3, 1, 4), bool)
        arrays = policy_sa[:, None], gain_sa[:, None], everything, Price(multiplier)
        plan = labels_kl_plan(*arrays, shrink=True)
        np.testing.assert_allclose(plan.rows["target"][:, 0], expected.plan_rk, rtol=1e-12)
        closed_sa = policy_sa * np.exp(gain_sa / multiplier)
        closed_sa /= closed_sa.sum(1, keepdims=True)
        np.testing.assert_allclose(expected.plan_rk, closed_sa, rtol=1e-11)
        assert float(plan.radius) == pytest.approx(max(expected.spent, 1e-6), rel=1e-12)


SMOOTH = {  # with the logarithm of how many candidates there are
    "labels": (MATCH, {"advantage": "gae", "update": "regression"}, np.log(3)),
    "bins": (PENDULUM, {"policy_kwargs": {"bins": 7}, "update": "regression"}, np.log(7)),
    "points": (PENDULUM, {"advantage": "network"}, np.log(9)),
    "sources": (PENDULUM, {"advantage": "network", "n_sources": 2, "n_candidates": 3}, np.log(4)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_sinkhorn_s_multiplier_of_a_budget_is_the_price_that_makes_its_plan(name):
    env, settings, most = SMOOTH[name]
    settings = settings | {"region": "sinkhorn"}
    within, there = updated(env, settings | {"radius": 0.02})
    price = {"multiplier": float(within["ot/multiplier"]), "entropy": 0.1 * 0.02 / most}
    priced, same = updated(env, settings | price)
    assert priced["ot/radius"] == pytest.approx(0.02, rel=1e-9)
    np.testing.assert_allclose(same, there, rtol=1e-7, atol=1e-9)
    agent = OTTRPO("MlpPolicy", env, **SMALL, **settings, step=0.5, entropy=0.01)
    reports = certified.learn(agent, 3)
    assert [r["ot/multiplier"] for r in reports] == [1.0] * 3


def test_labels_of_sinkhorn_at_a_price_are_the_core_s():
    rng, cost, moved_at_all = np.random.default_rng(2), Ordinal(1.0).matrix(4), 0
    for _ in range(1_400):
        policy_sa, gain_sa = rng.dirichlet(np.ones(4), 3), rng.standard_normal((3, 4))
        multiplier, entropy = 10.0 ** rng.uniform(-1, 1), 10.0 ** rng.uniform(-2, 0)
        exact = finite_problem(policy_sa, np.full(3, 1 / 3), gain_sa, TableCost(cost), 1.0)
        problem = SinkhornProblem.smoothing(exact.dual, entropy)
        expected = solve_at(problem, multiplier)
        arrays = policy_sa[:, None], gain_sa[:, None], np.ones((3, 1, 4), bool), cost
        told = {"shrink": True, "entropy": entropy}
        plan = labels_sinkhorn_plan(*arrays, Price(multiplier), **told)
        moved = push_plan(exact, expected.plan_rk)
        np.testing.assert_allclose(plan.rows["target"][:, 0], moved, rtol=1e-10)
        assert float(plan.radius) == pytest.approx(max(expected.spent, 1e-6), rel=1e-10)
        most = solve_at(problem, 1e-3).spent  # where all go to the best, and prices are all alike
        if not 1.001 * least_spent(problem) < expected.spent < 0.999 * most:
            continue
        within = labels_sinkhorn_plan(*arrays, expected.spent, **told)  # the budget of that price
        np.testing.assert_allclose(within.rows["target"], plan.rows["target"], atol=1e-7)
        moved_at_all += 1
    assert moved_at_all > 1_000


def test_compiled_and_mapped_a_price_makes_the_same_plans():
    rng = np.random.default_rng(1)
    many, shape = 1_000, (1_000, 3, 4)
    weight, gain, cost = rng.random(shape[:2]), rng.standard_normal(shape), rng.random(shape)
    multiplier, entropy = 10.0 ** rng.uniform(-1, 1, many), 10.0 ** rng.uniform(-1, 0, many)
    problems = weight, gain, cost, multiplier, entropy
    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(sinkhorn_at))(*map(jax.numpy.asarray, problems))
    found = found._replace(**{name: np.asarray(getattr(found, name)) for name in found._fields})
    for i, (w, g, c, price, tau) in enumerate(zip(*problems, strict=True)):
        expected = solve_at(SinkhornProblem(w, g, c, 1.0, tau), price)
        np.testing.assert_allclose(found.plan_rk[i], expected.plan_rk, rtol=1e-12)
        for name in ("value", "spent", "transport"):
            assert getattr(found, name)[i] == pytest.approx(getattr(expected, name), rel=1e-12)


def test_it_is_trained_from_the_command_line_and_goes_on(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["--steps", "512", "--set", "n_steps=128", "--set", "step=0.05", "--out", str(out)]
    assert main(["train", PENDULUM, "--quiet", *words]) == 0, capsys.readouterr().err
    agent = OTTRPO.load(out, env=gym.make(PENDULUM))
    assert (agent.step, agent.radius, agent.estimator) == (0.05, None, "gae")
    agent.learn(128, reset_num_timesteps=False)
    assert agent.last_update["ot/multiplier"] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"multiplier": 1.0, "radius": 0.1}, "give one of radius, multiplier, step"),
        ({"multiplier": 1.0, "step": 0.1}, "give one of radius, multiplier, step"),
        ({"multiplier": 0.0}, "multiplier must be a positive number"),
        ({"step": -1.0}, "step must be a positive number"),
        ({"multiplier": 1.0, "advantage": "mixed"}, "advantage 'mixed' needs a radius"),
        ({"step": 1.0, "adapt_pace": True}, "adapt_pace needs a radius, got a step"),
        ({"step": 1.0, "region": "kl", "update": "natural"}, "update 'natural' needs a radius"),
        ({"step": 1.0, "region": "sinkhorn"}, "region 'sinkhorn' with a step needs an entropy"),
        ({"region": "sinkhorn", "entropy": 0.1}, "entropy is of region 'sinkhorn' with a multip"),
        ({"multiplier": 1.0, "entropy": 0.1}, "entropy is of region 'sinkhorn' with a multiplier"),
        ({"step": 1.0, "region": "sinkhorn", "entropy": 0.0}, "entropy must be a positive number"),
    ],
)
def test_what_needs_a_radius_is_refused_a_price(settings, told):
    with pytest.raises(ValueError, match=told):
        OTTRPO("MlpPolicy", PENDULUM, **settings)
