"""Three modes of one method: a budget, a price, and a proximal step reproduce one another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from ottrpo.core import (
    DualProblem,
    LinearProblem,
    SinkhornProblem,
    multiplier_of_step,
    rows_at,
    solve_at,
    solve_dual,
)
from tests.core.references import dual_problems
from tests.core.test_entropic import random_problem

CASES = 1_000
COMPARED = ("nearest_r", "farthest_r", "spent")


@settings(max_examples=CASES, deadline=None)
@given(dual_problems())
def test_the_multiplier_of_a_budget_has_the_maps_of_the_budget(problem):
    budget = solve_dual(problem)
    if not budget.binding:
        return
    priced = solve_at(problem, budget.multiplier)
    share = budget.farthest_share
    weight_r, row = problem.weight_r, np.arange(problem.rows)

    def gain(target_r):
        return weight_r @ problem.gain_rk[row, target_r]

    def cost(target_r):
        return weight_r @ problem.cost_rk[row, target_r]

    for found_r, expected_r in (
        (priced.nearest_r, budget.nearest_r),
        (priced.farthest_r, budget.farthest_r),
    ):
        assert gain(found_r) == pytest.approx(gain(expected_r), rel=1e-12, abs=0)
        assert cost(found_r) == pytest.approx(cost(expected_r), rel=1e-12, abs=1e-15)
    # and with the budget's own split it spends the budget
    mixed = (1 - share) * cost(priced.nearest_r) + share * cost(priced.farthest_r)
    assert mixed == pytest.approx(problem.radius, rel=1e-11)


@settings(max_examples=CASES, deadline=None)
@given(dual_problems())
def test_a_budget_of_what_a_price_spends_has_its_gain(problem):
    highest = np.ptp(problem.gain_rk) or 1.0
    priced = solve_at(problem, 0.3 * highest)
    score_rk = problem.gain_rk - 0.3 * highest * problem.cost_rk
    worth = problem.weight_r @ score_rk.max(1)
    assert priced.value - 0.3 * highest * priced.spent == pytest.approx(worth, abs=1e-12 * highest)
    if priced.spent > 0:
        arrays = problem.weight_r, problem.gain_rk, problem.cost_rk
        budget = solve_dual(DualProblem(*arrays, priced.spent))
        assert budget.value == pytest.approx(priced.value, abs=1e-12 * highest)


def test_compiled_and_mapped_it_is_the_same():
    rng = np.random.default_rng(2)
    weight = rng.random((CASES, 6))
    gain = np.round(2 * rng.standard_normal((CASES, 6, 4))) / 2
    cost = np.round(4 * rng.random(gain.shape)) / 2
    cost[..., 0] = 0.0
    weight[:, 0] *= rng.random(CASES) < 0.5
    price = np.ceil(4 * rng.random(CASES)) / 4
    with jax.enable_x64(True):
        arrays = map(jnp.asarray, (weight, gain, cost, price))
        found = jax.jit(jax.vmap(rows_at))(*arrays)
    found = found._replace(**{name: np.asarray(getattr(found, name)) for name in COMPARED})
    for i in range(CASES):
        expected = solve_at(DualProblem(weight[i], gain[i], cost[i], 1.0), price[i])
        np.testing.assert_array_equal(found.nearest_r[i], expected.nearest_r)
        np.testing.assert_array_equal(found.farthest_r[i], expected.farthest_r)
        assert found.spent[i] == pytest.approx(expected.spent, rel=1e-14)


@pytest.mark.parametrize("metric", [None, [2.0, 0.5, 1.0], np.eye(3) + 0.3])
def test_linear_gains_have_one_step_in_all_modes(metric):
    rng = np.random.default_rng(0)
    for _ in range(CASES):
        weight_r = rng.random(7) * (rng.random(7) < 0.8) + 1e-3
        problem = LinearProblem(weight_r, rng.standard_normal((7, 3)), rng.random() + 0.01, metric)
        budget = solve_dual(problem)
        priced = solve_at(problem, budget.multiplier)
        proximal = solve_at(problem, multiplier_of_step(0.5 / budget.multiplier))
        for other in (priced, proximal):
            np.testing.assert_allclose(other.nearest_r, budget.nearest_r, rtol=1e-13)
            assert other.spent == pytest.approx(problem.radius, rel=1e-13)
            assert other.value == pytest.approx(budget.value, rel=1e-13)


def test_a_proximal_step_is_the_one_of_wppg():
    # max g·δ − |δ|²/(2η) is attained at δ = ηg
    problem = LinearProblem([0.5, 0.5], [[1.0, 2.0], [-3.0, 0.5]], radius=1.0)
    step = solve_at(problem, multiplier_of_step(0.1))
    np.testing.assert_allclose(step.nearest_r, 0.1 * problem.gradient_rd, rtol=1e-15)


def test_sinkhorn_plans_are_the_same_in_both_modes():
    rng = np.random.default_rng(1)
    for _ in range(CASES):
        problem = random_problem(rng)
        budget = solve_dual(problem)
        if budget.binding:
            priced = solve_at(problem, budget.multiplier)
            np.testing.assert_array_equal(priced.plan_rk > 0, budget.plan_rk > 0)
            np.testing.assert_allclose(priced.plan_rk, budget.plan_rk, rtol=1e-8, atol=1e-13)
            assert priced.spent == pytest.approx(problem.radius, rel=1e-12)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, np.nan, np.inf])
def test_a_price_is_positive(multiplier):
    rows = [1.0], [[0.0, 1.0]], [[0.0, 1.0]]
    for problem in (
        DualProblem(*rows, 1.0),
        LinearProblem([1.0], [[1.0]], 1.0),
        SinkhornProblem(*rows, 1.0, 0.1),
    ):
        with pytest.raises(ValueError, match="multiplier must be positive"):
            solve_at(problem, multiplier)
