"""How a run or a study fares, for people: live on a terminal, in plain lines elsewhere."""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from statistics import fmean
from typing import Any, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .jobs import Job, Standing
from .pool import News
from .published import trained_score
from .recorder import Onlooker

# Elsewhere than on a terminal, what runs is told this often.
LINE_SECONDS = 60.0
# How long the rest will take is told by the speed of the last minutes.
SPEED_SECONDS = 600.0
WAITING, RUNNING, AGAIN, FAILED, FINISHED = "·", "▶", "↻", "✗", "✓"
_STYLES = {WAITING: "dim", RUNNING: "cyan", AGAIN: "yellow", FAILED: "bold red", FINISHED: "green"}


@final
class RunBoard(Onlooker):
    """A run: a progress bar, or a line at every tenth of training."""

    def __init__(self, steps: int, console: Console) -> None:
        self._steps, self._console = steps, console
        self._tenths = 0
        self._return = self._region = ""
        columns = {  # what is told, and from which width on
            TextColumn("{task.percentage:>3.0f} %"): 0,
            BarColumn(): 80,
            TextColumn("{task.completed:,.0f} steps"): 50,
            TextColumn("{task.fields[speed]}"): 65,
            TextColumn("{task.fields[last]}"): 0,
            TextColumn("{task.fields[region]}"): 100,
            TimeRemainingColumn(): 0,
        }
        self._bar = Progress(
            *(column for column, width in columns.items() if console.width >= width),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=steps, speed="", last="", region="")

    def __enter__(self) -> "RunBoard":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, timestep: int) -> None:
        """Move the bar."""
        done = min(timestep, self._steps)
        self._bar.update(
            self._task,
            completed=done,
            speed=self._speed(),
            last=self._return,
            region=self._region,
        )

    def figures(self, told: Mapping[str, float]) -> None:
        """Show how much of the radius is spent."""
        if "ot/spent" in told:
            self._region = f"spent {told['ot/spent']:.3g} of {told['ot/radius']:.3g}"

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Show the last return."""
        kind = "deterministic" if record["deterministic"] else "sampled"
        self._return = f"return {fmean(record['returns']):,.1f}"
        tenths = 10 * record["mark"] // self._steps
        if not self._console.is_terminal and tenths > self._tenths:
            self._tenths = tenths
            told = "".join(f", {part}" for part in (self._speed(), self._region) if part)
            self._console.print(f"{record['timestep']:>12,} steps  {self._return} ({kind}){told}")

    def _speed(self) -> str:
        speed = self._bar.tasks[0].speed
        return f"{speed:,.0f} steps/s" if speed else ""


@final
class StudyBoard:
    """Shows the runs of a study, and says how long the rest will take at their speed."""

    def __init__(self, jobs: Sequence[Job], finished: Collection[str], console: Console) -> None:
        self._console = console
        self._jobs = {job.name: job for job in jobs}
        self._signs = {job.name: WAITING for job in jobs}
        self._standing = {job.name: Standing() for job in jobs}
        self._cells: dict[str, list[Job]] = {}
        for job in jobs:
            self._cells.setdefault(job.cell.name, []).append(job)
        for name in finished:
            self._signs[name] = FINISHED
            self._standing[name] = self._jobs[name].standing()
        self._began = self._told = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.percentage:.0f} % of all steps"),
            BarColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            auto_refresh=False,
            speed_estimate_period=SPEED_SECONDS,
        )
        self._all = self._bar.add_task("", total=sum(job.spec.steps for job in jobs))
        self._move_bar()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> "StudyBoard":
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.update(self.picture(), refresh=True)
            self._live.__exit__(None, None, None)

    def tell(self, news: News, *, again: bool) -> None:
        """A run has begun, is finished, or has failed; whether it is tried then."""
        job, name = news.job, news.job.name
        if news.kind == "failed":
            self._signs[name] = AGAIN if again else FAILED
            word = "stopped, will be tried again" if again else "FAILED"
            line = f"{name} {word}: {news.reason} (see {job.log})"
            self.say(line, "yellow" if again else "bold red")
            return
        self._signs[name] = RUNNING if news.kind == "began" else FINISHED
        self._standing[name] = job.standing()
        if self._live is None:
            told = "started" if news.kind == "began" else f"finished{self._told_of(name)}"
            self.say(f"{name} {told}")

    def say(self, line: str, style: str | None = None) -> None:
        """Print a line above the table."""
        text = f"{self._clock()} {line}"
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def tick(self) -> None:
        """Look at what runs, and show it."""
        for name, sign in self._signs.items():
            if sign == RUNNING:
                self._standing[name] = self._jobs[name].standing()
        self._move_bar()
        if self._live is not None:
            self._live.update(self.picture(), refresh=True)
        elif time.monotonic() - self._told > LINE_SECONDS:
            self._told = time.monotonic()
            for name, sign in self._signs.items():
                if sign == RUNNING:
                    self.say(f"{name}{self._told_of(name)}")
            left = self._bar.tasks[self._all].time_remaining
            if left is not None:
                self.say(f"about {timedelta(seconds=round(left))} left")

    def picture(self) -> Group:
        """The table, and how far all is."""
        return Group(self.table(), self._bar)

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
            sign, speed = self._signs[job.name], self._standing[job.name].speed
            seeds.append(sign, _STYLES[sign])
            if sign == RUNNING:
                seeds.append(f"{self._percent(job)} ", "dim")
                speeds += [] if speed is None else [speed]
        standings = [self._standing[job.name] for job in jobs]
        total = sum(job.spec.steps for job in jobs)
        returns = [s.returned for s in standings if s.returned is not None]
        paper = trained_score(cell.environment, cell.agent)
        return [
            cell.environment,
            cell.agent,
            cell.label or cell.config,
            seeds,
            f"{100 * sum(s.timestep for s in standings) / total:.0f} %",
            f"{fmean(speeds):,.0f}" if speeds else "",
            f"{fmean(returns):,.1f}" if returns else "",
            "" if paper is None else f"{paper.score:,.0f}",
        ]

    def _move_bar(self) -> None:
        done = sum(standing.timestep for standing in self._standing.values())
        self._bar.update(self._all, completed=done)

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
        job, standing = self._jobs[name], self._standing[name]
        parts = [f": {self._percent(job)} %"]
        if standing.speed is not None:
            parts.append(f"{standing.speed:,.0f} steps/s")
        if standing.returned is not None:
            parts.append(f"return {standing.returned:,.1f}")
        paper = trained_score(job.spec.environment, job.spec.agent)
        if paper is not None:
            parts.append(f"paper {paper.score:,.0f}")
        return ", ".join(parts)

    def _percent(self, job: Job) -> int:
        return int(100 * self._standing[job.name].timestep / job.spec.steps)

    def _clock(self) -> str:
        count = sum(sign == FINISHED for sign in self._signs.values())
        minutes = (time.monotonic() - self._began) / 60
        return f"[{count}/{len(self._signs)}, {minutes:.1f} min]"
