"""A study from its file to its results: plan, run what is missing, collect."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from ottrpo.core.checks import require
from ottrpo.persistence.lock import DirectoryLock
from ottrpo.results import collecting
from ottrpo.results.layout import default_out, runs_folder
from ottrpo.terminal import say, screen

from .board import StudyBoard
from .jobs import Job, batched, jobs_of
from .pool import Place, run_jobs
from .processes import Processes
from .study import MAX_RUNS, Study


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What of a study is done, and how; the command line takes these as they are."""

    seeds: int | None = None
    """number of seeds of each cell; by default as in the study"""
    steps: int | None = None
    """environment steps of each run; by default as in the configurations"""
    workers: int | None = None
    """runs at once on this machine; by default one per core"""
    ray: str | None = None
    """run on a Ray cluster instead: auto, or the address of its head"""
    retries: int = 2
    """how often a run that crashes, hangs or is killed is tried again"""
    time_limit: float = 900.0
    """seconds without a new record after which a run counts as hanging; a run writes about a
    thousand records, whatever its speed"""
    max_runs: int = MAX_RUNS
    """refuse a study of more runs than this"""
    out: Path | None = None
    """where the folder with the results is written; by default results/, but runs/trials/ for a
    shortened study, which must not replace published results"""

    @property
    def root(self) -> Path:
        """Where the folder of the study is."""
        return self.out or default_out(seeds=self.seeds, steps=self.steps)


def reproduce(study: Study, options: StudyOptions) -> int:
    """Do what is missing of ``study`` and fold what is finished; 0 if all is there.

    Raises:
        ValueError: if a cell can't be run, if another process works on the study, or if the
            results that are there can't be added to.
        OSError: if the results can't be written.
    """
    console = screen(soft_wrap=True, markup=True)
    root = runs_folder(study.name, options.steps)
    jobs = _jobs(study, options)
    root.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(root), _stoppable():
        failed = _run_missing(study, jobs, options, console)
        complete = _collect(study, jobs, options.root / study.name)
    for name, reason in failed.items():
        say(f"{name} failed: {reason}", error=True)
    return 0 if complete and not failed else 1


def collect(study: Study, options: StudyOptions) -> int:
    """Fold what is finished of ``study`` without running anything; 0 if all is there."""
    jobs = _jobs(study, options)
    finished = sum(job.state() == "finished" for job in jobs)
    say(f"{study.name}: {finished} of {len(jobs)} runs are finished")
    return 0 if _collect(study, jobs, options.root / study.name) else 1


def _jobs(study: Study, options: StudyOptions) -> list[Job]:
    root = runs_folder(study.name, options.steps)
    asked = {"seeds": options.seeds, "steps": options.steps}
    return jobs_of(study, root, **asked, max_runs=options.max_runs)


def _run_missing(
    study: Study, jobs: Sequence[Job], options: StudyOptions, console: Console
) -> Mapping[str, str]:
    """Tell what there is to do, and do it; what failed, with the reason."""
    finished = {job.name for job in jobs if job.state() == "finished"}
    missing = [job for job in jobs if job.name not in finished]
    console.print(f"{study.name}: {study.description}", markup=False)
    steps = sum(job.spec.steps for job in missing)
    console.print(
        f"{len(jobs)} run{'s' * (len(jobs) > 1)} of {len(study.cells)} "
        f"cell{'s' * (len(study.cells) > 1)}, {len(finished)} finished, "
        f"{len(missing)} to do: {steps:,} steps",
        markup=False,
    )
    if not missing:
        return {}
    with _place(study, options, missing) as (place, workers):
        console.print(f"{workers} at a time", markup=False)
        with StudyBoard(jobs, finished, console) as board:
            asked = batched(missing) if study.batch else missing
            return run_jobs(asked, place, retries=options.retries, board=board)


@contextmanager
def _place(
    study: Study, options: StudyOptions, missing: Sequence[Job]
) -> Iterator[tuple[Place, int]]:
    """Where the runs are done, and how many at a time."""
    if options.ray is None:
        asked = options.workers or os.cpu_count() or 1
        workers = min(asked, study.workers or asked, len(missing))
        modules = sorted({job.module for job in missing})
        yield Processes(workers, options.time_limit, modules), workers
        return
    from . import cluster

    require(study.workers is None, f"{study.name} measures time: it is run on one machine")
    require(not study.batch, f"{study.name} runs seeds in one program: it is run on one machine")
    with cluster.connected(options.ray) as ray:
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield cluster.Cluster(ray, options.time_limit), cores


def _collect(study: Study, jobs: Sequence[Job], folder: Path) -> bool:
    """Fold what is finished into ``folder``; whether that is everything."""
    done = [job.path for job in jobs if job.state() == "finished"]
    if done:
        complaints = collecting.collect(study.data(), done, folder)
        for line in complaints:
            say(line, error=True)
        if complaints:
            return False
    return len(done) == len(jobs)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let a request to end be handled like an interrupt at the terminal: runs end first."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
