"""What BGPG and WNPG share: test functions and policy take turns, minibatch by minibatch.

The networks are seen through their outputs in the minibatch's states, (m_θ, σ_θ, V_θ). The loss and
the behaviour embedding are functions of these, so that one pass forwards serves everything, and
all slopes are pulled back through the networks together.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax.flatten_util import ravel_pytree

from ottrpo.engine.arrays import Generator, on_host
from ottrpo.engine.estimate import Experience, told
from ottrpo.engine.networks import Networks
from ottrpo.engine.schedules import Now
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import ADAM_EPSILON, Batch, compiled, minibatches, over_minibatches

from .base import Algorithm, Report
from .behaviour import (
    Features,
    Potentials,
    Smoothing,
    ascend,
    draw_features,
    gram,
    penalty,
    zero_potentials,
)
from .natural_gradient import start_damping
from .objective import Objective, Outputs, Terms, gaussian_log_probability, guided_loss

Array = Any
# a rollout's noise: each minibatch takes a stretch of it that begins anywhere. Drawing anew would
# cost more than all that is done with it
NOISE_TABLE = 2**18
# XLA's registers are half as wide unless told otherwise; where there are no wider ones, it is moot
WIDE: dict[str, Any] = {"compiler_options": {"xla_cpu_prefer_vector_width": 512}}
# reported by the compiled update; all else goes under train/
BEHAVIOUR = ("penalty", "dual_first", "dual_last")
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


class Turn(NamedTuple):
    """What is carried from minibatch to minibatch."""

    learner: Learner
    beta: Potentials


class GuidedDraws(NamedTuple):
    """The random numbers of an update.

    Attributes:
        action: of M more actions of the old policy in every state [r, M, d].
        index: rows of the minibatches.
        weight: of the rows.
        table: noise for all minibatches.
        each: what each of them draws.
    """

    action: Array
    index: Array
    weight: Array
    table: Array
    each: Draws


@dataclass(frozen=True, kw_only=True, eq=False)
class Guided(Objective, Algorithm):
    """An algorithm with a penalty on how far the behaviour moves; subclasses say where to go.

    Attributes:
        smoothing: of the penalty's dual.
        n_actions: M, actions per state for the penalty.
        n_features: of the test functions.
        feature_bandwidth: of the test functions.
        by_sample: whether test functions belong to the rows of the rollout, or, as published, to
            places in a minibatch, whatever row stands there.
        optimizer: of `OPTIMISERS`: what follows the direction.
        damping: of natural gradients, before the first minibatch.
    """

    smoothing: Smoothing
    n_actions: int
    n_features: int
    feature_bandwidth: float
    by_sample: bool
    optimizer: str = "adam"
    damping: float | None = None

    @abstractmethod
    def direction(
        self, slopes: Slopes, memory: Memory, draws: Draws, learning_rate: Array
    ) -> tuple[Array, Memory, Terms]:
        """How a step follows from the slopes of a minibatch: it, the memory, what to report."""

    @cached_property
    def transform(self) -> Any:
        """What makes a change of parameters of a direction."""
        return OPTIMISERS[self.optimizer]()

    def start(self, networks: Networks, features: Features) -> Learner:
        """A learner at its first step."""
        flat, _ = ravel_pytree(eqx.filter(networks, eqx.is_array))
        damping = None if self.damping is None else start_damping(self.damping)
        return Learner(networks, Memory(self.transform.init(flat), features, damping))

    def learners(self, networks: Networks, rng: Generator) -> dict[str, Learner]:
        """Policy and value function; the features of the test functions are kept beside them."""
        size = self.architecture.outputs
        features = draw_features(self.n_features, size, self.feature_bandwidth, rng)
        return {"agent": self.start(networks, features)}

    def draw(self, rows: int, rng: Generator) -> GuidedDraws:
        """Actions of the old policy, minibatches, and the noise of each."""
        shape = (self.n_actions, self.architecture.outputs)
        action = rng.standard_normal((rows, *shape), dtype=np.float32)
        index, weight = minibatches(rows, self.batch_size, self.n_epochs, rng)
        table, each = draw_noise(index, self.smoothing.steps, shape, rng)
        return GuidedDraws(action, index, weight, table, each)

    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: GuidedDraws, now: Now
    ) -> tuple[TrainState, Report]:
        """One iteration of the algorithm.

        For every minibatch, in turn: the test functions climb the smoothed dual, T steps; the
        policy and the value function take one step down E[−ratio · A] + κ W + value loss, in the
        direction that the algorithm takes.
        """
        rows = _rows(batch, draws.action)
        learner, fit = self.alternate(state.learners["agent"], rows, draws, now.learning_rate)
        report = {f"behaviour/{name}": fit.pop(name) for name in BEHAVIOUR}
        report |= {"train/std": batch.drawn["std"].mean(), **told(batch, fit, now)}
        return state.with_learner("agent", learner), report

    def alternate(
        self, learner: Learner, rows: Batch, draws: GuidedDraws, learning_rate: Array
    ) -> tuple[Learner, Batch]:
        """The compiled update of a rollout: the new learner and what to report."""
        places = len(rows["flat"]) if self.by_sample else draws.index.shape[1]
        features = learner.moments.features
        turn = Turn(learner, zero_potentials(places, features))
        rows = rows | {"old_gram": self._inner_products(features, rows["old_action"])}
        minibatches = draws.index, draws.weight, draws.each
        turn, terms = self._loop(turn, rows, minibatches, draws.table, learning_rate)
        return turn.learner, terms

    @cached_property
    def _loop(self) -> Callable[..., tuple[Turn, Batch]]:
        return over_minibatches(self._one, **WIDE)

    @cached_property
    def _inner_products(self) -> Callable[..., Array]:
        return compiled(gram, **WIDE)

    def _one(
        self,
        turn: Turn,
        rows: Batch,
        weight: Array,
        draws: Draws,
        table: Array,
        learning_rate: Array,
    ) -> tuple[Turn, Terms]:
        learner, features = turn.learner, turn.learner.moments.features
        outputs, pull_back, in_order, move = _linearised(learner.networks, rows)
        old_action, smoothing = rows["old_action"], self.smoothing
        shape = (smoothing.steps + 1, *old_action.shape)
        noise = jax.lax.dynamic_slice(table, (draws.offset,), (math.prod(shape),)).reshape(shape)

        # (a) the test functions climb the dual while the policy stands still
        action = outputs.mean[:, None] + outputs.std[:, None] * noise[:-1]
        beta = turn.beta
        if self.by_sample:
            beta = jax.tree.map(lambda held: held[rows["id"]], turn.beta)
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
            return guided_loss(outputs, moved, rows, weight, self)

        (value, terms), of_outputs = jax.value_and_grad(loss, has_aux=True)(outputs)
        slopes = Slopes(value, outputs, of_outputs, pull_back, in_order, noise[-1], weight)
        change, memory, more = self.direction(slopes, learner.moments, draws, learning_rate)
        kept = self._kept(turn.beta, beta, reached.beta, rows["id"], weight)
        first, last = (weight @ reached.dual(t, smoothing.strength) for t in (0, -1))
        terms |= {"dual_first": first, "dual_last": last} | more
        return Turn(Learner(move(learning_rate * change), memory), kept), terms

    def _kept(
        self, held: Potentials, before: Potentials, after: Potentials, row: Array, weight: Array
    ) -> Potentials:
        """The test functions for the next turn; rows of weight 0 only fill the minibatch up."""
        used = (weight > 0)[:, None]

        def keep(held: Array, old: Array, new: Array) -> Array:
            if self.by_sample:
                return held.at[row].add(jnp.where(used, new - old, 0.0))
            return jnp.where(used, new, old)

        return Potentials(*map(keep, held, before, after))


def _rows(batch: Experience, noise: Array) -> dict[str, Any]:
    """What the losses see, with M fresh actions of the policy that acted in each state."""
    mean, std, action = (batch.drawn[key] for key in ("mean", "std", "action"))
    log_probability = gaussian_log_probability(action, mean, std)
    return {
        "flat": batch.flat,
        "images": batch.images,
        "id": np.arange(len(mean), dtype=np.int32),
        "action": action,
        "log_probability": np.asarray(log_probability) if on_host(mean) else log_probability,
        "old_action": mean[:, None] + std[:, None] * noise,
        "advantage": batch.advantage.astype(np.float32),
        "return": batch.target.astype(np.float32),
        "value": batch.value.astype(np.float32),
    }


def draw_noise(
    index: Array, steps: int, shape: tuple[int, int], rng: Generator
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
