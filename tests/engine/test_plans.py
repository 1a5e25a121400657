"""Step 4 on rollouts: the plans, against the optimality conditions they must satisfy."""

import numpy as np
import pytest

from ottrpo.core import (
    Binary,
    DualProblem,
    Mahalanobis,
    PNorm,
    SquaredEuclidean,
    average_discrepancy,
    mean_and_sample_problem,
    update_policy,
)
from ottrpo.engine.models.base import Options, coupled_spent, quadratic_metric
from ottrpo.engine.models.candidates import (
    Candidates,
    Rows,
    Sample,
    candidates_plan,
    solve_binding,
)
from ottrpo.engine.models.finite import finite_plan, sampled_gain
from ottrpo.engine.models.linear import Linear, linear_plan, score_gradient
from ottrpo.engine.networks import Architecture, Policy
from ottrpo.engine.spaces import BoxActions

ROWS, SIZE = 50, 3
BINARY = Binary().matrix(3)


def rows_of(problem):
    return Rows(*(getattr(problem, name) for name in Rows._fields))


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(ROWS, SIZE))
    std = rng.uniform(0.3, 1.0, size=(ROWS, SIZE))
    action = mean + std * rng.normal(size=(ROWS, SIZE))
    return mean, std, action, rng.normal(size=ROWS)


@pytest.mark.parametrize("metric", [np.eye(SIZE), np.diag([1.0, 4.0, 0.5])])
@pytest.mark.parametrize("learn_std", [False, True])
def test_linear_plan_spends_the_radius_along_the_gradient(drawn, metric, learn_std):
    mean, std, action, advantage = drawn
    gradient = score_gradient(mean, std, action, advantage, None, learn_std=learn_std)
    plan = linear_plan(mean, std, gradient, metric, radius=0.05)
    shift = plan.rows["target_mean"] - mean
    spent = np.einsum("rd,de,re->r", shift, metric, shift).mean()
    if learn_std:
        # σ can't move below 0, so take the displacement itself
        sigma = plan.solution.nearest_r[:, SIZE:]
        spent += (np.diag(metric) * sigma**2).sum(1).mean()
    assert spent == pytest.approx(0.05)
    np.testing.assert_allclose(
        shift @ metric * 2 * plan.solution.multiplier, gradient[:, :SIZE], atol=1e-9
    )
    assert plan.dual_gap < 1e-9
    assert plan.active_fraction == 1.0


def test_the_score_gradient_is_unbiased():
    """For A(a) = g·a the mean of A(a) Σ⁻¹(a − m) is g; for A = a² the slope along σ is 2σ."""
    rng = np.random.default_rng(0)
    mean, std = np.zeros((400_000, 1)), np.full((400_000, 1), 0.5)
    action = std * rng.normal(size=mean.shape)
    linear = score_gradient(mean, std, action, 3.0 * action[:, 0], None, learn_std=False)
    assert linear.mean() == pytest.approx(3.0, abs=0.05)
    squared = score_gradient(mean, std, action, action[:, 0] ** 2, None, learn_std=True)
    assert squared[:, 1].mean() == pytest.approx(1.0, abs=0.03)


def test_candidates_plan_moves_by_the_maps(drawn):
    mean, _, action, advantage = drawn
    radius = 0.1
    problem = mean_and_sample_problem(mean, action, advantage, SquaredEuclidean(), radius)
    candidates = np.stack([mean, action], 1)
    plan = candidates_plan(rows_of(problem), candidates, np.zeros((ROWS, 1, SIZE)), {}, True)
    cost = ((plan.rows["target"] - mean[:, None, None]) ** 2).sum(-1)
    assert (plan.rows["share"] * cost).sum(-1).mean() == pytest.approx(radius)
    assert plan.dual_gap < 1e-9
    assert plan.split_mass == pytest.approx(1 / ROWS)
    assert 0 < plan.active_fraction < 1


def test_a_radius_that_binds_nowhere_is_shrunk_until_it_does():
    problem = DualProblem([0.5, 0.5], [[0, 1], [0, -1]], [[0, 0.2], [0, 0.2]], radius=100.0)
    solution, radius, inactive = solve_binding(rows_of(problem))
    assert inactive
    assert solution.multiplier > 0
    assert radius == pytest.approx(0.05)  # half of 0.5 * 0.2
    hopeless = DualProblem([1.0], [[0, -1]], [[0, 1]], radius=1.0)
    assert solve_binding(rows_of(hopeless))[0].multiplier == 0


def test_finite_plan_is_the_cores_update():
    rng = np.random.default_rng(0)
    probability = rng.dirichlet(np.ones(3), size=(ROWS, 1))
    gain = rng.normal(size=probability.shape)
    allowed = np.ones(probability.shape, bool)
    plan = finite_plan(probability, gain, allowed, BINARY, radius=0.1)
    occupancy = np.full(ROWS, 1 / ROWS)
    exact = update_policy(probability[:, 0], occupancy, gain[:, 0], Binary(), 0.1)
    np.testing.assert_allclose(plan.rows["target"][:, 0], exact.policy_sa)
    spent = average_discrepancy(probability[:, 0], plan.rows["target"][:, 0], occupancy, Binary())
    assert spent == pytest.approx(0.1)
    worth = np.maximum(gain, gain.max(-1, keepdims=True) - plan.solution.multiplier)
    np.testing.assert_allclose(plan.rows["worth"], worth)


def test_factors_share_one_budget():
    """Two factors: the budget is spent where the gain is, summed over factors."""
    probability = np.full((ROWS, 2, 2), 0.5)
    gain = np.zeros((ROWS, 2, 2))
    gain[:, 1, 0] = 1.0
    plan = finite_plan(probability, gain, np.ones(gain.shape, bool), Binary().matrix(2), radius=0.2)
    np.testing.assert_allclose(plan.rows["target"][:, 0], 0.5)
    moved = (plan.rows["target"][:, 1, 0] - 0.5).mean()
    assert moved == pytest.approx(0.2)


def test_masked_actions_get_no_mass_and_no_worth():
    probability = np.array([[[0.5, 0.5, 0.0]]])
    allowed = np.array([[[True, True, False]]])
    gain = np.array([[[0.0, 1.0, 100.0]]])
    plan = finite_plan(probability, gain, allowed, BINARY, radius=0.25)
    np.testing.assert_allclose(plan.rows["target"][0, 0], [0.25, 0.75, 0.0])
    assert plan.rows["worth"].max() <= 1.0


def test_the_unbiased_gain_is_unbiased():
    """E over the policy's own draws of A 1[a]/π(a) is A, whatever the policy."""
    rng = np.random.default_rng(0)
    policy, advantage = np.array([0.7, 0.2, 0.1]), np.array([1.0, -2.0, 0.5])
    label = rng.choice(3, p=policy, size=200_000)[:, None]
    probability = np.broadcast_to(policy, (len(label), 1, 3))
    unbiased = sampled_gain(probability, label, advantage[label[:, 0]], unbiased=True)
    np.testing.assert_allclose(unbiased.mean(0)[0], advantage, atol=0.05)
    plain = sampled_gain(probability, label, advantage[label[:, 0]], unbiased=False)
    np.testing.assert_allclose(plain.mean(0)[0], policy * advantage, atol=0.05)


def test_only_quadratic_costs_have_a_metric():
    np.testing.assert_array_equal(quadratic_metric(SquaredEuclidean(), 2), np.eye(2))
    both = 2.0 * SquaredEuclidean() + Mahalanobis([[1.0, 0.0], [0.0, 3.0]])
    np.testing.assert_array_equal(quadratic_metric(both, 2), np.diag([3.0, 5.0]))
    assert quadratic_metric(PNorm(1), 2) is None
    assert quadratic_metric(SquaredEuclidean() + PNorm(1), 2) is None


def test_models_refuse_what_cannot_be():
    box = BoxActions(-np.ones(2, np.float32), np.ones(2, np.float32), (2,))

    def options(**changes):
        return Options(**{"cost": SquaredEuclidean(), "actions": box} | changes)

    with pytest.raises(ValueError, match="needs a quadratic cost"):
        Linear(options(cost=PNorm(1)))
    with pytest.raises(ValueError, match="moves the mean only"):
        Sample(options(learn_std=True))
    with pytest.raises(ValueError, match="moves the mean only"):
        Candidates(options(learn_std=True))
    assert Candidates(options(learn_std=True, n_sources=2)).moves_std


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_without_formula_is_bounded_from_above(seed):
    """In one dimension keeping the quantiles is optimal, and its cost is known."""
    architecture = Architecture(inputs=3, outputs=1, log_std_init=0.5, ortho_init=False)
    policy = Policy(architecture, np.random.default_rng(seed))
    flat = np.random.default_rng(seed).standard_normal((200, 3)).astype(np.float32)
    mean, std = policy.gaussian(flat)
    rows = {"flat": flat, "images": (), "mean": mean, "std": np.ones_like(std)}
    exact = (np.exp(0.5) - 1.0) * np.sqrt(2 / np.pi)  # E|σ'z − σz|
    assert exact <= float(coupled_spent(PNorm(1))(policy, rows)) <= 1.1 * exact
    still = coupled_spent(PNorm(1))(policy, rows | {"std": std, "mean": mean + 2.0})
    assert float(still) == pytest.approx(2.0, rel=1e-4)
