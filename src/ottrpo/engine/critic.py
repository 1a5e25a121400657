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

from .arrays import Generator
from .networks import Linear, Policy
from .state import Learner
from .update import PROGRAMS, Batch, optimiser, over_minibatches

Array = Any
NORM_FLOOR = 1e-5
# an action varies by its noise alone, and little next to a normalised observation
ACTION_SCALE = 3.0
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
