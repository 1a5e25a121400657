"""Finished runs folded into ``results/``: small files that are kept, and that tell if they change.

A folder of results holds a table of evaluations per cell, one line per run in ``runs.csv``, the
audits where there are any, and ``manifest.json``: settings, versions, hardware, commit, and the
checksum of every table. Everything that is reported is computed from these files alone.

A folder is replaced as a whole or not at all, and what it holds of other runs stays in it.
"""

import csv
import hashlib
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from ottrpo.core.checks import require
from ottrpo.persistence.files import write_atomically

from .grid import Study
from .jobs import AUDIT, same_settings
from .store import MANIFEST, RunDirectory

RUNS = "runs.csv"
AUDITS = "audits.csv"
Rows = list[dict[str, Any]]


def collect(study: Study, paths: Iterable[Path], folder: Path) -> list[str]:
    """Fold the finished runs among ``paths`` into ``folder``; which runs can't be read, and why.

    Raises:
        ValueError: if what ``folder`` holds can't be read, was edited, or is of other settings.
        OSError: if the results can't be written; those that were there are left as they were.
    """
    heal(folder)
    held = _read_held(folder)
    new, complaints = _read_runs(paths)
    for name, runs in new.items():
        _require_one_kind(folder, name, runs, held)
    tables = _tables(held, new)
    cells = _cells(study, held, new)
    if cells == held.cells and _same_files(folder, tables):
        return complaints
    with _replacement(folder) as temporary:
        for name, rows in tables.items():
            write_atomically(temporary / name, _csv_text(rows).encode())
        manifest = _manifest(study, held, new) | {
            "cells": cells,
            "sha256": {name: _checksum(temporary / name) for name in sorted(tables)},
        }
        text = json.dumps(manifest, indent=2) + "\n"
        write_atomically(temporary / MANIFEST, text.encode())
    return complaints


def verify(folder: Path) -> list[str]:
    """What is wrong with a folder of results: tables that are not those that were collected.

    Results from before checksums were kept can't be told from edited ones; nothing is said.

    Raises:
        ValueError: if there is no manifest, or it can't be read.
    """
    heal(folder)
    sums = _read_manifest(folder).get("sha256", {})
    wrong = []
    for name, checksum in sums.items():
        if not (folder / name).is_file():
            wrong.append(f"{folder / name} is missing")
        elif _checksum(folder / name) != checksum:
            wrong.append(f"{folder / name} has been changed since it was collected")
    known = set(sums)
    if known:
        wrong += [
            f"{path} was not collected"
            for path in sorted(folder.glob("*.csv"))
            if path.name not in known
        ]
    return wrong


def heal(folder: Path) -> None:
    """Put back what a process that was killed while it replaced ``folder`` had moved aside."""
    aside = _aside(folder)
    if aside.is_dir():
        if folder.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(folder)


@final
@dataclass(frozen=True)
class _Held:
    """What a folder holds already."""

    manifest: Mapping[str, Any]
    tables: Mapping[str, Rows]

    @property
    def cells(self) -> Mapping[str, Any]:
        cells: Mapping[str, Any] = self.manifest.get("cells", {})
        return cells


def _read_held(folder: Path) -> _Held:
    if not (folder / MANIFEST).is_file():
        return _Held({}, {})
    manifest = _read_manifest(folder)
    wrong = verify(folder)
    require(
        not wrong,
        f"{'; '.join(wrong)}: nothing is written before that is put right "
        f"(bring the file back, or move {folder} away)",
    )
    try:
        return _Held(manifest, {path.name: _read_csv(path) for path in folder.glob("*.csv")})
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"can't read the results in {folder}: {error}") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(
            f"{path} is not valid JSON: {error}; bring it back, or move {folder} away"
        ) from error
    right = isinstance(manifest, dict) and isinstance(manifest.get("cells"), dict)
    require(right, f"{path} is not the manifest of a study: it has no cells")
    return dict(manifest)


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
                by_cell.setdefault(path.parent.name, []).append(run)
        except (OSError, ValueError, LookupError, TypeError) as error:
            complaints.append(f"{path} can't be read: {error}")
    return by_cell, complaints


@final
@dataclass(frozen=True, kw_only=True)
class _Run:
    """A finished run, as far as it is kept."""

    path: Path
    manifest: Mapping[str, Any]
    seed: int
    evaluations: Rows
    row: dict[str, Any]
    audit: dict[str, Any] | None

    @classmethod
    def read(cls, directory: RunDirectory) -> "_Run":
        name, seed = directory.path.parent.name, directory.manifest["seed"]
        last, records = directory.metrics()[-1], directory.evaluations()
        for record in records:
            _require_returns(record, directory.manifest["protocol"]["episodes"])
        found = directory.path / AUDIT
        return cls(
            path=directory.path,
            manifest=directory.manifest,
            seed=seed,
            evaluations=[_evaluation_row(seed, record) for record in records],
            row={
                "cell": name,
                "seed": seed,
                "steps": last["timestep"],
                "updates": last["update"],
                "violations": last["violations"],
                "train_seconds": round(last["train_seconds"], 1),
                "wall_seconds": round(records[-1]["wall_seconds"], 1),
            },
            audit={"cell": name, "seed": seed, **json.loads(found.read_text(encoding="utf-8"))}
            if found.is_file()
            else None,
        )


def _require_returns(record: Mapping[str, Any], episodes: int) -> None:
    """Refuse what no evaluation writes: it would take the place of something that is good."""
    returns = record["returns"]
    finite = [isinstance(x, int | float) and math.isfinite(x) for x in returns]
    require(
        len(returns) == episodes and all(finite),
        f"the evaluation at {record['mark']} must have {episodes} finite returns, got {returns}",
    )


def _evaluation_row(seed: int, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": seed,
        "mark": record["mark"],
        "timestep": record["timestep"],
        "deterministic": int(record["deterministic"]),
        "train_seconds": round(record["train_seconds"], 2),
        "returns": " ".join(f"{value:.6g}" for value in record["returns"]),
    }


def _require_one_kind(folder: Path, name: str, runs: Sequence[_Run], held: _Held) -> None:
    """Refuse to mix runs of different settings or lengths in one cell."""
    first = runs[0].manifest
    for run in runs[1:]:
        require(
            _same_kind(first, run.manifest["resolved"], run.manifest["steps"]),
            f"{runs[0].path} and {run.path} are of different settings or lengths: one cell "
            "can't hold both; move one of them away",
        )
    cell = held.cells.get(name)
    if (
        cell is None
        or not cell["seeds"]
        or _same_kind(first, cell["resolved"], cell["trained_steps"])
    ):
        return
    lost = sorted(set(cell["seeds"]) - {run.seed for run in runs})
    require(
        not lost,
        f"{folder} holds {name} with other settings or steps, also for seeds {lost}, which are "
        f"not among the new runs; finish those, or move {folder} away",
    )


def _same_kind(manifest: Mapping[str, Any], resolved: Mapping[str, Any], steps: int) -> bool:
    return manifest["steps"] == steps and same_settings(resolved, manifest["resolved"])


def _tables(held: _Held, new: Mapping[str, Sequence[_Run]]) -> dict[str, Rows]:
    """Every table with its new rows: a run that is collected again replaces what was held."""
    fresh = {(name, run.seed) for name, runs in new.items() for run in runs}
    tables: dict[str, Rows] = {}
    for file, rows in held.tables.items():
        name = file.removesuffix(".csv")
        tables[file] = [r for r in rows if (r.get("cell", name), int(r["seed"])) not in fresh]
    for name, runs in new.items():
        for run in runs:
            tables.setdefault(f"{name}.csv", []).extend(run.evaluations)
            tables.setdefault(RUNS, []).append(run.row)
            if run.audit is not None:
                tables.setdefault(AUDITS, []).append(run.audit)
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


def _cells(study: Study, held: _Held, new: Mapping[str, Sequence[_Run]]) -> dict[str, Any]:
    """What is known of every cell: those of other parts of the study, then its own in its order."""
    cells: dict[str, Any] = {}
    for cell in study.cells:
        runs = new.get(cell.name, ())
        before = held.cells.get(cell.name, {})
        kind = runs[0].manifest if runs else {}
        cells[cell.name] = {
            **json.loads(json.dumps(asdict(cell))),
            "seeds": sorted({*before.get("seeds", ()), *(run.seed for run in runs)}),
            "planned_seeds": cell.seeds,
            "resolved": kind.get("resolved", before.get("resolved")),
            "trained_steps": kind.get("steps", before.get("trained_steps")),
        }
    others = {name: cell for name, cell in held.cells.items() if name not in cells}
    return others | cells


def _manifest(study: Study, held: _Held, new: Mapping[str, Sequence[_Run]]) -> dict[str, Any]:
    made = [run.manifest for runs in new.values() for run in runs]
    return {
        "study": study.name,
        "description": study.description,
        "paper": list(study.paper),
        "cells": {},
        "protocol": made[0]["protocol"] if made else held.manifest.get("protocol"),
        **{
            key: _agreed(held.manifest.get(key), [manifest.get(key) for manifest in made])
            for key in ("versions", "hardware", "commit")
        },
        "collected": datetime.now(UTC).isoformat(timespec="seconds")
        if made
        else held.manifest.get("collected"),
    }


def _agreed(held: Any, said: Sequence[Any]) -> Any:
    """What all runs say; a list if they differ."""
    everything = [*(held if isinstance(held, list) else [held]), *said]
    different: list[Any] = []
    for value in everything:
        if value is not None and value not in different:
            different.append(value)
    return different[0] if len(different) == 1 else different or None


def _same_files(folder: Path, tables: Mapping[str, Rows]) -> bool:
    return all(
        (folder / name).is_file() and (folder / name).read_text(encoding="utf-8") == _csv_text(rows)
        for name, rows in tables.items()
    )


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


@contextmanager
def _replacement(folder: Path) -> Iterator[Path]:
    """A copy of ``folder`` that takes its place at the end; if anything fails, nothing happens."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        os.chmod(temporary, 0o755)
        if folder.is_dir():
            shutil.copytree(folder, temporary, dirs_exist_ok=True, symlinks=True)
        yield temporary
        if folder.is_dir():
            folder.rename(_aside(folder))  # `heal` puts it back if we die right here
        temporary.rename(folder)
        shutil.rmtree(_aside(folder), ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        heal(folder)
        raise


def _csv_text(rows: Rows) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _read_csv(path: Path) -> Rows:
    with open(path, newline="", encoding="utf-8") as file:
        rows: Rows = list(csv.DictReader(file))
    require(all("seed" in row for row in rows), f"{path} has no column seed")
    return rows


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
