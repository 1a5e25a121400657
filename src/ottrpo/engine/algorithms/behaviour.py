"""How far a policy's behaviour has moved: a smoothed Wasserstein distance and its dual.

In every state the actions of the new and of the old policy are compared by

    W = max over l₁, l₂ of  E[ l₁(a) + l₂(a') − γ exp((l₁(a) + l₂(a') − c(a, a')) / γ) ]

with a ~ π_θ(·|s), a' ~ π_old(·|s) independent and c the squared Euclidean cost. The test functions
are linear in random features, l(a) = β·φ(a), with coefficients β of their own in every state, and
are fitted by stochastic gradient ascent.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.engine.arrays import Generator

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
    """Coefficients β₁, β₂ [n, f'] of the test functions of the new and of the old actions.

    As many as `Features.filled` gives; those of its zeros stay next to nothing.
    """

    new: Array
    old: Array


def draw_features(count: int, size: int, bandwidth: float, rng: Generator) -> Features:
    """Random features of actions with ``size`` coordinates."""
    frequency = rng.standard_normal((count, size)) / (2.0 * np.pi * bandwidth)
    phase = rng.uniform(0.0, 1.0, count)
    return Features(*(jnp.asarray(x.astype(np.float32)) for x in (frequency, phase)))


def zero_potentials(rows: int, features: Features) -> Potentials:
    """Test functions that are zero everywhere."""
    count = len(features.phase)
    zero = jnp.zeros((rows, count + -count % LANES), features.phase.dtype)
    return Potentials(zero, zero)


class Ascent(NamedTuple):
    """Where the test functions have come to.

    Attributes:
        beta: their coefficients.
        old_potential: β₂·φ(a'_i) [n, i].
        excess: u_i − c_i [2, n, i] before the first step and the last, on those steps' actions.
        cost: c_i [2, n, i] of those actions.
    """

    beta: Potentials
    old_potential: Array
    excess: Array
    cost: Array

    def dual(self, step: int, strength: float) -> Array:
        """Its value [n] before the first step, 0, or the last, -1, on that step's actions."""
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
        beta: β₁ [n, f'].
        old_potential: β₂·φ(a'_i) [n, i].
        new_action: a_i [n, i, d].
        old_action: a'_i [n, i, d].
        strength: γ.
    """
    u = potential(beta, features.filled(new_action)) + old_potential
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
    steps, rows, count, size = new_action.shape
    old_feature = features.filled(old_action)
    start = potential(beta.old, old_feature)
    # pairs are laid out flat and features filled up: loops over ten would be slow
    flat_action = new_action.reshape(steps, rows * count, size)
    cost = squared_cost(flat_action, old_action.reshape(rows * count, size))
    margin = start.reshape(-1) - cost
    number = jnp.arange(1, steps + 1)
    rate = (
        smoothing.learning_rate / jnp.sqrt(number if smoothing.decay else jnp.ones(steps)) / count
    )

    def shift(along: Array) -> Array:
        """What the old potentials gain when β₂ moves along the features of the old actions."""
        return jnp.einsum("nji,nj->ni", old_gram, along.reshape(rows, count))[:, :count]

    def step(carry: tuple[Array, ...], given: Any) -> tuple[tuple[Array, ...], None]:
        beta_new, along, first, _ = carry
        action, margin, rate, number = given
        feature = features.filled(action).reshape(rows, count, -1)
        excess = potential(beta_new, feature).reshape(-1) + shift(along).reshape(-1) + margin
        w = 1.0 - _exponential(excess, smoothing.strength)
        # the rate comes last: XLA scales and adds faster than it adds alone
        climbed = beta_new + rate * jnp.einsum("nif,ni->nf", feature, w.reshape(rows, count))
        # two are carried on, as stacking up every step's would take longer than its exponential
        return (climbed, along + rate * w, jnp.where(number == 1, excess, first), excess), None

    zero = jnp.zeros_like(margin[0])
    each = flat_action, margin, rate, number
    (beta_new, along, first, last), _ = jax.lax.scan(step, (beta.new, zero, zero, zero), each)
    beta_old = beta.old + jnp.einsum("nif,ni->nf", old_feature, along.reshape(rows, count))
    return Ascent(
        Potentials(beta_new, beta_old),
        start + shift(along),
        jnp.stack([first, last]).reshape(2, rows, count),
        jnp.stack([cost[0], cost[-1]]).reshape(2, rows, count),
    )


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def cosine_of_turns(turns: Array, scale: float = 1.0) -> Array:
    """Scaled cos(2πt) by a polynomial, ten times faster on the CPU than XLA's cosine.

    An even function of what is left of t after whole turns, |r| ≤ 1/2, so a polynomial in r².
    """
    return _polynomial([scale * x for x in _COSINE], (turns - jnp.round(turns)) ** 2)


@cosine_of_turns.defjvp
def _slope_of_cosine(
    scale: float, given: tuple[Array], change: tuple[Array]
) -> tuple[Array, Array]:
    """By the chain rule, in one go: XLA would differentiate the polynomial term by term."""
    (turns,), (moved,) = given, change
    rest = turns - jnp.round(turns)
    derivative = [2.0 * scale * k * x for k, x in enumerate(_COSINE)][1:]
    return cosine_of_turns(turns, scale), rest * _polynomial(derivative, rest**2) * moved


def _polynomial(coefficients: list[float], x: Array) -> Array:
    """Lowest power first."""
    result = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
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
