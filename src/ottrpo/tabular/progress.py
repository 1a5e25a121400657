"""How far a training run is, and whether its episodes ever end."""

import warnings
from types import TracebackType
from typing import Self, final

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from .mdp import FiniteMDP
from .problem import Problem


@final
class Progress:
    """Steps done, time left and the return of the last batch; nothing at all unless shown."""

    def __init__(self, start: int, end: int, title: str, *, shown: bool) -> None:
        self._end = end
        self._bar: RichProgress | None = None
        if shown:
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("return {task.fields[score]:.1f}"),
            )
            self._task = self._bar.add_task(title, total=end, completed=start, score=float("nan"))

    def show(self, steps: int, score: float) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=min(steps, self._end), score=score)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def say_endless(problem: Problem, episodes: int) -> None:
    """Warn that no episode ended by the task itself, where episodes are meant to end."""
    if isinstance(problem, FiniteMDP):
        if not problem.terminal_o.any():
            return  # an endless task: the cap is its horizon
        reason = (
            "a terminal state can be reached, train longer"
            if problem.reaches_an_end()
            else "no terminal state can be reached from a start state"
        )
    else:
        reason = "can the goal be reached?"
    warnings.warn(
        f"all {episodes} episodes of {problem.name} stopped at the cap of {problem.step_cap} "
        f"steps, none ended by itself: {reason}",
        stacklevel=3,
    )
