r"""The optimal transport discrepancy C(μ, ν), exactly, and audits of an update against it.

C(μ, ν) = min over couplings γ of μ and ν of ∫ c dγ                     (eq:otdiscrepancy)
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import Floats, distributions, floats, non_negative, require, same_shape
from .costs import Cost
from .dual import dual_value
from .problems import FiniteProblem, cost_table
from .simplex import optimal_plan

# Budgets are met by sums of many float64 products; a violation is an excess beyond their rounding.
VIOLATION_RTOL = 1e-9


@final
@dataclass(frozen=True, slots=True)
class Audit:
    """What an update did, recomputed from its policies alone.

    Attributes:
        spent: Σ_s ρ_s C(π(·|s), π̃(·|s)), the exact discrepancy between old and new policy.
        radius: what was allowed.
        violation: spent − radius if that is more than rounding, else 0.
        primal: Σ_s ρ_s Σ_a π̃(a|s) A(s, a).
        dual: G(multiplier), a bound that no policy in the trust region can exceed.
        gap: dual − primal; 0 for the optimal update, up to rounding.
    """

    spent: float
    radius: float
    violation: float
    primal: float
    dual: float
    gap: float


def audit(problem: FiniteProblem, new_policy_sa: ArrayLike, multiplier: float) -> Audit:
    """Check a new policy against the problem it should solve."""
    new_policy = distributions("new_policy_sa", new_policy_sa, ndim=2)
    same_shape("new_policy_sa", new_policy, problem.policy_sa.shape, "policy_sa")
    discrepancy_s = _discrepancy_by_state(problem.policy_sa, new_policy, problem.cost_sab)
    spent = float(problem.occupancy_s @ discrepancy_s)
    primal = float(np.einsum("s,sa,sa->", problem.occupancy_s, new_policy, problem.gain_sa))
    dual = dual_value(problem.dual, multiplier)
    radius = problem.dual.radius
    return Audit(spent, radius, violation(spent, radius), primal, dual, dual - primal)


def violation(spent: float, radius: float) -> float:
    """By how much ``spent`` exceeds ``radius``; 0 within rounding, NaN if that is not known.

    >>> violation(1.0 + 1e-12, 1.0), violation(1.5, 1.0)
    (0.0, 0.5)
    """
    return 0.0 if spent <= radius * (1.0 + VIOLATION_RTOL) else spent - radius


def discrepancy(mu_a: ArrayLike, nu_b: ArrayLike, cost_ab: ArrayLike) -> float:
    """C(μ, ν) of two finite measures, as the value of the transport linear program.

    >>> discrepancy([1.0, 0.0], [0.25, 0.75], [[0.0, 2.0], [1.0, 0.0]])
    1.5
    """
    mu, nu = distributions("mu_a", mu_a, ndim=1), distributions("nu_b", nu_b, ndim=1)
    cost = non_negative("cost_ab", cost_ab, ndim=2)
    same_shape("cost_ab", cost, (mu.size, nu.size), "mu_a and nu_b")
    from_a, to_b = np.flatnonzero(mu), np.flatnonzero(nu)
    mu, nu, cost = mu[from_a], nu[to_b], cost[np.ix_(from_a, to_b)]
    if mu.size == 1 or nu.size == 1:  # only one coupling exists
        return float(mu @ cost @ nu)
    return float((optimal_plan(mu, nu * (mu.sum() / nu.sum()), cost) * cost).sum())


def total_variation(mu_a: ArrayLike, nu_a: ArrayLike) -> float:
    """C(μ, ν) for the binary cost: the mass that must move, Σ_a max(μ_a − ν_a, 0).

    >>> total_variation([0.5, 0.5], [0.75, 0.25])
    0.25
    """
    mu, nu = distributions("mu_a", mu_a, ndim=1), distributions("nu_a", nu_a, ndim=1)
    same_shape("nu_a", nu, mu.shape, "mu_a")
    return float(np.maximum(mu - nu, 0.0).sum())


def discrepancy_by_state(policy_sa: ArrayLike, new_policy_sa: ArrayLike, cost: Cost) -> Floats:
    """C(π(·|s), π̃(·|s)) for every state."""
    policy = distributions("policy_sa", policy_sa, ndim=2)
    new_policy = distributions("new_policy_sa", new_policy_sa, ndim=2)
    same_shape("new_policy_sa", new_policy, policy.shape, "policy_sa")
    return _discrepancy_by_state(policy, new_policy, cost_table(cost, *policy.shape))


def average_discrepancy(
    policy_sa: ArrayLike, new_policy_sa: ArrayLike, occupancy_s: ArrayLike, cost: Cost
) -> float:
    """Σ_s ρ_s C(π(·|s), π̃(·|s)), the left side of the trust-region constraint."""
    discrepancy_s = discrepancy_by_state(policy_sa, new_policy_sa, cost)
    occupancy = non_negative("occupancy_s", occupancy_s, ndim=1)
    same_shape("occupancy_s", occupancy, discrepancy_s.shape, "the states of policy_sa")
    return float(occupancy @ discrepancy_s)


def mean_shift_squared(mean0_rd: ArrayLike, mean1_rd: ArrayLike) -> Floats:
    """Squared 2-Wasserstein distance of Gaussians that share their covariance: ‖m₀ − m₁‖²."""
    mean0, mean1 = floats("mean0_rd", mean0_rd), floats("mean1_rd", mean1_rd)
    same_shape("mean1_rd", mean1, mean0.shape, "mean0_rd")
    shift: Floats = ((mean0 - mean1) ** 2).sum(axis=-1)
    return shift


def gaussian_w2_squared(
    mean0_d: ArrayLike, covariance0_dd: ArrayLike, mean1_d: ArrayLike, covariance1_dd: ArrayLike
) -> float:
    r"""Squared 2-Wasserstein distance of two Gaussians (squared Euclidean cost).

    ‖m₀ − m₁‖² + tr(Σ₀ + Σ₁ − 2 (Σ₀^½ Σ₁ Σ₀^½)^½)

    >>> gaussian_w2_squared([0.0], [[4.0]], [1.0], [[1.0]])
    2.0
    """
    mean0, mean1 = floats("mean0_d", mean0_d, ndim=1), floats("mean1_d", mean1_d, ndim=1)
    same_shape("mean1_d", mean1, mean0.shape, "mean0_d")
    sigma0 = _covariance("covariance0_dd", covariance0_dd, mean0.size)
    sigma1 = _covariance("covariance1_dd", covariance1_dd, mean0.size)
    root0 = _root(sigma0)
    # the trace of the root of root0 Σ₁ root0 is the sum of the roots of its eigenvalues
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root0 @ sigma1 @ root0), 0.0)).sum()
    bures = np.trace(sigma0) + np.trace(sigma1) - 2.0 * cross
    return float(((mean0 - mean1) ** 2).sum() + max(bures, 0.0))


def _discrepancy_by_state(policy: Floats, new_policy: Floats, cost_sab: Floats) -> Floats:
    discrepancy_s = np.zeros(len(policy))
    changed_s = np.flatnonzero((policy != new_policy).any(axis=1))
    step = uniform_step(cost_sab)
    if step is not None:
        moved_s = np.maximum(policy[changed_s] - new_policy[changed_s], 0.0).sum(axis=1)
        discrepancy_s[changed_s] = step * moved_s
        return discrepancy_s
    for s in changed_s:
        cost_ab = cost_sab[s if len(cost_sab) > 1 else 0]
        discrepancy_s[s] = discrepancy(policy[s], new_policy[s], cost_ab)
    return discrepancy_s


def uniform_step(cost_sab: Floats) -> float | None:
    """κ if the cost is κ times the binary cost in every state."""
    off_diagonal: NDArray[np.float64] = cost_sab[:, ~np.eye(cost_sab.shape[1], dtype=np.bool_)]
    if off_diagonal.size == 0:
        return 0.0
    return float(off_diagonal.flat[0]) if np.ptp(off_diagonal) == 0 else None


def _covariance(name: str, value: ArrayLike, dimension: int) -> Floats:
    array = floats(name, value, ndim=2)
    same_shape(name, array, (dimension, dimension), "the mean")
    require(np.allclose(array, array.T, rtol=1e-9, atol=1e-12), f"{name} must be symmetric")
    smallest = float(np.linalg.eigvalsh(array)[0])
    scale = float(np.abs(array).max())
    require(
        smallest >= -1e-12 * scale,
        f"{name} must be positive semi-definite; its smallest eigenvalue is {smallest}",
    )
    return array


def _root(covariance: Floats) -> Floats:
    """The symmetric positive semi-definite square root."""
    value_d, vector_dd = np.linalg.eigh(covariance)
    root: Floats = (vector_dd * np.sqrt(np.maximum(value_d, 0.0))) @ vector_dd.T
    return root
