"""Where BGPG and WNPG go from a minibatch: along its gradient, or along the natural one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax.flatten_util import ravel_pytree

from . import natural_gradient as natural
from .behaviour import Features
from .guided_loss import Outputs, Terms
from .update import ADAM_EPSILON

Array = Any
OPTIMISERS = {
    "adam": lambda: optax.scale_by_adam(eps=ADAM_EPSILON),
    "momentum": lambda: optax.trace(0.9),
    "sgd": optax.identity,
}


class Draws(NamedTuple):
    """The random choices of each minibatch [k, ...], made before the loop."""

    offset: Array  # [k], where in the table its noise begins
    basis: Array | None = None  # [k, m], rows that are basis points
    coordinate: Array | None = None  # [k, m], of the embedding


class Memory(NamedTuple):
    """What is kept from rollout to rollout beside the networks."""

    optimiser: Any
    features: Features
    damping: Any  # natural.Damping, or None where gradients are followed as they are


class Slopes(NamedTuple):
    """One minibatch's loss, as a direction rule sees it.

    Attributes:
        loss: its value.
        outputs: of the networks.
        of_outputs: the loss's slope with respect to the outputs.
        pull_back: slopes with respect to outputs, as slopes with respect to the parameters [p], in
            an order of its own.
        in_order: such slopes in the order that the optimiser and the parameters have.
        noise: of the sampled actions [n, i, d].
        weight: of each row.
    """

    loss: Array
    outputs: Outputs
    of_outputs: Outputs
    pull_back: Callable[[Outputs], Array]
    in_order: Callable[[Array], Array]
    noise: Array
    weight: Array


# (slopes, memory, the minibatch's draws, learning rate) -> (descent direction, memory, terms)
Direction = Callable[[Slopes, Memory, Draws, Array], tuple[Array, Memory, Terms]]


def gradient_direction(max_grad_norm: float) -> Direction:
    """BGPG: Adam on the gradient, clipped by its norm."""
    optimiser = OPTIMISERS["adam"]()

    def direction(
        slopes: Slopes, memory: Memory, draws: Draws, learning_rate: Array
    ) -> tuple[Array, Memory, Terms]:
        gradient = slopes.in_order(slopes.pull_back(slopes.of_outputs))
        clipped = natural.shorten(gradient, max_grad_norm, "clip")
        change, moments = optimiser.update(clipped, memory.optimiser)
        terms = {"gradient_norm": natural.length_of(gradient)}
        return change, memory._replace(optimiser=moments), terms

    return direction


def natural_direction(
    *,
    max_grad_norm: float,
    norm_rule: natural.NormRule,
    damping_rule: natural.DampingRule,
    kernel_bandwidth: natural.Bandwidth,
    singular_tolerance: float,
    optimiser: str,
) -> Direction:
    """WNPG: the kernelised Wasserstein natural gradient of the whole loss, then the optimiser."""
    transform = OPTIMISERS[optimiser]()

    def direction(
        slopes: Slopes, memory: Memory, draws: Draws, learning_rate: Array
    ) -> tuple[Array, Memory, Terms]:
        embedding = behaviour_embedding(slopes.outputs, slopes.noise)
        basis, coordinate = embedding[draws.basis], draws.coordinate
        width = natural.bandwidth(basis, embedding, slopes.weight, kernel_bandwidth)
        mixed = natural.mixed_derivatives(basis, coordinate, embedding, width)
        of_means = slope_in_outputs(mixed * slopes.weight[:, None], slopes.noise)
        # whitened before they are pulled back, as there are far fewer outputs than parameters
        _, unravel = ravel_pytree(slopes.of_outputs)
        flat = jax.vmap(lambda one: ravel_pytree(one)[0])(of_means)
        whitened = natural.whiten(natural.gram(mixed, slopes.weight), flat, singular_tolerance)
        of_means = jax.vmap(unravel)(whitened.slope)
        stacked = jax.tree.map(
            lambda one, many: jnp.concatenate([one[None], many]), slopes.of_outputs, of_means
        )
        pulled = jax.vmap(slopes.pull_back)(stacked)
        gradient, whitened = pulled[0], whitened._replace(slope=pulled[1:])
        damping = natural.adapt(memory.damping, slopes.loss, damping_rule)
        found = natural.natural_gradient(whitened, gradient, damping.value)
        chosen, agrees = natural.uphill(found, gradient)
        shortened = natural.shorten(chosen, max_grad_norm, norm_rule)
        damping = natural.remember(damping, slopes.loss, learning_rate * (gradient @ shortened))
        change, moments = transform.update(slopes.in_order(shortened), memory.optimiser)
        terms = {
            "gradient_norm": natural.length_of(gradient),
            "natural_norm": natural.length_of(chosen),
            "natural_cosine": _cosine(chosen, gradient),
            "natural_used": agrees.astype(jnp.float32),
            "rank": whitened.active.sum().astype(jnp.float32),
            "kernel_bandwidth": width,
            "damping": damping.value,
        }
        return change, memory._replace(optimiser=moments, damping=damping), terms

    return direction


def behaviour_embedding(outputs: Outputs, noise: Array) -> Array:
    """y_n [n, M·d + 1]: the M sampled actions of a state, and its value."""
    action = outputs.mean[:, None] + outputs.std[:, None] * noise
    return jnp.concatenate([action.reshape(len(action), -1), outputs.value[:, None]], axis=1)


def slope_in_outputs(of_embedding: Array, noise: Array) -> Outputs:
    """Slopes [m, n, M·d + 1] with respect to the embeddings, as slopes in the outputs."""
    of_action = of_embedding[..., :-1].reshape(len(of_embedding), *noise.shape)
    return Outputs(of_action.sum(2), (of_action * noise).sum(2), of_embedding[..., -1])


def draw_basis(
    draws: Draws, weight: Array, points: int, size: int, rng: np.random.Generator
) -> Draws:
    """Basis points of each minibatch: different rows of it, and a coordinate for each.

    Args:
        draws: what is added to.
        weight: of the rows of the minibatches [k, n]; rows of weight 0 come last.
        points: how many.
        size: of the embedding.
        rng: of the agent.
    """
    order = np.argsort(rng.random(weight.shape) + (weight == 0), axis=1)
    basis = order[:, :points].astype(np.int32)
    coordinate = rng.integers(0, size, basis.shape, dtype=np.int32)
    return draws._replace(basis=basis, coordinate=coordinate)


def _cosine(left: Array, right: Array) -> Array:
    lengths = natural.length_of(left) * natural.length_of(right)
    return (left / jnp.maximum(lengths, np.finfo(left.dtype).tiny)) @ right
