"""The whole update of a rollout, all epochs and minibatches, as one compiled loop."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from .arrays import Generator, namespace, traced
from .state import Learner

Array = Any
Batch = dict[str, Any]
# (networks, rows of the batch, weight of each row, constants) -> (loss, terms of it to report)
Loss = Callable[[Any, Batch, Array, dict[str, Array]], tuple[Array, dict[str, Array]]]

ADAM_EPSILON = 1e-5  # as in SB3's on-policy agents


def optimiser(max_grad_norm: float) -> optax.GradientTransformation:
    """Adam on gradients clipped by their joint norm; the learning rate is applied by `descend`."""
    clip = optax.clip_by_global_norm(max_grad_norm)
    # one flat vector instead of a dozen small arrays: fewer, larger operations per step
    return optax.flatten(optax.chain(clip, optax.scale_by_adam(eps=ADAM_EPSILON)))


def start(networks: Any, max_grad_norm: float) -> Learner:
    """A learner at its first step."""
    return Learner(networks, optimiser(max_grad_norm).init(eqx.filter(networks, eqx.is_array)))


@eqx.filter_jit
def _all_finite(arrays: list[Array]) -> Array:
    return jnp.stack([jnp.isfinite(array).all() for array in arrays]).all()


def all_finite(tree: Any) -> bool:
    """Whether every array of a learner, or of a part of it, holds finite numbers only."""
    arrays = jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    return not arrays or bool(_all_finite(arrays))


def minibatches(rows: int, batch_size: int, epochs: int, rng: Generator) -> tuple[Array, Array]:
    """Row numbers [minibatch, batch_size] of shuffled epochs, and the weight of each entry.

    As in SB3 the last minibatch of an epoch is smaller if the batch size does not divide the
    rows; it is filled with entries of weight zero so that all have one shape.
    """
    batch_size = min(batch_size, rows)
    missing = -rows % batch_size
    order = [rng.permutation(rows) for _ in range(epochs)]
    xp = namespace(order[0])
    index = xp.pad(xp.stack(order).astype(np.int32), ((0, 0), (0, missing)))
    weight = np.ones((epochs, rows + missing), np.float32)
    weight[:, rows:] = 0.0
    weight = weight.reshape(-1, batch_size)
    weight /= weight.sum(1, keepdims=True)
    return index.reshape(-1, batch_size), weight


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``function`` as a program of its own; inside a larger program, as a part of that.

    ``options`` go to JAX's jit, which takes them for whole programs only.
    """
    program = eqx.filter_jit(function, **options)

    def call(*arguments: Any) -> Any:
        inside = any(map(traced, jax.tree.leaves(arguments)))
        return (function if inside else program)(*arguments)

    return call


# (what is carried on, rows of the minibatch, its own arguments, arguments of all minibatches) ->
# (what is carried on, terms to report)
Step = Callable[..., tuple[Any, Batch]]


def over_minibatches(step: Step, **compile_options: Any) -> Callable[..., tuple[Any, Batch]]:
    """``step`` repeated over the minibatches of a rollout, as one compiled loop.

    The loop takes what is carried on, a batch of arrays with rows first, the row numbers of each
    minibatch, a tuple of arrays with one entry per minibatch, and what all of them share. It
    returns what was carried on and the mean of each term over all minibatches.

    XLA's convolutions on the CPU are ten times slower inside a compiled loop than outside, so
    batches with images are looped over in Python. Either way ``compile_options`` go to JAX's jit.
    """

    def scan(
        state: Any, batch: Batch, index: Array, each: tuple[Any, ...], *shared: Any
    ) -> tuple[Any, Batch]:
        changing, fixed = eqx.partition(state, eqx.is_array)

        def body(changing: Any, picked: tuple[Array, tuple[Any, ...]]) -> tuple[Any, Batch]:
            rows = jax.tree.map(lambda array: jnp.asarray(array)[picked[0]], batch)
            moved, terms = step(eqx.combine(changing, fixed), rows, *picked[1], *shared)
            return eqx.filter(moved, eqx.is_array), terms

        changing, terms = jax.lax.scan(body, changing, (index, each))
        return eqx.combine(changing, fixed), jax.tree.map(jnp.mean, terms)

    one, all_of_them = (compiled(function, **compile_options) for function in (step, scan))

    def loop(
        state: Any, batch: Batch, index: Array, each: tuple[Any, ...], *shared: Any
    ) -> tuple[Any, Batch]:
        if not batch["images"]:
            done: tuple[Any, Batch] = all_of_them(state, batch, index, each, *shared)
            return done
        collected = []
        for i, picked in enumerate(index):
            rows = jax.tree.map(lambda array, picked=picked: array[picked], batch)
            own = jax.tree.map(lambda array, i=i: array[i], each)
            state, terms = one(state, rows, *own, *shared)
            collected.append(terms)
        return state, jax.tree.map(lambda *values: jnp.stack(values).mean(), *collected)

    return loop


def make_descend(loss: Loss, max_grad_norm: float) -> Callable[..., tuple[Learner, Batch]]:
    """The compiled update for ``loss``.

    It takes a learner, a batch of arrays with rows first, `minibatches`, the learning rate and
    the loss's constants, and returns the new learner and the mean of each term of the loss over
    all minibatches.
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

    loop = over_minibatches(one)

    def descend(
        learner: Learner,
        batch: Batch,
        index: Array,
        weight: Array,
        learning_rate: Array,
        constants: dict[str, Array],
    ) -> tuple[Learner, Batch]:
        return loop(learner, batch, index, (weight,), learning_rate, constants)

    return descend
