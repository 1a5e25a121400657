"""Steps 4 and 5 of Algorithm 1 on a rollout: the dual problem, its solution, the targets.

Each function builds the problem that its model of the advantage leads to, solves the dual exactly
and returns a `Plan`: what the update needs to move the policy network, and what is worth logging.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottrpo.core import (
    Cost,
    DualProblem,
    DualSolution,
    LinearProblem,
    Mahalanobis,
    Scaled,
    SquaredEuclidean,
    Summed,
    antithetic_problem,
    finite_problem,
    mean_and_sample_problem,
    push_forward,
    solve_dual,
)
from ottrpo.core.problems import cost_table

Floats = NDArray[np.float64]

# where a radius that binds nowhere is put, as a share of what the best plan would spend
BINDING_SHARE = 0.5


@dataclass(frozen=True)
class Plan:
    """The solved step: where the policy should go, and the dual that says so.

    Attributes:
        solution: of the dual.
        radius: the radius that was used.
        inactive: the asked radius was too large to bind and was shrunk until it did.
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


def quadratic_metric(cost: Cost, size: int) -> Floats | None:
    """M of a cost (a − a')ᵀM(a − a'); ``None`` if the cost is not of that form."""
    if isinstance(cost, SquaredEuclidean):
        return np.eye(size)
    if isinstance(cost, Mahalanobis):
        return cost.metric
    if isinstance(cost, Scaled):
        inner = quadratic_metric(cost.cost, size)
        return None if inner is None else cost.factor * inner
    if isinstance(cost, Summed):
        first, second = quadratic_metric(cost.first, size), quadratic_metric(cost.second, size)
        return None if first is None or second is None else first + second
    return None


def linear_plan(
    mean_rd: Floats,
    std_rd: Floats,
    action_rd: Floats,
    advantage_r: Floats,
    metric: Floats,
    radius: float,
    *,
    learn_std: bool,
) -> Plan:
    """The advantage to first order around the Gaussian, A(s, a') = g(s)·(a' − m(s)).

    One sample per state gives the unbiased estimate g = A Σ⁻¹(a − m). The best move of every
    state is then known in closed form, m + M⁻¹g/(2λ), and the budget always binds.

    With ``learn_std`` the Gaussian moves as the point (m, σ): the squared Wasserstein distance of
    diagonal Gaussians is |Δm|² + |Δσ|², and g_σ = A (z² − 1)/σ is the slope along σ.
    """
    z = (action_rd - mean_rd) / std_rd
    gradient = advantage_r[:, None] * z / std_rd
    full_metric = metric
    if learn_std:
        slope = advantage_r[:, None] * (z**2 - 1.0) / std_rd
        gradient = np.concatenate([gradient, slope], axis=1)
        size = len(metric)
        full_metric = np.zeros((2 * size, 2 * size))
        full_metric[:size, :size] = metric
        full_metric[size:, size:] = np.diag(np.diag(metric))
    rows = len(gradient)
    weight_r = np.full(rows, 1.0 / rows)
    identity = np.array_equal(full_metric, np.eye(len(full_metric)))
    problem = LinearProblem(weight_r, gradient, radius, None if identity else full_metric)
    solution = solve_dual(problem)
    displacement = solution.nearest_r
    size = mean_rd.shape[1]
    targets = {"target_mean": mean_rd + displacement[:, :size]}
    if learn_std:
        targets["target_std"] = np.maximum(std_rd + displacement[:, size:], 0.0)
    primal = float(weight_r @ (gradient * displacement).sum(1))
    return Plan(
        solution,
        radius,
        inactive=not solution.binding,
        rows=targets,
        split_mass=0.0,
        active_fraction=float(weight_r @ displacement.any(1)),
        dual_gap=abs(solution.value - primal),
    )


def candidate_plan(
    mean_rd: Floats,
    action_rd: Floats,
    advantage_r: Floats,
    cost: Cost,
    radius: float,
    *,
    antithetic: bool,
) -> Plan:
    """One candidate per state besides staying: the sampled action, or also its mirror image.

    The targets are the nearest and the farthest map's, with shares t* and 1 − t*.
    """
    build = antithetic_problem if antithetic else mean_and_sample_problem
    problem = build(mean_rd, action_rd, advantage_r, cost, radius)
    moved = action_rd
    if antithetic:
        moved = np.where(advantage_r[:, None] >= 0, action_rd, 2.0 * mean_rd - action_rd)
    candidate_rkd = np.stack([mean_rd, moved], axis=1)
    return plan_of_candidates(problem, candidate_rkd)


def plan_of_candidates(problem: DualProblem, candidate_rkd: Floats) -> Plan:
    """Solve any candidate problem and say where each row should go."""
    solution, radius, inactive = solve_binding(problem)
    row = np.arange(problem.rows)
    near, far = solution.nearest_r, solution.farthest_r
    shares = np.array([solution.split, 1.0 - solution.split])
    rows = {
        "target": np.stack([candidate_rkd[row, near], candidate_rkd[row, far]], axis=1),
        "share": np.broadcast_to(shares, (problem.rows, 2)),
        "candidate": candidate_rkd,
        "gain": problem.gain_rk,
    }
    return Plan(
        solution,
        radius,
        inactive,
        rows,
        split_mass=_share(problem, near != far) if 0 < solution.split < 1 else 0.0,
        active_fraction=_share(problem, (near != problem.stay_r) | (far != problem.stay_r)),
        dual_gap=_gap(problem, solution),
    )


def finite_plan(
    probability_rfk: Floats,
    gain_rfk: Floats,
    allowed_rfk: NDArray[np.bool_],
    cost: Cost,
    radius: float,
) -> Plan:
    """Finite actions: the exact optimal policy at the visited states.

    The actions of several factors cost the sum of their costs, so each (state, factor) pair is a
    state of its own with the weight of its state.
    """
    shape = probability_rfk.shape
    policy_sa, gain_sa, allowed_sa = (
        array.reshape(-1, shape[2]) for array in (probability_rfk, gain_rfk, allowed_rfk)
    )
    occupancy_s = np.full(len(policy_sa), 1.0 / shape[0])
    finite = finite_problem(policy_sa, occupancy_s, gain_sa, cost, radius, allowed_sa)
    problem = finite.dual
    solution, radius, inactive = solve_binding(problem)
    near, far = solution.nearest_r, solution.farthest_r
    maps = [(near, solution.split), (far, 1.0 - solution.split)]
    cost_ab = cost_table(cost, 1, shape[2])[0]
    score_sb = np.where(allowed_sa, gain_sa, -np.inf)
    worth_sa = (score_sb[:, None, :] - solution.multiplier * cost_ab).max(2)
    return Plan(
        solution,
        radius,
        inactive,
        rows={
            "target": push_forward(finite, maps).reshape(shape),
            "worth": np.where(allowed_sa, worth_sa, 0.0).reshape(shape),
        },
        split_mass=_share(problem, near != far) if 0 < solution.split < 1 else 0.0,
        active_fraction=_share(problem, (near != problem.stay_r) | (far != problem.stay_r)),
        dual_gap=_gap(problem, solution),
    )


def sampled_gain(
    probability_rfk: Floats, label_rf: NDArray[np.int64], advantage_r: Floats, *, unbiased: bool
) -> Floats:
    """The advantage of every choice from the one that was tried: its own, and 0 elsewhere.

    ``unbiased`` divides by the probability of having tried it, so that the expectation over the
    policy's own draws is the advantage of each choice.
    """
    gain_rfk = np.zeros_like(probability_rfk)
    index = label_rf[..., None]
    gain_r = np.broadcast_to(advantage_r[:, None, None], index.shape)
    if unbiased:
        gain_r = gain_r / np.take_along_axis(probability_rfk, index, axis=2)
    np.put_along_axis(gain_rfk, index, gain_r, axis=2)
    return gain_rfk


def solve_binding(problem: DualProblem) -> tuple[DualSolution, float, bool]:
    """Solve the dual; if the radius binds nowhere, shrink it until it does.

    At multiplier 0 the regularised advantage is flat in the policy, and gradient ascent would
    stop for good. A radius of half of what the unconstrained plan spends always binds.

    Returns:
        the solution, the radius it belongs to, and whether the radius had to be shrunk.
    """
    solution = solve_dual(problem)
    if solution.binding or solution.spent == 0:
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


def _share(problem: DualProblem, chosen_r: NDArray[np.bool_]) -> float:
    return float(problem.weight_r[chosen_r].sum() / problem.weight_r.sum())


def _gap(problem: DualProblem, solution: DualSolution) -> float:
    row = np.arange(problem.rows)
    gain_r = solution.split * problem.gain_rk[row, solution.nearest_r]
    gain_r += (1.0 - solution.split) * problem.gain_rk[row, solution.farthest_r]
    return abs(solution.value - float(problem.weight_r @ gain_r))
