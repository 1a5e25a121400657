"""The runs of a study as jobs, and what their directories tell about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, final

from ottrpo.results.layout import (
    AUDIT,
    CHECKPOINTS,
    EVALUATIONS,
    MANIFEST,
    METRICS,
    log_of,
    run_path,
)
from ottrpo.results.run_directory import RunDirectory, last_records

from .registry import agent_by_key
from .run import describes
from .spec import RunSpec
from .study import MAX_RUNS, Cell, Study, require_few

State = Literal["new", "unfinished", "finished", "other"]


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a study: what, and where.

    Attributes:
        cell: whose run it is.
        spec: the run.
        path: its directory.
        others: runs that are done in the same program.
    """

    cell: Cell
    spec: RunSpec
    path: Path
    others: "tuple[Job, ...]" = ()

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.cell.name} seed {self.spec.seed}"

    @property
    def module(self) -> str:
        """Where its agent lives."""
        return agent_by_key(self.spec.agent_key).module

    @property
    def log(self) -> Path:
        """What its process prints; beside the directory, which belongs to the run alone."""
        return log_of(self.path)

    def state(self) -> State:
        """Whether the directory holds this very run; ``other`` if it holds something else."""
        if not (self.path / MANIFEST).is_file():
            return "new"
        try:
            directory = RunDirectory.open(self.path)
        except ValueError:
            return "other"
        if not describes(directory.manifest, self.spec):
            return "other"
        audited = not self.cell.audit or (self.path / AUDIT).is_file()
        return "finished" if directory.finished and audited else "unfinished"

    def standing(self) -> "Standing":
        """How far the run is, from the ends of its files; who is damaged there is nowhere."""
        try:
            return self._standing()
        except (KeyError, TypeError, ValueError, OverflowError):
            return Standing()  # going on, which reads all of them, tells what is wrong

    def _standing(self) -> "Standing":
        metrics = last_records(self.path / METRICS)
        evaluations = last_records(self.path / EVALUATIONS)
        way = self.spec.protocol.deterministic[0]
        returns = [r["returns"] for r in evaluations if r["deterministic"] == way]
        last: Mapping[str, Any] = metrics[-1] if metrics else {}
        return Standing(
            timestep=min(int(last.get("timestep", 0)), self.spec.steps),
            train_seconds=float(last.get("train_seconds", 0.0)),
            returned=fmean(returns[-1]) if returns and returns[-1] else None,
        )

    def sign_of_life(self) -> tuple[int, ...]:
        """Changes whenever the run has written something."""
        return tuple(_size(self.path / name) for name in (METRICS, EVALUATIONS, CHECKPOINTS))


@final
@dataclass(frozen=True, kw_only=True)
class Standing:
    """How far a run is.

    Attributes:
        timestep: at its last logged update.
        train_seconds: until then, without evaluations.
        returned: mean return of its last evaluation.
    """

    timestep: int = 0
    train_seconds: float = 0.0
    returned: float | None = None

    @property
    def speed(self) -> float | None:
        """Steps per second of training."""
        return self.timestep / self.train_seconds if self.train_seconds > 0 else None


def jobs_of(
    study: Study,
    root: Path,
    *,
    seeds: int | None = None,
    steps: int | None = None,
    max_runs: int = MAX_RUNS,
) -> list[Job]:
    """All runs of ``study`` under ``root``: the first seed of every cell, the second, ...

    Raises:
        ValueError: if a cell can't be run, or there are more than ``max_runs`` runs.
    """
    require_few(sum(seeds or cell.seeds for cell in study.cells), max_runs)
    by_cell = []
    for cell in study.cells:
        spec, first = _named(cell, steps), cell.first_seed
        each = range(first, first + (cell.seeds if seeds is None else seeds))
        places = {seed: run_path(root, cell.name, seed) for seed in each}
        by_cell.append(
            [Job(cell=cell, spec=replace(spec, seed=s), path=path) for s, path in places.items()]
        )
    return [job for turn in zip_longest(*by_cell) for job in turn if job is not None]


def batched(jobs: Sequence[Job]) -> list[Job]:
    """One job for the runs of a cell; those that have begun together go on together."""
    groups: dict[tuple[str, State], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.cell.name, job.state()), []).append(job)
    return [replace(first, others=tuple(others)) for first, *others in groups.values()]


def _named(cell: Cell, steps: int | None) -> RunSpec:
    try:
        spec = cell.spec(steps)
    except ValueError as error:
        raise ValueError(f"{cell.name}: {error}") from error
    if cell.audit and not agent_by_key(spec.agent_key).finite:
        raise ValueError(f"{cell.name}: only the tabular agents can be audited")
    return spec


def _size(path: Path) -> int:
    try:
        found = path.stat()
    except OSError:
        return -1
    return found.st_mtime_ns if path.is_dir() else found.st_size
