"""The step of `TabularOTTRPO` in each of its regions, within a radius or at a price."""

from typing import Any

import numpy as np

from ottrpo.core import (
    FiniteProblem,
    PolicyUpdate,
    SinkhornProblem,
    kl_problem,
    push_plan,
    solve_at,
    solve_dual,
)

from .problem import Improvement
from .settings import RegionSettings


def improved(
    problem: FiniteProblem, settings: RegionSettings, multiplier: float | None
) -> Improvement:
    """The best policy of the region around the one of the problem.

    Args:
        problem: policy, occupancy and gains; its radius counts unless there is a multiplier.
        settings: say which region.
        multiplier: the price λ of what the region measures; None for the radius of the problem.
    """
    if settings.region == "transport":
        return _transported(problem, multiplier)
    radius, n_actions = problem.dual.radius, problem.policy_sa.shape[1]
    if settings.region == "kl":
        arrays = problem.policy_sa, problem.occupancy_s, problem.gain_sa
        solution = _solved(kl_problem(*arrays, radius), multiplier)
        visited_s = problem.occupancy_s > 0
        policy_sa = np.where(visited_s[:, None], solution.plan_rk, problem.policy_sa)
    else:
        entropy = settings.entropy_for(radius, float(problem.occupancy_s.sum()), n_actions)
        solution = _solved(SinkhornProblem.smoothing(problem.dual, entropy), multiplier)
        policy_sa = push_plan(problem, solution.plan_rk)
    left_sa = np.maximum(problem.policy_sa - policy_sa, 0.0)
    return Improvement(
        problem=problem,
        policy_sa=policy_sa,
        multiplier=solution.multiplier,
        spent=solution.spent,
        value=solution.value,
        split_mass=0.0,
        moved=float(problem.occupancy_s @ left_sa.sum(axis=1)),
        radius=radius if multiplier is None else solution.spent,
        transport=None if settings.region == "kl" else solution.transport,
    )


def _transported(problem: FiniteProblem, multiplier: float | None) -> Improvement:
    solution = _solved(problem.dual, multiplier)
    update = PolicyUpdate.by(problem, solution)
    moves_r = solution.farthest_r != problem.action_r
    return Improvement(
        problem=problem,
        policy_sa=update.policy_sa,
        multiplier=solution.multiplier,
        spent=solution.spent,
        value=solution.value,
        split_mass=update.split_mass,
        moved=float(problem.dual.weight_r[moves_r].sum()),
        radius=problem.dual.radius if multiplier is None else solution.spent,
    )


def _solved(problem: Any, multiplier: float | None) -> Any:
    return solve_dual(problem) if multiplier is None else solve_at(problem, multiplier)
