"""What can be compared, found by what the user wrote.

A side is one of

    runs/...            a run's directory, or a directory of such directories
    control:tuned       results: a study and a cell of it, by its name or its configuration
    results/.../x.csv   the same cell by its file
    trpo, trpo/tuned    an agent in all results, with one of its configurations
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ottrpo.core.checks import Floats, require
from ottrpo.names import known
from ottrpo.results.layout import run_directories
from ottrpo.results.reading import (
    CellResult,
    Curves,
    curves_from,
    read_study,
    run_curves,
    study_names,
)
from ottrpo.results.run_directory import RunDirectory

# What a run's manifest must tell to be compared.
_TOLD: dict[str, type] = {
    **dict.fromkeys(("environment", "agent", "config"), str),
    **dict.fromkeys(("seed", "steps"), int),
    "resolved": dict,
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """All that a name stands for: by environment, what is known of its runs."""

    name: str
    cells: Mapping[str, CellResult] = field(default_factory=dict)


def find_side(text: str, results: Path) -> Side:
    """What ``text`` names.

    Raises:
        ValueError: if it names nothing, or more than one thing.
    """
    path = Path(text)
    if path.is_dir():
        return _from_runs(text, path)
    if path.is_file():
        return _from_cell_file(text, path.resolve())
    if ":" in text:
        return _from_results(text, results)
    return _from_agent(text, results)


def side_of_returns(
    name: str, agent: str, environment: str, returns: Mapping[bool, Sequence[float] | Floats]
) -> Side:
    """A trained agent by the returns of some episodes, for each way to act: one run, no curve."""
    curves = {way: curves_from({0: {1: float(np.mean(found))}}) for way, found in returns.items()}
    return Side(name=name, cells={environment: _cell(name, environment, agent, 1, curves)})


def _cell(
    name: str,
    environment: str,
    agent: str,
    steps: int,
    curves: Mapping[bool, Curves],
    config: str = "",
    resolved: Mapping[str, Any] | None = None,
) -> CellResult:
    """Runs that belong to no study, as if they did."""
    return CellResult(
        study=name,
        name=environment,
        environment=environment,
        agent=agent,
        config=config,
        label="",
        steps=steps,
        resolved=resolved or {},
        curves=curves,
    )


def _from_runs(text: str, path: Path) -> Side:
    found = run_directories(path)
    require(
        bool(found),
        f"{text} holds no run; a run is a directory that `ottrpo train` made",
    )
    by_environment: dict[str, list[RunDirectory]] = {}
    for place in found:
        run = RunDirectory.open(place)
        wrong = [key for key, kind in _TOLD.items() if type(run.manifest.get(key)) is not kind]
        require(
            not wrong,
            f"{place} is not a run, by its {', '.join(wrong)}; results are named STUDY:CELL",
        )
        by_environment.setdefault(run.manifest["environment"], []).append(run)
    cells = {name: _from_seeds(text, name, runs) for name, runs in by_environment.items()}
    return Side(name=text, cells=cells)


def _from_seeds(name: str, environment: str, runs: Sequence[RunDirectory]) -> CellResult:
    asked = ("agent", "config", "steps", "resolved")
    kinds = {json.dumps([run.manifest.get(key) for key in asked], sort_keys=True) for run in runs}
    require(
        len(kinds) == 1,
        f"{name} holds runs of {len(kinds)} configurations on {environment}; name one of them",
    )
    agent, config, steps, resolved = (runs[0].manifest[key] for key in asked)
    return _cell(name, environment, str(agent), steps, run_curves(runs), str(config), resolved)


def _from_results(text: str, results: Path) -> Side:
    study, _, wanted = text.partition(":")
    studies = study_names(results)
    require(study in studies, f"{results} has no study {study!r}; {known(study, studies)}")
    cells = read_study(results / study).cells
    chosen = [cell for cell in cells if cell.name == wanted]
    chosen = chosen or [
        cell for cell in cells if wanted in (cell.title, f"{cell.agent}/{cell.title}")
    ]
    names = [cell.name for cell in cells]
    require(bool(chosen), f"{study} has no cell {wanted!r}; {known(wanted, names)}")
    return _side(text, chosen)


def _from_cell_file(text: str, path: Path) -> Side:
    study = path.parent
    require(
        study.name in study_names(study.parent),
        f"{text} is no results of ours: there is no manifest beside it",
    )
    chosen = [cell for cell in read_study(study).cells if cell.name == path.stem]
    require(bool(chosen), f"{text} holds no cell of {study.name}")
    return _side(text, chosen)


def _from_agent(text: str, results: Path) -> Side:
    agent, _, wanted = text.partition("/")
    cells = [cell for name in study_names(results) for cell in read_study(results / name).cells]
    agents = sorted({cell.agent for cell in cells if cell.curves})
    require(
        agent in agents,
        f"{text!r} is no directory, no STUDY:CELL and no agent with results in {results}; "
        f"{known(agent, agents)}",
    )
    titles = sorted({cell.title for cell in cells if cell.agent == agent and cell.curves})
    title = wanted or next((name for name in ("default", "tuned", *titles) if name in titles), "")
    require(
        title in titles,
        f"{agent} has no results with the configuration {title!r}; "
        f"write {agent}/CONFIGURATION, {known(title, titles)}",
    )
    chosen: dict[str, CellResult] = {}
    for cell in cells:
        if (cell.agent, cell.title) == (agent, title) and cell.curves:
            held = chosen.get(cell.environment)
            # the same runs may stand in two studies: those with more seeds count
            if held is None or len(cell.runs) > len(held.runs):
                chosen[cell.environment] = cell
    return _side(f"{agent}/{title}", list(chosen.values()))


def _side(text: str, cells: Sequence[CellResult]) -> Side:
    finished = [cell for cell in cells if cell.curves and cell.steps]
    require(bool(finished), f"{text} has no finished run")
    by_environment: dict[str, CellResult] = {}
    for cell in finished:
        require(
            cell.environment not in by_environment,
            f"{text} means several cells on {cell.environment}: "
            f"{', '.join(c.name for c in finished if c.environment == cell.environment)}; "
            f"name one: STUDY:CELL",
        )
        by_environment[cell.environment] = cell
    return Side(name=text, cells=by_environment)
