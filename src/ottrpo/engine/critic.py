"""Q(s, a): a network that tells how an action of the box is worth, and which way is better."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .arrays import Generator
from .networks import Linear, Policy
from .update import Batch

Array = Any
NORM_FLOOR = 1e-5


class Critic(eqx.Module):
    """Layers that are normalised before each activation, so that values stay bounded far out."""

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


def squared_error(
    critic: Critic, rows: Batch, weight: Array, constants: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """What the critic's gradient steps descend."""
    loss = weight @ (critic(rows["flat"], rows["action"]) - rows["target"]) ** 2
    return loss, {"critic_loss": loss}


@eqx.filter_jit
def look_back(
    critic: Critic, policy: Policy, flat: Array, action: Array, noise: Array
) -> tuple[Array, Array, Array]:
    """What retracing needs of a window of states [W + 1, n, f].

    Returns:
        Q of what was done, Q of what the policy would do next, and the log-density of what was
        done under the policy, [W, n] each.
    """
    mean, std = policy.gaussian(flat, ())
    drawn = mean[1:] + std[1:] * noise
    gap = (action - mean[:-1]) / std[:-1]
    log_prob = -(0.5 * gap**2 + jnp.log(std[:-1])).sum(-1)
    return critic(flat[:-1], action), critic(flat[1:], drawn), log_prob


@eqx.filter_jit
def slopes(
    critic: Critic, policy: Policy, flat: Array, noise: Array
) -> tuple[Array, Array, Array, Array]:
    """Mean and σ of the policy, and how E Q(s, m + σz) grows with them [r, d].

    The expectation is over each row's draw and its mirror image. At the border of the box slopes
    are those just inside it.
    """
    mean, std = policy.gaussian(flat, ())

    def along(z: Array) -> Array:
        drawn = jnp.clip(mean + std * z, -1.0, 1.0)
        return jax.grad(lambda action: critic(flat, action).sum())(drawn)

    there, mirrored = along(noise), along(-noise)
    return mean, std, 0.5 * (there + mirrored), 0.5 * (there - mirrored) * noise
