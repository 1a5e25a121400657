"""What can be compared, found by what the user wrote.

A side is one of

    runs/...            a run's directory, or a directory of such directories
    control:tuned       results: a study and a cell of it, by its name or its configuration
    results/.../x.csv   the same cell by its file
    trpo, trpo/tuned    an agent in all results, with one of its configurations; where several
                        studies have it, the newest whose runs are of full length
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottrpo.core.checks import Floats, require
from ottrpo.names import known
from ottrpo.results.layout import elsewhere
from ottrpo.results.reading import (
    CellResult,
    curves_of,
    read_runs,
    read_studies,
    read_study,
    study_names,
)

from .exhibits import read_exhibition


class Side(NamedTuple):
    """All that a name stands for: by environment, what is known of its runs.

    Attributes:
        name: as it was asked for.
        cells: by environment.
        others: studies that have it too, and were not taken.
    """

    name: str
    cells: Mapping[str, CellResult]
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Its name, and of several studies those it was taken from."""
        if not self.others:
            return self.name
        taken = sorted({cell.study for cell in self.cells.values()})
        return (
            f"{self.name}, the newest of full length: {', '.join(taken)} "
            f"(others, by STUDY:CELL: {', '.join(self.others)})"
        )


def find_side(text: str, results: Path) -> Side:
    """What ``text`` names.

    Raises:
        ValueError: if it names nothing, or more than one thing.
    """
    path = Path(text)
    if path.is_dir():
        return Side(text, read_runs(path))
    if path.is_file():
        return _from_cell_file(text, path.resolve())
    if ":" in text:
        return _from_results(text, results)
    return _from_agent(text, results)


def side_of_returns(
    name: str, agent: str, environment: str, returns: Mapping[bool, Sequence[float] | Floats]
) -> Side:
    """A trained agent by the returns of some episodes, for each way to act: one run, no curve."""
    curves = curves_of((way, 0, 1, list(found), name) for way, found in returns.items())
    who: dict[str, Any] = {"study": name, "name": environment, "environment": environment}
    return Side(name, {environment: CellResult(**who, agent=agent, steps=1, curves=curves)})


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
    cells = [cell for study in read_studies(results) for cell in study.cells]
    agents = sorted({cell.agent for cell in cells if cell.curves})
    require(
        agent in agents,
        f"{text!r} is no directory, no STUDY:CELL and no agent with results in {results}; "
        f"{known(agent, agents)}{elsewhere(results)}",
    )
    titles = sorted({cell.title for cell in cells if cell.agent == agent and cell.curves})
    title = wanted or next((name for name in ("default", "tuned", *titles) if name in titles), "")
    require(
        title in titles,
        f"{agent} has no results with the configuration {title!r}; "
        f"write {agent}/CONFIGURATION, {known(title, titles)}",
    )
    return side_of_agent(cells, agent, title)


def side_of_agent(cells: Iterable[CellResult], agent: str, title: str) -> Side:
    """An agent in one configuration, wherever it has finished runs: the newest of full length.

    Raises:
        ValueError: if it has none.
    """
    full = read_exhibition().full_steps
    found = [cell for cell in cells if (cell.agent, cell.title) == (agent, title) and cell.curves]

    def rank(cell: CellResult) -> tuple[bool, str, int]:
        """Full length, then the date; of the same date that with more seeds."""
        length = cell.steps or 0
        return length >= full.get(cell.environment, 0), cell.collected, len(cell.runs)

    chosen: dict[str, CellResult] = {}
    for cell in found:
        chosen[cell.environment] = max(chosen.get(cell.environment, cell), cell, key=rank)
    side = _side(f"{agent}/{title}", list(chosen.values()))
    taken = {cell.study for cell in chosen.values()}
    return side._replace(others=tuple(sorted({cell.study for cell in found} - taken)))


def _side(text: str, cells: Sequence[CellResult]) -> Side:
    finished = [cell for cell in cells if cell.curves and cell.steps]
    require(bool(finished), f"{text} has no finished run")
    by_environment = {cell.environment: cell for cell in finished}
    for environment in by_environment:
        names = [cell.name for cell in finished if cell.environment == environment]
        told = f"{text} means several cells on {environment}: {', '.join(names)}"
        require(len(names) == 1, f"{told}; name one: STUDY:CELL")
    return Side(text, by_environment)
