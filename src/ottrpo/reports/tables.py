"""The scores of studies as data, as a table for the terminal and as Markdown."""

from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ottrpo.results.reading import CellResult, StudyResult, read_study

from .exhibits import read_plan
from .scores import CellScore, cell_scores
from .verdicts import judge

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MISSING = "no finished run"
_NAMES = ("environment", "agent", "configuration", "actions")
_COLUMNS = ("mean", "± seeds", "± time", "IQM", "95 %", "lowest", "seeds", "over ε", "paper")
# What a narrow terminal does without, first things first.
_SPARED = ("± time", "lowest", "over ε", "95 %", "IQM", "± seeds")
SHORTEST = 0.05  # seconds; a run of a few milliseconds is told as 0.0


def as_data(study: StudyResult, *, sampled: bool = False) -> dict[str, Any]:
    """Environment -> agent -> configuration -> statistics; a cell without runs has none.

    Where a study evaluated both ways to act, the statistics are those of deterministic actions
    unless ``sampled``.
    """
    data: dict[str, Any] = {}
    for cell in study.cells:
        scores = cell_scores(cell)
        score = (scores[-1] if sampled else scores[0]) if scores else None
        agents = data.setdefault(cell.environment, {})
        agents.setdefault(cell.agent, {})[cell.title] = _statistics(score)
    return data


def terminal_table(study: str, folder: Path, console: "Console") -> "Table":
    """All cells of a study, one line each and way to act.

    Where it would be wider than the console, columns are left out, and named below.
    """
    rows = [row for cell in read_study(folder).cells for row in _rows(cell)]
    spared: list[str] = []
    table = _table(study, rows, spared)
    boundless = console.options.update(max_width=10_000)  # else it measures what it would squeeze
    while console.measure(table, options=boundless).maximum > console.width and len(spared) < len(
        _SPARED
    ):
        spared.append(_SPARED[len(spared)])
        table = _table(study, rows, spared)
    if spared:
        table.caption = f"no room for {', '.join(spared)}: widen the terminal, or use --json"
    return table


def _table(study: str, rows: Sequence[Sequence[str]], spared: Collection[str]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(study))
    shown = [i for i, name in enumerate((*_NAMES, *_COLUMNS)) if name not in spared]
    for i in shown:
        if i < len(_NAMES):
            table.add_column(_NAMES[i], overflow="fold", no_wrap=_NAMES[i] == "actions")
        else:
            table.add_column(_COLUMNS[i - len(_NAMES)], justify="right", no_wrap=True)
    for row in rows:
        # Text: a name in square brackets is no markup
        table.add_row(*(Text(row[i]) for i in shown if i < len(row)))
    return table


def _rows(cell: CellResult) -> list[list[str]]:
    who = [cell.environment, cell.agent, cell.title]
    scores = cell_scores(cell)
    if not scores:
        return [[*who, MISSING]]
    return [[*who, score.actions, *_numbers(score, cell)] for score in scores]


def number(value: float) -> str:
    """A score with the digits that matter at its size.

    >>> number(3225.31), number(-13.0), number(0.8541)
    ('3,225.3', '-13.00', '0.854')
    """
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def with_spread(mean: float, spread: float | None) -> str:
    """A mean, and the spread that a single number does not have.

    >>> with_spread(3225.31, 20.0), with_spread(3225.31, None)
    ('3,225.3 ± 20.00', '3,225.3')
    """
    return number(mean) if spread is None else f"{number(mean)} ± {number(spread)}"


def violations(cell: CellResult) -> tuple[int, int]:
    """Updates that spent more than their radius, and all updates, over all seeds."""
    return sum(run.violations for run in cell.runs), sum(run.updates for run in cell.runs)


def violation_share(cell: CellResult) -> str:
    """The share of updates over the radius; a dash for agents without one."""
    over, updates = violations(cell)
    return f"{100 * over / updates:.1f} %" if updates and cell.has_region else "-"


def seconds_per_step(cell: CellResult) -> float:
    """What a step of training took, the median over runs."""
    return median(max(run.train_seconds, SHORTEST) / run.steps for run in cell.runs)


def markdown_speeds(cells: Sequence[CellResult]) -> str:
    """Steps of training per second for a page: a row per agent, a column per environment."""
    environments = list(dict.fromkeys(cell.environment for cell in cells))
    speeds: dict[str, dict[str, str]] = {}
    for cell in cells:
        shown = f"{1 / seconds_per_step(cell):,.0f}" if cell.runs else "-"
        speeds.setdefault(_who(cell), {})[cell.environment] = shown
    rows = [[who, *(row.get(e, "-") for e in environments)] for who, row in speeds.items()]
    lines = [["settings", *environments], ["---"] * (1 + len(environments)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def markdown_table(cells: Sequence[CellResult]) -> str:
    """Cells for a page: mean and spread over seeds, deterministic and sampled side by side.

    The verdict is that of the deterministic actions where they were evaluated. Rows of one
    environment stand together; cells without a finished run are named below the table.
    """
    head = (
        "environment | settings | deterministic | sampled | lowest seed | seeds | paper | verdict"
    )
    lines = [f"| {head} |", "|---" * 8 + "|"]
    missing: dict[str, list[str]] = {}
    environments = [cell.environment for cell in cells]
    for cell in sorted(cells, key=lambda cell: environments.index(cell.environment)):
        scores = cell_scores(cell)
        if scores:
            lines.append(f"| {' | '.join(_markdown_row(cell, scores))} |")
        else:
            missing.setdefault(_who(cell), []).append(cell.environment)
    if missing:
        named = "; ".join(f"{who} ({', '.join(where)})" for who, where in missing.items())
        lines += ["", f"{MISSING.capitalize()} yet: {named}."]
    return "\n".join(lines) + "\n"


def _who(cell: CellResult) -> str:
    return f"{cell.agent}, {cell.title}"


def _markdown_row(cell: CellResult, scores: Sequence[CellScore]) -> list[str]:
    first = scores[0]
    shown = {score.deterministic: with_spread(score.mean, score.std_seeds) for score in scores}
    verdict = judge(
        list(first.by_seed.values()),
        first.published,
        steps=first.steps,
        full_steps=read_plan().full_steps.get(first.environment),
    )
    printed = ["-", "-"] if first.paper is None else [f"{first.paper:,.0f}", verdict.word]
    ways = [shown.get(deterministic, "-") for deterministic in (True, False)]
    lowest = number(first.lowest)
    return [cell.environment, _who(cell), *ways, lowest, _seeds(first, cell), *printed]


def _seeds(score: CellScore, cell: CellResult) -> str:
    planned = cell.planned or score.seeds
    return str(score.seeds) if score.seeds == planned else f"{score.seeds} of {planned}"


def _statistics(score: CellScore | None) -> dict[str, float | int | None]:
    if score is None:
        names = ("mean", "std_seeds", "std_time", "iqm", "ci_low", "ci_high")
        return {**dict.fromkeys(names), "seeds": 0}
    return {
        "mean": score.mean,
        "std_seeds": score.std_seeds,
        "std_time": score.std_time,
        "iqm": score.iqm,
        "ci_low": score.interval and score.interval.low,
        "ci_high": score.interval and score.interval.high,
        "seeds": score.seeds,
    }


def _numbers(score: CellScore, cell: CellResult) -> list[str]:
    return [
        number(score.mean),
        "-" if score.std_seeds is None else number(score.std_seeds),
        number(score.std_time),
        number(score.iqm),
        "-" if score.interval is None else " to ".join(map(number, score.interval)),
        number(score.lowest),
        _seeds(score, cell),
        violation_share(cell),
        "-" if score.paper is None else f"{score.paper:,.0f}",
    ]
