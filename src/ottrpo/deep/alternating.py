"""The updates of BGPG and WNPG: test functions and policy take turns, minibatch by minibatch.

The networks are seen through their outputs in the minibatch's states, (m_θ, σ_θ, V_θ). The loss and
the behaviour embedding are functions of these, so that one pass forwards serves everything, and
all slopes are pulled back through the networks together.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from .behaviour import Features, Potentials, Smoothing, ascend, gram, penalty, zero_potentials
from .directions import OPTIMISERS, Direction, Draws, Memory, Slopes
from .guided_loss import Objective, Outputs, Terms, guided_loss
from .natural_gradient import start_damping
from .networks import Networks
from .update import Batch, Learner, over_minibatches

Array = Any
# a rollout's noise: each minibatch takes a stretch of it that begins anywhere. Drawing anew would
# cost more than all that is done with it
NOISE_TABLE = 2**18
# XLA's registers are half as wide unless told otherwise; where there are no wider ones, it is moot
WIDE: dict[str, Any] = {"compiler_options": {"xla_cpu_prefer_vector_width": 512}}


class Turn(NamedTuple):
    """What is carried from minibatch to minibatch."""

    learner: Learner
    beta: Potentials


def start_guided(
    networks: Networks, optimiser: str, features: Features, damping: float | None
) -> Learner:
    """A learner at its first step; ``damping`` only for natural gradients."""
    flat, _ = ravel_pytree(eqx.filter(networks, eqx.is_array))
    state = None if damping is None else start_damping(damping)
    return Learner(networks, Memory(OPTIMISERS[optimiser]().init(flat), features, state))


def make_alternate(
    objective: Objective, smoothing: Smoothing, direction: Direction, *, by_sample: bool
) -> Callable[..., tuple[Learner, Batch]]:
    """The compiled update of a rollout.

    Args:
        objective: what is descended.
        smoothing: of the penalty's dual.
        direction: how.
        by_sample: whether test functions belong to the rows of the rollout, or, as published, to
            places in a minibatch, whatever row stands there.

    Returns:
        a function of a learner, rows, row numbers and weights of the minibatches, `Draws`, the
        table of noise and the learning rate; it gives the new learner and what to report.
    """

    def one(
        turn: Turn, rows: Batch, weight: Array, draws: Draws, table: Array, learning_rate: Array
    ) -> tuple[Turn, Terms]:
        learner, features = turn.learner, turn.learner.moments.features
        outputs, pull_back, in_order, move = _linearised(learner.networks, rows)
        old_action = rows["old_action"]
        shape = (smoothing.steps + 1, *old_action.shape)
        noise = jax.lax.dynamic_slice(table, (draws.offset,), (math.prod(shape),)).reshape(shape)

        # (a) the test functions climb the dual while the policy stands still
        action = outputs.mean[:, None] + outputs.std[:, None] * noise[:-1]
        beta = jax.tree.map(lambda held: held[rows["id"]], turn.beta) if by_sample else turn.beta
        reached = ascend(features, beta, action, old_action, rows["old_gram"], smoothing)

        # (b) the policy descends while the test functions stand still
        def loss(outputs: Outputs) -> tuple[Array, Terms]:
            new_action = outputs.mean[:, None] + outputs.std[:, None] * noise[-1]
            moved = penalty(
                features,
                reached.beta.new,
                reached.old_potential,
                new_action,
                old_action,
                smoothing.strength,
            )
            return guided_loss(outputs, moved, rows, weight, objective)

        (value, terms), of_outputs = jax.value_and_grad(loss, has_aux=True)(outputs)
        slopes = Slopes(value, outputs, of_outputs, pull_back, in_order, noise[-1], weight)
        change, memory, more = direction(slopes, learner.moments, draws, learning_rate)
        # rows of weight 0 only fill the minibatch up
        used = (weight > 0)[:, None]
        if by_sample:
            kept = jax.tree.map(
                lambda held, old, new: held.at[rows["id"]].add(jnp.where(used, new - old, 0.0)),
                turn.beta,
                beta,
                reached.beta,
            )
        else:
            kept = jax.tree.map(lambda old, new: jnp.where(used, new, old), beta, reached.beta)
        first, last = (weight @ reached.dual(t, smoothing.strength) for t in (0, -1))
        terms |= {"dual_first": first, "dual_last": last} | more
        return Turn(Learner(move(learning_rate * change), memory), kept), terms

    loop = over_minibatches(one, **WIDE)
    inner_products = eqx.filter_jit(gram, **WIDE)

    def alternate(
        learner: Learner,
        rows: Batch,
        index: Array,
        weight: Array,
        draws: Draws,
        table: Array,
        learning_rate: Array,
    ) -> tuple[Learner, Batch]:
        places = len(rows["flat"]) if by_sample else index.shape[1]
        features = learner.moments.features
        turn = Turn(learner, zero_potentials(places, features))
        rows = rows | {"old_gram": inner_products(features, rows["old_action"])}
        turn, terms = loop(turn, rows, index, (weight, draws), table, learning_rate)
        return turn.learner, terms

    return alternate


def draw_noise(
    index: Array, steps: int, shape: tuple[int, int], rng: np.random.Generator
) -> tuple[Array, Draws]:
    """The table of noise of a rollout, and where in it each minibatch's stretch begins.

    Args:
        index: row numbers of the minibatches [k, n].
        steps: T, draws per row of a minibatch; one more is for the step of the policy.
        shape: M and d.
        rng: of the agent.
    """
    stretch = (steps + 1) * index.shape[1] * shape[0] * shape[1]
    size = max(NOISE_TABLE, 2 * stretch)
    table = rng.standard_normal(size, dtype=np.float32)
    return table, Draws(rng.integers(0, size - stretch + 1, len(index), dtype=np.int32))


def _linearised(
    networks: Networks, rows: Batch
) -> tuple[
    Outputs, Callable[[Outputs], Array], Callable[[Array], Array], Callable[[Array], Networks]
]:
    """The outputs; how slopes are pulled back to the parameters, put in order, and moved along.

    Slopes in a matrix come from JAX turned over. Turning back several at once takes as long as all
    the rest of pulling them back, so they are left as they are until one vector is made of them.
    """
    trained, static = eqx.partition(networks, eqx.is_array)
    flat, unravel = ravel_pytree(trained)
    turned, unravel_turned = ravel_pytree(_turned(trained))

    def outputs_of(turned: Array) -> Outputs:
        networks = eqx.combine(_turned(unravel_turned(turned)), static)
        mean, std = networks.policy.gaussian(rows["flat"], rows["images"])
        return Outputs(mean, std, networks.value(rows["flat"], rows["images"]))

    outputs, pull_back = jax.vjp(outputs_of, turned)

    def in_order(turned: Array) -> Array:
        return ravel_pytree(_turned(unravel_turned(turned)))[0]

    def move(change: Array) -> Networks:
        moved: Networks = eqx.combine(unravel(flat - change), static)
        return moved

    return outputs, lambda slopes: pull_back(slopes)[0], in_order, move


def _turned(tree: Any) -> Any:
    """Its matrices the other way around."""
    return jax.tree.map(lambda array: array.T if array.ndim == 2 else array, tree)
