"""Going on with an interrupted training exactly: the agent, its environments, all randomness."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from ottrpo.deep.observations import Encoded, ObservationLayout
from ottrpo.envs import catalogue
from ottrpo.persistence import bundle
from ottrpo.persistence.environments import vector
from ottrpo.persistence.keeper import checkpoint_kind, last_checkpoint
from ottrpo.persistence.randomness import global_randomness, set_global_randomness
from ottrpo.persistence.segments import fresh_root, segment_seed
from ottrpo.persistence.values import Arrays, decode, encode

from . import state
from .environments import name_of, remade_by_id
from .settings import functions_of


class Resumable(ABC):
    """What `DeepAgent` needs to be stopped and to go on as if it had not been.

    Everything that an agent of ours keeps from one update to the next stands in its `learners`, its
    normalisers, its generators ``rng`` and ``_predict_rng`` and the counters of SB3. A subclass
    that keeps to this inherits all that is here.
    """

    env: VecEnv | None
    layout: ObservationLayout
    _last_obs: Any
    num_timesteps: int
    _total_timesteps: int
    n_envs: int
    seed: int | None
    action_space: Any

    @property
    def remaining_timesteps(self) -> int:
        """Steps that were asked for and not yet taken when training stopped."""
        return max(self._total_timesteps - self.num_timesteps, 0)

    def why_not_exact(self) -> str | None:
        """Why the environments can't be captured exactly; ``None`` if they can."""
        return vector.why_not_exact(self._environment())

    def start_segment(self) -> None:
        """Seed and reset the environments, so that what follows does not depend on their past."""
        self._segment += 1
        self._last_obs = self._seeded_reset()
        self.reward_normaliser.return_n[:] = 0.0

    def training_state(self) -> tuple[Arrays, dict[str, Any]]:
        """All that the rest of training depends on, between two updates."""
        arrays: Arrays = dict(state.agent_arrays(self))
        environment, reason = vector.capture(self._environment(), arrays, "environment")
        training = {
            "class": type(self).__name__,
            "n_envs": self.n_envs,
            "segment": self._segment,
            "segment_root": self._segment_root,
            "mode": "exact" if reason is None else "segment",
            "functions": functions_of(self),
            "remade_by_id": remade_by_id(self._environment()),
            "environment": environment,
            "random": encode(global_randomness(), arrays, "random"),
            "actions": encode(self.action_space.np_random, arrays, "actions"),
        }
        return arrays, {**self._saved_data(), "training": training}

    def resume_from(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Become what `training_state` described; `learn` with ``remaining_timesteps`` goes on.

        Raises:
            ValueError: if that was another agent, or one in other environments.
        """
        training = data["training"]
        if training["class"] != type(self).__name__:
            raise ValueError(f"the checkpoint is of a {training['class']}")
        if training["n_envs"] != self.n_envs:
            raise ValueError(
                f"the checkpoint is of {training['n_envs']} environments, there are {self.n_envs}; "
                "pass as many: resume(path, env=...)"
            )
        state.restore(self, arrays, data["state"])
        self._last_obs = state.last_observation(arrays)
        self._segment, self._segment_root = training["segment"], training["segment_root"]
        seen = self._seeded_reset()
        vector.restore(self._environment(), training["environment"], arrays)
        if training["mode"] == "segment":
            self._require_repeats(seen)
        self.action_space._np_random = decode(training["actions"], arrays)
        set_global_randomness(decode(training["random"], arrays))

    @classmethod
    def resume(cls, path: Any, env: Any = None, device: Any = "auto", **settings: Any) -> Self:
        """An agent at its last checkpoint, to go on with.

        ``agent.learn(agent.remaining_timesteps, reset_num_timesteps=False)`` then ends bit for bit
        where it would have ended without the interruption.

        Args:
            path: a checkpoint, the folder that `CheckpointEvery` fills, or the directory of a run.
            env: like the one that was trained in; by default it is made from its id.
            device: where to compute.
            settings: those that were functions and can't be saved: schedules.

        Raises:
            ValueError: if there is no checkpoint, or it does not fit.
        """
        checkpoint = last_checkpoint(Path(path), checkpoint_kind(cls.__name__))
        arrays, data = checkpoint.arrays, checkpoint.data["agent"]
        with bundle.interpreting(checkpoint.path):
            missing = sorted(set(data["training"]["functions"]) - set(settings))
            if missing:
                raise ValueError(
                    f"{missing[0]} was a function, which can't be saved; give it again: "
                    f"resume(path, {missing[0]}=...)"
                )
            if env is None and not data["training"]["remade_by_id"]:
                raise ValueError(
                    f"{data['environment']} can't be made by its id alone as it was; pass one like "
                    "it: resume(path, env=...)"
                )
            if env is None:
                env = data["environment"]
                catalogue.require_no_import(env)
            agent = cls._from_saved(checkpoint.path, arrays, data, env, device, settings)
            agent.resume_from(arrays, data)
        return agent

    # ------------------------------------------------------------------ inside

    _segment: int = 0
    _segment_root: int = 0
    reward_normaliser: Any

    @abstractmethod
    def _environment(self) -> VecEnv:
        """Of the agent."""

    @abstractmethod
    def _saved_data(self) -> dict[str, Any]:
        """Of the agent."""

    @classmethod
    @abstractmethod
    def _from_saved(
        cls,
        path: Any,
        arrays: Mapping[str, Any],
        data: Mapping[str, Any],
        env: Any,
        device: Any,
        settings: Mapping[str, Any],
    ) -> Self:
        """Of the agent."""

    def _start_segments(self) -> None:
        self._segment, self._segment_root = 0, fresh_root(self.seed)

    def _seeded_reset(self) -> Encoded:
        env = self._environment()
        env.seed(segment_seed(self._segment_root, self._segment))
        return self.layout.encode(env.reset(), env.num_envs)

    def _require_repeats(self, seen: Encoded) -> None:
        """Warn if the same seed leads elsewhere than before: then no promise can be kept."""
        if getattr(self, "_vec_normalize_env", None) is not None:
            return  # its statistics were not yet restored when ``seen`` was normalised
        if not np.array_equal(seen.flat, self._last_obs.flat):
            warnings.warn(
                f"{name_of(self.env)} does not start alike when it is seeded alike: training goes "
                "on, but not bit for bit as it would have",
                stacklevel=3,
            )
