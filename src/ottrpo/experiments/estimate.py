"""How long a study will take, from steps per second that were measured.

Speeds come from finished runs of the same cell on this machine, from kept results, or, where there
is nothing of the kind, from a short trial, or a guess if there is too little to do for one or it
told nothing.
"""

import csv
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from ottrpo.results.layout import RUNS, run_path
from ottrpo.results.run_directory import RunDirectory

from .forked import may_fork
from .jobs import Job
from .local import run_jobs
from .pace import guessed_seconds
from .protocol import protocol_named

# A trial is a run of this length, or of a hundredth of the run if that is more: an agent whose
# updates are far apart must make two of them, or what is done once would count for every step. Runs
# that together are not many times longer are not worth a trial: it costs as much as a process takes
# to start, and what it tells is how to wait for a few minutes.
TRIAL_STEPS = 10_000
TRIAL_SHARE = 100
WORTH_A_TRIAL = 200
TRIAL_TIME_LIMIT = 300.0
# What a new process takes before its run begins: loading JAX, torch and the environment, on one
# core. A fork has them already.
START_SECONDS = 5.0
HERE, KEPT, LIKE, TRIED, GUESSED = (
    "earlier runs here",
    "kept results",
    "kept results of other settings",
    "a short trial",
    "a guess: what these agents took us, scaled to this machine",
)


@final
@dataclass(frozen=True)
class Speed:
    """Seconds per step of a run, evaluations included, and where the figure comes from.

    What a run does once, such as compiling, is in ``start_seconds`` where it could be told apart.
    """

    seconds_per_step: float
    source: str
    start_seconds: float = 0.0


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long the missing runs will take.

    Attributes:
        seconds: from start to end; None if nothing is known of any run.
        sources: how many cells' speed is known from where.
        unknown: cells of which not even a guess is possible.
    """

    seconds: float | None
    sources: Mapping[str, int]
    unknown: int

    def __str__(self) -> str:
        known = ", ".join(f"{count} from {source}" for source, count in self.sources.items())
        if self.seconds is None:
            return "no estimate: nothing is known of these agents; a trial would not be worth it"
        left = f"; never measured: {self.unknown}" if self.unknown else ""
        return f"about {in_words(self.seconds)} (speed of {known}{left})"


def estimate(
    jobs: Sequence[Job],
    missing: Sequence[Job],
    *,
    results: Sequence[Path],
    workers: int,
    say: Callable[[str], None],
) -> Estimate:
    """How long ``missing``, of all the ``jobs`` of a study, will take on ``workers`` processes."""
    cells = {job.cell.name: job for job in missing}
    speeds = _earlier(jobs)
    kept = {name: seconds for folder in results for name, seconds in _kept(folder).items()}
    for name, job in cells.items():
        if name not in speeds and (found := _kept_speed(job, kept)) is not None:
            speeds[name] = found
    speeds |= _trials([job for job in missing if job.cell.name not in speeds], workers, say)
    speeds |= _guesses([job for job in missing if job.cell.name not in speeds])
    known = [job for job in missing if job.cell.name in speeds]
    sources: dict[str, int] = {}
    for name in cells:
        if name in speeds:
            source = speeds[name].source
            sources[source] = sources.get(source, 0) + 1
    return Estimate(
        seconds=_total(known, speeds, workers) if known else None,
        sources=sources,
        unknown=sum(name not in speeds for name in cells),
    )


def in_words(seconds: float) -> str:
    """A duration for people.

    >>> in_words(0.2), in_words(40), in_words(400), in_words(40_000)
    ('1 s', '40 s', '7 min', '11 h 7 min')
    """
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _total(jobs: Iterable[Job], speeds: Mapping[str, Speed], workers: int) -> float:
    """Of the schedule that the runner follows: in order, each on the first free process."""
    free = [0.0] * workers
    forks = may_fork()
    for job in jobs:
        speed = speeds[job.cell.name]
        start = 0.0 if job.cell.audit or forks else START_SECONDS
        free.sort()
        steps = job.spec.steps - job.progress().timestep
        free[0] += start + speed.start_seconds + steps * speed.seconds_per_step
    return max(free)


def _earlier(jobs: Iterable[Job]) -> dict[str, Speed]:
    speeds = {}
    for job in jobs:
        if job.cell.name not in speeds and job.state() == "finished":
            seconds = job.progress().wall_seconds
            if seconds > 0:
                speeds[job.cell.name] = Speed(seconds / job.spec.steps, HERE)
    return speeds


def _kept(results: Path) -> dict[str, float]:
    """Seconds per step of every cell in ``results``, of whichever study."""
    speeds = {}
    for path in sorted(results.glob(f"*/{RUNS}")):
        try:
            with open(path, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    seconds = float(row.get("wall_seconds") or row["train_seconds"])
                    speeds[row["cell"]] = seconds / int(row["steps"])
        except (OSError, ValueError, LookupError, csv.Error):
            continue  # an estimate is not worth a complaint
    return speeds


def _kept_speed(job: Job, kept: Mapping[str, float]) -> Speed | None:
    if job.cell.name in kept:
        return Speed(kept[job.cell.name], KEPT)
    family = "__".join(job.cell.name.split("__")[:2]) + "__"
    like = [seconds for name, seconds in kept.items() if name.startswith(family)]
    return Speed(max(like), LIKE) if like else None


def _trials(jobs: Sequence[Job], workers: int, say: Callable[[str], None]) -> dict[str, Speed]:
    """One short run for every environment and agent among ``jobs`` that has much to do."""
    families: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        families.setdefault((job.spec.environment, job.spec.agent), []).append(job)
    enough = WORTH_A_TRIAL * TRIAL_STEPS
    families = {
        family: members
        for family, members in families.items()
        if sum(job.spec.steps for job in members) >= enough
    }
    if not families:
        return {}
    say(f"trying {len(families)} short run{'s' * (len(families) > 1)} to measure their speed")
    speeds: dict[str, Speed] = {}
    with tempfile.TemporaryDirectory(prefix="ottrpo-trial-") as folder:
        trials = {}
        for i, (family, members) in enumerate(families.items()):
            trials[family] = _trial(members[0], Path(folder) / str(i))
        run_jobs(
            list(trials.values()),
            workers=min(workers, os.cpu_count() or 1),  # here, also if the runs go to a cluster
            retries=0,
            time_limit=TRIAL_TIME_LIMIT,
            board=_Silent(),
        )
        for family, members in families.items():
            speed = _speed(trials[family], members[0])
            if speed is not None:
                speeds |= {job.cell.name: speed for job in members}
    return speeds


def _guesses(jobs: Iterable[Job]) -> dict[str, Speed]:
    found = {job.cell.name: (guessed_seconds(job.spec), job.spec.steps) for job in jobs}
    return {
        name: Speed(seconds / steps, GUESSED)
        for name, (seconds, steps) in found.items()
        if seconds is not None
    }


def _trial(job: Job, folder: Path) -> Job:
    finite = job.spec.protocol.deterministic == (False,)
    quick = protocol_named("quick", finite=finite)
    steps = max(TRIAL_STEPS, job.spec.steps // TRIAL_SHARE)
    spec = replace(job.spec, steps=steps, protocol=quick)
    return Job(cell=job.cell, spec=spec, path=run_path(folder, job.cell.name, 0))


def _speed(trial: Job, job: Job) -> Speed | None:
    """What ``job`` will take, from a trial; its first update and evaluation also compile."""
    if trial.state() != "finished":
        return None
    directory = RunDirectory.open(trial.path)
    updates = [(r["timestep"], r["train_seconds"]) for r in directory.metrics()]
    evaluations = [
        (i * trial.spec.protocol.episodes, r["wall_seconds"] - r["train_seconds"])
        for i, r in enumerate(directory.evaluations(), start=1)
    ]
    if len(updates) < 2 or len(evaluations) < 2:
        return None  # a guess is better than to take compiling for the price of a step
    once, step = _line(updates)
    once_evaluated, episode = _line(evaluations)
    return Speed(step + episode * _episodes(job) / job.spec.steps, TRIED, once + once_evaluated)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Seconds at zero and per unit, by the first and the last of ``(units, seconds)``."""
    (first, began), (last, ended) = points[0], points[-1]
    per_unit = max(0.0, (ended - began) / (last - first))
    return max(0.0, began - per_unit * first), per_unit


def _episodes(job: Job) -> int:
    protocol = job.spec.protocol
    marks = protocol.marks(job.spec.steps)
    return protocol.episodes * len(marks) * len(protocol.deterministic)


@final
class _Silent:
    """Is told, and says nothing: a trial that fails will fail again as a run."""

    def began(self, job: Job) -> None:
        """Nothing."""

    def ended(self, job: Job) -> None:
        """Nothing."""

    def stumbled(self, job: Job, reason: str, *, again: bool) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""
