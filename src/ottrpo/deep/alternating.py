"""The updates of BGPG and WNPG: test functions and policy take turns, minibatch by minibatch.

The networks are seen through their outputs in the minibatch's states, (m_θ, σ_θ, V_θ). The loss and
the behaviour embedding are functions of these, so that one pass forwards serves everything, and
all slopes are pulled back through the networks together.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from .behaviour import Features, Potentials, Smoothing, ascend, penalty, zero_potentials
from .directions import OPTIMISERS, Direction, Draws, Memory, Slopes
from .guided_loss import Objective, Outputs, Terms, guided_loss
from .natural_gradient import start_damping
from .networks import Networks
from .update import Batch, Learner, over_minibatches

Array = Any
# a rollout's noise: minibatches take stretches of it that begin anywhere. Drawing 26 times per
# minibatch would cost more than all that is done with it
NOISE_TABLE = 2**18


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
        outputs, pull_back, move = _linearised(learner.networks, rows)
        old_action = rows["old_action"]

        def noise_at(t: Array) -> Array:
            start = (draws.offset[t],)
            return jax.lax.dynamic_slice(table, start, (old_action.size,)).reshape(old_action.shape)

        # (a) the test functions climb the dual while the policy stands still
        place = rows["id"] if by_sample else jnp.arange(len(weight))
        beta = jax.tree.map(lambda table: table[place], turn.beta)
        climbed, dual = ascend(
            features, beta, outputs.mean, outputs.std, old_action, noise_at, smoothing
        )
        # (b) the policy descends while the test functions stand still
        noise = noise_at(jnp.asarray(smoothing.steps))

        def loss(outputs: Outputs) -> tuple[Array, Terms]:
            new_action = outputs.mean[:, None] + outputs.std[:, None] * noise
            moved = penalty(features, climbed, new_action, old_action, smoothing.strength)
            return guided_loss(outputs, moved, rows, weight, objective)

        (value, terms), of_outputs = jax.value_and_grad(loss, has_aux=True)(outputs)
        slopes = Slopes(value, outputs, of_outputs, pull_back, noise, weight)
        change, memory, more = direction(slopes, learner.moments, draws, learning_rate)
        # rows of weight 0 only fill the minibatch up
        used = (weight > 0)[:, None]
        kept = jax.tree.map(
            lambda table, old, new: table.at[place].add(jnp.where(used, new - old, 0.0)),
            turn.beta,
            beta,
            climbed,
        )
        terms |= {"dual_first": weight @ dual[0], "dual_last": weight @ dual[-1]} | more
        return Turn(Learner(move(learning_rate * change), memory), kept), terms

    loop = over_minibatches(one)

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
        beta = zero_potentials(places, learner.moments.features)
        turn, terms = loop(Turn(learner, beta), rows, index, (weight, draws), table, learning_rate)
        return turn.learner, terms

    return alternate


def draw_noise(
    index: Array, steps: int, shape: tuple[int, int], rng: np.random.Generator
) -> tuple[Array, Draws]:
    """The table of noise of a rollout, and where in it each minibatch's stretches begin.

    Args:
        index: row numbers of the minibatches [k, n].
        steps: T, stretches per minibatch; one more is for the step of the policy.
        shape: M and d.
        rng: of the agent.
    """
    stretch = index.shape[1] * shape[0] * shape[1]
    size = max(NOISE_TABLE, 8 * stretch)
    table = rng.standard_normal(size, dtype=np.float32)
    offset = rng.integers(0, size - stretch + 1, (len(index), steps + 1), dtype=np.int32)
    return table, Draws(offset)


def _linearised(
    networks: Networks, rows: Batch
) -> tuple[Outputs, Callable[[Outputs], Array], Callable[[Array], Networks]]:
    """The outputs, how slopes are pulled back to the parameters, and how those are moved."""
    trained, static = eqx.partition(networks, eqx.is_array)
    flat, unravel = ravel_pytree(trained)

    def outputs_of(flat: Array) -> Outputs:
        networks = eqx.combine(unravel(flat), static)
        mean, std = networks.policy.gaussian(rows["flat"], rows["images"])
        return Outputs(mean, std, networks.value(rows["flat"], rows["images"]))

    outputs, pull_back = jax.vjp(outputs_of, flat)

    def move(change: Array) -> Networks:
        moved: Networks = eqx.combine(unravel(flat - change), static)
        return moved

    return outputs, lambda slopes: pull_back(slopes)[0], move
