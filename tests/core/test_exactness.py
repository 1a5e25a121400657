"""The solver against exact fractions, at every scale that float64 has."""

import collections
from fractions import Fraction

import numpy as np
import pytest

from ottrpo.core import (
    DualProblem,
    LinearProblem,
    dual_value,
    kl_problem,
    solve_at,
    solve_dual,
    update_policy,
)
from ottrpo.core.costs import Binary
from ottrpo.core.exact import exact_dot, ratio_down, upper_dot

from .references import exact_optimum, exact_outcome, extreme_problem

GAP = Fraction(1, 10**12)
LARGEST, SMALLEST = Fraction(np.finfo(float).max), Fraction(np.finfo(float).tiny)


def check(problem: DualProblem) -> str:
    """Solve it, prove the answer against fractions, and say which kind of answer it was."""
    exact = exact_optimum(problem)
    try:
        solution = solve_dual(problem)
    except ValueError:
        beyond = (
            exact.multiplier > LARGEST,
            0 < exact.multiplier < SMALLEST,
            abs(exact.value) > LARGEST,
            0 < exact.share < SMALLEST,
        )
        assert any(beyond), "refused, though float64 has the answer"
        return "refused"
    spent, gain = exact_outcome(problem, solution)
    assert spent <= Fraction(problem.radius), "overspent"
    assert Fraction(solution.spent) <= Fraction(problem.radius)
    assert spent == pytest.approx(solution.spent, rel=1e-15, abs=1e-320)
    assert 1 - Fraction(solution.split) <= Fraction(solution.farthest_share)
    assert exact.value - gain <= GAP * (exact.value - exact.free)
    size = sum(
        Fraction(weight) * Fraction(gain)
        for weight, gain in zip(problem.weight_r, np.abs(problem.gain_rk).max(axis=1), strict=True)
    )
    assert abs(Fraction(solution.value) - exact.value) <= GAP * size + SMALLEST
    if exact.multiplier:
        assert solution.multiplier == pytest.approx(float(exact.multiplier), rel=1e-12)
    return "binding" if solution.binding else "free"


def check_many(seeds: range) -> collections.Counter[str]:
    return collections.Counter(
        check(extreme_problem(np.random.default_rng([seed, 6]))) for seed in seeds
    )


def test_no_overspend_and_no_gap_at_any_scale():
    kinds = check_many(range(1500))
    assert min(kinds.values()) > 50  # all kinds of answers were met


@pytest.mark.slow
def test_no_overspend_and_no_gap_in_many_problems():
    check_many(range(1500, 26_500))


@pytest.mark.parametrize(
    ("gain", "cost", "radius", "value"),
    [
        ([[0.0, 1.0]], [[0.0, 1.0]], 6e-17, 6e-17),  # less than 1 − t* can show
        ([[0.0, 1.0]], [[0.0, 1e9]], 1e-3, 1e-12),
        ([[0.0, 1e10, 5e9]], [[0.0, 1e-300, 2e-300]], 1.0, 1e10),  # slopes beyond float64
        ([[0.0, 1e300, 2e300]], [[0.0, 1e-300, 1e300]], 1.0, 1e300),
        ([[-1.7e308, 1.7e308]], [[0.0, 4.0]], 2.0, 0.0),  # a gain beyond float64
        ([[0.0, 1e-300]], [[0.0, 1e300]], 1e301, 1e-300),  # a slope below it, and no need of it
    ],
)
def test_cases_that_float64_alone_gets_wrong(gain, cost, radius, value):
    problem = DualProblem([1.0], gain, cost, radius)
    assert check(problem) in ("binding", "free")
    assert solve_dual(problem).value == pytest.approx(value, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize(
    ("gain", "cost", "weight", "radius", "words"),
    [
        (1e300, 1e-300, 1.0, 1e-301, "multiplier overflows"),
        (1e-300, 1e300, 1.0, 1.0, "multiplier underflows"),
        (1.0, 1e200, 1e200, 1e-300, "share of mass"),
        (1e300, 1.0, 1e300, 1e300, "value overflows"),
    ],
)
def test_an_answer_that_float64_has_not_is_refused(gain, cost, weight, radius, words):
    with pytest.raises(ValueError, match=words):
        solve_dual(DualProblem([weight], [[0.0, gain]], [[0.0, cost]], radius))


def test_costs_that_underflow_are_counted_and_not_waited_for():
    # each of these is nothing in float64, and together they are more than the radius
    weight_r, gain_rk, cost_rk = [2.0**-1000] * 4, [[0.0, 1.0]] * 4, [[0.0, 2.0**-75]] * 4
    assert check(DualProblem(weight_r, gain_rk, cost_rk, 5e-324)) == "binding"
    weight_r = np.random.default_rng(0).integers(1, 2000, 30) * 5e-324
    assert check(DualProblem(weight_r, [[0.0, 1.0]] * 30, [[0.0, 0.3]] * 30, 6e-323)) == "binding"


@pytest.mark.parametrize("multiplier", [1e300, 5e-324, 0.0])
def test_a_dual_value_that_float64_has_not_is_refused(multiplier):
    rows = DualProblem([1e300], [[0.0, 1e300]], [[0.0, 1.0]], 1e300)
    linear = LinearProblem([1.0], [[1e200]], 1e300)
    for problem in (rows, linear):
        with pytest.raises(ValueError, match=r"rescale|infinite at multiplier 0"):
            dual_value(problem, multiplier)
        for wrong in (-1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match="multiplier must be"):
                dual_value(problem, wrong)


def test_a_price_whose_answer_float64_has_not_is_refused():
    with pytest.raises(ValueError, match="rescale"):
        solve_at(LinearProblem([1.0], [[1e200]], 1.0), 1e-200)
    with pytest.raises(ValueError, match="rescale"):
        solve_at(DualProblem([1e300], [[0.0, 1e300]], [[0.0, 1.0]], 1.0), 1.0)
    with pytest.raises(ValueError, match="rescale"):
        solve_at(kl_problem([[0.5, 0.5]], [1e300], [[0.0, 1e300]], 1.0), 1e-300)


def test_a_budget_met_by_rounded_sums_alone_is_kept():
    # ten tenths are 1 in float64 and a little more in truth
    problem = DualProblem([1.0] * 10, [[0.0, 1.0]] * 10, [[0.0, 0.1]] * 10, radius=1.0)
    assert check(problem) == "binding"
    assert solve_dual(problem).spent == 1.0
    assert 0 < 1 - solve_dual(problem).farthest_share < 1e-15


def test_sums_are_never_short_and_exact_where_few_bits_are_needed():
    rng = np.random.default_rng(0)
    for _ in range(300):
        size = int(rng.integers(1, 400))
        x, y = (10.0 ** rng.uniform(-12, 3, size) for _ in range(2))
        exact, upper = exact_dot(x, y), upper_dot(x, y)
        assert exact <= upper <= exact + exact // 10**25
        coarse_x, coarse_y = np.ceil(x * 8), np.ceil(y * 8)
        assert upper_dot(coarse_x, coarse_y) == exact_dot(coarse_x, coarse_y)
    assert ratio_down(1, 3) <= Fraction(1, 3) < ratio_down(1, 3) + 1e-16


def test_a_policy_in_a_tiny_region_moves_a_tiny_share():
    update = update_policy([[1.0, 0.0]], [1.0], [[0.0, 1.0]], Binary(), radius=1e-20)
    assert update.policy_sa.tolist() == [[1.0, 1e-20]]


class TestLinearGain:
    """The closed form at scales where squares leave float64."""

    @pytest.mark.parametrize("metric", [None, [1.0, 4.0], [[2.0, 0.5], [0.5, 1.0]]])
    @pytest.mark.parametrize("decades", [-200, -90, 0, 90, 200])
    def test_every_scale_has_the_answer_of_scale_one(self, metric, decades):
        gradient = np.array([[1.0, 2.0], [-0.5, 0.25]])
        plain = solve_dual(LinearProblem([0.25, 0.75], gradient, 0.1, metric))
        scale = 10.0**decades
        scaled = solve_dual(LinearProblem([0.25, 0.75], gradient * scale, 0.1, metric))
        assert scaled.multiplier == pytest.approx(plain.multiplier * scale, rel=1e-12)
        assert scaled.value == pytest.approx(plain.value * scale, rel=1e-12)
        assert scaled.nearest_r == pytest.approx(plain.nearest_r, rel=1e-12)
        assert scaled.spent == pytest.approx(0.1, rel=1e-12)
        assert scaled.spent <= 0.1
        wide = solve_dual(LinearProblem([0.25, 0.75], gradient, 0.1 * scale**1.5, metric))
        assert wide.multiplier == pytest.approx(plain.multiplier / scale**0.75, rel=1e-12)
        assert wide.nearest_r == pytest.approx(plain.nearest_r * scale**0.75, rel=1e-12)

    def test_a_multiplier_whose_square_has_lost_bits_does_not_overspend(self):
        # the energy and the radius are both well within float64, and their ratio is not
        gradient = [-3.0, 1.0, -1.0, 0.0, -1.0, -3.0]
        problem = LinearProblem([5.50899e-212], [gradient], 4.54e109)
        displacement = [Fraction(x) for x in solve_dual(problem).nearest_r[0].tolist()]
        spent = Fraction(5.50899e-212) * sum(x**2 for x in displacement)
        assert 1 - spent / Fraction(4.54e109) == pytest.approx(0, abs=1e-14)

    @pytest.mark.parametrize(
        ("weight", "gradient", "radius"),
        [([1e300], [[1e300]], 1e-300), ([1e-300, 1e-300], [[1e-300], [1e-300]], 1e300)],
    )
    def test_an_answer_that_float64_has_not_is_refused(self, weight, gradient, radius):
        with pytest.raises(ValueError, match="rescale"):
            solve_dual(LinearProblem(weight, gradient, radius))
