"""When a training agent is saved: at every so many steps, between two updates."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, final

from . import bundle
from .checkpoints import Checkpoint, Checkpoints
from .values import Arrays

Data = dict[str, Any]
FOLDER = "checkpoints"  # in the directory of a run


class Resumable(Protocol):
    """An agent that can be stopped between two updates and go on as if it had not been."""

    num_timesteps: int

    def why_not_exact(self) -> str | None:
        """Why its environments can't be captured exactly; ``None`` if they can."""

    def start_segment(self) -> None:
        """Seed and reset the environments by the number of the segment."""

    def training_state(self) -> tuple[Arrays, Data]:
        """All that the rest of training depends on."""

    def resume_from(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Become what `training_state` described."""


def is_resumable(agent: Any) -> bool:
    """Whether the agent offers what `Resumable` asks for."""
    names = ("why_not_exact", "start_segment", "training_state", "resume_from")
    return all(hasattr(agent, name) for name in names)


@final
class Keeper:
    """Writes a checkpoint whenever training passes a multiple of ``every`` steps.

    Whether one is due depends on the steps alone, so a resumed training has its checkpoints, and in
    segment mode its segments, where the uninterrupted one has them.

    Args:
        checkpoints: where they go.
        every: steps.
        extra: what else to keep with the agent, asked for at each checkpoint.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        every: int,
        extra: Callable[[], Data] = dict,
    ) -> None:
        if every < 1:
            raise ValueError(f"checkpoints are written every 1 or more steps, got {every}")
        self._checkpoints, self._every, self._extra = checkpoints, every, extra
        self._last = 0

    def start(self, agent: Resumable) -> None:
        """Training starts, or goes on."""
        self._last = agent.num_timesteps

    def after_update(self, agent: Resumable) -> Path | None:
        """Write a checkpoint if one is due."""
        if agent.num_timesteps // self._every == self._last // self._every:
            return None
        self._last = agent.num_timesteps
        if agent.why_not_exact() is not None:
            agent.start_segment()
        return self._write(agent)

    def before_stop(self, agent: Resumable) -> Path | None:
        """Write a checkpoint out of turn, if that leaves what follows as it would have been.

        In segment mode it would not: a segment starts where every run has one, and nowhere else.
        """
        if agent.num_timesteps == self._last or agent.why_not_exact() is not None:
            return None
        return self._write(agent)

    def _write(self, agent: Resumable) -> Path:
        arrays, data = agent.training_state()
        return self._checkpoints.write(
            agent.num_timesteps, arrays, {"agent": data, **self._extra()}
        )


def last_checkpoint(path: Path, kind: str) -> Checkpoint:
    """The last good checkpoint in a folder or a run's directory, or the one in a file.

    Raises:
        ValueError: if there is none.
    """
    if path.is_file():
        arrays, data = bundle.read(path, kind)
        with bundle.interpreting(path):
            return Checkpoint(data["step"], arrays, data["state"], path)
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    checkpoint = Checkpoints(folder, kind).latest()
    if checkpoint is None:
        raise ValueError(f"there is no checkpoint in {path}")
    return checkpoint


def checkpoint_kind(class_name: str) -> str:
    """What the files of an agent's checkpoints say that they hold."""
    return f"checkpoint of {class_name}"


def segment_line(reason: str) -> str:
    """What is said when the environments can't be captured exactly."""
    return (
        f"checkpoints: the environment can't be captured exactly ({reason}); it is seeded anew and "
        "reset at every checkpoint instead"
    )
