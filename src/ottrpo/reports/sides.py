"""What can be compared, found by what the user wrote.

A side is one of

    runs/...            a run's directory, or a directory of such directories
    control:tuned       results: a study and a cell of it, by its name or its configuration
    results/.../x.csv   the same cell by its file
    trpo, trpo/tuned    an agent in all results, with one of its configurations
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from ottrpo.core.checks import Floats, require
from ottrpo.results.layout import run_directories
from ottrpo.results.reading import CellResult, Curves, curves_from, read_study, study_names
from ottrpo.results.run_directory import RunDirectory

from .statistics import trained_scores


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one side did on one environment.

    Attributes:
        name: of the runs, for people.
        environment: its id.
        steps: of training.
        curves: by way to act; True takes the policy's mode.
        settings: all of them, and the agent's name.
    """

    name: str
    environment: str
    steps: int
    curves: Mapping[bool, Curves]
    settings: Mapping[str, Any]

    def scores(self, *, deterministic: bool) -> Floats:
        """One per seed: the mean of the last tenth."""
        curves = self.curves[deterministic]
        try:
            return trained_scores(curves.mark_t, curves.return_nt, self.steps).score_n
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}; a run has to finish first") from error


@dataclass(frozen=True, kw_only=True)
class Side:
    """All that a name stands for, by environment."""

    name: str
    measured: Mapping[str, Measured] = field(default_factory=dict)


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
    measured = Measured(
        name=name, environment=environment, steps=1, curves=curves, settings={"agent": agent}
    )
    return Side(name=name, measured={environment: measured})


def _from_runs(text: str, path: Path) -> Side:
    found = run_directories(path)
    require(
        bool(found),
        f"{text} holds no run; a run is a directory that `ottrpo train` made",
    )
    by_environment: dict[str, list[RunDirectory]] = {}
    for place in found:
        run = RunDirectory.open(place)
        require(
            "seed" in run.manifest and "environment" in run.manifest,
            f"{place} is not a run; results are named STUDY:CELL",
        )
        by_environment.setdefault(str(run.manifest["environment"]), []).append(run)
    measured = {name: _measured(text, name, runs) for name, runs in by_environment.items()}
    return Side(name=text, measured=measured)


def _measured(name: str, environment: str, runs: Sequence[RunDirectory]) -> Measured:
    kinds = {json.dumps(_settings(run.manifest), sort_keys=True) for run in runs}
    steps = {run.manifest["steps"] for run in runs}
    require(
        len(kinds) == len(steps) == 1,
        f"{name} holds runs of {len(kinds)} configurations on {environment}; name one of them",
    )
    by_way: dict[bool, dict[int, dict[int, float]]] = {}
    for run in runs:
        seed = int(run.manifest["seed"])
        for record in run.evaluations():
            curve = by_way.setdefault(record["deterministic"], {}).setdefault(seed, {})
            require(
                record["mark"] not in curve,
                f"{name} holds two runs of seed {seed} on {environment}; name one of them",
            )
            curve[record["mark"]] = float(np.mean(record["returns"]))
    return Measured(
        name=name,
        environment=environment,
        steps=steps.pop(),
        curves={way: curves_from(found) for way, found in by_way.items()},
        settings=_settings(runs[0].manifest),
    )


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    named = {"agent": manifest.get("agent"), "config": manifest.get("config")}
    return {**named, "steps": manifest.get("steps"), **(manifest.get("resolved") or {})}


def _from_results(text: str, results: Path) -> Side:
    study, _, wanted = text.partition(":")
    known = study_names(results)
    require(study in known, f"{results} has no study {study!r}; {_hint(study, known)}")
    cells = read_study(results / study).cells
    chosen = [cell for cell in cells if cell.name == wanted]
    chosen = chosen or [
        cell for cell in cells if wanted in (cell.title, f"{cell.agent}/{cell.title}")
    ]
    names = [cell.name for cell in cells]
    require(bool(chosen), f"{study} has no cell {wanted!r}; {_hint(wanted, names)}")
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
        f"{_hint(agent, agents)}",
    )
    titles = sorted({cell.title for cell in cells if cell.agent == agent and cell.curves})
    title = wanted or ("default" if "default" in titles else "")
    require(
        title in titles,
        f"{agent} has no results with the configuration {wanted or 'default'!r}; "
        f"write {agent}/CONFIGURATION, {_hint(title, titles)}",
    )
    chosen: dict[str, CellResult] = {}
    for cell in cells:
        if (cell.agent, cell.title) == (agent, title) and cell.curves:
            held = chosen.get(cell.environment)
            # the same runs may stand in two studies: those with more seeds count
            if held is None or len(cell.runs) > len(held.runs):
                chosen[cell.environment] = cell
    return _side(text, list(chosen.values()))


def _side(text: str, cells: Sequence[CellResult]) -> Side:
    finished = [cell for cell in cells if cell.curves and cell.steps]
    require(bool(finished), f"{text} has no finished run")
    by_environment: dict[str, Measured] = {}
    for cell in finished:
        require(
            cell.environment not in by_environment,
            f"{text} means several cells on {cell.environment}: "
            f"{', '.join(c.name for c in finished if c.environment == cell.environment)}; "
            f"name one: STUDY:CELL",
        )
        named = {"agent": cell.agent, "config": cell.title, "steps": cell.steps}
        by_environment[cell.environment] = Measured(
            name=text,
            environment=cell.environment,
            steps=int(cell.steps or 0),
            curves=cell.curves,
            settings={**named, **cell.resolved},
        )
    return Side(name=text, measured=by_environment)


def _hint(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(word, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(names) or 'none'}"
