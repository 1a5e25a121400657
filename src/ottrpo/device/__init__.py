"""Training where the simulation runs: environments, rollouts and updates as one program of JAX.

    train = make_train("brax:ant", total_timesteps=50_000_000, n_envs=2048, n_steps=20)
    state, metrics = jax.jit(train)(jax.random.key(0))
    states, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 64))

docs/device.md tells the rest.
"""

from ottrpo.envs.functional import Environment, State

from .training import Training, make_train

__all__ = ["Environment", "State", "Training", "make_train"]
