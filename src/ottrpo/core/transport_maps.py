r"""The optimal policy update of finite problems: two transport maps and a split of the mass.

    π̃(·|s_i) = Σ_j π_ij (t* δ_{b̲_ij} + (1 − t*) δ_{b̄_ij})                 (cor:dual-discrete)

The nearest targets b̲ and the farthest targets b̄ come with the solution of the dual. A single map
cannot do: at λ* some mass is indifferent between staying and moving, and only a part of it may
move before the budget is spent.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from .checks import Floats, Integers
from .costs import Cost
from .dual import solve_dual
from .problems import FiniteProblem, finite_problem
from .solution import DualSolution


@final
@dataclass(frozen=True, eq=False)
class PolicyUpdate:
    """The policy that solves the trust-region problem, and how the old one was moved to it.

    Attributes:
        problem: what was solved.
        solution: of its dual.
        policy_sa: the new policy π̃.
    """

    problem: FiniteProblem
    solution: DualSolution
    policy_sa: Floats

    @classmethod
    def by(cls, problem: FiniteProblem, solution: DualSolution) -> "PolicyUpdate":
        """The update that a solution of the problem's dual stands for."""
        return cls(problem, solution, push_forward(problem, _maps(solution)))

    @property
    def split_mass(self) -> float:
        """Weight of the rows whose mass is shared between two different targets."""
        split_r = self.solution.nearest_r != self.solution.farthest_r
        if not 0 < self.solution.farthest_share < 1:
            return 0.0
        return float(self.problem.dual.weight_r[split_r].sum())

    @property
    def plan_sab(self) -> Floats:
        """The transport plan [S, A, A]: its rows sum to the old policy, its columns to the new."""
        problem, solution = self.problem, self.solution
        n_actions = problem.policy_sa.shape[1]
        plan_sab = problem.policy_sa[:, :, None] * np.eye(n_actions)
        s, a = problem.state_r, problem.action_r
        mass_r = problem.policy_sa[s, a]
        visited_r = problem.dual.weight_r > 0
        plan_sab[s[visited_r], a[visited_r]] = 0.0
        for target_r, share in _maps(solution):
            np.add.at(plan_sab, (s, a, target_r), np.where(visited_r, share * mass_r, 0.0))
        return plan_sab


def update_policy(
    policy_sa: ArrayLike,
    occupancy_s: ArrayLike,
    gain_sa: ArrayLike,
    cost: Cost,
    radius: float,
    allowed_sa: ArrayLike | None = None,
) -> PolicyUpdate:
    """Solve the trust-region problem of a finite policy and return the updated policy.

    Takes what `finite_problem` takes. States of zero occupancy keep their rows untouched, bit for
    bit.

    >>> from ottrpo.core import Binary
    >>> update_policy([[1.0, 0.0]], [1.0], [[-1.0, 1.0]], Binary(), radius=0.25).policy_sa
    array([[0.75, 0.25]])
    """
    problem = finite_problem(policy_sa, occupancy_s, gain_sa, cost, radius, allowed_sa)
    return PolicyUpdate.by(problem, solve_dual(problem.dual))


def push_forward(problem: FiniteProblem, maps: list[tuple[Integers, float]]) -> Floats:
    """The policy after each row's mass followed the given maps, in the given shares.

    Args:
        problem: whose rows are moved.
        maps: pairs of a target action for each row and the share of mass that follows it.
    """
    policy_sa = problem.policy_sa.copy()
    moves_r = np.zeros(problem.state_r.size, dtype=np.bool_)
    for target_r, _ in maps:
        moves_r |= target_r != problem.action_r
    moves_r &= problem.dual.weight_r > 0
    s, a = problem.state_r[moves_r], problem.action_r[moves_r]
    mass_r = policy_sa[s, a]
    policy_sa[s, a] = 0.0
    for target_r, share in maps:
        np.add.at(policy_sa, (s, target_r[moves_r]), share * mass_r)
    return policy_sa


def push_plan(problem: FiniteProblem, plan_rk: Floats) -> Floats:
    """The policy after each row's mass was shared among the actions as a plan says.

    States that were not visited keep their rows untouched.
    """
    policy_sa = problem.policy_sa.copy()
    visited_r = problem.dual.weight_r > 0
    s, a = problem.state_r[visited_r], problem.action_r[visited_r]
    mass_r = policy_sa[s, a]
    policy_sa[s, a] = 0.0
    np.add.at(policy_sa, s, mass_r[:, None] * plan_rk[visited_r])
    return policy_sa


def _maps(solution: DualSolution) -> list[tuple[Integers, float]]:
    share = solution.farthest_share
    if share == 0.0:
        return [(solution.nearest_r, 1.0)]
    return [(solution.nearest_r, 1.0 - share), (solution.farthest_r, share)]
