"""Environments as SB3 gives them, and as the engine steps them."""

from collections.abc import Callable
from copy import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from ottrpo.deep.acting import BoxActions, FiniteActions
from ottrpo.deep.observations import ObservationLayout
from ottrpo.deep.rollout import Infos, Rollout, SingleSource, Source, VectorSource
from ottrpo.envs import catalogue

Array = Any


def source_of(
    env: VecEnv, layout: ObservationLayout, actions: BoxActions | FiniteActions
) -> tuple[Source, bool]:
    """The environments as the engine sees them, and whether they offer action masks."""
    masked = isinstance(actions, FiniteActions) and _offers_masks(env)
    masks: Callable[[], Array | None] = _no_masks
    if isinstance(actions, FiniteActions) and masked:
        masks = lambda: allowed(actions, np.stack(env.env_method("action_masks")))  # noqa: E731
    name = name_of(env)
    if type(env) is DummyVecEnv and env.num_envs == 1:
        scalar = isinstance(actions, FiniteActions) and actions.scalar
        return SingleSource(env.envs[0], layout, name, masks, scalar_action=scalar), masked
    return VectorSource(env, layout, name, masks), masked


def allowed(actions: FiniteActions, mask_n: Array) -> Array:
    """Action masks [n, f, k]; something must be left to choose from."""
    mask_nfk = actions.pad_mask(mask_n)
    if not mask_nfk.any(-1).all():
        index = int(np.argwhere(~mask_nfk.any(-1))[0][0])
        raise ValueError(f"the action mask of environment {index} allows no action at all")
    return mask_nfk


def fresh_env(env: VecEnv) -> Any:
    """A new environment like those in ``env``."""
    spec = env.get_attr("spec")[0]
    if spec is None:
        raise ValueError(
            "a fresh environment can't be made: the training one was not made by gym.make; "
            "pass one: evaluate(..., env=env)"
        )
    spec = copy(spec)
    spec.additional_wrappers = tuple(  # SB3's Monitor can't be made again, and is not needed
        wrapper for wrapper in spec.additional_wrappers if wrapper.name != "Monitor"
    )
    return gym.make(spec, disable_env_checker=True)


def made(env: Any) -> Any:
    """The environment of an id; any other environment as it is."""
    if not isinstance(env, str):
        if env is not None and not hasattr(env, "action_space"):
            raise ValueError(f"env must be an id, a Gymnasium environment or a VecEnv, got {env!r}")
        return env
    translation = catalogue.translation(env)
    if translation is not None:
        print(translation)  # noqa: T201  # another environment than asked for is never silent
    return catalogue.make(env, disable_env_checker=True)


def name_of(env: Any) -> str:
    """What to call it in messages."""
    try:
        spec = env.get_attr("spec")[0] if isinstance(env, VecEnv) else getattr(env, "spec", None)
        if spec is not None:
            return str(spec.id)
        inner = env.unwrapped  # of a VecEnv: without its wrappers
        return type(inner.envs[0].unwrapped if isinstance(inner, DummyVecEnv) else inner).__name__
    except (OSError, EOFError):  # its processes are gone; what was learnt in them is not
        return "an environment that was closed"


def remade_by_id(env: VecEnv, *, copies: bool = False) -> bool:
    """Whether its id alone is enough to make it again; ``copies``: as many as there are."""
    if type(env) is not DummyVecEnv or not (copies or env.num_envs == 1):
        return False
    return all(_says_all(spec) for spec in env.get_attr("spec"))


def _says_all(spec: EnvSpec | None) -> bool:
    if spec is None or any(wrapper.name != "Monitor" for wrapper in spec.additional_wrappers):
        return False
    try:
        registered = gym.spec(spec.id)
    except gym.error.Error:
        return False
    caps = (registered.max_episode_steps, catalogue.step_cap(spec.id))
    return spec.kwargs == registered.kwargs and spec.max_episode_steps in caps


def _offers_masks(env: VecEnv) -> bool:
    try:
        return bool(env.has_attr("action_masks"))
    except AttributeError:
        return False


def _no_masks() -> None:
    return None


class Watcher:
    """Tells SB3's callbacks about each step."""

    def __init__(self, agent: Any, callback: BaseCallback) -> None:
        self._agent, self._callback = agent, callback
        self._locals: dict[str, Any] = {"self": agent, "env": agent.env, "n_steps": 0}

    def __call__(self, t: int, action: Array, rollout: Rollout, infos: Infos) -> bool:
        """Count the step, tell the callback; False ends training."""
        self._agent.num_timesteps += self._agent.n_envs
        seen = self._locals
        seen["n_steps"] = t + 1
        seen["actions"] = seen["clipped_actions"] = action
        seen["new_obs"] = rollout.flat[t + 1]
        seen["rewards"], seen["dones"], seen["infos"] = rollout.reward[t], rollout.done[t], infos
        self._callback.update_locals(seen)
        return bool(self._callback.on_step())
