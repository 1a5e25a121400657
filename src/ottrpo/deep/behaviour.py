"""How far a policy's behaviour has moved: a smoothed Wasserstein distance and its dual.

In every state the actions of the new and of the old policy are compared by

    W = max over l₁, l₂ of  E[ l₁(a) + l₂(a') − γ exp((l₁(a) + l₂(a') − c(a, a')) / γ) ]

with a ~ π_θ(·|s), a' ~ π_old(·|s) independent and c the squared Euclidean cost. The test functions
are linear in random features, l(a) = β·φ(a), with coefficients β of their own in every state, and
are fitted by stochastic gradient ascent.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any

# exp of more than this would overflow soon; with the published constants it is never met
EXPONENT_LIMIT = 50.0
COSINE_DEGREE = 6  # of the polynomial in the squared angle: off by 1e-8, less than float32 rounds


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """How the dual is smoothed and climbed.

    Attributes:
        strength: γ, weight of the entropy.
        steps: T, ascent steps before each step of the policy.
        learning_rate: of the ascent.
        decay: divide the learning rate by the square root of the step's number.
    """

    strength: float
    steps: int
    learning_rate: float
    decay: bool = False


class Features(NamedTuple):
    """φ(a) = sqrt(2/D) cos(Ωa + b) with Ω ~ N(0, 1/σ²) and b uniform on the circle.

    Angles are kept in turns, so that they are reduced to one turn by a subtraction.
    """

    frequency: Array  # [f, d], turns per unit of action
    phase: Array  # [f], turns

    def __call__(self, action: Array) -> Array:
        """Features [..., f] of actions [..., d]."""
        scale = (2.0 / len(self.phase)) ** 0.5
        return scale * cosine_of_turns(action @ self.frequency.T + self.phase)


class Potentials(NamedTuple):
    """Coefficients β₁, β₂ [n, f] of the test functions of the new and of the old actions."""

    new: Array
    old: Array


def draw_features(count: int, size: int, bandwidth: float, rng: np.random.Generator) -> Features:
    """Random features of actions with ``size`` coordinates."""
    frequency = rng.standard_normal((count, size)) / (2.0 * np.pi * bandwidth)
    phase = rng.uniform(0.0, 1.0, count)
    return Features(*(jnp.asarray(x.astype(np.float32)) for x in (frequency, phase)))


def zero_potentials(rows: int, features: Features) -> Potentials:
    """Test functions that are zero everywhere."""
    zero = np.zeros((rows, len(features.phase)), features.phase.dtype)
    return Potentials(zero, zero)


def potential(beta: Potentials, new_feature: Array, old_feature: Array) -> Array:
    """u_i = β₁·φ(a_i) + β₂·φ(a'_i) [n, i] of the pairs with features [n, i, f]."""
    u_new = jnp.einsum("nif,nf->ni", new_feature, beta.new)
    return u_new + jnp.einsum("nif,nf->ni", old_feature, beta.old)


def squared_cost(new_action: Array, old_action: Array) -> Array:
    """c(a_i, a'_i) = |a_i − a'_i|² [n, i]."""
    return ((new_action - old_action) ** 2).sum(-1)


def smoothed_dual(u: Array, cost: Array, strength: float) -> Array:
    """mean_i [ u_i − γ exp((u_i − c_i)/γ) ] of each state [n]."""
    return (u - strength * _excess(u, cost, strength)).mean(-1)


def penalty(
    features: Features,
    beta: Potentials,
    new_action: Array,
    old_action: Array,
    strength: float,
) -> Array:
    """W of each state [n] at the given test functions, a function of the new actions.

    Its slope is taken with the coefficients held fixed: at the maximum they don't contribute.
    """
    u = potential(beta, features(new_action), features(old_action))
    return smoothed_dual(u, squared_cost(new_action, old_action), strength)


def ascend(
    features: Features,
    beta: Potentials,
    mean: Array,
    std: Array,
    old_action: Array,
    noise_at: Any,
    smoothing: Smoothing,
) -> tuple[Potentials, Array]:
    """T steps of gradient ascent on the smoothed dual, each on fresh actions of the new policy.

    A step adds lr · mean_i[w_i φ(·)] with w_i = 1 − exp((u_i − c_i)/γ), the slope of the dual.

    Args:
        features: φ.
        beta: where to start.
        mean: m_θ(s) [n, d].
        std: σ_θ(s) [n, d].
        old_action: a'_i [n, i, d].
        noise_at: the standard normal noise [n, i, d] of the step with a given number.
        smoothing: γ, T and the learning rate.

    Returns:
        the coefficients, and the dual's value [T, n] before each step on that step's actions.
    """
    old_feature = features(old_action)

    def step(beta: Potentials, t: Array) -> tuple[Potentials, Array]:
        new_action = mean[:, None] + std[:, None] * noise_at(t)
        new_feature = features(new_action)
        cost = squared_cost(new_action, old_action)
        u = potential(beta, new_feature, old_feature)
        excess = _excess(u, cost, smoothing.strength)
        rate = smoothing.learning_rate / (jnp.sqrt(t + 1.0) if smoothing.decay else 1.0)
        w = rate * (1.0 - excess) / u.shape[1]
        moved = Potentials(
            beta.new + jnp.einsum("nif,ni->nf", new_feature, w),
            beta.old + jnp.einsum("nif,ni->nf", old_feature, w),
        )
        return moved, (u - smoothing.strength * excess).mean(-1)

    return jax.lax.scan(step, beta, jnp.arange(smoothing.steps))


def cosine_of_turns(turns: Array) -> Array:
    """cos(2πt) by a polynomial, ten times faster on the CPU than XLA's cosine.

    An even function of what is left of t after whole turns, |r| ≤ 1/2, so a polynomial in r².
    """
    squared = (turns - jnp.round(turns)) ** 2
    result = jnp.full_like(squared, _COSINE[-1])
    for coefficient in _COSINE[-2::-1]:
        result = result * squared + coefficient
    return result


def _excess(u: Array, cost: Array, strength: float) -> Array:
    return jnp.exp(jnp.minimum((u - cost) / strength, EXPONENT_LIMIT))


def _cosine_coefficients() -> list[float]:
    """Of cos(2π√y) on [0, 1/4], interpolated at the Chebyshev points."""
    series = np.polynomial.Chebyshev.interpolate(
        lambda y: np.cos(2.0 * np.pi * np.sqrt(np.maximum(y, 0.0))),
        COSINE_DEGREE,
        domain=[0.0, 0.25],
    )
    return [float(x) for x in series.convert(kind=np.polynomial.Polynomial).coef]


_COSINE = _cosine_coefficients()
