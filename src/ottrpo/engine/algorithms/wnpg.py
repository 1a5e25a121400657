"""WNPG: Wasserstein natural policy gradients."""

from dataclasses import dataclass
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ottrpo.engine.arrays import Generator

from . import natural_gradient as natural
from .guided import Draws, Guided, GuidedDraws, Memory, Slopes
from .objective import Outputs, Terms

Array = Any


@dataclass(frozen=True, kw_only=True)
class Natural:
    """How the natural gradient is found, and what follows it.

    Attributes:
        n_basis: basis points of the kernel, drawn anew from each minibatch.
        kernel_bandwidth: ``squared``: the mean squared distance to the basis points; ``root``: its
            square root.
        damping: ε at the start.
        damping_rule: ``shrink``, as published: it only ever shrinks; ``two-sided``: it also grows
            when steps reduce the loss by less than expected; ``fixed``.
        norm_rule: what becomes of a natural gradient longer than ``max_grad_norm``: ``unit``, as
            published: it is rescaled to length 1; ``clip``: to ``max_grad_norm``.
        singular_tolerance: directions of the kernel's Gram matrix below this share of the largest
            are left out.
        optimizer: what follows the natural gradient: ``adam``, ``momentum`` or ``sgd``.
    """

    n_basis: int = 5
    kernel_bandwidth: natural.Bandwidth = "squared"
    damping: float = 1e-5
    damping_rule: natural.DampingRule = "shrink"
    norm_rule: natural.NormRule = "unit"
    singular_tolerance: float = 0.0
    optimizer: Literal["adam", "momentum", "sgd"] = "adam"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class WassersteinNatural(Natural, Guided):
    """The kernelised Wasserstein natural gradient of the whole loss, then the optimiser."""

    def direction(
        self, slopes: Slopes, memory: Memory, draws: Draws, learning_rate: Array
    ) -> tuple[Array, Memory, Terms]:
        """The natural gradient."""
        embedding = behaviour_embedding(slopes.outputs, slopes.noise)
        basis, coordinate = embedding[draws.basis], draws.coordinate
        width = natural.bandwidth(basis, embedding, slopes.weight, self.kernel_bandwidth)
        mixed = natural.mixed_derivatives(basis, coordinate, embedding, width)
        of_means = slope_in_outputs(mixed * slopes.weight[:, None], slopes.noise)
        # whitened before they are pulled back, as there are far fewer outputs than parameters
        _, unravel = ravel_pytree(slopes.of_outputs)
        flat = jax.vmap(lambda one: ravel_pytree(one)[0])(of_means)
        whitened = natural.whiten(natural.gram(mixed, slopes.weight), flat, self.singular_tolerance)
        of_means = jax.vmap(unravel)(whitened.slope)
        stacked = jax.tree.map(
            lambda one, many: jnp.concatenate([one[None], many]), slopes.of_outputs, of_means
        )
        pulled = jax.vmap(slopes.pull_back)(stacked)
        gradient, whitened = pulled[0], whitened._replace(slope=pulled[1:])
        damping = natural.adapt(memory.damping, slopes.loss, self.damping_rule)
        found = natural.natural_gradient(whitened, gradient, damping.value)
        chosen, agrees = natural.uphill(found, gradient)
        shortened = natural.shorten(chosen, self.max_grad_norm, self.norm_rule)
        damping = natural.remember(damping, slopes.loss, learning_rate * (gradient @ shortened))
        change, moments = self.transform.update(slopes.in_order(shortened), memory.optimiser)
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

    def draw(self, rows: int, rng: Generator) -> GuidedDraws:
        """As for all, and the kernel's basis points."""
        draws = super().draw(rows, rng)
        size = self.n_actions * self.architecture.outputs + 1
        each = draw_basis(draws.each, draws.weight, self.n_basis, size, rng)
        return draws._replace(each=each)


def behaviour_embedding(outputs: Outputs, noise: Array) -> Array:
    """y_n [n, M·d + 1]: the M sampled actions of a state, and its value."""
    action = outputs.mean[:, None] + outputs.std[:, None] * noise
    return jnp.concatenate([action.reshape(len(action), -1), outputs.value[:, None]], axis=1)


def slope_in_outputs(of_embedding: Array, noise: Array) -> Outputs:
    """Slopes [m, n, M·d + 1] with respect to the embeddings, as slopes in the outputs."""
    of_action = of_embedding[..., :-1].reshape(len(of_embedding), *noise.shape)
    return Outputs(of_action.sum(2), (of_action * noise).sum(2), of_embedding[..., -1])


def draw_basis(draws: Draws, weight: Array, points: int, size: int, rng: Generator) -> Draws:
    """Basis points of each minibatch: different rows of it, and a coordinate for each.

    Args:
        draws: what is added to.
        weight: of the rows of the minibatches [k, n]; rows of weight 0 come last.
        points: how many.
        size: of the embedding.
        rng: of the agent.
    """
    order = (rng.random(weight.shape) + (weight == 0)).argsort(axis=1)
    basis = order[:, :points].astype(np.int32)
    coordinate = rng.integers(0, size, basis.shape, dtype=np.int32)
    return draws._replace(basis=basis, coordinate=coordinate)


def _cosine(left: Array, right: Array) -> Array:
    lengths = natural.length_of(left) * natural.length_of(right)
    return (left / jnp.maximum(lengths, np.finfo(left.dtype).tiny)) @ right
