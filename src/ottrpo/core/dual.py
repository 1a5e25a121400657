r"""The dual of the trust-region problem, solved exactly.

    G(λ) = λ ε + Σ_r w_r Φ_r(λ),   Φ_r(λ) = max_k (A_rk − λ c_rk)          (thm:dual)

G is convex and piecewise linear. Each Φ_r is the upper envelope of K lines; walked from λ = ∞
downwards it starts at the staying candidate and, at each *breakpoint*, passes to a dearer and
better one. The slope of G to the left of λ is ε minus the cost of all passages at or above λ, so
the minimiser is the breakpoint at which that cost first exceeds ε: it is found by sorting, with
no tolerance anywhere. The candidates held just above it are the nearest map, those held just
below it the farthest map, and the split t* between them spends the budget exactly.
"""

import math
from collections.abc import Callable
from copy import copy
from fractions import Fraction
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from .checks import Floats, Integers, require
from .entropic import SinkhornProblem, SinkhornSolution, least_spent, smooth_value, solve_sinkhorn
from .envelopes import pick, walk, walk_pairs
from .exact import UNITS, amount, exact_dot, fractions, upper_dot
from .problems import DualProblem, LinearProblem
from .solution import DualSolution, complement, moving_share
from .traceable import lift, solve_linear

# What a sum of rounded products may lack, as a share of it, for each of them.
ROUNDING = 2.0**-52
# What is lacked by rounding is made good by once that much less; products that underflow lack more.
TRIES = 3
# Slopes below this may have lost bits, or have become 0.
SMALLEST_SLOPE = 2.0**-960

NO_PROBLEM = "expected a DualProblem, a LinearProblem or a SinkhornProblem, got {}"
MULTIPLIER_OVERFLOWS = (
    "the multiplier overflows float64: a cost is too small for the gain it buys; rescale"
)
MULTIPLIER_UNDERFLOWS = (
    "the multiplier underflows float64: a cost is too large for the gain it buys; rescale"
)


class _Spending(NamedTuple):
    """What the nearest map costs, and the farthest more than that: amounts, not rounded."""

    nearest: int
    extra: int


def regularised_advantage(problem: DualProblem, multiplier: float) -> Floats:
    r"""Φ_r(λ) = max_k (A_rk − λ c_rk) over the allowed candidates of each row."""
    score_rk = problem.gain_rk - multiplier * problem.cost_rk
    if problem.allowed_rk is not None:
        score_rk = np.where(problem.allowed_rk, score_rk, -np.inf)
    phi_r: Floats = score_rk.max(axis=1)
    return phi_r


def dual_value(problem: Any, multiplier: float) -> float:
    """G(λ): an upper bound on the primal value for every λ ≥ 0, attained at λ*."""
    require(0 <= multiplier < math.inf, f"multiplier must be finite and not negative: {multiplier}")
    with np.errstate(all="ignore"):  # what is no number is told below
        value = _dual_value(problem, multiplier)
    require(math.isfinite(value), "the value of the dual overflows float64: rescale")
    return value


@singledispatch
def _dual_value(problem: Any, multiplier: float) -> float:
    raise TypeError(NO_PROBLEM.format(type(problem).__name__))


@_dual_value.register
def _(problem: DualProblem, multiplier: float) -> float:
    phi_r = regularised_advantage(problem, multiplier)
    return float(multiplier * problem.radius + problem.weight_r @ phi_r)


@_dual_value.register
def _(problem: LinearProblem, multiplier: float) -> float:
    energy = lift(problem.weight_r, problem.gradient_rd, problem.metric)[1]
    if energy == 0:
        return float(multiplier * problem.radius)
    require(multiplier > 0, "the dual of a linear gain is infinite at multiplier 0")
    return float(multiplier * problem.radius + energy / (4 * multiplier))


@_dual_value.register
def _(problem: SinkhornProblem, multiplier: float) -> float:
    require(multiplier > 0, "the plan of a Sinkhorn problem needs a positive multiplier")
    return smooth_value(problem, multiplier)


@singledispatch
def solve_dual(problem: Any) -> Any:
    """Minimise G over λ ≥ 0, exactly, and return the maps that attain the primal.

    >>> problem = DualProblem([1.0], [[0.0, 1.0]], [[0.0, 1.0]], radius=0.25)
    >>> solution = solve_dual(problem)
    >>> solution.multiplier, solution.split, solution.spent
    (1.0, 0.75, 0.25)

    A `SinkhornProblem` has one plan instead of two maps, and a `SinkhornSolution`.
    """
    raise TypeError(NO_PROBLEM.format(type(problem).__name__))


@solve_dual.register
def _(problem: DualProblem) -> DualSolution:
    try:
        with np.errstate(over="raise", under="ignore"):
            return _solve(problem)
    except FloatingPointError:  # float64 has not the range; fractions have
        return _solve_in_fractions(problem)


@solve_dual.register
def _(problem: LinearProblem) -> DualSolution:
    numbers = problem.weight_r, problem.gradient_rd, problem.radius, problem.metric
    with np.errstate(all="ignore"):  # what is no number is told below
        found = _plain(solve_linear(*numbers))
        ratio = 4.0 * found.multiplier**2  # of the energy to the radius
        in_range = [SMALLEST_SLOPE < x < 1 / SMALLEST_SLOPE for x in (ratio, ratio * numbers[2])]
        if not all(in_range) or not found.value > 0:
            found = _solve_scaled(*numbers)
    require(
        np.isfinite([*found[:3], np.abs(found.nearest_r).max()]).all(),
        "the solution overflows float64: rescale the gradients, the weights or the radius",
    )
    return found


@solve_dual.register
def _(problem: SinkhornProblem) -> SinkhornSolution:
    with np.errstate(all="ignore"):  # what is no number is told below
        least, found = least_spent(problem), solve_sinkhorn(*problem.arrays)
    require(
        not problem.radius <= least,
        f"the radius must be above {least}, which the entropy alone takes, got {problem.radius}: "
        "lower the entropy or raise the radius",
    )
    finite = all(np.isfinite(number).all() for number in found)
    # neighbours in float64 that spend far more and far less, or nothing but rounding
    told_apart = not found.binding or found.spent > problem.radius / 2
    require(
        finite and told_apart and found.spent <= problem.radius,
        "its numbers are too far apart for float64: rescale the gains, the costs or the entropy",
    )
    multiplier, value, spent, binding, plan_rk, transport = found
    numbers = float(multiplier), float(value), float(spent), bool(binding)
    return SinkhornSolution(*numbers, plan_rk, float(transport))


def _solve_scaled(
    weight_r: Floats, gradient_rd: Floats, radius: float, metric: Floats | None
) -> DualSolution:
    """As `solve_linear`, with every argument brought near 1 by a power of two."""
    gradient_rd = np.where(weight_r[:, None] > 0, gradient_rd, 0.0)
    if not gradient_rd.any():
        return _plain(solve_linear(weight_r, gradient_rd, radius, metric))
    w, g, e = _exponent(weight_r), _exponent(gradient_rd), _exponent(radius)
    m = 0 if metric is None else _exponent(metric)
    e += (w - m - e) % 2  # λ and the value take roots
    found = _plain(
        solve_linear(
            np.ldexp(weight_r, -w),
            np.ldexp(gradient_rd, -g),
            float(np.ldexp(radius, -e)),
            None if metric is None else np.ldexp(metric, -m),
        )
    )
    require(
        found.multiplier > np.sqrt(SMALLEST_SLOPE),
        "the weights and gradients of the rows are too far apart for float64: rescale",
    )
    multiplier = float(np.ldexp(found.multiplier, g + (w - m - e) // 2))
    require(0 < multiplier < np.inf, "the multiplier is beyond float64's range: rescale")
    displacement_rd = np.ldexp(found.nearest_r, (e - w - m) // 2)
    return found._replace(
        multiplier=multiplier,
        value=float(np.ldexp(found.value, g + (w - m + e) // 2)),
        spent=min(float(np.ldexp(found.spent, e)), radius),
        nearest_r=displacement_rd,
        farthest_r=displacement_rd,
    )


def _exponent(numbers: Any) -> int:
    return int(np.frexp(np.abs(numbers).max())[1])


def _plain(solution: DualSolution) -> DualSolution:
    """The same with plain numbers instead of arrays without axes."""
    return solution._replace(
        multiplier=float(solution.multiplier),
        value=float(solution.value),
        spent=float(solution.spent),
        binding=bool(solution.binding),
        split=1.0,
        farthest_share=0.0,
    )


def _solve(problem: DualProblem) -> DualSolution:
    pairs = problem.candidates == 2 and problem.allowed_rk is None
    budget, radius = problem.radius, amount(problem.radius)
    for _ in range(TRIES):
        walked = walk_pairs(problem, budget) if pairs else walk(problem, budget)
        nearest_r, farthest_r, (multiplier, paid) = walked
        spending = _spending(problem, nearest_r, farthest_r, upper_dot)
        if spending.nearest <= radius:
            break
        # the budget was met by rounded sums, and is not by what they stand for
        budget -= problem.gain_rk.size * ROUNDING * problem.radius
    else:  # products below float64's range lack more than rounding
        raise FloatingPointError
    # the nearest map attains every Φ_r(λ*)
    value = float(problem.weight_r @ pick(problem.gain_rk, nearest_r))
    value += multiplier * (problem.radius - paid)
    if not math.isfinite(value) or _underflows(problem, multiplier, nearest_r):
        raise FloatingPointError
    return _solution(problem, multiplier, value, spending, nearest_r, farthest_r)


def _solve_in_fractions(problem: DualProblem) -> DualSolution:
    """As `_solve`, by the same walk over exact numbers: slow, and right at any scale."""
    exact = copy(problem)
    vars(exact).update(
        weight_r=fractions(problem.weight_r),
        gain_rk=fractions(problem.gain_rk),
        cost_rk=fractions(problem.cost_rk),
    )
    radius = Fraction(problem.radius)
    nearest_r, farthest_r, (multiplier, paid) = walk(exact, radius)
    value = (exact.weight_r * pick(exact.gain_rk, nearest_r)).sum() + multiplier * (radius - paid)
    spending = _spending(problem, nearest_r, farthest_r, exact_dot)
    return _solution(problem, multiplier, value, spending, nearest_r, farthest_r)


def _solution(
    problem: DualProblem,
    multiplier: Any,
    value: Any,
    spending: _Spending,
    nearest_r: Integers,
    farthest_r: Integers,
) -> DualSolution:
    value = _finite(value, "the value overflows float64: rescale the gains or the weights")
    if multiplier == 0:
        spent = _spent(spending, 0.0)
        farthest_r = _farthest_maximiser(problem, nearest_r)
        return DualSolution(0.0, value, spent, False, 1.0, nearest_r, farthest_r, 0.0)
    share = moving_share(amount(problem.radius) - spending.nearest, spending.extra)
    multiplier = _finite(multiplier, MULTIPLIER_OVERFLOWS)
    require(multiplier > 0, MULTIPLIER_UNDERFLOWS)
    return DualSolution(
        multiplier=multiplier,
        value=value,
        spent=_spent(spending, share),
        binding=True,
        split=complement(share),
        nearest_r=nearest_r,
        farthest_r=farthest_r,
        farthest_share=share,
    )


def _spending(
    problem: DualProblem, nearest_r: Integers, farthest_r: Integers, dot: Callable[..., int]
) -> _Spending:
    """What the two maps cost, to the last bit or barely more."""
    cost_r = pick(problem.cost_rk, nearest_r)
    moved_r = (cost_r > 0).nonzero()[0]
    nearest = dot(problem.weight_r[moved_r], cost_r[moved_r])
    tied_r = (nearest_r != farthest_r).nonzero()[0]
    weight_r, near_r = problem.weight_r[tied_r], cost_r[tied_r]
    far_r = pick(problem.cost_rk[tied_r], farthest_r[tied_r])
    extra_r = far_r - near_r
    extra = dot(weight_r, extra_r)
    lost_r = (far_r - extra_r) - near_r  # by the rounding of that difference (Dekker)
    if lost_r.any():
        extra += dot(weight_r, np.maximum(lost_r, 0.0))
    return _Spending(nearest, extra)


def _spent(spending: _Spending, share: float) -> float:
    """What moving that share costs; what is not above the radius is not above it when rounded."""
    numerator, denominator = share.as_integer_ratio()
    return (spending.nearest * denominator + spending.extra * numerator) / (UNITS * denominator)


def _underflows(problem: DualProblem, multiplier: float, nearest_r: Integers) -> bool:
    """Whether slopes may have been lost below float64's range before the budget ran out."""
    if multiplier > 0:
        return multiplier < SMALLEST_SLOPE
    best_r = regularised_advantage(problem, 0.0)
    return bool(((best_r > pick(problem.gain_rk, nearest_r)) & (problem.weight_r > 0)).any())


def _finite(number: Any, otherwise: str) -> float:
    """A number as float64, or a sentence that says why it has none."""
    try:
        return float(number)
    except OverflowError:
        raise ValueError(otherwise) from None


def _farthest_maximiser(problem: DualProblem, nearest_r: Integers) -> Integers:
    """At λ = 0: among the candidates of greatest gain the dearest; rows without weight stay."""
    best_rk = problem.gain_rk == pick(problem.gain_rk, nearest_r)[:, None]
    if problem.allowed_rk is not None:
        best_rk &= problem.allowed_rk
    dearest_r = np.where(best_rk, problem.cost_rk, -1.0).argmax(axis=1)
    dearer_r = pick(problem.cost_rk, dearest_r) > pick(problem.cost_rk, nearest_r)
    return np.where(dearer_r & (problem.weight_r > 0), dearest_r, nearest_r)
