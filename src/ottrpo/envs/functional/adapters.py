"""Environments of gymnax, Brax and MuJoCo Playground as `Environment`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from . import State

Array = Any
BRAX_BACKEND = "spring"
BRAX_EPISODE = 1000  # steps, as in Brax's own trainings
NEVER = 2**30  # steps


class Gymnax:
    """An environment of gymnax, whose time limit is taken out of it: it is no ending."""

    costly_reset = False

    def __init__(self, gymnax: Any, name: str) -> None:
        self._env, params = gymnax.make(name)
        self.max_episode_steps = int(params.max_steps_in_episode)
        self._params = params.replace(max_steps_in_episode=NEVER)
        self.observation_space = _as_gymnasium(self._env.observation_space(params))
        self.action_space = _as_gymnasium(self._env.action_space(params))

    def reset(self, key: Array) -> State:
        """A first state."""
        key, first = jax.random.split(key)
        obs, inner = self._env.reset_env(first, self._params)
        return State((key, jax.tree.map(jnp.asarray, inner)), obs)

    def step(self, state: State, action: Array) -> State:
        """What follows; chance is drawn from the key that the state carries."""
        key, inner = state.world
        key, now = jax.random.split(key)
        obs, after, reward, done, _ = self._env.step_env(now, inner, action, self._params)
        # what was a number may come back as another type; a loop wants the same
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, inner)
        return State((key, after), obs, reward, done)


class Brax:
    """An environment of Brax: ``ant``, or ``ant/mjx`` with the backend after the slash."""

    costly_reset = True
    max_episode_steps = BRAX_EPISODE

    def __init__(self, brax_envs: Any, name: str) -> None:
        name, _, backend = name.partition("/")
        self._env = brax_envs.get_environment(name, backend=backend or BRAX_BACKEND)
        self._observe()

    def _observe(self) -> None:
        first = jax.eval_shape(self._env.reset, jax.random.key(0))
        shape = _seen(first.obs).shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (self._env.action_size,), np.float32)

    def reset(self, key: Array) -> State:
        """A first state."""
        return self._as_ours(self._env.reset(key))

    def step(self, state: State, action: Array) -> State:
        """What follows."""
        return self._as_ours(self._env.step(state.world, action))

    def _as_ours(self, inner: Any) -> State:
        return State(
            inner, _seen(inner.obs), inner.reward, inner.done > 0, metrics=dict(inner.metrics)
        )


class Playground(Brax):
    """An environment of MuJoCo Playground, simulated by JAX."""

    def __init__(self, playground: Any, name: str) -> None:
        registry = playground.registry
        config = registry.get_default_config(name)
        if "impl" in config:
            config.impl = "jax"  # the default is Warp's, which needs a GPU of its own
        self._env = registry.load(name, config=config)
        self.max_episode_steps = int(config.episode_length)
        self._observe()


def _seen(obs: Any) -> Array:
    """What the policy sees; some environments of Playground tell a critic more."""
    return obs["state"] if isinstance(obs, dict) else obs


def _as_gymnasium(space: Any) -> "spaces.Space[Any]":
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise ValueError(f"the space {type(space).__name__} is not supported")
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float32), space.shape)
        for bound in (space.low, space.high)
    )
    return spaces.Box(low, high, space.shape, np.float32)
