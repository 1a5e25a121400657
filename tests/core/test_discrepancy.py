"""Transport costs by hand, by POT, and in closed form; audits that catch what they must."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottrpo.core import (
    Binary,
    TableCost,
    audit,
    average_discrepancy,
    discrepancy,
    discrepancy_by_state,
    finite_problem,
    gaussian_w2_squared,
    mean_shift_squared,
    total_variation,
    update_policy,
    violation,
)
from ottrpo.core.simplex import optimal_plan


@settings(max_examples=1_000, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_linear_program_agrees_with_pot(seed, n):
    rng = np.random.default_rng(seed)
    mu, nu = rng.dirichlet(np.full(n, 0.5)), rng.dirichlet(np.full(n, 0.5))
    cost = rng.random((n, n)) * (1 - np.eye(n))
    assert discrepancy(mu, nu, cost) == pytest.approx(ot.emd2(mu, nu, cost), abs=1e-9)
    assert discrepancy(mu, mu, cost) == pytest.approx(0.0, abs=1e-12)
    binary = 1.0 - np.eye(n)
    assert discrepancy(mu, nu, binary) == pytest.approx(total_variation(mu, nu), abs=1e-9)


@settings(max_examples=1_000, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.integers(2, 7))
def test_plans_are_optimal_where_many_are_equally_good(seed, n, m):
    # whole numbers: ties and degenerate plans everywhere, among which a simplex might go in circles
    rng = np.random.default_rng(seed)
    mu, nu = (rng.integers(1, 4, size).astype(float) for size in (n, m))
    mu *= nu.sum() / mu.sum()
    cost = rng.integers(0, 3, (n, m)).astype(float)
    plan = optimal_plan(mu, nu, cost)
    assert plan.min() >= 0
    assert plan.sum(axis=1) == pytest.approx(mu)
    assert plan.sum(axis=0) == pytest.approx(nu)
    wanted = nu.sum() * ot.emd2(mu / mu.sum(), nu / nu.sum(), cost)
    assert (plan * cost).sum() == pytest.approx(wanted, abs=1e-12)


def test_common_mass_moves_where_that_is_cheaper():
    # 0 → 2 costs 10 but 0 → 1 → 2 costs 2: without the triangle inequality, shared mass must move
    cost = [[0, 1, 10], [1, 0, 1], [10, 1, 0]]
    assert discrepancy([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], cost) == pytest.approx(1.0)


def test_average_over_states_by_hand():
    policy = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    new = [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]
    cost = TableCost([[0.0, 2.0], [1.0, 0.0]])
    assert discrepancy_by_state(policy, new, cost).tolist() == pytest.approx([1.0, 0.0, 1.0])
    assert average_discrepancy(policy, new, [0.5, 0.25, 0.25], cost) == pytest.approx(0.75)
    assert average_discrepancy(policy, new, [0.5, 0.25, 0.25], Binary()) == pytest.approx(0.5)


def test_audit_catches_a_policy_that_leaves_the_region():
    problem = finite_problem([[1.0, 0.0]], [1.0], [[0.0, 1.0]], Binary(), 0.25)
    outside = audit(problem, [[0.0, 1.0]], 1.0)
    assert (outside.spent, outside.radius, outside.violation) == (1.0, 0.25, 0.75)
    timid = audit(problem, [[1.0, 0.0]], 1.0)
    assert (timid.violation, timid.primal, timid.dual, timid.gap) == (0.0, 0.0, 0.25, 0.25)
    update = update_policy([[1.0, 0.0]], [1.0], [[0.0, 1.0]], Binary(), 0.25)
    best = audit(problem, update.policy_sa, update.solution.multiplier)
    assert (best.violation, best.gap, best.spent) == (0.0, 0.0, 0.25)


def test_gaussians_by_hand():
    # one dimension: (m₀ − m₁)² + (σ₀ − σ₁)²
    assert gaussian_w2_squared([1.0], [[9.0]], [3.0], [[4.0]]) == pytest.approx(4 + 1)
    eye = np.eye(3)
    assert gaussian_w2_squared(np.zeros(3), eye, np.ones(3), eye) == pytest.approx(3.0)
    assert gaussian_w2_squared(
        [0.0, 0.0], np.diag([1.0, 4.0]), [0.0, 0.0], np.diag([4.0, 1.0])
    ) == pytest.approx(2.0)
    assert gaussian_w2_squared([0.0], [[0.0]], [2.0], [[0.0]]) == pytest.approx(4.0)
    assert mean_shift_squared([[0.0, 0.0], [1.0, 1.0]], [[3.0, 4.0], [1.0, 1.0]]).tolist() == [
        25,
        0,
    ]


def test_gaussians_agree_with_pot():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.standard_normal((2, 3, 3))
        sigma0, sigma1 = a @ a.T, b @ b.T
        m0, m1 = rng.standard_normal((2, 3))
        ours = gaussian_w2_squared(m0, sigma0, m1, sigma1)
        theirs = ot.gaussian.bures_wasserstein_distance(m0, m1, sigma0, sigma1) ** 2
        assert ours == pytest.approx(theirs, rel=1e-6)
        assert ours == pytest.approx(gaussian_w2_squared(m1, sigma1, m0, sigma0), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discrepancy([0.5, 0.5], [0.5, 0.6], np.zeros((2, 2))), "nu_b must sum to 1"),
        (lambda: discrepancy([0.5, 0.5], [0.5, 0.5], np.zeros((2, 3))), "cost_ab must have shape"),
        (lambda: discrepancy([0.5, 0.5], [0.5, 0.5], [[0, -1], [1, 0]]), "negative"),
        (lambda: total_variation([1.0], [0.5, 0.5]), "nu_a must have shape"),
        (lambda: gaussian_w2_squared([0.0], [[-1.0]], [0.0], [[1.0]]), "semi-definite"),
        (
            lambda: gaussian_w2_squared([0.0, 0.0], [[1, 1], [0, 1]], [0.0, 0.0], np.eye(2)),
            "symmetric",
        ),
        (lambda: mean_shift_squared([[0.0]], [[0.0, 1.0]]), "mean1_rd must have shape"),
    ],
)
def test_bad_measures_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_was_spent_and_is_no_number_is_not_called_within_the_radius():
    assert np.isnan(violation(np.nan, 1.0))
    assert violation(np.inf, 1.0) == np.inf
