"""Studies: many runs that answer one question.

A study is a TOML file under ``studies/``, or one of the user's own. Its cells say what is run:

    description = "one line"
    paper = ["tab:trained:scores"]          # labels of the tables and figures it answers
    seeds = 10                              # this and every key of a cell: for all cells
    batch = "seeds"                         # all of them in one program; in environments of JAX

    [[cells]]
    environments = ["Hopper-v5", "Swimmer-v5"]
    agent = "ottrpo"
    config = "default"
    vary = { radius = ["10%", "30%"] }      # a cell for each value

Keys are closed. What a run measures depends on its cell and seed alone, never on the other runs,
their order or where they are done.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, final

from ottrpo.core.checks import require, require_one_of, require_whole, require_words
from ottrpo.envs import catalogue
from ottrpo.envs.functional import family_of

from .spec import RunSpec, read_toml

STUDIES_FOLDER = Path(__file__).parent / "studies"
# A file of a few lines can ask for more runs than there are atoms. Ours have some hundreds.
MAX_RUNS = 10_000


@final
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
        protocol: when and how runs are evaluated.
        seeds: how many there are.
        first_seed: the others follow it.
        audit: whether every update is checked from outside; for the tabular agents.
    """

    environment: str
    agent: str = "ottrpo"
    config: str = "default"
    label: str = ""
    steps: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = "paper"
    seeds: int = 1
    first_seed: int = 0
    audit: bool = False

    def __post_init__(self) -> None:
        steps = 1 if self.steps is None else self.steps
        for name, value, low in (
            ("seeds", self.seeds, 1),
            ("first_seed", self.first_seed, 0),
            ("steps", steps, 1),
        ):
            require_whole(name, value, low)
        for name in ("environment", "agent", "config", "label", "protocol"):
            require_words(name, getattr(self, name))
        require(isinstance(self.settings, Mapping), f"settings is a table, got {self.settings!r}")
        require(isinstance(self.audit, bool), f"audit must be true or false, got {self.audit!r}")

    @property
    def name(self) -> str:
        """For files."""
        parts = (self.environment, self.agent, self.label or self.config)
        return "__".join(part.translate(str.maketrans("/: ", "---")) for part in parts)

    def spec(self, steps: int | None = None) -> RunSpec:
        """The run with the first seed, resolved; ``steps`` replaces what the cell says.

        Raises:
            ValueError: if the environment, the agent, the configuration or a setting is unknown.
        """
        from .run import plan_run

        return plan_run(
            self.environment,
            agent=self.agent,
            config=self.config,
            seed=self.first_seed,
            steps=self.steps if steps is None else steps,
            settings=self.settings,
            protocol=self.protocol,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """Many runs that answer one question.

    Attributes:
        name: of the file it was read from; its results stand in a folder of this name.
        description: what it shows, in one line.
        cells: what is run.
        paper: labels of the paper's tables and figures that it answers.
        workers: at most so many runs at once; for studies that measure time.
        batch: ``seeds``: all seeds of a cell are one program, in environments of JAX.
    """

    name: str
    description: str
    cells: tuple[Cell, ...]
    paper: tuple[str, ...] = ()
    workers: int | None = None
    batch: str = ""

    def __post_init__(self) -> None:
        require_words("description", self.description)
        if self.batch:
            require_one_of(self.batch, ("seeds",), "a way to batch")
            for cell in self.cells:
                functional = family_of(cell.environment) is not None
                require(functional, f"batch is for environments of JAX, not {cell.environment}")
        for label in self.paper:
            require_words("paper", label)
        if self.workers is not None:
            require_whole("workers", self.workers, 1)
        # it names folders: .. would lead out of where they belong, . hides them
        right = self.name.isprintable() and self.name[:1].isalnum() and "/" not in self.name
        require(right, f"a study's name begins with a letter or a digit, got {self.name!r}")

    def data(self) -> dict[str, Any]:
        """The study as its manifest has it."""
        return {
            "study": self.name,
            "description": self.description,
            "paper": list(self.paper),
            "cells": {cell.name: asdict(cell) for cell in self.cells},
        }


def load_study(path: Path, *, trust: bool = False, max_runs: int = MAX_RUNS) -> Study:
    """The study of a TOML file, which may come from a stranger.

    Args:
        path: the file.
        trust: whether the modules of environments ``module:Name-v0`` may be imported.
        max_runs: more than this are refused before anything is made of them.

    Raises:
        ValueError: if the file can't be read, has unknown keys or lacks some, or asks for too much.
    """
    data = read_toml(path, "study")
    try:
        study = _study(path.stem, data, max_runs)
        for environment in {cell.environment for cell in study.cells}:
            catalogue.require_no_import(environment, trust=trust)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from error
    return study


def require_few(runs: int, max_runs: int) -> None:
    """Refuse a study with more than ``max_runs`` runs."""
    require(
        runs <= max_runs,
        f"it asks for {runs:,} runs, more than {max_runs:,}; if it is meant, raise --max-runs",
    )


def _study(name: str, data: Mapping[str, Any], max_runs: int) -> Study:
    own = {"description", "paper", "workers", "batch", "cells"}
    _refuse_unknown(data, own | _CELL_KEYS - {"label"})
    for key in ("description", "cells"):
        require(key in data, f"{key} is missing")
    common = {key: value for key, value in data.items() if key not in own}
    tables, paper = data["cells"], data.get("paper", [])
    for key, value in (("cells", tables), ("paper", paper)):
        require(isinstance(value, list), f"{key} is a list, got {value!r}")
    for table in tables:
        require(isinstance(table, dict), f"a cell is a table, got {table!r}")
    planned = [common | table for table in tables]
    require_few(sum(map(_count, planned)), max_runs)
    cells = [cell for table in planned for cell in _cells(table)]
    twice = next((name for name, n in Counter(c.name for c in cells).items() if n > 1), None)
    require(twice is None, f"two cells have the name {twice}; give them labels")
    return Study(
        name=name,
        description=data["description"],
        cells=tuple(cells),
        paper=tuple(paper),
        workers=data.get("workers"),
        batch=data.get("batch", ""),
    )


_CELL_KEYS = {f.name for f in fields(Cell)} - {"environment"} | {"environments", "vary"}


def _count(table: Mapping[str, Any]) -> int:
    """How many runs one table stands for, without making them."""
    _refuse_unknown(table, _CELL_KEYS)
    require("environments" in table, "a cell says no environments")
    environments, vary, seeds = table["environments"], table.get("vary", {}), table.get("seeds", 1)
    require(isinstance(environments, list), f"environments is a list, got {environments!r}")
    lists = isinstance(vary, dict) and all(isinstance(values, list) for values in vary.values())
    require(lists, f"vary has a list of values for each setting, got {vary!r}")
    require_whole("seeds", seeds, 1)
    return int(seeds * len(environments) * math.prod(map(len, vary.values())))


def _cells(table: Mapping[str, Any]) -> list[Cell]:
    """The cells of one table: for each environment and each value of what varies."""
    given = {key: table[key] for key in table if key not in ("environments", "vary")}
    vary: Mapping[str, list[Any]] = table.get("vary", {})
    cells = []
    for environment in table["environments"]:
        for values in itertools.product(*vary.values()):
            chosen = dict(zip(vary, values, strict=True))
            more: dict[str, Any] = dict(given)
            if chosen:
                words = [f"{key}-{_word(value)}" for key, value in chosen.items()]
                more["label"] = " ".join(
                    [given.get("label", given.get("config", "default")), *words]
                )
                more["settings"] = {**given.get("settings", {}), **chosen}
            cells.append(Cell(environment=environment, **more))
    return cells


def _word(value: Any) -> str:
    """A value as part of a label, which becomes part of a file's name."""
    return str(value).lower() if isinstance(value, bool) else str(value).replace("%", "pc")


def _refuse_unknown(table: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    require(not unknown, f"unknown keys {unknown}; known: {', '.join(sorted(known))}")


STUDIES = {path.stem: load_study(path) for path in sorted(STUDIES_FOLDER.glob("*.toml"))}
