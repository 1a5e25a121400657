"""The progress bar of a training run."""

from types import TracebackType
from typing import Self, final

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


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
