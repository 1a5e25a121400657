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
LANES = 16  # single-precision numbers in the widest register of a CPU


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
        return self._of(action, len(self.phase))

    def filled(self, action: Array) -> Array:
        """Features [..., f'] followed by zeros, so that loops over them end with a whole register.

        The zeros are cosines of a quarter of a turn.
        """
        count = len(self.phase)
        more = -count % LANES
        frequency = jnp.pad(self.frequency, ((0, more), (0, 0)))
        phase = jnp.pad(self.phase, (0, more), constant_values=0.25)
        return Features(frequency, phase)._of(action, count)

    def _of(self, action: Array, count: int) -> Array:
        turns = action @ self.frequency.T + self.phase
        return cosine_of_turns(turns, (2.0 / count) ** 0.5)


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


class Ascent(NamedTuple):
    """Where the test functions have come to.

    Attributes:
        beta: their coefficients.
        old_potential: β₂·φ(a'_i) [n, i].
        excess: u_i − c_i [T, n, i] before each step, on that step's actions.
        cost: c_i [T, n, i] of those actions.
    """

    beta: Potentials
    old_potential: Array
    excess: Array
    cost: Array

    def dual(self, step: int, strength: float) -> Array:
        """Its value [n] before a step, on that step's actions."""
        return smoothed_dual(self.excess[step] + self.cost[step], self.cost[step], strength)


def potential(beta: Array, feature: Array) -> Array:
    """β·φ(a_i) [n, i] of actions with features [n, i, f]."""
    return jnp.einsum("nif,nf->ni", feature, beta)


def gram(features: Features, action: Array) -> Array:
    """φ(a_i)·φ(a_j) [n, j, i'] of the actions of each state, with zeros behind the last i."""
    feature = features.filled(action)
    filled = jnp.pad(feature, ((0, 0), (0, -action.shape[1] % LANES), (0, 0)))
    return jnp.einsum("njf,nif->nji", feature, filled)


def squared_cost(new_action: Array, old_action: Array) -> Array:
    """c(a_i, a'_i) = |a_i − a'_i|² [n, i]."""
    return ((new_action - old_action) ** 2).sum(-1)


def smoothed_dual(u: Array, cost: Array, strength: float) -> Array:
    """mean_i [ u_i − γ exp((u_i − c_i)/γ) ] of each state [n]."""
    return (u - strength * _exponential(u - cost, strength)).mean(-1)


def penalty(
    features: Features,
    beta: Array,
    old_potential: Array,
    new_action: Array,
    old_action: Array,
    strength: float,
) -> Array:
    """W of each state [n] at the given test functions, a function of the new actions.

    Its slope is taken with the coefficients held fixed: at the maximum they don't contribute.

    Args:
        features: φ.
        beta: β₁ [n, f].
        old_potential: β₂·φ(a'_i) [n, i].
        new_action: a_i [n, i, d].
        old_action: a'_i [n, i, d].
        strength: γ.
    """
    u = potential(beta, features(new_action)) + old_potential
    return smoothed_dual(u, squared_cost(new_action, old_action), strength)


def ascend(
    features: Features,
    beta: Potentials,
    new_action: Array,
    old_action: Array,
    old_gram: Array,
    smoothing: Smoothing,
) -> Ascent:
    """T steps of gradient ascent on the smoothed dual, each on fresh actions of the new policy.

    A step adds lr · mean_i[w_i φ(·)] with w_i = 1 − exp((u_i − c_i)/γ), the slope of the dual. The
    old actions stay the same, so β₂ only moves along their features: the steps add up its
    coordinates there, and see it through the features' inner products.

    Args:
        features: φ.
        beta: where to start.
        new_action: a_i [T, n, i, d] of each step.
        old_action: a'_i [n, i, d].
        old_gram: `gram` of the old actions.
        smoothing: γ, T and the learning rate.
    """
    steps, rows, count, _ = new_action.shape
    size = beta.new.shape[1]
    old_feature = features.filled(old_action)
    beta = Potentials(*(jnp.pad(one, ((0, 0), (0, -size % LANES))) for one in beta))
    start = potential(beta.old, old_feature)
    cost = squared_cost(new_action, old_action)
    number = jnp.arange(1, steps + 1)
    rate = (
        smoothing.learning_rate / jnp.sqrt(number if smoothing.decay else jnp.ones(steps)) / count
    )
    # pairs are laid out flat and features filled up: loops over ten would be slow
    flat_action = new_action.reshape(steps, rows * count, -1)
    margin = (start - cost).reshape(steps, -1)

    def step(carry: tuple[Array, Array], given: Any) -> tuple[tuple[Array, Array], Array]:
        beta_new, along = carry
        action, margin, rate = given
        feature = features.filled(action).reshape(rows, count, -1)
        moved = jnp.einsum("nji,nj->ni", old_gram, along.reshape(rows, count))[:, :count]
        excess = potential(beta_new, feature).reshape(-1) + moved.reshape(-1) + margin
        w = rate * (1.0 - _exponential(excess, smoothing.strength))
        climbed = beta_new + jnp.einsum("nif,ni->nf", feature, w.reshape(rows, count))
        return (climbed, along + w), excess

    first = beta.new, jnp.zeros_like(margin[0])
    (beta_new, along), excess = jax.lax.scan(step, first, (flat_action, margin, rate))
    excess, along = excess.reshape(cost.shape), along.reshape(rows, count)
    beta_old = beta.old + jnp.einsum("nif,ni->nf", old_feature, along)
    return Ascent(
        Potentials(beta_new[:, :size], beta_old[:, :size]),
        potential(beta_old, old_feature),
        excess,
        cost,
    )


def cosine_of_turns(turns: Array, scale: float = 1.0) -> Array:
    """Scaled cos(2πt) by a polynomial, ten times faster on the CPU than XLA's cosine.

    An even function of what is left of t after whole turns, |r| ≤ 1/2, so a polynomial in r².
    """
    squared = (turns - jnp.round(turns)) ** 2
    result = jnp.full_like(squared, scale * _COSINE[-1])
    for coefficient in _COSINE[-2::-1]:
        result = result * squared + scale * coefficient
    return result


def _exponential(excess: Array, strength: float) -> Array:
    """exp((u − c)/γ) of u − c."""
    return jnp.exp(jnp.minimum(excess / strength, EXPONENT_LIMIT))


def _cosine_coefficients() -> list[float]:
    """Of cos(2π√y) on [0, 1/4], interpolated at the Chebyshev points."""
    series = np.polynomial.Chebyshev.interpolate(
        lambda y: np.cos(2.0 * np.pi * np.sqrt(np.maximum(y, 0.0))),
        COSINE_DEGREE,
        domain=[0.0, 0.25],
    )
    return [float(x) for x in series.convert(kind=np.polynomial.Polynomial).coef]


_COSINE = _cosine_coefficients()
