r"""The same step with a price on transport in place of a budget for it.

A method of trust regions has three modes, and they are one:

    budget      max gain   s.t. cost ≤ ε        λ* follows from ε                  `solve_dual`
    multiplier  max gain − λ cost               λ is given, what it spends follows `solve_at`
    proximal    max gain − cost / (2η)          λ = 1/(2η): a step of size η

What `solve_at` answers to λ is what `solve_dual` answers to a budget of as much as that spent, and
at λ* of a budget it has the maps, or the plan, of that budget.
"""

from functools import singledispatch
from typing import Any, TypeVar

import numpy as np

from .checks import Floats, positive_number, require
from .dual import NO_PROBLEM
from .entropic import SinkhornProblem, SinkhornSolution, sinkhorn_at
from .problems import DualProblem, LinearProblem
from .solution import DualSolution
from .traceable import lift, rows_at

Solution = TypeVar("Solution")


def multiplier_of_step(step: float) -> float:
    """λ = 1/(2η) of a proximal step of size η.

    >>> multiplier_of_step(0.25)
    2.0
    """
    return positive_number("the multiplier of that step", 0.5 / positive_number("step", step))


@singledispatch
def solve_at(problem: Any, multiplier: float) -> Any:
    """The best step when a unit of cost has the price ``multiplier``, whatever the radius.

    The solution is that of `solve_dual`, with the gain of the step as its value. Where two
    candidates of a row are worth the same at this price the nearest is taken; ``farthest_r`` has
    the other.

    >>> problem = DualProblem([1.0], [[0.0, 1.0]], [[0.0, 0.5]], radius=1.0)
    >>> solve_at(problem, 1.5).spent, solve_at(problem, 2.5).spent
    (0.5, 0.0)
    """
    raise TypeError(NO_PROBLEM.format(type(problem).__name__))


@solve_at.register
def _(problem: DualProblem, multiplier: float) -> DualSolution:
    multiplier = positive_number("multiplier", multiplier)
    allowed_rk, stay_r = problem.allowed_rk, problem.stay_r
    rows = problem.weight_r, problem.gain_rk, problem.cost_rk
    with np.errstate(all="ignore"):  # what is no number is told below
        found = rows_at(*rows, multiplier, allowed_rk, stay_r)
    found = found._replace(
        multiplier=multiplier, value=float(found.value), spent=float(found.spent)
    )
    return _finite(found, found.value, found.spent)


@solve_at.register
def _(problem: LinearProblem, multiplier: float) -> DualSolution:
    multiplier = np.float64(positive_number("multiplier", multiplier))
    with np.errstate(all="ignore"):  # what is no number is told below
        lifted_rd, energy = lift(problem.weight_r, problem.gradient_rd, problem.metric)
        moves_r = problem.weight_r > 0
        displacement_rd = moves_r[:, None] * lifted_rd / (2 * multiplier)
        gain, spent = float(energy / (2 * multiplier)), float(energy / (4 * multiplier**2))
    maps = displacement_rd, displacement_rd
    found = DualSolution(float(multiplier), gain, spent, bool(energy > 0), 1.0, *maps, 0.0)
    return _finite(found, gain, spent, displacement_rd)


@solve_at.register
def _(problem: SinkhornProblem, multiplier: float) -> SinkhornSolution:
    weight_r, gain_rk, cost_rk, _, entropy, reference_rk = problem.arrays
    multiplier = positive_number("multiplier", multiplier)
    with np.errstate(all="ignore"):  # what is no number is told below
        found = sinkhorn_at(weight_r, gain_rk, cost_rk, multiplier, entropy, reference_rk)
    numbers = {name: float(getattr(found, name)) for name in ("value", "spent", "transport")}
    return _finite(found._replace(binding=True, **numbers), *numbers.values(), found.plan_rk)


def _finite(found: Solution, *numbers: float | Floats) -> Solution:
    """The solution, if float64 has all of these numbers of it."""
    finite = all(np.isfinite(number).all() for number in numbers)
    require(finite, "what this multiplier leads to overflows float64: rescale")
    return found
