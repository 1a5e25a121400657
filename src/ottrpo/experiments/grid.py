"""Studies: many runs that answer one question.

A study is a TOML file under ``studies/``, or one of the user's own. Its cells say what is run:

    description = "one line"
    paper = ["tab:trained:scores"]          # labels of the tables and figures it answers
    seeds = 10                              # this and every key of a cell: for all cells

    [[cells]]
    environments = ["Hopper-v5", "Swimmer-v5"]
    agent = "ottrpo"
    config = "default"
    vary = { radius = ["10%", "30%"] }      # a cell for each value

Keys are closed. What a run measures depends on its cell and seed alone, never on the other runs,
their order or where they are done.
"""

import itertools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from ottrpo.core.checks import require

if TYPE_CHECKING:
    from .spec import RunSpec

STUDIES_FOLDER = Path(__file__).parent / "studies"
# A run that crashes is tried again this often, and counts as hanging after this many seconds
# without a sign of life: it writes a record about a thousand times, whatever its speed.
RETRIES = 2
TIME_LIMIT = 900.0


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
            right = type(value) is int and value >= low
            require(right, f"{name} must be a whole number from {low} on, got {value!r}")

    @property
    def name(self) -> str:
        """For files."""
        parts = (self.environment, self.agent, self.label or self.config)
        return "__".join(part.replace("/", "-").replace(" ", "-") for part in parts)

    def overrides(self) -> list[str]:
        """The settings as the command line takes them."""
        return [f"{key}={json.dumps(value)}" for key, value in self.settings.items()]

    def spec(self, steps: int | None = None) -> "RunSpec":
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
            overrides=self.overrides(),
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
    """

    name: str
    description: str
    cells: tuple[Cell, ...]
    paper: tuple[str, ...] = ()
    workers: int | None = None

    def data(self) -> dict[str, Any]:
        """The study as its manifest has it."""
        return {
            "study": self.name,
            "description": self.description,
            "paper": list(self.paper),
            "cells": {cell.name: asdict(cell) for cell in self.cells},
        }

    def run(
        self,
        *,
        seeds: int | None,
        workers: int,
        out: Path,
        steps: int | None,
        ray: str | None = None,
        retries: int = RETRIES,
        time_limit: float = TIME_LIMIT,
    ) -> int:
        """Do what is missing, fold what is finished into ``out``; 0 if all is there.

        Args:
            seeds: of every cell, instead of what the study says.
            workers: runs at once on this machine.
            out: results go into a folder of it that is named after the study.
            steps: of every run, instead of what the study says.
            ray: the address of a Ray cluster that does the runs instead of this machine.
            retries: how often a run that crashes is tried again.
            time_limit: seconds without a sign of life after which a run counts as hanging.

        Raises:
            ValueError: if a cell can't be run, or another process works on the study.
        """
        from .reproduce import Options, reproduce

        options = Options(workers=workers, ray=ray, retries=retries, time_limit=time_limit, out=out)
        return reproduce(self, seeds=seeds, steps=steps, options=options)


def read_study(path: Path) -> Study:
    """The study of a TOML file.

    Raises:
        ValueError: if the file can't be read, has unknown keys or lacks some.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"can't read the study {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path.name} is not valid TOML: {error}") from error
    own = {"description", "paper", "workers", "cells"}
    common = {key: value for key, value in data.items() if key not in own}
    _refuse_unknown(path.name, data, own | _CELL_KEYS - {"label"})
    for key in ("description", "cells"):
        require(key in data, f"{path.name}: {key} is missing")
    try:
        cells = [cell for table in data["cells"] for cell in _cells(path.name, common | table)]
    except (TypeError, ValueError) as error:
        message = str(error)
        named = message if message.startswith(path.name) else f"{path.name}: {message}"
        raise ValueError(named) from error
    names = [cell.name for cell in cells]
    twice = next((name for name in names if names.count(name) > 1), None)
    require(twice is None, f"{path.name}: two cells have the name {twice}; give them labels")
    return Study(
        name=path.stem,
        description=data["description"],
        cells=tuple(cells),
        paper=tuple(data.get("paper", ())),
        workers=data.get("workers"),
    )


_CELL_KEYS = {f.name for f in fields(Cell)} - {"environment"} | {"environments", "vary"}


def _cells(file: str, table: Mapping[str, Any]) -> list[Cell]:
    """The cells of one table: for each environment and each value of what varies."""
    _refuse_unknown(file, table, _CELL_KEYS)
    require("environments" in table, f"{file}: a cell says no environments")
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


def _refuse_unknown(file: str, table: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    require(not unknown, f"{file}: unknown keys {unknown}; known: {', '.join(sorted(known))}")


STUDIES = {path.stem: read_study(path) for path in sorted(STUDIES_FOLDER.glob("*.toml"))}
