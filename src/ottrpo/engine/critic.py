"""Q(s, a): two networks that tell what an action of the box is worth, and which way is better.

They learn from the window of past rollouts by returns of a few steps, continued by what they said a
while ago of the policy's own actions; of the two the lower counts, since whatever overestimates is
sought out. Layers are normalised, so that values stay bounded far from what was seen.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .arrays import Generator, namespace, wide
from .networks import Linear, Policy
from .state import Learner
from .update import PROGRAMS, Batch, optimiser, over_minibatches

Array = Any
NORM_FLOOR = 1e-5
# an action varies by its noise alone, and little next to a normalised observation
ACTION_SCALE = 3.0
MOST_STEPS, SHORTEST_RATE = 9, 1e-6
STEPS_PER_SWING = 0.5  # a fast body's news of long ago are of another gait
SLOWEST_SWING = 1000.0  # in steps; also of what does not swing
SMALLEST_SPREAD = 1e-30
FOLLOWING = 0.005  # of the way to the critics that their followers go with every step


class Critic(eqx.Module):
    """One network."""

    layers: tuple[Linear, ...]
    head: Linear

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], rng: Generator, outputs: int = 1
    ) -> None:
        sizes = (inputs, *hidden)
        self.layers = tuple(
            Linear(sizes[i], sizes[i + 1], rng, gain=2**0.5, ortho=True) for i in range(len(hidden))
        )
        self.head = Linear(sizes[-1], outputs, rng, gain=0.1, ortho=True)

    def __call__(self, flat: Array, action: Array) -> Array:
        """Values [r]; actions count as far as the box goes."""
        action = ACTION_SCALE * jnp.clip(action, -1.0, 1.0)
        return self.table(jnp.concatenate([flat, action], axis=-1))[..., 0]

    def table(self, x: Array) -> Array:
        """What the head says of an input: of a state, what every label is worth [r, k]."""
        for layer in self.layers:
            x = layer(x)
            x = x - x.mean(-1, keepdims=True)
            x = jax.nn.relu(x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + NORM_FLOOR))
        return self.head(x)


class Twins(eqx.Module):
    """Two critics that differ in where they began."""

    critics: tuple[Critic, Critic]

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], rng: Generator, outputs: int = 1
    ) -> None:
        first, second = (Critic(inputs, hidden, rng, outputs) for _ in range(2))
        self.critics = (first, second)

    def __call__(self, flat: Array, action: Array) -> Array:
        """Values [2, r]."""
        return jnp.stack([critic(flat, action) for critic in self.critics])

    def table(self, flat: Array) -> Array:
        """Values of all labels [2, r, k]."""
        return jnp.stack([critic.table(flat) for critic in self.critics])


class OfActions(NamedTuple):
    """How critics are read that take an action of a box.

    Attributes:
        size: numbers of an action that are kept.
        inputs: those of them that critics see beside the state.
        outputs: of the critics.
    """

    size: int
    inputs: int
    outputs: int = 1

    def value(self, twins: Twins, rows: Batch) -> Array:
        """Of what was done [2, r]."""
        return twins(rows["flat"], rows["action"])

    def ahead(self, twins: Twins, policy: Policy, rows: Batch) -> Array:
        """Of what the policy would do next [2, r]."""
        mean, std = policy.gaussian(rows["next"], ())
        return twins(rows["next"], mean + std * rows["noise"])


class OfLabels(NamedTuple):
    """How critics are read that tell what every label is worth; attributes as above."""

    outputs: int
    size: int = 1
    inputs: int = 0

    def value(self, twins: Twins, rows: Batch) -> Array:
        """Of what was done [2, r]."""
        label = rows["action"].astype(jnp.int32)
        table = twins.table(rows["flat"])
        return jnp.take_along_axis(table, label[None], axis=-1)[..., 0]

    def ahead(self, twins: Twins, policy: Policy, rows: Batch) -> Array:
        """Of what the policy would do next, in expectation [2, r]."""
        logits = policy.logits(rows["next"], (), self.outputs)[:, 0]
        return (jax.nn.softmax(logits) * twins.table(rows["next"])).sum(-1)


@eqx.filter_jit
def slopes(twins: Twins, policy: Policy, flat: Array, noise: Array) -> tuple[Array, Array]:
    """Means of the policy, and how E Q(s, m + σz) grows with them [r, d].

    The expectation is over each row's draw and its mirror image. What is beyond the box acts like
    its border, so a draw from there has no slope.
    """
    mean, std = policy.gaussian(flat, ())

    def along(z: Array) -> Array:
        value, pull = jax.vjp(lambda mean: twins(flat, mean + std * z), mean)
        return pull(jnp.full_like(value, 1.0 / len(value)))[0]

    return mean, 0.5 * (along(noise) + along(-noise))


@lru_cache(PROGRAMS)
def make_fit(
    read: OfActions | OfLabels,
) -> Callable[..., tuple[tuple[Learner, Twins], Batch]]:
    """The compiled gradient steps of the critics and of those that follow them.

    It takes both, rows and their minibatches, the policy whose actions the returns are continued
    by, and the rate.
    Agents alike share one program.
    """
    transform = optimiser(np.inf)

    def step(
        carried: tuple[Learner, Twins], rows: Batch, weight: Array, policy: Policy, rate: Array
    ) -> tuple[tuple[Learner, Twins], Batch]:
        learner, followers = carried
        ahead = read.ahead(followers, policy, rows).min(0)
        target = rows["reward"] + rows["discount"] * ahead
        trained, static = eqx.partition(learner.networks, eqx.is_array)

        def objective(trained: Any) -> Array:
            value = read.value(eqx.combine(trained, static), rows)
            return (weight * (value - target) ** 2).sum()

        loss, gradient = jax.value_and_grad(objective)(trained)
        change, moments = transform.update(gradient, learner.moments, trained)
        trained = jax.tree.map(lambda x, d: x - rate * d, trained, change)
        twins = eqx.combine(trained, static)
        followers = jax.tree.map(
            lambda a, b: a + FOLLOWING * (b - a) if eqx.is_array(a) else a, followers, twins
        )
        return (Learner(twins, moments), followers), {"critic_loss": loss}

    return over_minibatches(step)


class Replay(NamedTuple):
    """The last W steps of n environments, oldest first.

    Attributes:
        flat: raw features [W + 1, n, f]; the last entry is where the next rollout starts.
        action: as drawn, not clipped [W, n, d]; of labels their numbers.
        reward: raw [W, n].
        done: the episode ended with this step [W, n].
        terminated: for good, rather than by a time limit [W, n].
        filled: how many of the W steps are there yet.
    """

    flat: Array
    action: Array
    reward: Array
    done: Array
    terminated: Array
    filled: Array

    def followed_by(self, rollout: Any) -> "Replay":
        """The window after a `Rollout`; the oldest steps go."""
        steps, window = len(rollout.reward), len(self.reward)
        xp = namespace(rollout.reward)

        def then(old: Array, new: Array) -> Array:
            # the last observation of the window is the first of the rollout
            return xp.concatenate([old[:window], new])[-len(old) :].astype(old.dtype)

        return Replay(
            flat=then(self.flat, rollout.flat),
            action=then(self.action, rollout.drawn.get("action", rollout.drawn.get("label"))),
            reward=then(self.reward, rollout.reward),
            done=then(self.done, rollout.done),
            terminated=then(self.terminated, rollout.terminated),
            filled=xp.minimum(self.filled + np.int32(steps), np.int32(window)),
        )

    def picked(self, uniform: Array) -> tuple[Array, Array]:
        """Steps and environments of the window that is there, for uniform numbers below 1."""
        steps, rows = self.reward.shape
        row = steps * rows - 1 - (uniform * (self.filled * rows)).astype(np.int32)
        return row // rows, row % rows

    def swing(self, steps: int) -> Array:
        """How many steps a feature took to swing once in the last ``steps``, in geometric mean.

        What swings as x = sin(2πt/T) changes by (2π/T)² Var x in the mean square.
        """
        xp = namespace(self.flat)
        flat, goes_on = wide(self.flat[-steps - 1 :]), ~self.done[-steps:, :, None]
        square = (xp.where(goes_on, flat[1:] - flat[:-1], 0.0) ** 2).sum((0, 1))
        varies = flat.max((0, 1)) > flat.min((0, 1))
        spread = xp.where(varies, flat.var((0, 1)) * goes_on.sum(), 1.0)
        turning = xp.sqrt(square / xp.maximum(spread, SMALLEST_SPREAD))
        swings = xp.log(2.0 * np.pi / xp.maximum(turning, 2.0 * np.pi / SLOWEST_SWING))
        mean = xp.where(varies, swings, 0.0).sum() / xp.maximum(varies.sum(), 1)
        return xp.where(varies.any(), xp.exp(mean), SLOWEST_SWING)


def empty_replay(window: int, environments: int, features: int, size: int) -> Replay:
    """A window without any step yet."""
    shape = (window, environments)
    return Replay(
        np.zeros((window + 1, environments, features), np.float32),
        np.zeros((*shape, size), np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
        np.int32(0),
    )


class Ahead(NamedTuple):
    """What the next steps brought, from every step of a window.

    Attributes:
        reward: discounted sum [W, n].
        discount: of the value of where they led to; 0 if the episode had ended [W, n].
        where: that step [W, n].
        known: whether anything is; what followed a step that was cut off by a time limit was not
            kept [W, n].
    """

    reward: Array
    discount: Array
    where: Array
    known: Array


def steps_for(discount: Array, swing: Array) -> Array:
    """How many steps the returns should have that critics learn with a discount.

    What followed after the next step was done by another policy, and misleads. But news come
    nearer by as many steps as returns have, and from far ahead they would never arrive: one step
    for every hundred of the horizon beyond the first hundred, as long as these are less than
    `STEPS_PER_SWING` of a ``swing`` of what is observed.
    """
    xp = namespace(discount)
    horizon = 1.0 / xp.maximum(1.0 - discount, SHORTEST_RATE)
    steps = xp.minimum(horizon / 100.0 - 1.0, STEPS_PER_SWING * swing)
    return xp.clip(xp.round(steps), 1, MOST_STEPS)


def look_ahead(
    replay: Replay, reward_tn: Array, discount: Array, steps: Array, most: int = MOST_STEPS
) -> Ahead:
    """Returns of ``steps`` steps, or of fewer where the episode or the window ends before.

    Args:
        replay: the window.
        reward_tn: its rewards, normalised.
        discount: γ.
        steps: how many.
        most: how many they may be.
    """
    xp = namespace(reward_tn)
    window = len(reward_tn)
    first_tn = xp.arange(window)[:, None] + xp.zeros_like(replay.done, np.int32)
    cut_tn = replay.done & ~replay.terminated
    reward_tn = wide(reward_tn)
    total, weight = xp.zeros_like(reward_tn), xp.ones_like(reward_tn)
    where, goes_on, known = first_tn, xp.ones_like(replay.done), ~cut_tn
    for k in range(most):
        now = xp.minimum(first_tn[:, 0] + k, window - 1)
        goes_on = goes_on & ~cut_tn[now] & (first_tn + k < window) & (k < steps)
        total = total + xp.where(goes_on, weight * reward_tn[now], 0.0)
        where = xp.where(goes_on, first_tn + k + 1, where)
        ended = goes_on & replay.terminated[now]
        weight = xp.where(ended, 0.0, xp.where(goes_on, weight * discount, weight))
        goes_on = goes_on & ~ended
    return Ahead(total, weight, where, known)
