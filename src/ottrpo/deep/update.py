"""The whole update of a rollout, all epochs and minibatches, as one compiled loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

Array = Any
Batch = dict[str, Any]
# (networks, rows of the batch, weight of each row, constants) -> (loss, terms of it to report)
Loss = Callable[[Any, Batch, Array, dict[str, Array]], tuple[Array, dict[str, Array]]]

ADAM_EPSILON = 1e-5  # as in SB3's on-policy agents


class Learner(NamedTuple):
    """What the optimiser changes: the trained modules and its own moments."""

    networks: Any
    moments: Any


def optimiser(max_grad_norm: float) -> optax.GradientTransformation:
    """Adam on gradients clipped by their joint norm; the learning rate is applied by `descend`."""
    clip = optax.clip_by_global_norm(max_grad_norm)
    # one flat vector instead of a dozen small arrays: fewer, larger operations per step
    return optax.flatten(optax.chain(clip, optax.scale_by_adam(eps=ADAM_EPSILON)))


def start(networks: Any, max_grad_norm: float) -> Learner:
    """A learner at its first step."""
    return Learner(networks, optimiser(max_grad_norm).init(eqx.filter(networks, eqx.is_array)))


@eqx.filter_jit
def _all_finite(arrays: Any) -> Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(arrays)]).all()


def all_finite(learner: Learner) -> bool:
    """Whether every parameter and every moment is a finite number."""
    return bool(_all_finite(eqx.filter(learner, eqx.is_array)))


def minibatches(
    rows: int, batch_size: int, epochs: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Row numbers [minibatch, batch_size] of shuffled epochs, and the weight of each entry.

    As in SB3 the last minibatch of an epoch is smaller if the batch size does not divide the
    rows; it is filled with entries of weight zero so that all have one shape.
    """
    batch_size = min(batch_size, rows)
    per_epoch = -(-rows // batch_size)
    index = np.zeros((epochs, per_epoch * batch_size), np.int32)
    weight = np.zeros((epochs, per_epoch * batch_size), np.float32)
    for epoch in range(epochs):
        index[epoch, :rows] = rng.permutation(rows)
        weight[epoch, :rows] = 1.0
    weight = weight.reshape(-1, batch_size)
    weight /= weight.sum(1, keepdims=True)
    return index.reshape(-1, batch_size), weight


def make_descend(loss: Loss, max_grad_norm: float) -> Callable[..., tuple[Learner, Batch]]:
    """The compiled update for ``loss``.

    It takes a learner, a batch of arrays with rows first, `minibatches`, the learning rate and
    the loss's constants, and returns the new learner and the mean of each term of the loss over
    all minibatches.

    XLA's convolutions on the CPU are ten times slower inside a compiled loop than outside, so
    batches with images are looped over in Python.
    """
    transform = optimiser(max_grad_norm)

    def one(
        learner: Learner,
        rows: Batch,
        weight: Array,
        learning_rate: Array,
        constants: dict[str, Array],
    ) -> tuple[Learner, Batch]:
        trained, static = eqx.partition(learner.networks, eqx.is_array)

        def objective(trained: Any) -> tuple[Array, dict[str, Array]]:
            return loss(eqx.combine(trained, static), rows, weight, constants)

        gradient, terms = jax.grad(objective, has_aux=True)(trained)
        change, moments = transform.update(gradient, learner.moments, trained)
        trained = jax.tree.map(lambda x, d: x - learning_rate * d, trained, change)
        return Learner(eqx.combine(trained, static), moments), terms

    @eqx.filter_jit
    def scan(
        learner: Learner, batch: Batch, index: Array, weight: Array, *rest: Any
    ) -> tuple[Learner, Batch]:
        changing, fixed = eqx.partition(learner, eqx.is_array)

        def body(changing: Any, picked: tuple[Array, Array]) -> tuple[Any, Batch]:
            rows = jax.tree.map(lambda array: array[picked[0]], batch)
            moved, terms = one(eqx.combine(changing, fixed), rows, picked[1], *rest)
            return eqx.filter(moved, eqx.is_array), terms

        changing, terms = jax.lax.scan(body, changing, (index, weight))
        return eqx.combine(changing, fixed), jax.tree.map(jnp.mean, terms)

    step = eqx.filter_jit(one)

    def descend(
        learner: Learner,
        batch: Batch,
        index: Array,
        weight: Array,
        learning_rate: Array,
        constants: dict[str, Array],
    ) -> tuple[Learner, Batch]:
        if not batch["images"]:
            return scan(learner, batch, index, weight, learning_rate, constants)
        collected = []
        for picked, share in zip(index, weight, strict=True):
            rows = jax.tree.map(lambda array, picked=picked: array[picked], batch)
            learner, terms = step(learner, rows, share, learning_rate, constants)
            collected.append(terms)
        return learner, jax.tree.map(lambda *values: jnp.stack(values).mean(), *collected)

    return descend
