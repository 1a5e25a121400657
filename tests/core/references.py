"""Independent references: the linear program by HiGHS, transport costs by POT, random problems."""

from dataclasses import dataclass

import numpy as np
import ot
from hypothesis import strategies as st
from scipy.optimize import linprog

from ottrpo.core import Cost, DualProblem, StateCost, TableCost


def primal_by_linear_program(problem: DualProblem) -> float:
    """max Σ w p A over row distributions p with Σ w p c ≤ ε, solved by HiGHS."""
    rows, candidates = problem.gain_rk.shape
    weight_rk = np.repeat(problem.weight_r[:, None], candidates, axis=1)
    # HiGHS works with absolute tolerances: hand it numbers of order one
    gain_scale = np.abs(problem.gain_rk).max() or 1.0
    cost_scale = problem.cost_rk.max() or 1.0
    upper = np.ones(rows * candidates)
    if problem.allowed_rk is not None:
        upper = problem.allowed_rk.reshape(-1).astype(float)
    result = linprog(
        -(weight_rk * problem.gain_rk / gain_scale).reshape(-1),
        A_ub=(weight_rk * problem.cost_rk / cost_scale).reshape(1, -1),
        b_ub=[problem.radius / cost_scale],
        A_eq=np.kron(np.eye(rows), np.ones((1, candidates))),
        b_eq=np.ones(rows),
        bounds=np.stack([np.zeros_like(upper), upper], axis=1),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert result.status == 0, result.message
    return -result.fun * gain_scale


def spent_by_pot(policy_sa, new_policy_sa, occupancy_s, cost_sab) -> float:
    """Σ_s ρ_s C(π(·|s), π̃(·|s)) by POT's network simplex."""
    spent = 0.0
    for s in np.flatnonzero(occupancy_s):
        cost_ab = np.ascontiguousarray(cost_sab[s if len(cost_sab) > 1 else 0])
        mu, nu = policy_sa[s] / policy_sa[s].sum(), new_policy_sa[s] / new_policy_sa[s].sum()
        spent += occupancy_s[s] * ot.emd2(mu, nu, cost_ab)
    return spent


@dataclass
class Finite:
    """The arguments of `finite_problem`, drawn at random."""

    policy_sa: np.ndarray
    occupancy_s: np.ndarray
    gain_sa: np.ndarray
    cost: Cost
    radius: float
    allowed_sa: np.ndarray | None

    def arguments(self):
        return (
            self.policy_sa,
            self.occupancy_s,
            self.gain_sa,
            self.cost,
            self.radius,
            self.allowed_sa,
        )


@st.composite
def finite_arguments(draw) -> Finite:
    """Finite problems rich in what breaks solvers: ties, empty states, one-hot policies, masks."""
    states, actions = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coarse = draw(st.booleans())  # few distinct numbers: ties everywhere
    allowed_sa = None
    if draw(st.booleans()):
        allowed_sa = rng.random((states, actions)) < 0.7
        allowed_sa[np.arange(states), rng.integers(actions, size=states)] = True
    policy_sa = rng.dirichlet(np.full(actions, 0.7), states)
    one_hot_s = rng.random(states) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    policy_sa[one_hot_s] = np.eye(actions)[rng.integers(actions, size=one_hot_s.sum())]
    if allowed_sa is not None:
        policy_sa = np.where(allowed_sa, policy_sa, 0.0)
        empty = policy_sa.sum(axis=1) == 0
        policy_sa[empty] = allowed_sa[empty]
        policy_sa /= policy_sa.sum(axis=1, keepdims=True)
    occupancy_s = rng.dirichlet(np.ones(states))
    occupancy_s[rng.random(states) < 0.2] = 0.0
    gain_sa = rng.standard_normal((states, actions))
    cost_sab = rng.random((states, actions, actions)) + 0.05
    if coarse:
        gain_sa = rng.integers(-2, 3, (states, actions)).astype(float)
        cost_sab = rng.integers(0, 4, (states, actions, actions)) / 2.0
    cost_sab[:, np.arange(actions), np.arange(actions)] = 0.0
    kind = draw(st.sampled_from(["table", "per state", "function", "uniform"]))
    cost = {
        "table": TableCost(cost_sab[0]),
        "per state": TableCost(cost_sab),
        "function": StateCost(lambda a, b, s: cost_sab[s, a, b], takes_labels=True),
        "uniform": TableCost(1.0 - np.eye(actions)),
    }[kind]
    scale = 10.0 ** draw(st.sampled_from([-12, -3, 0, 0, 0, 12]))
    radius = 10.0 ** draw(st.floats(-4, 1))
    if coarse and draw(st.booleans()):
        radius = draw(st.sampled_from([0.125, 0.25, 0.5]))
    return Finite(policy_sa, occupancy_s, gain_sa * scale, cost, radius, allowed_sa)


@st.composite
def dual_problems(draw, max_candidates: int = 6) -> DualProblem:
    """Rows with any number of candidates in any order, with zero weights and equal costs."""
    rows, candidates = draw(st.integers(1, 12)), draw(st.integers(1, max_candidates))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gain_rk = rng.standard_normal((rows, candidates))
    cost_rk = rng.random((rows, candidates)) * 2
    if draw(st.booleans()):
        gain_rk, cost_rk = np.round(gain_rk), np.round(cost_rk * 2) / 2
    cost_rk[np.arange(rows), rng.integers(candidates, size=rows)] = 0.0
    weight_r = rng.random(rows)
    weight_r[rng.random(rows) < 0.2] = 0.0
    scale = 10.0 ** draw(st.sampled_from([-12, 0, 0, 12]))
    return DualProblem(weight_r, gain_rk * scale, cost_rk, 10.0 ** draw(st.floats(-4, 1.5)))
