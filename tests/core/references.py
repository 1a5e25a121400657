"""Independent references: the linear program by HiGHS, transport costs by POT, random problems."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import ot
from hypothesis import strategies as st
from scipy.optimize import linprog

from ottrpo.core import Cost, DualProblem, DualSolution, StateCost, TableCost


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


@dataclass
class Exact:
    """The optimum in fractions: value, what free moves alone are worth, λ*, share that splits."""

    value: Fraction
    free: Fraction
    multiplier: Fraction
    share: Fraction


def exact_optimum(problem: DualProblem) -> Exact:
    """By concave hulls (a monotone chain per row) and a knapsack, all in fractions."""
    free, passages = Fraction(0), []
    for r in np.flatnonzero(problem.weight_r):
        weight = Fraction(problem.weight_r[r])
        hull: list[tuple[Fraction, Fraction]] = []
        for cost, gain in sorted(_points(problem, r), key=lambda point: (point[0], -point[1])):
            if hull and gain <= hull[-1][1]:
                continue
            while len(hull) > 1 and _slope(hull[-1], (cost, gain)) >= _slope(hull[-2], hull[-1]):
                hull.pop()
            hull.append((cost, gain))
        free += weight * hull[0][1]
        passages += [(_slope(a, b), weight * (b[0] - a[0])) for a, b in pairwise(hull)]
    left, value = Fraction(problem.radius), free
    passages.sort(reverse=True)
    for i, (slope, cost) in enumerate(passages):
        if cost > left:
            tied = sum(c for s, c in passages if s == slope)
            before = sum(c for s, c in passages[:i] if s == slope)
            return Exact(value + slope * left, free, slope, (left + before) / tied)
        left, value = left - cost, value + slope * cost
    return Exact(value, free, Fraction(0), Fraction(0))


def exact_outcome(problem: DualProblem, solution: DualSolution) -> tuple[Fraction, Fraction]:
    """Cost and gain, in fractions, of moving what the solution says."""
    far_share, cost, gain = Fraction(solution.farthest_share), Fraction(0), Fraction(0)
    for r in np.flatnonzero(problem.weight_r):
        weight = Fraction(problem.weight_r[r])
        for k, share in (
            (solution.nearest_r[r], 1 - far_share),
            (solution.farthest_r[r], far_share),
        ):
            cost += weight * share * Fraction(problem.cost_rk[r, k])
            gain += weight * share * Fraction(problem.gain_rk[r, k])
    return cost, gain


def extreme_problem(rng: np.random.Generator) -> DualProblem:
    """A few rows with numbers from 1e-300 to 1e300, ties, near-ties, equal scales and none."""
    rows = int(rng.integers(1, rng.choice([3, 9, 60])))
    candidates = int(rng.integers(1, 6))
    shape = (rows, candidates)

    def numbers(shape: tuple[int, ...]) -> np.ndarray:
        kind = rng.integers(4)
        if kind == 0:  # all scales at once
            return 10.0 ** rng.uniform(-300, 300, shape)
        scale = 10.0 ** rng.uniform(-290, 290)
        if kind == 1:  # a few scales
            return scale * 10.0 ** rng.uniform(-9, 9, shape)
        if kind == 2:  # few distinct numbers
            return scale * rng.integers(0, 4, shape)
        return scale * (1.0 + rng.integers(0, 3, shape) * 2.0**-52)  # a bit apart

    cost_rk = numbers(shape)
    sign_rk = rng.choice([-1.0, 1.0], shape, p=[0.3, 0.7])
    gain_rk = sign_rk * numbers(shape)
    if rng.random() < 0.3:  # slopes that agree up to their last bits
        decade = rng.uniform(-250, 250) - np.log10(max(cost_rk.max(), 1e-300))
        slope = 10.0 ** np.clip(decade, -300, 300)
        with np.errstate(over="ignore"):
            gain_rk = slope * cost_rk * (1.0 + rng.integers(-2, 3, shape) * 2.0**-52)
    gain_rk = np.nan_to_num(gain_rk, posinf=1e300)
    cost_rk[np.arange(rows), rng.integers(candidates, size=rows)] = 0.0
    weight_r = numbers((rows,)) * (rng.random(rows) < 0.9)
    with np.errstate(over="ignore", under="ignore"):
        everything = float((weight_r[:, None] * cost_rk).max())
    radius = 10.0 ** rng.uniform(-300, 300)
    if rng.random() < 0.8 and 0 < everything < 1e300:
        radius = max(
            everything * rng.choice([1.0, 0.5, rng.random(), 10 ** rng.uniform(-20, 2)]), 1e-300
        )
    allowed_rk = (rng.random(shape) < 0.8) | (cost_rk == 0) if rng.random() < 0.2 else None
    return DualProblem(weight_r, gain_rk, cost_rk, min(radius, 1e300), allowed_rk)


def _points(problem: DualProblem, r: int) -> list[tuple[Fraction, Fraction]]:
    allowed = range(problem.candidates)
    if problem.allowed_rk is not None:
        allowed = np.flatnonzero(problem.allowed_rk[r])
    return [(Fraction(problem.cost_rk[r, k]), Fraction(problem.gain_rk[r, k])) for k in allowed]


def _slope(a: tuple[Fraction, Fraction], b: tuple[Fraction, Fraction]) -> Fraction:
    return (b[1] - a[1]) / (b[0] - a[0])
