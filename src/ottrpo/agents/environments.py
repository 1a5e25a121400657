"""Environments by their ids, made anew, and by their names."""

from copy import copy
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from ottrpo.envs import catalogue


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
