"""Finished runs folded into the folder of their study, beside what it holds of others."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from ottrpo.core.checks import require

from .layout import AUDIT, AUDITS, MANIFEST, RUNS, cell_of, read_object
from .run_directory import RunDirectory, returns_of, same_settings
from .study_folder import Rows, StudyFolder, heal


def collect(study: Mapping[str, Any], paths: Iterable[Path], folder: Path) -> list[str]:
    """Fold the finished runs among ``paths`` into ``folder``; which runs can't be read, and why.

    Args:
        study: what is asked, as plain data: ``study`` (its name), ``description``, ``paper`` and
            ``cells`` by name.
        paths: directories of runs.
        folder: of the study.

    Raises:
        ValueError: if what ``folder`` holds can't be read, was edited, or is of other settings.
        OSError: if the results can't be written; those that were there are left as they were.
    """
    heal(folder)
    there = (folder / MANIFEST).is_file()
    held = StudyFolder.read(folder) if there else StudyFolder(folder)
    held.require_no_others()
    new, complaints = _read_runs(paths)
    for name, runs in new.items():
        _require_one_kind(name, runs, held)
    held.replace(_manifest(study, held, new), _tables(held, new))
    return complaints


def _read_runs(paths: Iterable[Path]) -> tuple[dict[str, list["_Run"]], list[str]]:
    by_cell: dict[str, list[_Run]] = {}
    complaints = []
    for path in paths:
        if not (path / MANIFEST).is_file():
            continue
        try:
            directory = RunDirectory.open(path)
            if directory.finished:
                run = _Run.read(directory)
                by_cell.setdefault(cell_of(path), []).append(run)
        except (OSError, ValueError, LookupError, TypeError) as error:
            complaints.append(f"{path} can't be read: {error}")
    return by_cell, complaints


@final
@dataclass(frozen=True, kw_only=True)
class _Run:
    """A finished run, as far as it is kept: its rows by the tables where they belong."""

    path: Path
    manifest: Mapping[str, Any]
    seed: int
    tables: Mapping[str, Rows]

    @classmethod
    def read(cls, directory: RunDirectory) -> "_Run":
        path, manifest = directory.path, directory.manifest
        who = {"cell": cell_of(path), "seed": manifest["seed"]}
        last, records = directory.metrics()[-1], directory.evaluations()
        for record in records:
            returns_of(record, manifest["protocol"]["episodes"])
        row = {
            "steps": last["timestep"],
            "updates": last["update"],
            "violations": last["violations"],
            "train_seconds": round(last["train_seconds"], 1),
            "wall_seconds": round(records[-1]["wall_seconds"], 1),
        }
        tables = {
            f"{who['cell']}.csv": [_evaluation_row(who["seed"], record) for record in records],
            RUNS: [who | row],
        }
        if (path / AUDIT).is_file():
            tables[AUDITS] = [who | read_object(path / AUDIT)]
        return cls(path=path, manifest=manifest, seed=who["seed"], tables=tables)


def _evaluation_row(seed: int, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": seed,
        "mark": record["mark"],
        "timestep": record["timestep"],
        "deterministic": int(record["deterministic"]),
        "train_seconds": round(record["train_seconds"], 2),
        "returns": " ".join(f"{value:.6g}" for value in record["returns"]),
    }


def _require_one_kind(name: str, runs: Sequence[_Run], held: StudyFolder) -> None:
    """Refuse to mix runs of different settings or lengths in one cell."""
    first = runs[0].manifest
    for run in runs[1:]:
        require(
            _same_kind(first, run.manifest["resolved"], run.manifest["steps"]),
            f"{runs[0].path} and {run.path} are of different settings or lengths: one cell "
            "can't hold both; move one of them away",
        )
    cell = held.cells.get(name, {})
    if not cell.get("seeds") or _same_kind(first, cell["resolved"], cell["trained_steps"]):
        return
    lost = sorted(set(cell["seeds"]) - {run.seed for run in runs})
    require(
        not lost,
        f"{held.path} holds {name} with other settings or steps, also for seeds {lost}, which are "
        f"not among the new runs; finish those, or move {held.path} away",
    )


def _same_kind(manifest: Mapping[str, Any], resolved: Mapping[str, Any], steps: int) -> bool:
    return manifest["steps"] == steps and same_settings(resolved, manifest["resolved"])


def _tables(held: StudyFolder, new: Mapping[str, Sequence[_Run]]) -> dict[str, Rows]:
    """Every table with its new rows: a run that is collected again replaces what was held."""
    fresh = {(name, run.seed) for name, runs in new.items() for run in runs}
    tables: dict[str, Rows] = {}
    for file, table in held.tables.items():
        name, rows = file.removesuffix(".csv"), table.records()
        require("seed" in table.head, f"{table.path} has no column seed")
        tables[file] = [r for r in rows if (r.get("cell", name), int(r["seed"])) not in fresh]
    for run in (run for runs in new.values() for run in runs):
        for file, rows in run.tables.items():
            tables.setdefault(file, []).extend(rows)
    order = {name: i for i, name in enumerate((*held.cells, *new))}
    for file, rows in tables.items():
        # stable: the evaluations of a run stay in their order
        rows.sort(key=lambda r: (order.get(r.get("cell", ""), -1), int(r["seed"])))
        if file in (RUNS, AUDITS):
            tables[file] = _same_columns(rows)
    return {file: rows for file, rows in tables.items() if rows}


def _same_columns(rows: Rows) -> Rows:
    """Rows with the columns of all; older results lack some."""
    columns = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key, "") for key in columns} for row in rows]


def _cells(
    planned: Mapping[str, Any], held: StudyFolder, new: Mapping[str, Sequence[_Run]]
) -> dict[str, Any]:
    """What is known of every cell: those of other parts of the study, then its own in its order."""
    cells: dict[str, Any] = {}
    for name, cell in planned.items():
        runs = new.get(name, ())
        before = held.cells.get(name, {})
        kind = runs[0].manifest if runs else {}
        cells[name] = {
            **json.loads(json.dumps(cell)),
            "seeds": sorted({*before.get("seeds", ()), *(run.seed for run in runs)}),
            "planned_seeds": cell["seeds"],
            "resolved": kind.get("resolved", before.get("resolved")),
            "trained_steps": kind.get("steps", before.get("trained_steps")),
        }
    others = {name: cell for name, cell in held.cells.items() if name not in cells}
    return others | cells


def _manifest(
    study: Mapping[str, Any], held: StudyFolder, new: Mapping[str, Sequence[_Run]]
) -> dict[str, Any]:
    made = [run.manifest for runs in new.values() for run in runs]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        **study,
        "cells": _cells(study["cells"], held, new),
        "protocol": made[0]["protocol"] if made else held.manifest.get("protocol"),
        **{
            key: _agreed(held.manifest.get(key), [manifest.get(key) for manifest in made])
            for key in ("versions", "hardware", "commit")
        },
        "collected": now if made else held.manifest.get("collected"),
    }


def _agreed(held: Any, said: Sequence[Any]) -> Any:
    """What all runs say; a list if they differ."""
    everything = [*(held if isinstance(held, list) else [held]), *said]
    different: list[Any] = []
    for value in everything:
        if value is not None and value not in different:
            different.append(value)
    return different[0] if len(different) == 1 else different or None
