"""The kernelised Wasserstein natural gradient: a metric on behaviour, seen through a few points.

Every state n has a behaviour embedding y_n(θ) in R^d. A Gaussian kernel at a few basis points x_m,
each differentiated along one coordinate i_m, gives functions whose slopes span an approximation
of the Wasserstein metric. With T the slopes of their means with respect to θ, whitened by their
Gram matrix, the natural gradient solves

    (TᵀT + ε D⁻¹) v = g,        D = diag(1 / (column norms of T + 1e-8))

which is a small system in the number of basis points, by Woodbury's identity.
"""

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

Array = Any
DampingRule = Literal["shrink", "two-sided", "fixed"]
NormRule = Literal["unit", "clip"]
Bandwidth = Literal["squared", "root"]

COLUMN_FLOOR = 1e-8  # published: keeps D finite where a parameter does not move the behaviour
LEAST_DAMPING, MOST_DAMPING = 1e-10, 1e5
DAMPING_FACTOR = 0.85
DAMPING_PERIOD = 5  # minibatches between two looks at the damping
POOR, GOOD = 0.25, 0.75  # reductions below and above which the damping is changed


class Whitened(NamedTuple):
    """T in coordinates in which the basis functions are orthonormal."""

    slope: Array  # [m, p]; rows of directions without length are zero
    active: Array  # [m]


class Damping(NamedTuple):
    """ε and what its rule remembers between minibatches.

    Attributes:
        value: ε.
        largest: the largest reduction ratio since the last look.
        loss: of the last minibatch.
        expected: twice the reduction that a linear model expected of the last step.
        steps: minibatches so far.
    """

    value: Array
    largest: Array
    loss: Array
    expected: Array
    steps: Array


def bandwidth(basis: Array, embedding: Array, weight: Array, rule: Bandwidth) -> Array:
    """The kernel's s, from q = mean of |x_m − y_n|² over basis points and states.

    ``squared``: s = q. ``root``: s = √q.
    """
    distance = ((basis[:, None] - embedding[None]) ** 2).sum(-1)
    mean = (distance @ weight).mean()
    return mean if rule == "squared" else jnp.sqrt(mean)


def mixed_derivatives(basis: Array, coordinate: Array, embedding: Array, width: Array) -> Array:
    """∂²k/∂x_i∂y_r [m, n, r] of k(x, y) = exp(−|x − y|²/2s), i being the coordinate of x_m.

    With δ = x_m − y_n: k · (1[r = i]/s − δ_i δ_r/s²). This is also the slope in y_n of the
    basis function −k δ_i/s.
    """
    difference = basis[:, None] - embedding[None]
    kernel = jnp.exp(-0.5 * (difference**2).sum(-1) / width)
    along = jnp.take_along_axis(difference, coordinate[:, None, None], axis=2)
    unit = jnp.arange(basis.shape[1]) == coordinate[:, None]
    return kernel[..., None] * (unit[:, None] / width - along * difference / width**2)


def gram(mixed: Array, weight: Array) -> Array:
    """K_mk = mean_n J_mn·J_kn [m, m]: lengths and angles of the basis functions' slopes."""
    flat = mixed.reshape(len(mixed), -1)
    return (mixed * weight[:, None]).reshape(flat.shape) @ flat.T


def whiten(gram_mm: Array, slope_mp: Array, tolerance: float) -> Whitened:
    """S^(−1/2) Vᵀ T for K = V S Vᵀ, without the directions whose S is (next to) nothing.

    Args:
        gram_mm: K.
        slope_mp: T, the slopes of the basis functions' means with respect to the parameters.
        tolerance: directions with S below this share of the largest are left out; as published 0.
    """
    length, direction = jnp.linalg.eigh(gram_mm)
    active = length > tolerance * jnp.maximum(length[-1], 0.0)
    scale = jnp.where(active, 1.0 / jnp.sqrt(jnp.where(active, length, 1.0)), 0.0)
    transform = scale[:, None] * direction.T
    # row by row: XLA is slow at sums over so few of something so long, here and below
    slope = sum(transform[:, k, None] * slope_mp[k] for k in range(len(slope_mp)))
    return Whitened(slope, active)


def diagonal(whitened: Whitened) -> Array:
    """D [p]: one over the length of each parameter's column."""
    squared = sum(row**2 for row in whitened.slope)
    return 1.0 / (jnp.sqrt(squared) + COLUMN_FLOOR)


def natural_gradient(whitened: Whitened, gradient: Array, damping: Array) -> Array:
    """The v [p] with (TᵀT + ε D⁻¹) v = g, as (D/ε)[g − Tᵀ (T D Tᵀ + ε 1)⁻¹ T D g].

    The inner matrix has no eigenvalue below ε. Rounding may leave some, which are raised to it;
    so there is nothing that can fail.
    """
    scale, slope = diagonal(whitened), whitened.slope
    inner = jnp.stack([slope @ (scale * row) for row in slope])
    inner += jnp.diag(jnp.where(whitened.active, damping, 1.0))
    length, direction = jnp.linalg.eigh(inner)
    rounding = len(inner) * np.finfo(inner.dtype).eps * length[-1]
    length = jnp.maximum(length, jnp.maximum(damping, rounding))
    right = slope @ (scale * gradient)
    solved = direction @ ((direction.T @ right) / length)
    return scale * (gradient - slope.T @ solved) / damping


def uphill(natural: Array, gradient: Array) -> tuple[Array, Array]:
    """The natural gradient if it agrees with the gradient, else the gradient; and whether it does.

    In exact arithmetic it always agrees.
    """
    agrees = gradient @ natural > 0
    return jnp.where(agrees, natural, gradient), agrees


def length_of(vector: Array) -> Array:
    """Its Euclidean length, also where squares would overflow."""
    most = jnp.maximum(jnp.abs(vector).max(), np.finfo(vector.dtype).tiny)
    return most * jnp.sqrt(((vector / most) ** 2).sum())


def shorten(vector: Array, threshold: float, rule: NormRule) -> Array:
    """A vector longer than the threshold: rescaled to length one, or to the threshold."""
    length = length_of(vector)
    target = 1.0 if rule == "unit" else threshold
    return jnp.where(length > threshold, (vector / length) * target, vector)


def start_damping(value: float) -> Damping:
    """The damping before the first minibatch."""
    fresh = {"largest": 0.0, "loss": -1.0, "expected": 1.0}
    singles = {key: np.float32(x) for key, x in fresh.items()}
    return Damping(value=np.float32(value), steps=np.int32(0), **singles)


def adapt(damping: Damping, loss: Array, rule: DampingRule) -> Damping:
    """The damping for a minibatch with the given loss.

    Every step is judged by 2 (L_before − L_now) / (lr g·v), and the largest ratio of five
    minibatches decides. ``two-sided``: below 1/4 the damping grows, above 3/4 it shrinks.
    ``shrink``, as published: it never grows, the fifth ratio is not looked at, and a loss of −1 or
    less before a step counts as not known. ``fixed``: it stays.
    """
    if rule == "fixed":
        return damping
    ratio = 2.0 * (damping.loss - loss) / damping.expected
    known = damping.loss > -1.0 if rule == "shrink" else damping.steps > 0
    known &= jnp.isfinite(ratio)  # a learning rate of 0 expects nothing
    with_present = jnp.where(known, jnp.maximum(damping.largest, ratio), damping.largest)
    judged = damping.largest if rule == "shrink" else with_present
    looks = (damping.steps + 1) % DAMPING_PERIOD == 0
    value = jnp.where(judged > GOOD, damping.value * DAMPING_FACTOR, damping.value)
    if rule == "two-sided":
        value = jnp.where(judged < POOR, damping.value / DAMPING_FACTOR, value)
    value = jnp.clip(value, LEAST_DAMPING, MOST_DAMPING)
    return damping._replace(
        value=jnp.where(looks, value, damping.value),
        largest=jnp.where(looks, 0.0, with_present),
    )


def remember(damping: Damping, loss: Array, expected: Array) -> Damping:
    """Keep a minibatch's loss and lr g·v, to judge its step at the next one."""
    return damping._replace(loss=loss, expected=expected, steps=damping.steps + 1)
