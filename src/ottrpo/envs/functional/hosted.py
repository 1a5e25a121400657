"""An environment of JAX with Gymnasium's face: to evaluate, to watch, to talk to by hand."""

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec

from . import State, make

Array = Any


class Hosted(gymnasium.Env[Array, Array]):
    """One environment of JAX, a step at a time; its time limit is Gymnasium's wrapper.

    Args:
        env_id: its name, with the family in front.
    """

    def __init__(self, env_id: str) -> None:
        self._inner = make(env_id)
        self.observation_space = self._inner.observation_space
        self.action_space = self._inner.action_space
        self._reset, self._step = jax.jit(self._inner.reset), jax.jit(self._inner.step)
        self._state: State | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """A first state, drawn from the generator that the seed made."""
        super().reset(seed=seed)
        self._state = self._reset(jax.random.key(int(self.np_random.integers(2**31))))
        return np.asarray(self._state.obs), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """What follows an action."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("reset comes before the first step")
        after = self._state = self._step(self._state, action)
        cut, info = bool(after.truncation), {name: float(x) for name, x in after.metrics.items()}
        return np.asarray(after.obs), float(after.reward), bool(after.done) and not cut, cut, info


def hosted(env_id: str, **kwargs: Any) -> gymnasium.Env[Array, Array]:
    """The environment of that name, with its time limit."""
    spec = EnvSpec(
        env_id,
        entry_point=f"{__name__}:Hosted",
        max_episode_steps=make(env_id).max_episode_steps,
        kwargs={"env_id": env_id},
        disable_env_checker=True,
    )
    return gymnasium.make(spec, **kwargs)
