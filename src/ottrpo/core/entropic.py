r"""Regions that charge a plan for being sharp: Sinkhorn's, and that of Kullback and Leibler.

Rows, weights, gains and costs are those of `DualProblem`. A plan pays for transport, and a weight
τ > 0 for how far it is from a reference q_r on the candidates of its row:

    max  Σ_r w_r Σ_k p_rk A_rk   s.t.   S_τ(p) = Σ_r w_r (Σ_k p_rk c_rk + τ KL(p_r | q_r)) ≤ ε

In the dual a smooth maximum stands for the maximum, with temperature λτ:

    G(λ)  = λε + Σ_r w_r λτ log Σ_k q_rk exp((A_rk − λ c_rk) / (λτ))
    G'(λ) = ε − S_τ(p(λ)),   p_rk(λ) ∝ q_rk exp((A_rk/λ − c_rk) / τ)

so that there is one plan for every λ and nothing to split. S_τ(p(λ)) falls as λ grows, and λ* is
where it meets ε: it is enclosed by bounds that hold for every problem, and they are halved.

As KL ≥ 0, what a plan of the region transports costs no more than S_τ, and so never more than ε.
As KL ≤ κ = max_rk log(1/q_rk), plans that transport for ε − τκΣw at most are all in the region:
with V the exact optimum and λ' its multiplier at that smaller radius, the optimum V_τ obeys

    V(ε) − λ' τκ Σ_r w_r ≤ V_τ(ε) ≤ V(ε):   it tends to the exact one linearly in τ.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from .checks import (
    Floats,
    distributions,
    positive_number,
    same_shape,
)
from .problems import DualProblem, assign, checked_rows
from .traceable import Array

# At e^-50 of its neighbours a candidate is below the rounding of float64.
NOTHING = 50.0


@final
@dataclass(frozen=True, eq=False, init=False)
class SinkhornProblem:
    """Rows with weights, candidates with gains and costs, and a budget for transport and entropy.

    Attributes:
        weight_r: mass of each row, not negative.
        gain_rk: what moving row r to candidate k gains; shifts per row cancel.
        cost_rk: what moving row r to candidate k costs per unit of mass, not negative.
        radius: ε > 0, the largest S_τ. It must be above what the entropy alone takes.
        entropy: τ > 0, the weight of the Kullback-Leibler divergence from the reference.
        reference_rk: q, a distribution for each row, 0 for candidates that may not be used;
            uniform by default.
    """

    weight_r: Floats
    gain_rk: Floats
    cost_rk: Floats
    radius: float
    entropy: float
    reference_rk: Floats

    def __init__(
        self,
        weight_r: ArrayLike,
        gain_rk: ArrayLike,
        cost_rk: ArrayLike,
        radius: float,
        entropy: float,
        reference_rk: ArrayLike | None = None,
    ) -> None:
        weight, gain, cost = checked_rows(weight_r, gain_rk, cost_rk)
        reference = np.full(gain.shape, 1.0 / gain.shape[1])
        if reference_rk is not None:
            reference = distributions("reference_rk", reference_rk, ndim=2)
            same_shape("reference_rk", reference, gain.shape, "gain_rk")
        assign(
            self,
            weight_r=weight,
            gain_rk=gain,
            cost_rk=cost,
            radius=positive_number("radius", radius),
            entropy=positive_number("entropy", entropy),
            reference_rk=reference,
        )

    @classmethod
    def smoothing(cls, problem: DualProblem, entropy: float) -> "SinkhornProblem":
        """The same rows, candidates and radius, with a plan that is charged for being sharp."""
        allowed_rk = problem.allowed_rk
        if allowed_rk is None:
            allowed_rk = np.ones(problem.gain_rk.shape, dtype=np.bool_)
        reference_rk = allowed_rk / allowed_rk.sum(axis=1, keepdims=True)
        return cls(
            problem.weight_r,
            problem.gain_rk,
            problem.cost_rk,
            problem.radius,
            entropy,
            reference_rk,
        )

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return len(self.gain_rk)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments of `solve_sinkhorn`."""
        budget = self.radius, self.entropy
        return self.weight_r, self.gain_rk, self.cost_rk, *budget, self.reference_rk


class SinkhornSolution(NamedTuple):
    """The minimiser of the smooth dual, and the one plan that attains the primal.

    Attributes:
        multiplier: λ*; 0 if the budget does not limit the gain.
        value: G(λ*), the optimal value of both problems.
        spent: S_τ of the plan; the radius if ``multiplier > 0``.
        binding: whether the budget limits the gain.
        plan_rk: p, what share of each row goes to each candidate. ``weight_r * plan_rk`` is the
            derivative of the value with respect to the gains, and λ* that to the radius.
        transport: Σ_r w_r Σ_k p_rk c_rk, the part of ``spent`` that is transport.
    """

    multiplier: float
    value: float
    spent: float
    binding: bool
    plan_rk: Any
    transport: float


def kl_problem(
    policy_sa: ArrayLike, occupancy_s: ArrayLike, gain_sa: ArrayLike, radius: float
) -> SinkhornProblem:
    """The region Σ_s ρ_s KL(π̃(·|s) | π(·|s)) ≤ ε: no cost, and the policy as the reference.

    The solution is π̃ ∝ π exp(A/λ*), whose plan is the new policy itself.
    """
    policy = distributions("policy_sa", policy_sa, ndim=2)
    policy = policy / policy.sum(
        axis=1, keepdims=True
    )  # or what it lacks to 1 would grow by each update
    return SinkhornProblem(occupancy_s, gain_sa, np.zeros(policy.shape), radius, 1.0, policy)


def solve_sinkhorn(
    weight_r: Array,
    gain_rk: Array,
    cost_rk: Array,
    radius: Array,
    entropy: Array,
    reference_rk: Array | None = None,
) -> SinkhornSolution:
    """What `solve_dual` answers to ``SinkhornProblem(weight_r, gain_rk, cost_rk, radius, ...)``.

    On NumPy's arrays and on JAX's, as the functions of `ottrpo.core.traceable`. A radius below what
    the entropy alone takes has the multiplier infinity.
    """
    xp = gain_rk.__array_namespace__()
    rows = _rows(xp, weight_r, gain_rk, cost_rk, entropy, reference_rk)
    radius = xp.asarray(radius, dtype=gain_rk.dtype)
    low, high = _enclosure(xp, rows, radius)
    binding = _tilted(xp, rows, 1.0 / low).spent > radius
    halvings = xp.finfo(gain_rk.dtype).bits - 4
    for i in range(halvings):
        # in size first, then in place: the last steps tell λ from the numbers next to it
        middle = xp.sqrt(low) * xp.sqrt(high) if 2 * i < halvings else 0.5 * (low + high)
        above = _tilted(xp, rows, 1.0 / middle).spent > radius
        low, high = xp.where(above, middle, low), xp.where(above, high, middle)
    # if it does not bind the enclosure has shrunk to its lower end, where λ is as good as 0
    found = _tilted(xp, rows, 1.0 / high)
    multiplier = xp.where(binding, high, 0.0)
    # this is G(λ*) whatever λ is, and so its derivatives are those of G at λ*
    price = xp.where(xp.isfinite(multiplier), multiplier, 0.0)
    value = found.gain + rows.weight_r @ rows.best_r + price * (radius - found.spent)
    return SinkhornSolution(multiplier, value, found.spent, binding, found.plan_rk, found.transport)


class _Rows(NamedTuple):
    """The problem with gains measured from the best of each row: 0 there, and negative else."""

    weight_r: Array
    best_r: Array
    gain_rk: Array
    cost_rk: Array
    entropy: Array
    reference_rk: Array


class _Tilted(NamedTuple):
    """The plan of a multiplier; the gain is measured from the best of each row."""

    plan_rk: Array
    gain: Array
    transport: Array
    spent: Array
    smooth_r: Array  # τ log Σ_k q_k exp((A_k/λ − c_k)/τ), with that gain


def _rows(
    xp: Any,
    weight_r: Array,
    gain_rk: Array,
    cost_rk: Array,
    entropy: Array,
    reference_rk: Array | None,
) -> _Rows:
    if reference_rk is None:
        reference_rk = xp.full_like(gain_rk, 1.0 / gain_rk.shape[1])
    weight_r, cost_rk, entropy, reference_rk = (
        xp.asarray(value, dtype=gain_rk.dtype)
        for value in (weight_r, cost_rk, entropy, reference_rk)
    )
    # what has lost bits is none: its inverse is beyond the largest number
    usable_rk = reference_rk >= xp.finfo(gain_rk.dtype).tiny
    reference_rk = xp.where(usable_rk, reference_rk, 0.0)
    best_r = xp.max(xp.where(usable_rk, gain_rk, -xp.inf), axis=1)
    gain_rk = xp.where(usable_rk, gain_rk - best_r[:, None], 0.0)
    return _Rows(weight_r, best_r, gain_rk, cost_rk, entropy, reference_rk)


def _tilted(xp: Any, rows: _Rows, inverse: Array) -> _Tilted:
    """The plan p ∝ q exp((A/λ − c)/τ) for 1/λ, and what it costs.

    Where p is close to q every number here keeps its leading digits: the divergence is summed from
    terms q (r eʳ − eʳ + 1) ≥ 0, r = log p/q, and not from logarithms that cancel.
    """
    q_rk, usable_rk = rows.reference_rk, rows.reference_rk > 0
    score_rk = (inverse * rows.gain_rk - rows.cost_rk) / rows.entropy
    top_r = xp.max(xp.where(usable_rk, score_rk, -xp.inf), axis=1)
    score_rk = xp.where(usable_rk, score_rk - top_r[:, None], 0.0)
    log_r = _log_mean(xp, q_rk, score_rk)
    ratio_rk = score_rk - log_r[:, None]
    plan_rk = q_rk * xp.exp(ratio_rk)
    divergence_r = xp.sum(_divergence(xp, q_rk, plan_rk, ratio_rk), axis=1)
    transport = rows.weight_r @ xp.sum(plan_rk * rows.cost_rk, axis=1)
    return _Tilted(
        plan_rk=plan_rk,
        gain=rows.weight_r @ xp.sum(plan_rk * rows.gain_rk, axis=1),
        transport=transport,
        spent=transport + rows.entropy * (rows.weight_r @ divergence_r),
        smooth_r=rows.entropy * (log_r + top_r),
    )


def _divergence(xp: Any, q_rk: Array, plan_rk: Array, ratio_rk: Array) -> Array:
    """The terms q (r eʳ − eʳ + 1); where r is near 0 they cancel, and their series does not."""
    near_rk = xp.abs(ratio_rk) < xp.finfo(ratio_rk.dtype).eps ** (1 / 3)
    r_rk = xp.where(near_rk, ratio_rk, 0.0)
    series_rk = (q_rk * r_rk) * r_rk * (0.5 + r_rk * (1 / 3 + r_rk / 8))
    return xp.where(near_rk, series_rk, plan_rk * ratio_rk - q_rk * xp.expm1(ratio_rk))


def _log_mean(xp: Any, q_rk: Array, score_rk: Array) -> Array:
    """Log Σ q e^score of scores whose largest is 0: if it is near 0, from what the sum lacks."""
    lacks_r = xp.sum(q_rk * xp.expm1(score_rk), axis=1)
    near_r = lacks_r > -0.5
    far_r = xp.where(near_r, 1.0, xp.sum(q_rk * xp.exp(score_rk), axis=1))
    return xp.where(near_r, xp.log1p(xp.where(near_r, lacks_r, 0.0)), xp.log(far_r))


def _enclosure(xp: Any, rows: _Rows, radius: Array) -> tuple[Array, Array]:
    """Two numbers between which λ* lies; the budget does not bind at all if not at the first.

    Above: at λ* the plan of least S_τ, with S_τ = s and gain v, is worth v + λ*(ε − s) ≤ G(λ*),
    which is at most the best gain of every row. Below: all other candidates have lost their mass.
    """
    least = _tilted(xp, rows, xp.zeros_like(radius))
    slack = radius - least.spent
    feasible = slack > 0
    behind_rk = (rows.gain_rk < 0) & (rows.weight_r > 0)[:, None]
    gap = xp.min(xp.where(behind_rk, -rows.gain_rk, xp.inf))
    gap = xp.where(xp.isfinite(gap), gap, 1.0)
    rarest = xp.min(xp.where(rows.reference_rk > 0, rows.reference_rk, 1.0))
    reach = rows.entropy * (NOTHING - xp.log(rarest)) + xp.max(rows.cost_rk)
    low = gap / reach
    high = xp.where(feasible, -least.gain / xp.where(feasible, slack, 1.0), xp.inf)
    return low, xp.maximum(high, low)


def sinkhorn_at(
    weight_r: Array,
    gain_rk: Array,
    cost_rk: Array,
    multiplier: Array,
    entropy: Array,
    reference_rk: Array | None = None,
) -> SinkhornSolution:
    """What `solve_at` answers to such rows and a price, as `solve_sinkhorn` does to a budget."""
    xp = gain_rk.__array_namespace__()
    rows = _rows(xp, weight_r, gain_rk, cost_rk, entropy, reference_rk)
    found = _tilted(xp, rows, 1.0 / xp.asarray(multiplier, dtype=gain_rk.dtype))
    value, always = found.gain + rows.weight_r @ rows.best_r, xp.asarray(True)
    return SinkhornSolution(multiplier, value, found.spent, always, found.plan_rk, found.transport)


def smooth_value(problem: SinkhornProblem, multiplier: float) -> float:
    """G(λ) of λ > 0."""
    weight_r, gain_rk, cost_rk, radius, entropy, reference_rk = problem.arrays
    rows = _rows(np, weight_r, gain_rk, cost_rk, entropy, reference_rk)
    smooth_r = _tilted(np, rows, np.float64(1.0 / multiplier)).smooth_r
    best, smooth = float(weight_r @ rows.best_r), multiplier * float(weight_r @ smooth_r)
    return float(multiplier * radius + best + smooth)


def least_spent(problem: SinkhornProblem) -> float:
    """The least S_τ of any plan: the radius must be above it."""
    weight_r, gain_rk, cost_rk, _, entropy, reference_rk = problem.arrays
    rows = _rows(np, weight_r, gain_rk, cost_rk, entropy, reference_rk)
    return float(_tilted(np, rows, np.float64(0.0)).spent)
