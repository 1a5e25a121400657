"""An environment of one's own, and one that breaks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces

from ottrpo.envs.functional import State


class Turning(NamedTuple):
    angle: jax.Array
    speed: jax.Array


class Pendulum:
    """Gymnasium's, as functions: it is cut off after 50 steps, and falls off beyond a speed."""

    observation_space = spaces.Box(-8.0, 8.0, (3,))
    action_space = spaces.Box(-2.0, 2.0, (1,))
    max_episode_steps = 50
    costly_reset = False

    def reset(self, key):
        angle, speed = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        world = Turning(jnp.pi * angle, speed)
        return State(world, self._seen(world))

    def step(self, state, action):
        world = state.world
        angle = (world.angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        cost = angle**2 + 0.1 * world.speed**2 + 0.001 * action[0] ** 2
        speed = world.speed + (15.0 * jnp.sin(world.angle) + 3.0 * action[0]) * 0.05
        speed = jnp.clip(speed, -8.0, 8.0)
        world = Turning(world.angle + speed * 0.05, speed)
        return State(world, self._seen(world), -cost, jnp.abs(speed) > 7.9)

    def _seen(self, world):
        return jnp.stack([jnp.cos(world.angle), jnp.sin(world.angle), world.speed])


class Breaking(Pendulum):
    """Its reward is no number where the pendulum is nearly upright."""

    def step(self, state, action):
        after = super().step(state, action)
        upright = jnp.abs(state.world.angle) < 0.1
        return after._replace(reward=jnp.where(upright, jnp.nan, after.reward))
