"""Q(s, a): two networks that tell what an action of the box is worth, and which way is better.

They learn from the window of past rollouts by returns of a few steps, continued by what they said a
while ago of the policy's own actions; of the two the lower counts, since whatever overestimates is
sought out. Layers are normalised, so that values stay bounded far from what was seen.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .arrays import Generator
from .networks import Linear, Policy
from .state import Learner
from .update import Batch, optimiser, over_minibatches

Array = Any
NORM_FLOOR = 1e-5
RATE = 3e-4
FOLLOWING = 0.01  # of the way to the critics that their followers go with every step


class Critic(eqx.Module):
    """One network."""

    layers: tuple[Linear, ...]
    head: Linear

    def __init__(self, inputs: int, hidden: tuple[int, ...], rng: Generator) -> None:
        sizes = (inputs, *hidden)
        self.layers = tuple(
            Linear(sizes[i], sizes[i + 1], rng, gain=2**0.5, ortho=True) for i in range(len(hidden))
        )
        self.head = Linear(sizes[-1], 1, rng, gain=0.1, ortho=True)

    def __call__(self, flat: Array, action: Array) -> Array:
        """Values [r]; actions count as far as the box goes."""
        x = jnp.concatenate([flat, jnp.clip(action, -1.0, 1.0)], axis=-1)
        for layer in self.layers:
            x = layer(x)
            x = x - x.mean(-1, keepdims=True)
            x = jax.nn.relu(x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + NORM_FLOOR))
        return self.head(x)[..., 0]


class Twins(eqx.Module):
    """Two critics that differ in where they began."""

    critics: tuple[Critic, Critic]

    def __init__(self, inputs: int, hidden: tuple[int, ...], rng: Generator) -> None:
        self.critics = (Critic(inputs, hidden, rng), Critic(inputs, hidden, rng))

    def __call__(self, flat: Array, action: Array) -> Array:
        """Values [2, r]."""
        return jnp.stack([critic(flat, action) for critic in self.critics])


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


def make_fit() -> Callable[..., tuple[tuple[Learner, Twins], Batch]]:
    """The compiled gradient steps of the critics and of those that follow them.

    It takes both, rows and their minibatches as `over_minibatches` has them, the weights of the
    rows of each minibatch, and the policy whose actions the returns are continued by.
    """
    transform = optimiser(np.inf)

    def step(
        carried: tuple[Learner, Twins], rows: Batch, weight: Array, policy: Policy
    ) -> tuple[tuple[Learner, Twins], Batch]:
        learner, followers = carried
        mean, std = policy.gaussian(rows["next"], ())
        ahead = followers(rows["next"], mean + std * rows["noise"]).min(0)
        target = rows["reward"] + rows["discount"] * ahead
        trained, static = eqx.partition(learner.networks, eqx.is_array)

        def objective(trained: Any) -> Array:
            value = eqx.combine(trained, static)(rows["flat"], rows["action"])
            return (weight * (value - target) ** 2).sum()

        loss, gradient = jax.value_and_grad(objective)(trained)
        change, moments = transform.update(gradient, learner.moments, trained)
        trained = jax.tree.map(lambda x, d: x - RATE * d, trained, change)
        twins = eqx.combine(trained, static)
        followers = jax.tree.map(
            lambda a, b: a + FOLLOWING * (b - a) if eqx.is_array(a) else a, followers, twins
        )
        return (Learner(twins, moments), followers), {"critic_loss": loss}

    loop = over_minibatches(step)

    def fit(
        carried: tuple[Learner, Twins], rows: Batch, index: Array, weight: Array, policy: Policy
    ) -> tuple[tuple[Learner, Twins], Batch]:
        return loop(carried, rows, index, (weight,), policy)

    return fit
