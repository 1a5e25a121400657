"""Going on exactly with an interrupted training in the vector environments of SB3."""

import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from ottrpo.collect.host import name_of, remade_by_id
from ottrpo.core.checks import require_one_of
from ottrpo.engine.spaces import space_to_data
from ottrpo.envs import catalogue
from ottrpo.persistence import bundle
from ottrpo.persistence.environments import vector
from ottrpo.persistence.snapshot import Data, Snapshot
from ottrpo.persistence.values import Arrays


class VectorSnapshot(Snapshot):
    """What agents with SB3's face share of saving and going on, ours and those imported."""

    env: VecEnv | None
    n_envs: int
    observation_space: Any
    action_space: Any
    last_update: dict[str, float]
    _last_obs: Any
    _n_updates: int
    _current_progress_remaining: float
    _stats_window_size: int
    ep_info_buffer: deque[Any] | None
    ep_success_buffer: deque[Any] | None

    def save(
        self, path: Any, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> None:
        """Write the agent, normalisers and all, to one file of safetensors and JSON.

        Args:
            path: where; ``.zip`` is added if it has no ending.
            exclude: settings to leave out: who loads the agent gets their defaults.
            include: settings to save though they are in ``exclude``.

        Raises:
            ValueError: if anything else is to be left out or to be saved.
        """
        arrays, data = self._learnt()
        settings, kept = data["settings"], set(include or ())
        for name in (*(exclude or ()), *kept):
            require_one_of(name, settings, "a setting, and but for these a bundle is always whole")
        left_out = set(exclude or ()) - kept
        data["settings"] = {k: v for k, v in settings.items() if k not in left_out}
        bundle.write(path, type(self).__name__, arrays, data)

    # ------------------------------------------------------------------ inside

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's keywords as plain data, from which an equal agent can be built."""

    @abstractmethod
    def _policy_name(self) -> str:
        """SB3's name for the kind of policy."""

    @abstractmethod
    def _functions(self) -> list[str]:
        """Settings that are functions of somebody else's: plain data only comes close to them."""

    def _environment(self) -> VecEnv:
        if self.env is None:
            raise ValueError("this agent has no environment; give it one: agent.set_env(env)")
        return self.env

    def _said(self, state: Data) -> Data:
        """All that is saved beside the arrays; ``state`` is what the agent adds to the counters."""
        # without their time of day: the same training gives the same bytes
        episodes = [{key: float(e[key]) for key in ("r", "l")} for e in self.ep_info_buffer or ()]
        counters = {
            "num_timesteps": self.num_timesteps,
            "n_updates": self._n_updates,
            "total_timesteps": self._total_timesteps,
            "progress_remaining": self._current_progress_remaining,
            "episodes": episodes,
            "successes": [float(success) for success in self.ep_success_buffer or ()],
            "last_update": self.last_update,
        }
        return {
            "policy": self._policy_name(),
            "settings": self.settings(),
            "observation_space": space_to_data(self.observation_space),
            "action_space": space_to_data(self.action_space),
            "environment": None if self.env is None else name_of(self.env),
            "state": counters | state,
        }

    def _restore_counters(self, state: Mapping[str, Any]) -> None:
        """Take over the counters of `_said`; older files of imported agents lack some."""
        self.num_timesteps = int(state["num_timesteps"])
        self._n_updates = int(state["n_updates"])
        self._total_timesteps = int(state.get("total_timesteps", 0))
        self._current_progress_remaining = float(state["progress_remaining"])
        self.last_update = {str(key): float(value) for key, value in state["last_update"].items()}
        window = self._stats_window_size
        self.ep_info_buffer = deque(state.get("episodes", ()), maxlen=window)
        self.ep_success_buffer = deque(state.get("successes", ()), maxlen=window)

    def _world(self) -> VecEnv:
        return self._environment()

    def _capture(self, arrays: Arrays) -> tuple[Any, str | None]:
        return vector.capture(self._environment(), arrays, "environment")

    def _judge(self) -> str | None:
        return vector.why_not_exact(self._environment())

    def _put_back(self, state: Any, arrays: Mapping[str, Any]) -> None:
        vector.restore(self._environment(), state, arrays)

    def _seed_environment(self, seed: int) -> Any:
        env = self._environment()
        env.seed(seed)
        self._start_from(env.reset())
        return self._last_obs

    @abstractmethod
    def _start_from(self, observation: Any) -> None:
        """Go on from the first observation of new episodes."""

    def _description(self) -> Data:
        return {
            "functions": self._functions(),
            "n_envs": self.n_envs,
            "remade_by_id": remade_by_id(self._environment()),
        }

    def _require_fitting(self, training: Mapping[str, Any]) -> None:
        if training["n_envs"] != self.n_envs:
            raise ValueError(
                f"the checkpoint is of {training['n_envs']} environments, there are {self.n_envs}; "
                "pass as many: resume(path, env=...)"
            )

    def _kept(self) -> Data:
        return {"actions": self.action_space.np_random}

    def _go_on(self, kept: Data, first: Any) -> None:
        self.action_space._np_random = kept["actions"]
        if self.why_not_exact() is None or getattr(self, "_vec_normalize_env", None) is not None:
            return  # statistics were not yet restored when ``first`` was normalised
        # the same seed has led elsewhere than before: then no promise can be kept
        pairs = zip(_leaves(first), _leaves(self._last_obs), strict=True)
        if not all(np.array_equal(now, before) for now, before in pairs):
            warnings.warn(
                f"{name_of(self.env)} does not start alike when it is seeded alike: training goes "
                "on, but not bit for bit as it would have",
                stacklevel=4,
            )


def environment_again(data: Mapping[str, Any]) -> str:
    """The id of the environment that a checkpoint is of, if that is all it takes to make it.

    Raises:
        ValueError: if it takes more, or would import a module that the file names.
    """
    name = data["environment"]
    if not data["training"]["remade_by_id"]:
        raise ValueError(
            f"{name} can't be made by its id alone as it was; pass one like it: "
            "resume(path, env=...)"
        )
    catalogue.require_no_import(name)
    return str(name)


def _leaves(observation: Any) -> list[Any]:
    if isinstance(observation, dict):
        return list(observation.values())
    images = getattr(observation, "images", None)
    return [observation] if images is None else [observation.flat, *images]
