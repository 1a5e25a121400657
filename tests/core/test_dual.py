"""The solver against the linear program, against POT, and against the definition of its answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from ottrpo.core import (
    DualProblem,
    LinearProblem,
    Mahalanobis,
    SquaredEuclidean,
    audit,
    dual_value,
    envelopes,
    finite_problem,
    regularised_advantage,
    solve_dual,
    update_policy,
)

from .references import dual_problems, finite_arguments, primal_by_linear_program, spent_by_pot

RTOL = 1e-9  # relative to the largest gain, for the linear program's own rounding


def tolerance(problem: DualProblem) -> float:
    return RTOL * max(np.abs(problem.gain_rk).max() * max(problem.weight_r.sum(), 1.0), 1e-300)


@settings(max_examples=1200, deadline=None)
@given(finite_arguments())
def test_finite_updates_are_optimal_and_feasible(arguments):  # thm:dual, cor:dual-discrete
    update = update_policy(*arguments.arguments())
    problem, solution, new_sa = update.problem, update.solution, update.policy_sa
    atol = tolerance(problem.dual)

    assert solution.value == pytest.approx(primal_by_linear_program(problem.dual), abs=atol)
    checked = audit(problem, new_sa, solution.multiplier)
    assert checked.gap == pytest.approx(0.0, abs=atol)
    assert checked.violation == 0.0
    assert solution.spent == pytest.approx(checked.spent, rel=1e-9, abs=1e-12)
    pot = spent_by_pot(arguments.policy_sa, new_sa, arguments.occupancy_s, problem.cost_sab)
    assert pot <= arguments.radius * (1 + 1e-9) + 1e-12
    if solution.multiplier > 0:
        assert solution.spent == pytest.approx(arguments.radius, rel=1e-9)
        assert pot == pytest.approx(arguments.radius, rel=1e-9)

    plan_sab = update.plan_sab
    assert plan_sab.sum(axis=2) == pytest.approx(arguments.policy_sa, abs=1e-12)
    assert plan_sab.sum(axis=1) == pytest.approx(new_sa, abs=1e-12)
    assert plan_sab.min() >= 0
    paid = np.einsum("s,sab,sab->", arguments.occupancy_s, plan_sab, problem.cost_sab)
    assert paid == pytest.approx(solution.spent, rel=1e-9, abs=1e-12)
    unvisited_s = arguments.occupancy_s == 0
    assert (new_sa[unvisited_s] == arguments.policy_sa[unvisited_s]).all()
    if arguments.allowed_sa is not None:
        assert (new_sa[~arguments.allowed_sa] == 0).all()


@settings(max_examples=1000, deadline=None)
@given(dual_problems())
def test_any_rows_are_solved_to_optimality(problem):
    solution = solve_dual(problem)
    atol = tolerance(problem)
    assert solution.value == pytest.approx(primal_by_linear_program(problem), abs=atol)
    assert solution.value == pytest.approx(dual_value(problem, solution.multiplier), abs=atol)
    row = np.arange(problem.rows)
    t, near, far = solution.split, solution.nearest_r, solution.farthest_r
    gain_r = t * problem.gain_rk[row, near] + (1 - t) * problem.gain_rk[row, far]
    cost_r = t * problem.cost_rk[row, near] + (1 - t) * problem.cost_rk[row, far]
    assert problem.weight_r @ gain_r == pytest.approx(solution.value, abs=atol)
    assert problem.weight_r @ cost_r == pytest.approx(solution.spent, rel=1e-9, abs=1e-12)
    assert solution.spent <= problem.radius * (1 + 1e-12)
    assert solution.binding == (solution.multiplier > 0)
    if solution.binding:
        assert solution.spent == pytest.approx(problem.radius, rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(dual_problems())
def test_maps_attain_the_regularised_advantage(problem):  # cor:optimal-policy, item 1
    solution = solve_dual(problem)
    phi_r = regularised_advantage(problem, solution.multiplier)
    row = np.arange(problem.rows)
    weighted = problem.weight_r > 0
    for target_r in (solution.nearest_r, solution.farthest_r):
        score_r = (
            problem.gain_rk[row, target_r] - solution.multiplier * problem.cost_rk[row, target_r]
        )
        scale = np.abs(problem.gain_rk).max() + solution.multiplier * problem.cost_rk.max()
        assert (score_r[weighted] >= phi_r[weighted] - 1e-12 * scale).all()
    near_cost = problem.cost_rk[row, solution.nearest_r]
    assert (near_cost <= problem.cost_rk[row, solution.farthest_r]).all()
    assert (solution.nearest_r[~weighted] == problem.stay_r[~weighted]).all()


@settings(max_examples=200, deadline=None)
@given(dual_problems(), st.floats(0.0, 3.0))
def test_multiplier_minimises_the_dual(problem, factor):
    solution = solve_dual(problem)
    anywhere = factor * (solution.multiplier or np.abs(problem.gain_rk).max())
    assert solution.value <= dual_value(problem, anywhere) + tolerance(problem)


@settings(max_examples=200, deadline=None)
@given(dual_problems(max_candidates=2))
def test_pairs_are_solved_as_any_rows_are(problem):
    if problem.candidates == 1:
        return
    # a third candidate that repeats the first one sends the rows through the general walk
    gain = np.column_stack([problem.gain_rk, problem.gain_rk[:, 0]])
    cost = np.column_stack([problem.cost_rk, problem.cost_rk[:, 0]])
    general = solve_dual(
        DualProblem(problem.weight_r, gain, cost, problem.radius, stay_r=problem.stay_r)
    )
    pairs = solve_dual(problem)
    assert pairs.multiplier == general.multiplier
    assert pairs.split == pytest.approx(general.split, rel=1e-12)
    assert (pairs.nearest_r == general.nearest_r % 2).all()


def test_narrowing_finds_what_sorting_finds(monkeypatch):
    rng = np.random.default_rng(1)
    for kind in ("spread", "few values", "one value", "heavy head"):
        advantage = rng.standard_normal(30_000)
        cost = rng.random(30_000) + 0.1
        if kind == "few values":
            advantage, cost = np.round(advantage), np.round(cost * 2) / 2 + 0.5
        if kind == "one value":
            advantage, cost = np.ones(30_000), np.ones(30_000)
        if kind == "heavy head":
            cost[advantage > 2] *= 1e6
        gain_rk = np.column_stack([np.zeros(30_000), advantage])
        cost_rk = np.column_stack([np.zeros(30_000), cost])
        problem = DualProblem(np.full(30_000, 1 / 30_000), gain_rk, cost_rk, 0.2)
        narrowed = solve_dual(problem)
        with monkeypatch.context() as patch:
            patch.setattr(envelopes, "SORT_AT_MOST", 10**9)
            sorted_ = solve_dual(problem)
        assert narrowed.multiplier == sorted_.multiplier
        assert narrowed.split == pytest.approx(sorted_.split, rel=1e-9)
        assert (narrowed.nearest_r == sorted_.nearest_r).all()
        assert (narrowed.farthest_r == sorted_.farthest_r).all()


def test_agrees_with_a_numerical_minimiser():
    rng = np.random.default_rng(0)
    problem = DualProblem(
        np.full(500, 1 / 500),
        rng.standard_normal((500, 4)),
        rng.random((500, 4)) * (1 - np.eye(4)[0]),
        0.1,
    )
    bounded = minimize_scalar(lambda x: dual_value(problem, x), bounds=(0, 50), method="bounded")
    assert solve_dual(problem).multiplier == pytest.approx(bounded.x, rel=1e-3)
    assert solve_dual(problem).value <= bounded.fun + 1e-12


class TestEdges:
    def test_one_action_has_nowhere_to_go(self):
        solution = solve_dual(DualProblem([0.3, 0.7], [[1.0], [2.0]], [[0.0], [0.0]], 0.1))
        assert (solution.multiplier, solution.spent, solution.split) == (0.0, 0.0, 1.0)
        assert solution.value == pytest.approx(0.3 * 1 + 0.7 * 2)

    def test_equal_gains_move_nothing(self):
        solution = solve_dual(DualProblem([1.0], [[5.0, 5.0, 5.0]], [[1.0, 0.0, 2.0]], 10.0))
        assert (solution.multiplier, solution.spent) == (0.0, 0.0)
        assert solution.nearest_r.tolist() == [1]
        assert solution.farthest_r.tolist() == [2]

    def test_huge_radius_takes_the_nearest_maximisers(self):
        solution = solve_dual(
            DualProblem([1.0], [[0.0, 3.0, 3.0, 1.0]], [[0.0, 2.0, 1.0, 0.5]], 1e9)
        )
        assert (solution.multiplier, solution.split, solution.binding) == (0.0, 1.0, False)
        assert solution.nearest_r.tolist() == [2]
        assert solution.spent == 1.0
        assert solution.value == 3.0

    def test_tiny_radius_is_spent_exactly(self):
        solution = solve_dual(
            DualProblem([0.5, 0.5], [[0, 1.0], [0, 2.0]], [[0, 1.0], [0, 1.0]], 1e-300)
        )
        assert solution.multiplier == 2.0
        assert solution.spent == pytest.approx(1e-300, rel=1e-12)

    def test_free_moves_are_taken_and_useless_ones_are_not(self):
        solution = solve_dual(DualProblem([1.0], [[0.0, 1.0, 2.0]], [[0.0, 0.0, 1.0]], 0.5))
        assert solution.nearest_r.tolist() == [1]
        assert solution.multiplier == 1.0
        stays = solve_dual(
            DualProblem([1.0], [[1.0, 1.0, 1.0]], [[0.0, 0.0, 0.0]], 0.5, stay_r=[2])
        )
        assert stays.nearest_r.tolist() == [2]

    def test_duplicate_costs_take_the_better_gain(self):
        solution = solve_dual(
            DualProblem([1.0], [[0.0, 1.0, 2.0, 1.5]], [[0.0, 1.0, 1.0, 1.0]], 0.25)
        )
        assert solution.farthest_r.tolist() == [2]
        assert (solution.multiplier, solution.split) == (2.0, 0.75)

    def test_lines_that_meet_in_one_point_pass_to_the_dearest(self):
        # A = c along 0, 1, 2: all three tie at λ = 1, and the budget of 1.5 is met by a split
        solution = solve_dual(DualProblem([1.0], [[0.0, 1.0, 2.0]], [[0.0, 1.0, 2.0]], 1.5))
        assert (solution.multiplier, solution.nearest_r[0], solution.farthest_r[0]) == (1.0, 0, 2)
        assert solution.split == 0.25

    def test_budget_met_exactly_at_a_breakpoint_needs_no_more(self):
        # moving everything costs exactly ε: the constraint does not limit the gain
        solution = solve_dual(DualProblem([1.0], [[0.0, 1.0]], [[0.0, 0.5]], 0.5))
        assert (solution.multiplier, solution.spent, solution.value) == (0.0, 0.5, 1.0)

    def test_masked_candidates_are_never_used(self):
        solution = solve_dual(
            DualProblem([1.0], [[0.0, 9.0, 1.0]], [[0.0, 1.0, 1.0]], 0.5, allowed_rk=[[1, 0, 1]])
        )
        assert solution.farthest_r.tolist() == [2]
        assert solution.multiplier == 1.0

    @pytest.mark.parametrize("scale", [1e-12, 1e12])
    def test_gains_of_any_size(self, scale):
        rng = np.random.default_rng(3)
        gain, cost = rng.standard_normal((50, 3)), rng.random((50, 3)) * [0, 1, 1]
        weight = np.full(50, 0.02)
        plain = solve_dual(DualProblem(weight, gain, cost, 0.1))
        scaled = solve_dual(DualProblem(weight, gain * scale, cost, 0.1))
        assert scaled.multiplier == pytest.approx(plain.multiplier * scale, rel=1e-12)
        assert scaled.value == pytest.approx(plain.value * scale, rel=1e-12)
        assert (scaled.nearest_r == plain.nearest_r).all()

    def test_a_million_rows(self):
        rng = np.random.default_rng(0)
        n = 1_000_000
        gain = np.column_stack([np.zeros(n), rng.standard_normal(n)])
        cost = np.column_stack([np.zeros(n), rng.random(n)])
        problem = DualProblem(np.full(n, 1 / n), gain, cost, 0.05)
        solution = solve_dual(problem)
        assert solution.spent == pytest.approx(0.05, rel=1e-12)
        assert solution.value == pytest.approx(dual_value(problem, solution.multiplier), rel=1e-12)

    def test_shifts_per_row_change_nothing(self):
        rng = np.random.default_rng(4)
        gain, cost = (
            rng.integers(-3, 4, (40, 5)).astype(float),
            rng.integers(0, 3, (40, 5)).astype(float),
        )
        cost[:, 2] = 0
        shift = rng.integers(-50, 50, (40, 1)).astype(float)
        plain = solve_dual(DualProblem(np.full(40, 0.025), gain, cost, 0.3))
        shifted = solve_dual(DualProblem(np.full(40, 0.025), gain + shift, cost, 0.3))
        assert plain.multiplier == shifted.multiplier
        assert plain.split == shifted.split
        assert (plain.nearest_r == shifted.nearest_r).all()

    def test_overflowing_multiplier_is_refused(self):
        with pytest.raises(ValueError, match="overflows"):
            solve_dual(DualProblem([1.0], [[0.0, 1e300]], [[0.0, 1e-300]], 1e-301))

    def test_wrong_type_is_named(self):
        with pytest.raises(TypeError, match="list"):
            solve_dual([1, 2, 3])


class TestLinearGain:
    """The closed form against brute-force search over actions."""

    @pytest.mark.parametrize("metric", [None, [2.0, 0.5], [[2.0, 0.3], [0.3, 1.0]]])
    def test_closed_form_is_the_limit_of_ever_finer_candidates(self, metric):
        rng = np.random.default_rng(5)
        gradient = rng.standard_normal((4, 2))
        weight = np.array([0.4, 0.3, 0.3, 0.0])
        radius = 0.3
        solution = solve_dual(LinearProblem(weight, gradient, radius, metric))
        axis = np.linspace(-4, 4, 401)
        grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        cost = SquaredEuclidean()
        if metric is not None:
            matrix = np.array(metric)
            cost = Mahalanobis(np.diag(matrix) if matrix.ndim == 1 else matrix)
        cost_k = cost(np.zeros(2), grid)
        brute = solve_dual(DualProblem(weight, gradient @ grid.T, np.tile(cost_k, (4, 1)), radius))
        assert brute.value <= solution.value + 1e-12
        assert brute.value == pytest.approx(solution.value, rel=1e-3)
        assert brute.multiplier == pytest.approx(solution.multiplier, rel=0.02)
        spacing = axis[1] - axis[0]
        assert np.abs(grid[brute.nearest_r[:3]] - solution.nearest_r[:3]).max() <= 2 * spacing

    def test_budget_is_spent_and_value_attained(self):
        rng = np.random.default_rng(6)
        gradient, weight = rng.standard_normal((100, 3)), np.full(100, 0.01)
        problem = LinearProblem(weight, gradient, 0.2)
        solution = solve_dual(problem)
        displacement = solution.nearest_r
        assert weight @ (displacement**2).sum(axis=1) == pytest.approx(0.2, rel=1e-12)
        assert solution.spent == pytest.approx(0.2, rel=1e-12)
        assert weight @ (gradient * displacement).sum(axis=1) == pytest.approx(
            solution.value, rel=1e-12
        )
        assert solution.value == pytest.approx(dual_value(problem, solution.multiplier), rel=1e-12)
        # λ* = ½ √(mean |g|² / ε), written out
        assert solution.multiplier == pytest.approx(
            0.5 * np.sqrt((gradient**2).sum(1).mean() / 0.2)
        )

    def test_no_gradient_no_move(self):
        solution = solve_dual(LinearProblem([1.0], [[0.0, 0.0]], 0.1))
        assert (solution.multiplier, solution.spent, solution.binding) == (0.0, 0.0, False)
        assert (solution.nearest_r == 0).all()

    def test_rows_without_weight_stay(self):
        solution = solve_dual(LinearProblem([1.0, 0.0], [[1.0], [5.0]], 0.1))
        assert solution.nearest_r[1] == 0


def test_finite_problem_keeps_rows_with_mass_only():
    problem = finite_problem(
        [[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]], [0.5, 0.5, 0.0], np.zeros((3, 2)), _binary(), 0.1
    )
    assert list(zip(problem.state_r, problem.action_r, strict=True)) == [(0, 0), (1, 0), (1, 1)]


def _binary():
    from ottrpo.core import Binary

    return Binary()
