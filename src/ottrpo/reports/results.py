"""Read the folder of a study under ``results/``, and refuse what was damaged or edited by hand.

Whatever is reported is a function of what this module returns.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottrpo.core.checks import Floats, require
from ottrpo.experiments.store import MANIFEST

RUNS, AUDITS = "runs.csv", "audits.csv"
_EVALUATION_COLUMNS = ("seed", "mark", "deterministic", "returns")
_RUN_COLUMNS = ("cell", "seed", "steps", "updates", "violations", "train_seconds")
_CELL_KEYS = ("environment", "agent", "config", "label", "trained_steps")


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
class Run:
    """One finished run."""

    seed: int
    steps: int
    updates: int
    violations: int
    train_seconds: float


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
    """

    study: str
    name: str
    environment: str
    agent: str
    config: str
    label: str
    steps: int | None
    planned: int | None = None
    answers: tuple[str, ...] = ()
    resolved: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[bool, Curves] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()

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
    manifest = _read_manifest(folder / MANIFEST)
    _check_sums(folder, manifest)
    runs = _read_runs(folder / RUNS)
    cells = tuple(
        _read_cell(folder, cell_name, table, runs.get(cell_name, ()), manifest)
        for cell_name, table in manifest["cells"].items()
    )
    made_with = {key: manifest.get(key) for key in ("versions", "hardware", "commit", "collected")}
    return StudyResult(
        name=str(manifest.get("study", folder.name)),
        description=str(manifest.get("description", "")),
        folder=folder,
        cells=cells,
        made_with=made_with,
    )


def read_rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The columns ``names`` of a table, row by row, each with the number of its line."""
    try:
        text = path.read_text(encoding="utf-8")
        head, *rows = csv.reader(io.StringIO(text, newline="")) if text else [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a table: {error}; {_remedy(path)}") from error
    missing = [name for name in names if name not in head]
    require(not missing, f"{path} lacks the columns {', '.join(missing)}; {_remedy(path)}")
    places = [head.index(name) for name in names]
    for line, row in enumerate(rows, start=2):
        values = [row[place] for place in places] if len(row) == len(head) else [""]
        if not all(values):
            raise ValueError(f"{path}, line {line} is torn; {_remedy(path)}")
        yield line, values


def _read_manifest(path: Path) -> dict[str, Any]:
    require(path.is_file(), f"there is no {path}; `ottrpo reproduce STUDY` makes it")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # also what is not text
        raise ValueError(f"{path} is not valid JSON: {error}; {_remedy(path)}") from error
    cells = manifest.get("cells") if isinstance(manifest, dict) else None
    require(isinstance(cells, dict), f"{path} must hold an object with cells; {_remedy(path)}")
    sums = isinstance(manifest.get("sha256", {}), dict)
    require(sums, f"{path}: sha256 must be an object; {_remedy(path)}")
    for name, cell in manifest["cells"].items():
        absent = [key for key in _CELL_KEYS if not isinstance(cell, dict) or key not in cell]
        require(not absent, f"{path}: the cell {name!r} lacks {', '.join(absent)}")
        safe = Path(name).name == name and name not in (".", "..")
        require(safe, f"{path}: the cell {name!r} is no name of a file")
        _require_types(path, name, cell)
    return dict(manifest)


def _require_types(path: Path, name: str, cell: Mapping[str, Any]) -> None:
    """Refuse a manifest that says something other than `ottrpo reproduce` writes."""
    seeds, steps = cell.get("seeds", []), cell["trained_steps"]
    for key, right in (
        ("seeds", isinstance(seeds, list) and all(type(seed) is int for seed in seeds)),
        ("trained_steps", steps is None or (type(steps) is int and steps > 0)),
        ("planned_seeds", isinstance(cell.get("planned_seeds"), int | None)),
        ("resolved", isinstance(cell.get("resolved"), dict | None)),
    ):
        require(right, f"{path}: {key} of {name} can't be {cell.get(key)!r}; {_remedy(path)}")


def _check_sums(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Hold the tables to the checksums that were taken when they were collected."""
    for name, expected in manifest.get("sha256", {}).items():
        path = folder / Path(name).name
        require(path.is_file(), f"{path} is missing; {_remedy(path)}")
        same = hashlib.sha256(path.read_bytes()).hexdigest() == expected
        require(same, f"{path} has been changed since it was collected; {_remedy(path)}")


def _read_cell(
    folder: Path,
    name: str,
    table: Mapping[str, Any],
    runs: Sequence[Run],
    manifest: Mapping[str, Any],
) -> CellResult:
    path = folder / f"{name}.csv"
    curves = _read_curves(path) if path.is_file() else {}
    found = {seed for curve in curves.values() for seed in curve.seed_n}
    kept = set(table.get("seeds", found))
    require(
        found == kept,
        f"{path} holds the seeds {sorted(found)}, its manifest says {sorted(kept)}; "
        f"{_remedy(path)}",
    )
    return CellResult(
        study=str(manifest.get("study", folder.name)),
        name=name,
        environment=str(table["environment"]),
        agent=str(table["agent"]),
        config=str(table["config"]),
        label=str(table["label"] or ""),
        steps=table["trained_steps"],
        planned=table.get("planned_seeds"),
        answers=tuple(map(str, manifest.get("paper") or ())),
        resolved=table.get("resolved") or {},
        curves=curves,
        runs=tuple(runs),
    )


def _read_curves(path: Path) -> dict[bool, Curves]:
    """Way to act -> seed x mark."""
    found: dict[bool, dict[int, dict[int, float]]] = {}
    for line, (seed, mark, way, returns) in read_rows(path, _EVALUATION_COLUMNS):
        try:
            values = [float(value) for value in returns.split()]
            mean = sum(values) / len(values)
            curve = found.setdefault(bool(int(way)), {}).setdefault(int(seed), {})
            if int(mark) in curve or not math.isfinite(mean):
                raise ValueError(f"seed {seed} at {mark} stands there twice or is no number")
            curve[int(mark)] = mean
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(f"{path}, line {line}: {error}; {_remedy(path)}") from error
    return {way: curves_from(found[way]) for way in sorted(found, reverse=True)}


def curves_from(by_seed: Mapping[int, Mapping[int, float]]) -> Curves:
    """Seed -> mark -> mean return, as arrays."""
    marks = sorted(set().union(*by_seed.values()))
    returns = [[curve.get(mark, math.nan) for mark in marks] for curve in by_seed.values()]
    return Curves(
        seed_n=tuple(by_seed),
        mark_t=np.array(marks, dtype=np.int64),
        return_nt=np.array(returns, dtype=np.float64),
    )


def _read_runs(path: Path) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {}
    if not path.is_file():
        return runs
    for line, (cell, *numbers, seconds) in read_rows(path, _RUN_COLUMNS):
        try:
            seed, steps, updates, violations = map(int, numbers)
            run = Run(
                seed=seed,
                steps=steps,
                updates=updates,
                violations=violations,
                train_seconds=float(seconds),
            )
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}; {_remedy(path)}") from error
        runs.setdefault(cell, []).append(run)
    return runs


def _remedy(path: Path) -> str:
    folder = path.parent
    return f"restore it, or move {folder} away and make it anew: ottrpo reproduce {folder.name}"
