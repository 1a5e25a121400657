"""Training where the simulation runs: environments, rollouts and updates as one program of JAX.

    train = make_train("brax:ant", total_timesteps=50_000_000, n_envs=2048, n_steps=20)
    state, metrics = jax.jit(train)(jax.random.key(0))
    states, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 64))

docs/device.md tells the rest.
"""

from typing import Any

from ottrpo.envs.functional import Environment, State
from ottrpo.extras import load

__all__ = ["Environment", "State", "Training", "make_train"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # loaded when first used: what JAX lacks is told with its extra
        return load(f"{__name__}.training", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
