"""Studies that are grids of runs: cells of (environment, agent, configuration, settings) x seeds.

A study is a TOML file under ``studies/``. Each run is a process of its own with a run directory
of its own; what is finished is skipped, so a study can be stopped and started again. The finished
runs are then folded into ``<out>/<study>/``: raw evaluations per cell, one line per run, and a
manifest. Everything that is reported is computed from those files alone.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottrpo.core.checks import require

from . import provenance
from .store import RunDirectory

STUDIES_FOLDER = Path(__file__).parent / "studies"
_STUDY_KEYS = {"description", "seeds", "first_seed", "cells"}
_CELL_KEYS = {"environments", "agent", "config", "label", "steps", "settings"}
POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is run with every seed.

    Attributes:
        environment: a Gymnasium id.
        agent: its name.
        config: a configuration of it.
        label: names the cell in tables and files; the configuration's name by default.
        steps: of training; what the configuration says by default.
        settings: laid over the configuration.
    """

    environment: str
    agent: str = "ottrpo"
    config: str = "default"
    label: str = ""
    steps: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For files."""
        parts = (self.environment, self.agent, self.label or self.config)
        return "__".join(part.replace("/", "-").replace(" ", "-") for part in parts)

    def steps_of_a_run(self, asked: int | None) -> int:
        """How long a run trains: as asked, as the cell says, or as its configuration says."""
        from .run import plan_run

        steps = self.steps if asked is None else asked
        spec = plan_run(self.environment, agent=self.agent, config=self.config, steps=steps)
        return spec.steps

    def overrides(self) -> list[str]:
        """The settings as the command line takes them."""
        return [f"{key}={json.dumps(value)}" for key, value in self.settings.items()]


@dataclass(frozen=True, kw_only=True)
class GridStudy:
    """Many runs that answer one question."""

    name: str
    description: str
    cells: tuple[Cell, ...]
    seeds: int
    first_seed: int = 0

    def run(self, *, seeds: int | None, workers: int, out: Path, steps: int | None) -> int:
        """Do what is missing, fold what is finished into ``out``, and tell; 0 if all is there."""
        runs = Path("runs") / self.name
        count = self.seeds if seeds is None else seeds
        jobs = [
            (cell, seed, runs / cell.name / f"seed{seed}")
            for cell in self.cells
            for seed in range(self.first_seed, self.first_seed + count)
        ]
        missing = [job for job in jobs if not _finished(job[2], job[0].steps_of_a_run(steps))]
        print(f"{self.name}: {len(jobs)} runs, {len(jobs) - len(missing)} finished", flush=True)
        failed = _run_all(missing, steps, workers)
        collect(self, [path for _, _, path in jobs], out / self.name)
        for line in failed:
            print(line, file=sys.stderr, flush=True)
        return 1 if failed else 0


def read_study(path: Path) -> GridStudy:
    """The study of a TOML file.

    Raises:
        ValueError: if the file has unknown keys or lacks some.
    """
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    _refuse_unknown(path.name, data, _STUDY_KEYS)
    cells = []
    for table in data["cells"]:
        _refuse_unknown(path.name, table, _CELL_KEYS)
        common = {key: value for key, value in table.items() if key != "environments"}
        cells += [Cell(environment=name, **common) for name in table["environments"]]
    names = [cell.name for cell in cells]
    require(len(set(names)) == len(names), f"{path.name}: two cells have one name; give labels")
    return GridStudy(
        name=path.stem,
        description=data["description"],
        cells=tuple(cells),
        seeds=data["seeds"],
        first_seed=data.get("first_seed", 0),
    )


def collect(study: GridStudy, paths: Iterable[Path], folder: Path) -> None:
    """Fold the finished runs among ``paths`` into ``folder``."""
    by_cell: dict[str, list[RunDirectory]] = {}
    for path in paths:
        if _finished(path):
            by_cell.setdefault(path.parent.name, []).append(RunDirectory.open(path))
    folder.mkdir(parents=True, exist_ok=True)
    for name, directories in by_cell.items():
        write_csv(folder / f"{name}.csv", _evaluation_rows(directories))
    runs = [_run_row(name, d) for name, directories in by_cell.items() for d in directories]
    write_csv(folder / "runs.csv", runs)
    manifest = {
        "study": study.name,
        "description": study.description,
        "cells": {
            cell.name: {
                **asdict(cell),
                "seeds": [d.manifest["seed"] for d in by_cell.get(cell.name, [])],
                "resolved": by_cell[cell.name][0].manifest["resolved"]
                if cell.name in by_cell
                else None,
                "trained_steps": by_cell[cell.name][0].manifest["steps"]
                if cell.name in by_cell
                else None,
            }
            for cell in study.cells
        },
        "protocol": next(iter(by_cell.values()))[0].manifest["protocol"] if by_cell else None,
        "versions": _agreed(by_cell, "versions"),
        "hardware": _agreed(by_cell, "hardware"),
        "commit": _agreed(by_cell, "commit") or provenance.commit(),
        "collected": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = json.dumps(manifest, indent=2) + "\n"
    (folder / "manifest.json").write_text(text, encoding="utf-8")


def _evaluation_rows(directories: Sequence[RunDirectory]) -> list[dict[str, Any]]:
    return [
        {
            "seed": directory.manifest["seed"],
            "mark": record["mark"],
            "timestep": record["timestep"],
            "deterministic": int(record["deterministic"]),
            "train_seconds": round(record["train_seconds"], 2),
            "returns": " ".join(f"{value:.6g}" for value in record["returns"]),
        }
        for directory in directories
        for record in directory.evaluations()
    ]


def _run_row(name: str, directory: RunDirectory) -> dict[str, Any]:
    last = directory.metrics()[-1]
    return {
        "cell": name,
        "seed": directory.manifest["seed"],
        "steps": last["timestep"],
        "updates": last["update"],
        "violations": last["violations"],
        "train_seconds": round(last["train_seconds"], 1),
    }


def _agreed(by_cell: Mapping[str, Sequence[RunDirectory]], key: str) -> Any:
    """What all runs say; a list if they differ."""
    said = [directory.manifest.get(key) for runs in by_cell.values() for directory in runs]
    different = [value for i, value in enumerate(said) if value not in said[:i]]
    return different[0] if len(different) == 1 else different or None


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with the same keys as a table; nothing if there are none."""
    if not rows:
        return
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _refuse_unknown(file: str, table: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    require(not unknown, f"{file}: unknown keys {unknown}; known: {', '.join(sorted(known))}")


def _finished(path: Path, steps: int | None = None) -> bool:
    """Whether a run is complete; one of another length does not count."""
    if not (path / "manifest.json").is_file():
        return False
    directory = RunDirectory.open(path)
    return directory.finished and steps in (None, directory.manifest["steps"])


def _run_all(jobs: Sequence[tuple[Cell, int, Path]], steps: int | None, workers: int) -> list[str]:
    """One process per run, ``workers`` at a time; what failed, in words."""
    waiting = list(jobs)
    live: list[tuple[subprocess.Popen[bytes], Cell, int, Path]] = []
    failed: list[str] = []
    done, began = 0, time.monotonic()
    try:
        while waiting or live:
            while waiting and len(live) < workers:
                cell, seed, path = waiting.pop(0)
                live.append((_start(cell, seed, path, steps), cell, seed, path))
            time.sleep(POLL_SECONDS)
            for entry in [entry for entry in live if entry[0].poll() is not None]:
                live.remove(entry)
                process, cell, seed, path = entry
                done += 1
                word = "finished" if process.returncode == 0 else "FAILED"
                minutes = (time.monotonic() - began) / 60
                print(
                    f"[{done}/{len(jobs)}, {minutes:.1f} min] {cell.name} seed {seed} {word}",
                    flush=True,
                )
                if process.returncode != 0:
                    failed.append(f"{cell.name} seed {seed} failed; see {path / 'log.txt'}")
    finally:
        for process, *_ in live:
            process.terminate()
    return failed


def _start(cell: Cell, seed: int, path: Path, steps: int | None) -> "subprocess.Popen[bytes]":
    shutil.rmtree(path, ignore_errors=True)  # what an earlier, unfinished try left
    path.mkdir(parents=True)
    job = {
        "environment": cell.environment,
        "agent": cell.agent,
        "config": cell.config,
        "seed": seed,
        "steps": cell.steps if steps is None else steps,
        "overrides": cell.overrides(),
        "protocol": "paper",
        "out": str(path),
    }
    with open(path / "log.txt", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "ottrpo.experiments.one_run", json.dumps(job)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ,
        )


STUDIES = {path.stem: read_study(path) for path in sorted(STUDIES_FOLDER.glob("*.toml"))}
