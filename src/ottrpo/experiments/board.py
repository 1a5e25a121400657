"""How a study fares, for people: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Collection, Sequence
from statistics import fmean
from typing import final

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .jobs import Job, Progress
from .published import trained_score

# Elsewhere than on a terminal, what runs is told this often.
LINE_SECONDS = 60.0
WAITING, RUNNING, AGAIN, FAILED, FINISHED = "·", "▶", "↻", "✗", "✓"
_STYLES = {WAITING: "dim", RUNNING: "cyan", AGAIN: "yellow", FAILED: "bold red", FINISHED: "green"}


@final
class StudyBoard:
    """Shows the runs of a study; see `ottrpo.experiments.local.Board`."""

    def __init__(self, jobs: Sequence[Job], finished: Collection[str], console: Console) -> None:
        self._console = console
        self._jobs = {job.name: job for job in jobs}
        self._signs = {job.name: WAITING for job in jobs}
        self._progress = {job.name: Progress() for job in jobs}
        self._cells: dict[str, list[Job]] = {}
        for job in jobs:
            self._cells.setdefault(job.cell.name, []).append(job)
        for name in finished:
            self._signs[name] = FINISHED
            self._progress[name] = self._jobs[name].progress()
        self._began = self._told = time.monotonic()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> "StudyBoard":
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
            self._live.__exit__(None, None, None)

    def began(self, job: Job) -> None:
        """A run has been started, or started again."""
        self._signs[job.name] = RUNNING
        if self._live is None:
            self.say(f"{job.name} started")

    def ended(self, job: Job) -> None:
        """A run is finished."""
        self._signs[job.name] = FINISHED
        self._progress[job.name] = job.progress()
        if self._live is None:
            self.say(f"{job.name} finished{self._told_of(job.name)}")

    def stumbled(self, job: Job, reason: str, *, again: bool) -> None:
        """A run has failed; whether it is tried again."""
        self._signs[job.name] = AGAIN if again else FAILED
        word = "stopped, will be tried again" if again else "FAILED"
        line = f"{job.name} {word}: {reason} (see {job.log})"
        self._print(line, "yellow" if again else "bold red")

    def say(self, line: str) -> None:
        """Print a line above the table."""
        self._print(line)

    def tick(self) -> None:
        """Look at what runs, and show it."""
        for name, sign in self._signs.items():
            if sign == RUNNING:
                self._progress[name] = self._jobs[name].progress()
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
        elif time.monotonic() - self._told > LINE_SECONDS:
            self._told = time.monotonic()
            for name, sign in self._signs.items():
                if sign == RUNNING:
                    self.say(f"{name}{self._told_of(name)}")

    def table(self) -> Table:
        """One line per cell; cells where nothing happens are left out when there is no room."""
        table = Table(caption=self._summary())
        for column in ("environment", "agent", "configuration"):
            table.add_column(column, no_wrap=True)
        table.add_column("seeds")
        for column in ("done", "steps/s", "return", "paper"):
            table.add_column(column, justify="right", no_wrap=True)
        rows = sorted(self._cells.values(), key=self._calm)
        room = max(3, self._console.height - 8)
        for jobs in rows[:room]:
            table.add_row(*self._row(jobs))
        if len(rows) > room:
            table.add_row(f"and {len(rows) - room} more", *[""] * 7, style="dim")
        return table

    def _row(self, jobs: Sequence[Job]) -> list[Text | str]:
        cell = jobs[0].cell
        seeds, speeds = Text(), []
        for job in jobs:
            sign, speed = self._signs[job.name], self._progress[job.name].speed
            seeds.append(sign, _STYLES[sign])
            if sign == RUNNING:
                seeds.append(f"{self._percent(job)} ", "dim")
                speeds += [] if speed is None else [speed]
        progress = [self._progress[job.name] for job in jobs]
        total = sum(job.spec.steps for job in jobs)
        returns = [p.returned for p in progress if p.returned is not None]
        paper = trained_score(cell.environment, cell.agent)
        return [
            cell.environment,
            cell.agent,
            cell.label or cell.config,
            seeds,
            f"{100 * sum(p.timestep for p in progress) / total:.0f} %",
            f"{fmean(speeds):,.0f}" if speeds else "",
            f"{fmean(returns):,.1f}" if returns else "",
            "" if paper is None else f"{paper.score:,.0f}",
        ]

    def _calm(self, jobs: Sequence[Job]) -> int:
        """What runs or has failed comes first, then what waits, then what is finished."""
        signs = {self._signs[job.name] for job in jobs}
        if signs & {RUNNING, FAILED, AGAIN}:
            return 0
        return 1 if WAITING in signs else 2

    def _summary(self) -> str:
        count = {sign: list(self._signs.values()).count(sign) for sign in _STYLES}
        text = (
            f"{count[FINISHED]} of {len(self._signs)} runs finished, {count[RUNNING]} running, "
            f"{count[WAITING] + count[AGAIN]} waiting"
        )
        failed = f", [bold red]{count[FAILED]} failed[/]" if count[FAILED] else ""
        return f"{text}{failed} · {self._clock()}"

    def _told_of(self, name: str) -> str:
        job, progress = self._jobs[name], self._progress[name]
        parts = [f": {self._percent(job)} %"]
        if progress.speed is not None:
            parts.append(f"{progress.speed:,.0f} steps/s")
        if progress.returned is not None:
            parts.append(f"return {progress.returned:,.1f}")
        paper = trained_score(job.spec.environment, job.spec.agent)
        if paper is not None:
            parts.append(f"paper {paper.score:,.0f}")
        return ", ".join(parts)

    def _print(self, line: str, style: str | None = None) -> None:
        text = f"{self._clock()} {escape(line)}"
        self._console.print(text, style=style, highlight=False, soft_wrap=True)

    def _percent(self, job: Job) -> int:
        return int(100 * self._progress[job.name].timestep / job.spec.steps)

    def _clock(self) -> str:
        count = sum(sign == FINISHED for sign in self._signs.values())
        minutes = (time.monotonic() - self._began) / 60
        return f"\\[{count}/{len(self._signs)}, {minutes:.1f} min]"
