"""Checkpoints of a training that somebody else's program runs: `CheckpointEvery`."""

from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from ottrpo.persistence.keeper import Keeper, StopSignals
from ottrpo.persistence.lock import DirectoryLock
from ottrpo.persistence.snapshot import Snapshot, segment_line


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
