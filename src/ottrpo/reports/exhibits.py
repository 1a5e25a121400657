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
        above: the cells said to be better; of two of one name the first counts.
        below: the others.
        same: in what two cells that are compared agree.
        statistic: of the whole training's end, or of its first quarter.
        factor: how many times better.
    """

    text: str
    above: Criteria | Sequence[Criteria]
    below: Criteria
    same: Sequence[str] = ("environment",)
    statistic: Literal["final", "early"] = "final"
    factor: float = 1.0

    def __post_init__(self) -> None:
        known = self.statistic in ("final", "early")
        require(known, f"{self.text!r}: statistic must be final or early, got {self.statistic!r}")

    def pairs(self, cells: Sequence[CellResult]) -> list[tuple[CellResult, CellResult]]:
        """The cells to compare, better one first."""
        above = [self.above] if isinstance(self.above, Mapping) else self.above
        return [
            (a, b)
            for a in select(cells, above)
            for b in cells
            if fits(b, self.below) and all(_trait(a, key) == _trait(b, key) for key in self.same)
        ]


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A table or figure of the paper; see the head of ``exhibits.toml`` for the fields."""

    label: str
    title: str
    paper: str
    cells: Sequence[Criteria]
    also: Sequence[str] = ()
    curves: Literal["environment", "family"] | None = None
    table: Literal["scores", "time", "violations", "settings", "cells"] | None = None
    everywhere: bool = False
    published: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()

    @property
    def _asked(self) -> list[str]:
        return list(dict.fromkeys(str(criteria["study"]) for criteria in self.cells))

    def select(self, cells: Iterable[CellResult]) -> list[CellResult]:
        """Our cells beside it: those asked for, and those of studies that name its label."""
        held = list(cells)
        labels = {self.label, *self.also}
        naming = dict.fromkeys(cell.study for cell in held if labels & set(cell.answers))
        # those asked for come in the order, and with the cells, that they are asked for
        unasked = [name for name in naming if not any(fnmatchcase(name, s) for s in self._asked)]
        chosen = select(held, [*self.cells, *({"study": escape(name)} for name in unasked)])
        return chosen if self.everywhere else of_the_paper(chosen)

    def missing_studies(self, known: Iterable[str]) -> list[str]:
        """The studies that the exhibit asks for and that have no results."""
        names = list(known)
        return [
            pattern.rstrip("*")
            for pattern in self._asked
            # "ablation-*" names a group of studies and none in particular
            if not pattern.endswith("-*") and not any(fnmatchcase(name, pattern) for name in names)
        ]


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """Several environments that are looked at together."""

    title: str
    environments: Sequence[str]
    cells: Sequence[Criteria]


@dataclass(frozen=True, kw_only=True)
class Exhibition:
    """All of ``exhibits.toml``.

    Attributes:
        headline: the cells that the page begins with.
        methods: one cell for each agent, environment and configuration, to show side by side.
        exhibits: in the order of the page.
        aggregates: in the order of the page.
        full_steps: how long a full run is, by environment.
    """

    headline: Sequence[Criteria]
    methods: Sequence[Criteria]
    exhibits: Sequence[Exhibit]
    aggregates: Sequence[Aggregate]
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


def read_exhibition(path: Path = FILE) -> Exhibition:
    """What the file says; unknown keys are refused by the classes that take them."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    for table in data["exhibits"]:
        table["claims"] = [Claim(**claim) for claim in table.get("claims", ())]
    exhibits = [Exhibit(**table) for table in data.pop("exhibits")]
    aggregates = [Aggregate(**table) for table in data.pop("aggregates")]
    return Exhibition(exhibits=exhibits, aggregates=aggregates, **data)


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
