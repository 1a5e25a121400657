"""Going on with an interrupted training exactly: tables, streams, and a stepped environment."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ottrpo.core.checks import require
from ottrpo.persistence import bundle
from ottrpo.persistence.keeper import checkpoint_kind, last_checkpoint
from ottrpo.persistence.randomness import global_randomness, set_global_randomness
from ottrpo.persistence.segments import segment_seed
from ottrpo.persistence.values import Arrays, decode, encode

from .environments import environment_from_spec
from .problem import Simulator


class Resumable(ABC):
    """What `TabularAgent` needs to be stopped between two updates and go on as if it had not."""

    num_timesteps: int
    seed: int
    _simulator: Simulator
    _environment: dict[str, Any] | None
    _segment = 0
    _total_timesteps = 0

    @property
    def remaining_timesteps(self) -> int:
        """Steps that were asked for and not yet played when training stopped."""
        return max(self._total_timesteps - self.num_timesteps, 0)

    def why_not_exact(self) -> str | None:
        """Why the environment can't be captured exactly; ``None`` if it can, as any table."""
        return self._simulator.why_not_exact()

    def start_segment(self) -> None:
        """Seed the environment, so that what follows does not depend on its past."""
        self._segment += 1
        self._simulator.reseed(segment_seed(self.seed, self._segment))

    def training_state(self) -> tuple[Arrays, dict[str, Any]]:
        """All that the rest of training depends on, between two updates."""
        arrays, data = self._saved()
        training = {
            "class": type(self).__name__,
            "segment": self._segment,
            "mode": "exact" if self.why_not_exact() is None else "segment",
            "total_timesteps": self._total_timesteps,
            "random": encode(global_randomness(), arrays, "random"),
        }
        return arrays, {**data, "training": training}

    def resume_from(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Become what `training_state` described; `learn` with ``remaining_timesteps`` goes on.

        Raises:
            ValueError: if that was another agent, or one on another problem.
        """
        training = data["training"]
        require(
            training["class"] == type(self).__name__,
            f"the checkpoint is of a {training['class']}",
        )
        self._restore(arrays, data)
        self._segment = int(training["segment"])
        self._total_timesteps = int(training["total_timesteps"])
        set_global_randomness(decode(training["random"], arrays))

    @classmethod
    def resume(cls, path: str | Path, env: Any = None, **settings: Any) -> Self:
        """An agent at its last checkpoint, to go on with.

        ``agent.learn(agent.remaining_timesteps)`` then ends bit for bit where it would have ended
        without the interruption.

        Args:
            path: a checkpoint, the folder that `CheckpointEvery` fills, or the directory of a run.
            env: needed if the agent was not trained on a registered environment.
            settings: a radius that was a function has to be given again.

        Raises:
            ValueError: if there is no checkpoint, or it does not fit.
        """
        checkpoint = last_checkpoint(Path(path), checkpoint_kind(cls.__name__))
        with bundle.interpreting(checkpoint.path):
            data = checkpoint.data["agent"]
            if env is None:
                env = environment_from_spec(data["environment"], data["problem"])
            keywords = {**data["settings"], **settings}
            require("radius" in keywords, "the radius was a function; resume(path, radius=...)")
            agent = cls(env, seed=data["seed"], **keywords)  # type: ignore[call-arg]
            agent.resume_from(checkpoint.arrays, data)
            agent._environment = data["environment"]  # as it was said, not as it was made again
        return agent

    # ------------------------------------------------------------------ inside

    @abstractmethod
    def _saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of the agent."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Of the agent."""
