"""Going on exactly with an interrupted training in the vector environments of SB3."""

import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from ottrpo.collect.host import fresh_env, name_of, remade_by_id
from ottrpo.core.checks import require, require_one_of
from ottrpo.engine.spaces import space_from_data, space_to_data
from ottrpo.envs import catalogue
from ottrpo.persistence import bundle
from ottrpo.persistence.checkpoints import Saved
from ottrpo.persistence.environments.vector import VectorWorld
from ottrpo.persistence.keeper import Keeper, StopSignals
from ottrpo.persistence.lock import DirectoryLock
from ottrpo.persistence.snapshot import Data, Snapshot, segment_line


class VectorSnapshot(Snapshot):
    """What agents with SB3's face share of saving and going on, ours and those imported."""

    env: VecEnv | None
    n_envs: int
    observation_space: Any
    action_space: Any
    last_update: dict[str, float]
    _trained_in: str | None = None  # the name that its file has for its environment
    _last_obs: Any
    _n_updates: int
    _current_progress_remaining: float
    _stats_window_size: int
    _setup_model: Any
    set_env: Any
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

    @classmethod
    def _made_again(cls, saved: Saved, env: Any, settings: Mapping[str, Any]) -> Self:
        return cls._read(saved, _environment_again(saved.data) if env is None else env, settings)

    @classmethod
    def _read(cls, saved: Saved, env: Any, settings: Mapping[str, Any]) -> Self:
        """The agent that was saved, with some settings replaced, in ``env`` if that is given."""
        data = saved.data
        with bundle.interpreting(saved.path):
            agent = cls._bare(data, settings)
            agent.observation_space = space_from_data(data["observation_space"])
            agent.action_space = space_from_data(data["action_space"])
            agent._trained_in = data.get("environment")
            require(isinstance(agent._trained_in, str | None), "an environment has a name")
            bundle.require_room(agent._planned_entries(), saved.arrays)
        if env is not None:
            agent.set_env(env)
        with bundle.interpreting(saved.path):
            agent._setup_model()
            agent._restore(saved.arrays, data)
        return agent

    @classmethod
    @abstractmethod
    def _bare(cls, data: Mapping[str, Any], settings: Mapping[str, Any]) -> Self:
        """An agent with the settings that were saved or are given, without spaces and networks."""

    @abstractmethod
    def _planned_entries(self) -> int:
        """How many numbers, at least, an agent holds that is built for its spaces."""

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

    def fresh_env(self, **keywords: Any) -> Any:
        """A new environment like that of the agent, or the one that its file names.

        Args:
            keywords: for `gymnasium.make`, such as ``render_mode``.
        """
        if self.env is None and self._trained_in is not None:
            catalogue.require_no_import(self._trained_in)
            return catalogue.make(self._trained_in, disable_env_checker=True, **keywords)
        return fresh_env(self._environment(), **keywords)

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
            "environment": self._trained_in if self.env is None else name_of(self.env),
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

    def _world(self) -> VectorWorld:
        return VectorWorld(self._environment())

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


def _environment_again(data: Mapping[str, Any]) -> str:
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


class CheckpointEvery(BaseCallback):
    """Keeps checkpoints from which `resume` goes on bit for bit.

    In training::

        agent.learn(1_000_000, callback=CheckpointEvery(50_000, "checkpoints"))

    and after an interruption of any kind::

        agent = OTTRPO.resume("checkpoints", env=env)
        agent.learn(
            agent.remaining_timesteps,
            reset_num_timesteps=False,
            callback=CheckpointEvery(50_000, "checkpoints"),
        )

    The agents on tables take it as well (their `learn` always counts on).

    SIGTERM and Ctrl-C write one more before they are obeyed, at the end of the current update.
    Environments that can't be captured exactly are seeded anew and reset at every checkpoint; that
    is said when training starts. The state of other callbacks is not kept.

    Args:
        steps: between two checkpoints; the first update that passes a multiple of it writes one.
        folder: where they go; the last two are kept.
        verbose: 1: tell of each.
    """

    def __init__(self, steps: int, folder: str | Path, verbose: int = 0) -> None:
        super().__init__(verbose)
        self._steps, self._folder = int(steps), Path(folder)

    def start(self, agent: Any) -> None:
        """Training starts, or goes on."""
        if not isinstance(agent, Snapshot):
            raise ValueError(f"{type(agent).__name__} can't go on from a checkpoint")
        self._folder.mkdir(parents=True, exist_ok=True)
        agent.while_learning.enter_context(DirectoryLock(self._folder))
        self._stop = agent.while_learning.enter_context(StopSignals())
        self._keeper = Keeper(agent, self._folder, self._steps, self._stop)
        agent.snapshot()  # what can't be saved is refused now, not after the first hours
        reason = agent.why_not_exact()
        if reason is not None:
            print(segment_line(reason))  # noqa: T201  # a run that differs for it is told so

    def __call__(self, agent: Any) -> None:
        """Called after every update."""
        written = self._keeper.after_update(agent)
        if written is not None and self.verbose:
            print(f"checkpoint: {written}")  # noqa: T201  # asked for
        if self._stop.asked is not None:
            again = f"{type(agent).__name__}.resume({str(self._folder)!r})"
            print(f"stopped at step {agent.num_timesteps:,}; to go on: {again}")  # noqa: T201
        self._stop.obey()

    def _on_training_start(self) -> None:
        agent: Any = self.model
        self.start(agent)
        agent.while_learning.enter_context(agent.telling(self))

    def _on_step(self) -> bool:
        return True
