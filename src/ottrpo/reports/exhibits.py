"""Which of our cells stand beside which table or figure of the paper: ``exhibits.toml``, read."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Any, Literal

from ottrpo.core.checks import require
from ottrpo.envs import catalogue
from ottrpo.results.reading import CellResult

FILE = Path(__file__).parent / "exhibits.toml"
Criteria = Mapping[str, Any]
_NAMES = ("study", "environment", "agent", "config", "title")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Something the paper says of two groups of cells.

    Attributes:
        text: what it says.
        above: the cells said to be better.
        below: the others.
        same: in what two cells that are compared agree.
        statistic: of the whole training's end, or of its first quarter.
        factor: how many times better.
    """

    text: str
    above: Criteria
    below: Criteria
    same: tuple[str, ...] = ("environment",)
    statistic: Literal["final", "early"] = "final"
    factor: float = 1.0

    def __post_init__(self) -> None:
        known = self.statistic in ("final", "early")
        require(known, f"{self.text!r}: statistic must be final or early, got {self.statistic!r}")

    def pairs(self, cells: Sequence[CellResult]) -> list[tuple[CellResult, CellResult]]:
        """The cells to compare, better one first."""
        return [
            (a, b)
            for a in cells
            if fits(a, self.above)
            for b in cells
            if fits(b, self.below) and all(_trait(a, key) == _trait(b, key) for key in self.same)
        ]


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A table or figure of the paper; see the head of ``exhibits.toml`` for the fields."""

    label: str
    title: str
    paper: str
    cells: tuple[Criteria, ...]
    also: tuple[str, ...] = ()
    curves: Literal["environment", "family"] | None = None
    table: Literal["scores", "time", "violations", "settings", "cells"] | None = None
    everywhere: bool = False
    published: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()

    def select(self, cells: Iterable[CellResult]) -> list[CellResult]:
        """Our cells beside it: those asked for, and those of studies that name its label."""
        held = list(cells)
        asked = [criteria["study"] for criteria in self.cells]
        unasked = dict.fromkeys(
            cell.study
            for cell in held
            if {self.label, *self.also} & set(cell.answers)
            and not any(fnmatchcase(cell.study, pattern) for pattern in asked)
        )
        chosen = select(held, [*self.cells, *({"study": escape(name)} for name in unasked)])
        return chosen if self.everywhere else of_the_paper(chosen)

    def missing_studies(self, known: Iterable[str]) -> list[str]:
        """The studies that the exhibit asks for and that have no results."""
        names = list(known)
        asked = dict.fromkeys(str(criteria["study"]) for criteria in self.cells)
        return [
            pattern.rstrip("*")
            for pattern in asked
            # "ablation-*" names a group of studies and none in particular
            if not pattern.endswith("-*") and not any(fnmatchcase(name, pattern) for name in names)
        ]


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """Several environments that are looked at together."""

    title: str
    environments: tuple[str, ...]
    cells: tuple[Criteria, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All of ``exhibits.toml``.

    Attributes:
        headline: the cells that the page begins with.
        methods: one cell for each agent, environment and configuration, to show side by side.
        exhibits: in the order of the page.
        aggregates: in the order of the page.
        full_steps: how long a full run is, by environment.
    """

    headline: tuple[Criteria, ...]
    methods: tuple[Criteria, ...]
    exhibits: tuple[Exhibit, ...]
    aggregates: tuple[Aggregate, ...]
    full_steps: Mapping[str, int]


def select(cells: Iterable[CellResult], choices: Sequence[Criteria]) -> list[CellResult]:
    """The cells that fit, in the order of the criteria; of two of one name the first counts."""
    held = list(cells)
    chosen: dict[tuple[str, str, str], CellResult] = {}
    for criteria in choices:
        for cell in held:
            if fits(cell, criteria):
                chosen.setdefault((cell.environment, cell.agent, cell.title), cell)
    return list(chosen.values())


def of_the_paper(cells: Iterable[CellResult]) -> list[CellResult]:
    """The cells on the paper's environments, in the paper's order of them."""
    order = [entry.env_id for entry in catalogue.CATALOGUE if entry.paper_id]
    held = [cell for cell in cells if cell.environment in order]
    return sorted(held, key=lambda cell: order.index(cell.environment))


def read_plan(path: Path = FILE) -> Plan:
    """What the file says; unknown keys are refused by the classes that take them."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    exhibits = []
    for table in data["exhibits"]:
        claims = tuple(
            Claim(**{**claim, "same": tuple(claim.get("same", Claim.same))})
            for claim in table.pop("claims", ())
        )
        exhibits.append(Exhibit(**{**table, "cells": tuple(table["cells"])}, claims=claims))
    return Plan(
        headline=tuple(data["headline"]),
        methods=tuple(data["methods"]),
        exhibits=tuple(exhibits),
        aggregates=tuple(
            Aggregate(
                title=table["title"],
                environments=tuple(table["environments"]),
                cells=tuple(table["cells"]),
            )
            for table in data["aggregates"]
        ),
        full_steps=data["full_steps"],
    )


def fits(cell: CellResult, criteria: Criteria) -> bool:
    """Whether a cell fits all criteria.

    >>> from ottrpo.results.reading import CellResult
    >>> cell = CellResult(
    ...     study="radii", name="c", environment="Taxi-v4", agent="ottrpo", config="default",
    ...     label="", steps=1, resolved={"radius": 0.1, "policy_kwargs": {"depth": 2}},
    ... )
    >>> fits(cell, {"study": "rad*", "agent": ["wpo", "ottrpo"], "radius": 0.1})
    True
    >>> fits(cell, {"policy_kwargs.depth": 3})
    False
    """
    return all(_fits(cell, key, wanted) for key, wanted in criteria.items())


def setting(cell: CellResult, key: str) -> Any:
    """A resolved setting, with dots for tables; None if the agent has none of that name."""
    value: Any = cell.resolved
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _trait(cell: CellResult, key: str) -> Any:
    """A name or a setting; agents call their discount by two names."""
    if key in _NAMES:
        return getattr(cell, key)
    if key == "discount":
        return setting(cell, "discount") or setting(cell, "gamma")
    return setting(cell, key)


def _fits(cell: CellResult, key: str, wanted: Any) -> bool:
    choices = wanted if isinstance(wanted, list) else [wanted]
    if key in _NAMES:
        return any(fnmatchcase(getattr(cell, key), choice) for choice in choices)
    return setting(cell, key) in choices
