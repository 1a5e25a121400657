"""An environment of one's own as functions of JAX, and eight trainings in it as one program.

Run: python examples/train_on_a_device.py [STEPS]
"""

import sys

import jax
import jax.numpy as jnp
from gymnasium import spaces

from ottrpo.device import State, make_train


class Swing:
    """A pendulum that should stand: reward 1 where it points up, and a little less for effort."""

    observation_space = spaces.Box(-8.0, 8.0, (3,))
    action_space = spaces.Box(-2.0, 2.0, (1,))
    max_episode_steps = 100
    costly_reset = False

    def reset(self, key):
        """Anywhere, at rest."""
        return self.seen(jax.random.uniform(key, minval=-jnp.pi, maxval=jnp.pi), jnp.zeros(()))

    def step(self, state, action):
        """A twentieth of a second."""
        angle, speed = state.world
        speed = jnp.clip(speed + 0.05 * (15.0 * jnp.sin(angle) + 3.0 * action[0]), -8.0, 8.0)
        return self.seen(angle + 0.05 * speed, speed, jnp.cos(angle) - 0.001 * action[0] ** 2)

    def seen(self, angle, speed, reward=0.0):
        """The state, and what is seen of it."""
        return State((angle, speed), jnp.stack([jnp.cos(angle), jnp.sin(angle), speed]), reward)


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
settings = {"n_envs": 8, "n_steps": 128, "batch_size": 128, "n_epochs": 4, "adapt_pace": True}
train = make_train(Swing(), settings, total_timesteps=steps, gamma=0.95, learning_rate=1e-3)
states, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 8))
for step, returns in zip(
    metrics["evaluation/timestep"][0], metrics["evaluation/returns"].mean((0, 2)), strict=True
):
    print(f"{int(step):>8,} steps: return {float(returns):6.1f}, of 100 at most")
agent = train.as_agent(jax.tree.map(lambda array: array[0], states))
agent.save("swing")
