"""Going on exactly with an interrupted training of an imported agent."""

import random
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from ottrpo.persistence import bundle
from ottrpo.persistence.environments import vector
from ottrpo.persistence.keeper import checkpoint_kind, last_checkpoint
from ottrpo.persistence.segments import fresh_root, segment_seed
from ottrpo.persistence.values import Arrays, decode, encode


class ResumableBaseline(OnPolicyAlgorithm):
    """What the runner needs to stop an agent between two updates and to go on later.

    The libraries keep everything but the environments and the random generators in the agent; an
    update leaves the rollout behind, so between two of them it need not be kept.
    """

    _segment: int = 0
    _segment_root: int | None = None
    _torch_generator: torch.Tensor | None = None
    _generators: dict[str, Any]

    @property
    def remaining_timesteps(self) -> int:
        """Steps that were asked for and not yet taken when training stopped."""
        return max(self._total_timesteps - self.num_timesteps, 0)

    def learn(self, *arguments: Any, **keywords: Any) -> Self:
        """The library's; what a callback holds while it lasts is let go however it ends.

        The libraries draw from generators that all agents of a process share. Here each agent goes
        on where it was, so that what it learns does not depend on who else is there.
        """
        _set_generators(self._generators)
        with ExitStack() as self.while_learning:
            super().learn(*arguments, **keywords)
        self._keep_generators()
        return self

    def _keep_generators(self) -> None:
        self._generators = _generators()

    def collect_rollouts(self, *arguments: Any, **keywords: Any) -> bool:
        """The library's; it draws gSDE's noise before any callback is told of the rollout."""
        self._torch_generator = torch.get_rng_state()
        return super().collect_rollouts(*arguments, **keywords)

    def why_not_exact(self) -> str | None:
        """Why the environments can't be captured exactly; ``None`` if they can."""
        return vector.why_not_exact(self._environment())

    def start_segment(self) -> None:
        """Seed and reset the environments, so that what follows does not depend on their past."""
        self._segment += 1
        self._seeded_reset()

    def training_state(self) -> tuple[Arrays, dict[str, Any]]:
        """All that the rest of training depends on, between two updates."""
        arrays: Arrays = self._saved_arrays()
        environment, reason = vector.capture(self._environment(), arrays, "environment")
        kept = {
            "total_timesteps": self._total_timesteps,
            "last_obs": self._last_obs,
            "last_episode_starts": self._last_episode_starts,
            "episodes": [dict(episode) for episode in self.ep_info_buffer or ()],
            "actions": self.action_space.np_random,
            **_generators(),
        }
        if self._torch_generator is not None:
            kept["torch"] = self._torch_generator.numpy().copy()
        training = {
            "segment": self._segment,
            "segment_root": self._segment_root,
            "mode": "exact" if reason is None else "segment",
            "environment": environment,
            "kept": encode(kept, arrays, "training"),
        }
        return arrays, {**self._saved_data(), "training": training}

    def resume_from(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Become what `training_state` described; `learn` with the steps that are left goes on.

        Raises:
            ValueError: if that was another agent, or one in other environments.
        """
        training = data["training"]
        kept = decode(training["kept"], arrays)
        self._restore(arrays, data["state"])
        self._segment, self._segment_root = training["segment"], training["segment_root"]
        self._seeded_reset()
        vector.restore(self._environment(), training["environment"], arrays)
        self._total_timesteps = int(kept["total_timesteps"])
        self._last_obs = kept["last_obs"]
        self._last_episode_starts = kept["last_episode_starts"]
        self.ep_info_buffer = deque(kept["episodes"], maxlen=self._stats_window_size)
        self.ep_success_buffer = deque(maxlen=self._stats_window_size)
        self.action_space._np_random = kept["actions"]
        self._generators = {name: kept[name] for name in ("python", "numpy", "torch")}

    @classmethod
    def resume(cls, path: Any, env: Any = None, device: str = "cpu") -> Self:
        """An agent at its last checkpoint, to go on with.

        ``agent.learn(agent.remaining_timesteps, reset_num_timesteps=False)`` then ends bit for bit
        where it would have ended without the interruption.

        Args:
            path: a checkpoint, the folder that `CheckpointEvery` fills, or the directory of a run.
            env: like the one that was trained in; by default it is made from its id.
            device: where torch computes.

        Raises:
            ValueError: if there is no checkpoint, or it does not fit.
        """
        checkpoint = last_checkpoint(Path(path), checkpoint_kind(cls.__name__))
        with bundle.interpreting(checkpoint.path):
            data = checkpoint.data["agent"]
            where = data["environment"] if env is None else env
            agent = cls(data["policy"], where, device=device, **data["settings"])
            agent.resume_from(checkpoint.arrays, data)
        return agent

    def _seeded_reset(self) -> None:
        env = self._environment()
        if self._segment_root is None:
            self._segment_root = fresh_root(self.seed)
        env.seed(segment_seed(self._segment_root, self._segment))
        self._last_obs = env.reset()
        self._last_episode_starts = np.ones(env.num_envs, dtype=bool)

    @abstractmethod
    def _environment(self) -> Any:
        """Of the agent."""

    @abstractmethod
    def _saved_arrays(self) -> Arrays:
        """Of the agent."""

    @abstractmethod
    def _saved_data(self) -> dict[str, Any]:
        """Of the agent."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Of the agent."""


def _generators() -> dict[str, Any]:
    """The states of the generators that the libraries draw from."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002  # the rollout buffer shuffles by it
        "torch": torch.get_rng_state().numpy().copy(),
    }


def _set_generators(states: Mapping[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    torch.set_rng_state(torch.from_numpy(np.array(states["torch"])))
