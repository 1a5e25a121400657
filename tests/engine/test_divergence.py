"""Regions that are not the paper's: optimal by other means, and never left."""

import gymnasium as gym
import numpy as np
import ot
import pytest
import torch
from scipy import optimize
from scipy.special import rel_entr
from torch.distributions import Normal, kl_divergence

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import OTTRPO
from ottrpo.core import Binary, Ordinal, SquaredEuclidean, solve_dual
from ottrpo.core.entropic import kl_problem
from ottrpo.engine.models.base import Price
from ottrpo.engine.models.candidates import Rows, candidates_plan
from ottrpo.engine.models.divergence import (
    candidates_sinkhorn_plan,
    gaussian_kl,
    gaussian_kl_plan,
    gaussian_kl_spent_at,
    labels_kl_plan,
    labels_sinkhorn_plan,
)
from ottrpo.engine.models.finite import finite_plan
from ottrpo.engine.models.linear import linear_plan

CASES = 1000
SMALL = {"n_steps": 128, "batch_size": 64, "n_epochs": 4, "seed": 0}


def gaussians(rng, rows, size):
    return rng.normal(size=(rows, size)), np.exp(rng.normal(-1.0, 0.7, (rows, size)))


def test_the_divergence_of_gaussians_is_that_of_torch():
    rng = np.random.default_rng(0)
    old, new = gaussians(rng, CASES, 3), gaussians(rng, CASES, 3)
    one, other = (Normal(*map(torch.from_numpy, each)) for each in (new, old))
    np.testing.assert_allclose(gaussian_kl(old, new), kl_divergence(one, other).sum(-1), rtol=1e-9)


@pytest.mark.parametrize("learn_std", [False, True])
def test_gaussian_steps_spend_the_divergence_and_gain_what_the_dual_says(learn_std):
    """A thousand problems: the primal is feasible and worth what the dual bounds it by."""
    rng = np.random.default_rng(1)
    for _ in range(CASES):
        rows, size = rng.integers(1, 6), rng.integers(1, 4)
        mean, std = gaussians(rng, rows, size)
        gradient = rng.normal(size=(rows, size * (1 + learn_std))) * np.exp(rng.normal(0, 2))
        radius = float(np.exp(rng.uniform(-6, 1)))
        plan = gaussian_kl_plan(mean, std, gradient, radius)
        new = plan.rows["target_mean"], plan.rows.get("target_std", std)
        assert (new[1] > 0).all()
        assert gaussian_kl((mean, std), new).mean() == pytest.approx(radius, rel=1e-6)
        gain = (gradient[:, :size] * (new[0] - mean)).sum(1).mean()
        if learn_std:
            gain += (gradient[:, size:] * (new[1] - std)).sum(1).mean()
        assert gain == pytest.approx(plan.solution.value, rel=1e-6)
        # weak duality at λ*: no step anywhere is worth more; here is one that is not this one
        other = mean + std * rng.normal(size=mean.shape), std * np.exp(rng.normal(size=std.shape))
        other = (other[0], other[1] if learn_std else std)
        worth = (gradient[:, :size] * (other[0] - mean)).sum(1).mean()
        if learn_std:
            worth += (gradient[:, size:] * (other[1] - std)).sum(1).mean()
        price = plan.solution.multiplier * (gaussian_kl((mean, std), other).mean() - radius)
        assert worth - price <= plan.solution.value * (1 + 1e-6) + 1e-9


def test_gaussian_steps_minimise_a_dual_whose_maxima_are_searched():
    """G(λ) of a thousand problems, where no formula finds the best σ̃: it is least at λ*."""
    rng = np.random.default_rng(9)
    log_x = np.linspace(-6.0, 6.0, 24_001)
    rest, nats = np.expm1(log_x), 0.5 * np.expm1(2 * log_x) - log_x
    for _ in range(CASES):
        mean, std = gaussians(rng, 2, 1)
        gradient, radius = rng.normal(size=(2, 2)), float(np.exp(rng.uniform(-5, 0)))
        solution = gaussian_kl_plan(mean, std, gradient, radius).solution

        def dual(price, std=std, gradient=gradient, radius=radius):
            shift = (std * gradient[:, :1]) ** 2 / (2 * price)
            rise = std * gradient[:, 1:] * rest - price * nats
            return price * radius + (shift[:, 0] + rise.max(1)).mean()

        assert dual(solution.multiplier) == pytest.approx(solution.value, rel=1e-4)
        others = solution.multiplier * np.exp([-1.0, -0.05, 0.05, 1.0])
        assert min(map(dual, others)) > solution.value * (1 - 1e-6)


def test_what_a_price_spends_in_nats_has_that_price():
    rng = np.random.default_rng(10)
    for case in range(CASES):
        mean, std = gaussians(rng, 3, 2)
        gradient, multiplier = rng.normal(size=(3, 2 + 2 * (case % 2))), 10 ** rng.uniform(-1, 2)
        spent = gaussian_kl_spent_at(std, gradient, Price(multiplier))
        plan = gaussian_kl_plan(mean, std, gradient, spent)
        assert plan.solution.multiplier == pytest.approx(multiplier, rel=1e-7)


def test_a_solver_for_anything_finds_no_better_gaussian_step():
    rng = np.random.default_rng(2)
    for _ in range(20):
        mean, std = gaussians(rng, 2, 2)
        gradient, radius = rng.normal(size=(2, 4)), 0.1

        def unpacked(x, mean=mean, std=std):
            half = x.reshape(2, 2, 2)
            return mean + std * half[0], std * np.exp(half[1])

        def loss(x, mean=mean, std=std, gradient=gradient):
            new = unpacked(x)
            moved = np.concatenate([new[0] - mean, new[1] - std], axis=1)
            return -(gradient * moved).sum(1).mean()

        def left(x, mean=mean, std=std, radius=radius):
            return radius - gaussian_kl((mean, std), unpacked(x)).mean()

        found = optimize.minimize(
            loss,
            np.zeros(8),
            constraints={"type": "ineq", "fun": left},
            options={"ftol": 1e-12, "maxiter": 300},
        )
        value = gaussian_kl_plan(mean, std, gradient, radius).solution.value
        assert -found.fun == pytest.approx(value, rel=1e-5)


def test_where_all_sigmas_are_alike_it_is_the_transport_region_in_other_units():
    rng = np.random.default_rng(3)
    mean, std = rng.normal(size=(50, 3)), np.full((50, 3), 0.4)
    gradient = rng.normal(size=(50, 3))
    kl = gaussian_kl_plan(mean, std, gradient, 0.05)
    ot = linear_plan(mean, std, gradient, None, 0.05 * 2 * 0.4**2)
    np.testing.assert_allclose(kl.rows["target_mean"], ot.rows["target_mean"], rtol=1e-12)
    std[:, 0] = 0.1  # and nowhere else: a coordinate that is known well is moved less
    kl = gaussian_kl_plan(mean, std, gradient, 0.05)
    moved, transported = (abs(plan.rows["target_mean"] - mean).mean(0) for plan in (kl, ot))
    assert moved[0] / moved[1] < 0.2 * transported[0] / transported[1]


def mean_discrepancy(old_sa, new_sa, table):
    """By POT's network simplex."""
    rows = zip(old_sa.astype(float), new_sa.astype(float), strict=True)
    return np.mean([ot.emd2(old / old.sum(), new / new.sum(), table) for old, new in rows])


def labels(rng, rows=4, factors=1, choices=4):
    shape = rows, factors, choices
    return (
        rng.dirichlet(np.ones(choices), size=shape[:2]),
        rng.normal(size=shape),
        np.ones(shape, bool),
    )


def test_labels_in_a_kl_region_are_the_tabular_answer():
    """The optimal policy of the core's own problem, a thousand times; no mass where none may be."""
    rng = np.random.default_rng(4)
    for _ in range(CASES):
        probability, gain, allowed = labels(rng)
        allowed[0, 0, 2] = False
        probability = np.where(allowed, probability, 0.0)
        probability /= probability.sum(-1, keepdims=True)
        plan = labels_kl_plan(probability, gain, allowed, 0.03, shrink=True)
        target = plan.rows["target"][:, 0]
        known = solve_dual(kl_problem(probability[:, 0], np.full(4, 0.25), gain[:, 0], 0.03))
        np.testing.assert_allclose(target, known.plan_rk, atol=1e-12)
        assert target[0, 2] == 0
        assert rel_entr(target, probability[:, 0]).sum(1).mean() == pytest.approx(0.03, rel=1e-9)


def test_sinkhorn_stays_within_the_transport_region_and_tends_to_the_exact_plan(monkeypatch):
    rng = np.random.default_rng(5)
    table = Ordinal(p=1.0).matrix(4)
    for _ in range(CASES):
        probability, gain, allowed = labels(rng)
        exact = finite_plan(probability, gain, allowed, table, 0.1)
        plan = labels_sinkhorn_plan(probability, gain, allowed, table, 0.1, shrink=True)
        moved = plan.rows["target"][:, 0]
        assert (moved > 0).all()
        assert plan.solution.value <= exact.solution.value + 1e-9
        assert mean_discrepancy(probability[:, 0], moved, table) <= 0.1 + 1e-9
    monkeypatch.setattr("ottrpo.engine.models.divergence.ENTROPY_SHARE", 1e-4)
    sharp = labels_sinkhorn_plan(probability, gain, allowed, table, 0.1, shrink=True)
    assert sharp.solution.value == pytest.approx(exact.solution.value, rel=1e-3)
    np.testing.assert_allclose(sharp.rows["worth"], exact.rows["worth"], atol=5e-3)
    np.testing.assert_allclose(sharp.solution.multiplier, exact.solution.multiplier, rtol=1e-2)


@pytest.mark.parametrize("plan", [labels_kl_plan, labels_sinkhorn_plan])
def test_a_radius_that_binds_nowhere_is_shrunk_until_it_does(plan):
    probability, gain, allowed = labels(np.random.default_rng(6))
    costs = () if plan is labels_kl_plan else (Binary().matrix(4),)
    loose = plan(probability, gain, allowed, *costs, 50.0, shrink=True)
    assert loose.inactive
    assert 0 < loose.radius < 50.0
    assert loose.solution.multiplier > 0
    assert loose.solution.spent == pytest.approx(loose.radius, rel=1e-6)
    kept = plan(probability, gain, allowed, *costs, 50.0, shrink=False)
    assert kept.radius == 50.0
    assert kept.solution.multiplier == 0
    nothing = plan(probability, 0.0 * gain, allowed, *costs, 50.0, shrink=True)
    assert np.isfinite(nothing.rows["target"]).all()
    assert nothing.solution.multiplier == 0


AGENTS = {
    "gaussian": ("ottrpo/Reach-v0", {}),
    "sigma": ("ottrpo/Reach-v0", {"learn_std": True}),
    "sde": ("Pendulum-v1", {"use_sde": True}),
    "pace": ("ottrpo/Reach-v0", {"adapt_pace": True, "std_step": 0.02}),
    "slope": ("ottrpo/Reach-v0", {"advantage": "network", "model": "linear"}),
    "label": ("CartPole-v1", {}),
    "network": ("CartPole-v1", {"advantage": "network"}),
    "regression": ("CartPole-v1", {"update": "regression"}),
    "priced": ("CartPole-v1", {"update": "ascent"}),
    "bins": ("ottrpo/Reach-v0", {"policy_kwargs": {"bins": 7}}),
}


@pytest.mark.parametrize("name", AGENTS)
def test_no_update_leaves_the_kl_region(name):
    """Measured by torch or SciPy, from what the agent says of states before and after."""
    env, settings = AGENTS[name]
    agent = OTTRPO("MlpPolicy", env, region="kl", radius=3e-3, **(SMALL | settings))
    for update, spent in measured(agent, _divergence):
        assert spent <= update["ot/radius"] * (1 + 1e-3) + 1e-9
        assert update["ot/spent"] == pytest.approx(spent, rel=2e-2, abs=1e-6)
        assert update["ot/violation"] == 0


def measured(agent, distance, updates=4):
    """What updates report, and how far each went between the policies before and after it."""
    record, found = agent._train_and_record, []

    def kept(rollout):
        flat = rollout.flat[:-1].reshape(-1, rollout.flat.shape[-1])
        before = _of(agent, flat)
        record(rollout)
        found.append((agent.last_update, distance(before, _of(agent, flat))))

    agent._train_and_record = kept
    agent.learn(updates * 128)
    assert len(found) == updates
    assert max(spent for _, spent in found) > 0
    return found


SMOOTH = {
    "label": ("CartPole-v1", {}, Binary()),
    "regression": ("CartPole-v1", {"update": "regression"}, Binary()),
    "bins": ("ottrpo/Reach-v0", {"policy_kwargs": {"bins": 7}}, Ordinal()),
    "dear labels": ("ottrpo/Match-v0", {"cost": Ordinal(1.0)}, Ordinal(1.0)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_no_update_leaves_the_sinkhorn_region(name):
    """Measured by POT."""
    env, settings, cost = SMOOTH[name]
    agent = OTTRPO("MlpPolicy", env, region="sinkhorn", **(SMALL | settings))
    table = cost.matrix(agent.actions.choices)

    def transported(old, new):
        _, factors, choices = old[0].shape
        old_sa, new_sa = (each[0].reshape(-1, choices) for each in (old, new))
        return factors * mean_discrepancy(old_sa, new_sa, table)

    for update, spent in measured(agent, transported):
        assert spent <= update["ot/radius"] * (1 + 1e-3) + 1e-9
        assert update["ot/spent"] == pytest.approx(spent, rel=2e-2, abs=1e-6)
        assert update["ot/violation"] == 0


def _of(agent, flat):
    state = agent.train_state
    seen = agent.algorithm.estimate.normaliser(state.observations, flat)
    policy = state.networks.policy
    if policy.log_std is not None:
        return [np.asarray(x, np.float64) for x in policy.gaussian(seen)]
    logits = np.asarray(policy.logits(seen, (), agent.actions.choices), np.float64)
    return [np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)]


def _divergence(old, new):
    if len(old) == 1:
        return rel_entr(new[0], old[0]).sum((1, 2)).mean()
    one, other = (Normal(*map(torch.from_numpy, each)) for each in (new, old))
    return float(kl_divergence(one, other).sum(-1).mean())


def test_shares_of_sampled_candidates_tend_to_the_exact_maps(monkeypatch):
    """Every source has shares of all candidates; with little entropy, those of the exact plan."""
    rng = np.random.default_rng(8)
    for _ in range(CASES):
        source, candidate = rng.normal(size=(12, 1, 2)), rng.normal(size=(12, 5, 2))
        offered = np.concatenate([source, candidate], axis=1)
        cost = ((offered - source) ** 2).sum(-1)
        gain = rng.normal(size=(12, 6))
        noise = np.zeros((6, 2, 2))
        weight, stay = np.full(12, 1 / 12), np.zeros(12, int)
        problem = Rows(weight, gain, cost, 0.3, None, stay)
        exact = candidates_plan(problem, offered, noise, {}, shrink=True)
        values = []
        for share in (0.1, 1e-4):
            monkeypatch.setattr("ottrpo.engine.models.divergence.ENTROPY_SHARE", share)
            plan = candidates_sinkhorn_plan(gain, cost, 0.3, offered, noise, {}, shrink=True)
            shares = plan.rows["share"].reshape(12, 6)
            np.testing.assert_allclose(shares.sum(1), 1.0)
            assert (shares * cost).sum(1).mean() <= 0.3
            values.append(plan.solution.value)
        short = [exact.solution.value - value for value in values]
        assert min(short) >= -1e-12
        inside = candidates_plan(
            problem._replace(radius=0.3 * (1 - 1e-4)), offered, noise, {}, True
        )
        assert short[1] <= inside.solution.multiplier * 0.3 * 1e-4 * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("n_sources", [0, 3])
def test_points_are_learnt_by_sinkhorns_plan_and_stay_in_the_region(n_sources):
    settings = {"region": "sinkhorn", "advantage": "network", "n_sources": n_sources}
    settings |= SMALL | {"learning_rate": 3e-3, "n_steps": 256, "n_epochs": 10, "gamma": 0.0}
    agent = OTTRPO("MlpPolicy", "ottrpo/Reach-v0", **settings)
    seen, record = [], agent._train_and_record
    agent._train_and_record = lambda rollout: (record(rollout), seen.append(agent.last_update))
    agent.learn(6000)
    assert agent.evaluate(20, deterministic=True, seed=1).mean() > 14
    for update in seen:
        assert update["ot/spent"] <= update["ot/radius"]


@pytest.mark.parametrize("region", ["kl", "sinkhorn"])
def test_labels_are_learnt_in_every_region(region):
    agent = OTTRPO("MlpPolicy", "ottrpo/Match-v0", region=region, learning_rate=3e-3, **SMALL)
    agent.learn(6000)
    assert agent.evaluate(20, deterministic=True, seed=1).mean() > 15
    assert agent.last_update["ot/violation"] == 0


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("Pendulum-v1", {"region": "sinkhorn"}, "allowed: transport, kl"),
        (
            "Pendulum-v1",
            {"region": "sinkhorn", "advantage": "network", "update": "ascent"},
            "update 'ascent' of points",
        ),
        ("Pendulum-v1", {"region": "kl", "model": "sample"}, "allowed: transport"),
        ("Pendulum-v1", {"region": "kl", "cost": SquaredEuclidean()}, "cost has no meaning"),
        ("Pendulum-v1", {"region": "kl", "advantage": "mixed"}, "measures transport"),
        ("CartPole-v1", {"region": "ball"}, "region must be one of"),
    ],
)
def test_what_has_no_meaning_is_refused(env, settings, message):
    with pytest.raises(ValueError, match=message):
        OTTRPO("MlpPolicy", gym.make(env), **SMALL, **settings)
