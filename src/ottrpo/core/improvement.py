r"""What an update is worth: the surrogate and the performance-improvement bound.

Occupancies here are the normalised discounted ones, ρ_π(s) = (1 − γ) Σ_t γᵗ P(s_t = s), which sum
to one; the factor 1/(1 − γ) is written out wherever it belongs.
"""

from numpy.typing import ArrayLike

from .checks import distributions, floats, non_negative, require, same_shape


def surrogate(
    performance: float,
    occupancy_s: ArrayLike,
    new_policy_sa: ArrayLike,
    advantage_sa: ArrayLike,
    discount: float,
) -> float:
    r"""L_π(π̃) = J(π) + 1/(1−γ) Σ_s ρ_π(s) Σ_a π̃(a|s) A^π(s, a).

    The paper's eq:surrogate. With ρ_π̃ in place of ρ_π this is J(π̃) itself, by the
    performance-difference lemma.
    """
    occupancy = distributions("occupancy_s", occupancy_s, ndim=1)
    new_policy = distributions("new_policy_sa", new_policy_sa, ndim=2)
    advantage = floats("advantage_sa", advantage_sa, ndim=2)
    same_shape("advantage_sa", advantage, new_policy.shape, "new_policy_sa")
    same_shape("occupancy_s", occupancy, new_policy.shape[:1], "the states of new_policy_sa")
    gain_s = (new_policy * advantage).sum(axis=1)
    return float(performance + occupancy @ gain_s / (1.0 - _discount(discount)))


def improvement_bound(
    performance: float,
    multiplier: float,
    discrepancy_s: ArrayLike,
    new_occupancy_s: ArrayLike,
    discount: float,
    advantage_error: float = 0.0,
) -> float:
    r"""A lower bound on J(π̃*), the performance of the updated policy (prop:exact-policy-improv).

    J(π̃*) ≥ J(π) + λ*/(1−γ) Σ_s ρ_π̃*(s) C(π(·|s), π̃*(·|s)) − 2 ‖A − Â‖_∞ / (1−γ)

    Args:
        performance: J(π).
        multiplier: λ* of the update.
        discrepancy_s: C(π(·|s), π̃*(·|s)) for each state.
        new_occupancy_s: ρ_π̃*, normalised.
        discount: γ.
        advantage_error: ‖A − Â‖_∞, 0 if the update used the exact advantage.
    """
    discrepancy = non_negative("discrepancy_s", discrepancy_s, ndim=1)
    occupancy = distributions("new_occupancy_s", new_occupancy_s, ndim=1)
    same_shape("discrepancy_s", discrepancy, occupancy.shape, "new_occupancy_s")
    require(multiplier >= 0, f"multiplier must not be negative, got {multiplier}")
    require(advantage_error >= 0, f"advantage_error must not be negative, got {advantage_error}")
    horizon = 1.0 / (1.0 - _discount(discount))
    return float(
        performance + horizon * (multiplier * (occupancy @ discrepancy) - 2.0 * advantage_error)
    )


def _discount(discount: float) -> float:
    require(0 <= discount < 1, f"discount must lie in [0, 1), got {discount}")
    return discount
