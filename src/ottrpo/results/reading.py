"""The results of a study as whoever reports them wants them.

Whatever is reported is a function of what this module returns.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottrpo.core.checks import Floats, require
from ottrpo.terminal import bar

from .layout import AUDITS, MANIFEST, RUNS, run_directories
from .run_directory import RunDirectory, is_mark, returns_of
from .study_folder import StoredTable, StudyFolder, remedy

# An evaluation: way to act, seed, mark, returns, and what is said if there are none or it is twice.
Point = tuple[bool, int, int, Sequence[float], str]
# What runs of one cell have in common, and what a run's manifest must tell.
_SAME: dict[str, type] = {"agent": str, "config": str, "steps": int, "resolved": dict}
_TOLD: dict[str, type] = {"environment": str, "seed": int, **_SAME}


@dataclass(frozen=True, kw_only=True)
class Curves:
    """What one cell's evaluations returned, acting in one way.

    Attributes:
        seed_n: the seeds.
        mark_t: the steps that evaluations stand for, ascending.
        return_nt: mean return of an evaluation; NaN where a seed has none.
    """

    seed_n: tuple[int, ...]
    mark_t: NDArray[np.int64]
    return_nt: Floats

    def common(self) -> tuple[NDArray[np.int64], Floats]:
        """The marks that every seed has, and the returns there."""
        there_t = np.isfinite(self.return_nt).all(axis=0)
        return self.mark_t[there_t], self.return_nt[:, there_t]


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """One finished run."""

    seed: int
    steps: int
    updates: int
    violations: int
    train_seconds: float


@dataclass(frozen=True, kw_only=True)
class CellAudit:
    """What the checks of all runs of a cell on a finite problem found.

    Attributes:
        exact_return: mean over seeds of the trained policy's expected return.
        lowest_exact_return: of the worst seed.
        updates: of all seeds together.
        audited: those whose discrepancy was computed anew.
        violations: those of them that spent more than the radius.
        pot_checked: updates that POT looked at.
        pot_violations: those of them that spent more than the radius.
    """

    exact_return: float
    lowest_exact_return: float
    updates: int
    audited: int
    violations: int
    pot_checked: int
    pot_violations: int


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What is known of one cell of a study; nothing but its plan if no run has finished.

    Attributes:
        study: its name.
        name: of the cell in the study.
        environment: its id.
        agent: its name.
        config: the configuration's name.
        label: tells cells of one configuration apart.
        steps: of training; None before a run has finished.
        planned: seeds that the study asks for; None if the manifest does not say.
        answers: labels of the paper's tables and figures that the study says it is about.
        resolved: all settings, as the agent took them.
        curves: by way to act; True takes the policy's mode.
        runs: the finished ones.
        audit: what their checks found; None if they had none.
        collected: when its study was, in ISO 8601; empty if the manifest does not say.
    """

    study: str
    name: str
    environment: str
    agent: str
    config: str = ""
    label: str = ""
    steps: int | None = None
    planned: int | None = None
    answers: tuple[str, ...] = ()
    resolved: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[bool, Curves] = field(default_factory=dict)
    runs: tuple[FinishedRun, ...] = ()
    audit: CellAudit | None = None
    collected: str = ""

    @property
    def title(self) -> str:
        """What tells the cell from others of its agent and environment."""
        return self.label or self.config

    @property
    def has_region(self) -> bool:
        """Whether the agent keeps to a radius, so that violations mean something."""
        return "radius" in self.resolved


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """A study's folder, read.

    Attributes:
        name: of the study.
        description: what it shows.
        folder: where it was read from.
        cells: in the order of the manifest.
        made_with: versions, hardware, commit and date, as the manifest has them.
    """

    name: str
    description: str
    folder: Path
    cells: tuple[CellResult, ...]
    made_with: Mapping[str, Any]


def study_names(results: Path) -> list[str]:
    """The studies that have results."""
    require(results.is_dir(), f"there is no directory {results}; `ottrpo reproduce` makes it")
    names = (path.parent.name for path in results.glob(f"*/{MANIFEST}"))
    return sorted(name for name in names if not name.startswith("."))  # half-written ones


def read_study(folder: Path) -> StudyResult:
    """The results of one study.

    Raises:
        ValueError: if a file is damaged, or is not what was collected.
    """
    held = StudyFolder.read(folder)
    manifest = held.manifest
    runs = _read_runs(held.tables.get(RUNS))
    audits = _read_audits(held.tables.get(AUDITS))
    cells = tuple(
        replace(_read_cell(held, name, table, runs.get(name, ())), audit=audits.get(name))
        for name, table in held.cells.items()
    )
    made_with = {key: manifest.get(key) for key in ("versions", "hardware", "commit", "collected")}
    return StudyResult(
        name=str(manifest.get("study", folder.name)),
        description=str(manifest.get("description", "")),
        folder=folder,
        cells=cells,
        made_with=made_with,
    )


def read_studies(results: Path, names: Iterable[str] | None = None) -> list[StudyResult]:
    """The results of these studies, or of all; a bar tells how far it is.

    Raises:
        ValueError: if a file is damaged, or is not what was collected.
    """
    wanted = study_names(results) if names is None else list(names)
    found = []
    with bar("reading", len(wanted)) as after:
        for name in wanted:
            found.append(read_study(results / name))
            after()
    return found


def _read_cell(
    held: StudyFolder, name: str, cell: Mapping[str, Any], runs: Sequence[FinishedRun]
) -> CellResult:
    manifest, path = held.manifest, held.path / f"{name}.csv"
    table = held.tables.get(path.name)
    curves = {} if table is None else _read_curves(table)
    found = {seed for curve in curves.values() for seed in curve.seed_n}
    kept = set(cell.get("seeds", found))
    require(
        found == kept,
        f"{path} holds the seeds {sorted(found)}, its manifest says {sorted(kept)}; {remedy(path)}",
    )
    return CellResult(
        study=str(manifest.get("study", held.path.name)),
        name=name,
        environment=str(cell["environment"]),
        agent=str(cell["agent"]),
        config=str(cell["config"]),
        label=str(cell["label"] or ""),
        steps=cell["trained_steps"],
        planned=cell.get("planned_seeds"),
        answers=tuple(map(str, manifest.get("paper") or ())),
        resolved=cell.get("resolved") or {},
        curves=curves,
        runs=tuple(runs),
        collected=str(manifest.get("collected") or ""),
    )


def _read_curves(table: StoredTable) -> dict[bool, Curves]:
    rows = table.columns(seed=int, mark=int, deterministic=int, returns=_numbers)
    wrong = f"stands there twice or is no number; {remedy(table.path)}"
    return curves_of(
        (bool(way), seed, mark, returns, f"{place}: seed {seed} at {mark} {wrong}")
        for place, (seed, mark, way, returns) in rows
    )


def _numbers(returns: str) -> list[float]:
    return [float(value) for value in returns.split()]


def run_curves(runs: Iterable[RunDirectory]) -> dict[bool, Curves]:
    """What the evaluations of some runs of one cell returned, by way to act.

    Raises:
        ValueError: if a run holds something else, or two are of one seed.
    """
    return curves_of(point for run in runs for point in _points(run))


def _points(run: RunDirectory) -> Iterator[Point]:
    seed = run.manifest["seed"]
    twice = f"there are two runs of seed {seed} on {run.manifest['environment']}, one of them "
    for record in run.evaluations():
        try:
            returns = returns_of(record)
        except ValueError as error:
            raise ValueError(f"{run.path}: {error}") from error
        told = f"{twice}{run.path}; name one of them"
        yield record["deterministic"], seed, record["mark"], returns, told


def curves_of(points: Iterable[Point]) -> dict[bool, Curves]:
    """Evaluations as arrays, by way to act.

    Raises:
        ValueError: if a seed has two of them at one mark, or one without returns.
    """
    found: dict[bool, dict[int, dict[int, float]]] = {}
    for way, seed, mark, returns, wrong in points:
        curve = found.setdefault(way, {}).setdefault(seed, {})
        mean = sum(returns) / len(returns) if returns else math.nan
        require(is_mark(mark) and mark not in curve and math.isfinite(mean), wrong)
        curve[mark] = mean
    return {way: _arrays(found[way]) for way in sorted(found, reverse=True)}


def _arrays(by_seed: Mapping[int, Mapping[int, float]]) -> Curves:
    marks = sorted(set().union(*by_seed.values()))
    returns = [[curve.get(mark, math.nan) for mark in marks] for curve in by_seed.values()]
    return Curves(
        seed_n=tuple(by_seed),
        mark_t=np.array(marks, dtype=np.int64),
        return_nt=np.array(returns, dtype=np.float64),
    )


def read_runs(path: Path) -> dict[str, CellResult]:
    """The runs in ``path`` by environment, as if each were a cell of a study.

    Raises:
        ValueError: if there are none, one can't be read, or those of an environment differ in more
            than their seeds.
    """
    found = run_directories(path)
    require(bool(found), f"{path} holds no run; a run is a directory that `ottrpo train` made")
    by_environment: dict[str, list[RunDirectory]] = {}
    for place in found:
        run = RunDirectory.open(place)
        wrong = [key for key, kind in _TOLD.items() if type(run.manifest.get(key)) is not kind]
        told = f"{place} is not a run, by its {', '.join(wrong)}; results are named STUDY:CELL"
        require(not wrong, told)
        by_environment.setdefault(run.manifest["environment"], []).append(run)
    return {name: _from_seeds(path, name, runs) for name, runs in by_environment.items()}


def _from_seeds(path: Path, environment: str, runs: Sequence[RunDirectory]) -> CellResult:
    kinds = [{key: run.manifest[key] for key in _SAME} for run in runs]
    different = len({json.dumps(kind, sort_keys=True) for kind in kinds})
    told = f"{path} holds runs of {different} configurations on {environment}; name one of them"
    require(different == 1, told)
    who: dict[str, Any] = {"study": str(path), "name": environment, "environment": environment}
    return CellResult(**who, **kinds[0], curves=run_curves(runs))


def _read_runs(table: StoredTable | None) -> dict[str, list[FinishedRun]]:
    runs: dict[str, list[FinishedRun]] = {}
    kinds: dict[str, Any] = {field.name: field.type for field in fields(FinishedRun)}
    for _, (cell, *values) in () if table is None else table.columns(cell=str, **kinds):
        run = FinishedRun(**dict(zip(kinds, values, strict=True)))
        runs.setdefault(cell, []).append(run)
    return runs


def _read_audits(table: StoredTable | None) -> dict[str, CellAudit]:
    names = ("updates", "audited", "violations", "pot_checked", "pot_violations")
    kinds: dict[str, Any] = {"exact_return": float, **dict.fromkeys(names, int)}
    found: dict[str, list[list[Any]]] = {}
    for _, (cell, *values) in () if table is None else table.columns(cell=str, **kinds):
        found.setdefault(cell, []).append(values)
    audits = {}
    for cell, rows in found.items():
        exact, *counts = zip(*rows, strict=True)
        told = dict(zip(names, map(sum, counts), strict=True))
        audits[cell] = CellAudit(exact_return=fmean(exact), lowest_exact_return=min(exact), **told)
    return audits
