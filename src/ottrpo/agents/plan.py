"""The outcome of step 4: where the rows of a rollout should go, and the dual that says so."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottrpo.core import DualProblem, DualSolution, solve_dual

# where a radius that binds nowhere is put, as a share of what the best plan would spend
BINDING_SHARE = 0.5


@dataclass(frozen=True)
class Plan:
    """The solved step: where the policy should go, and the dual that says so.

    Attributes:
        solution: of the dual.
        radius: the radius that was used.
        inactive: the asked radius was too large to bind; unless told not to, it was shrunk.
        rows: arrays for the loss, rows first.
        split_mass: share of the weight whose nearest and farthest targets differ.
        active_fraction: share of the weight that moves.
        dual_gap: value of the dual minus value of the plan.
    """

    solution: DualSolution
    radius: float
    inactive: bool
    rows: dict[str, Any]
    split_mass: float
    active_fraction: float
    dual_gap: float


def solve_binding(problem: DualProblem, *, shrink: bool = True) -> tuple[DualSolution, float, bool]:
    """Solve the dual; if the radius binds nowhere and ``shrink`` is set, shrink it until it does.

    At multiplier 0 the regularised advantage is flat in the policy, and gradient ascent would
    stop for good. A radius of half of what the unconstrained plan spends always binds.

    Returns:
        the solution, the radius it belongs to, and whether the asked radius was inactive.
    """
    solution = solve_dual(problem)
    if solution.binding or solution.spent == 0 or not shrink:
        return solution, problem.radius, not solution.binding
    radius = BINDING_SHARE * solution.spent
    shrunk = DualProblem(
        problem.weight_r,
        problem.gain_rk,
        problem.cost_rk,
        radius,
        problem.allowed_rk,
        problem.stay_r,
    )
    return solve_dual(shrunk), radius, True


def summary(problem: DualProblem, solution: DualSolution) -> dict[str, float]:
    """What is worth logging about a solved candidate problem."""
    near, far = solution.nearest_r, solution.farthest_r
    return {
        "split_mass": moved_share(problem, near != far) if 0 < solution.split < 1 else 0.0,
        "active_fraction": moved_share(
            problem, (near != problem.stay_r) | ((far != problem.stay_r) & (solution.split < 1))
        ),
        "dual_gap": dual_gap(problem, solution),
    }


def moved_share(problem: DualProblem, chosen_r: NDArray[np.bool_]) -> float:
    """Share of the weight that the chosen rows hold."""
    return float(problem.weight_r[chosen_r].sum() / problem.weight_r.sum())


def dual_gap(problem: DualProblem, solution: DualSolution) -> float:
    """Value of the dual minus the gain of the plan it leads to: rounding, if all is well."""
    row = np.arange(problem.rows)
    gain_r = solution.split * problem.gain_rk[row, solution.nearest_r]
    gain_r += (1.0 - solution.split) * problem.gain_rk[row, solution.farthest_r]
    return abs(solution.value - float(problem.weight_r @ gain_r))
