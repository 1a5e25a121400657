"""The scores of studies as data, as a table for the terminal and as Markdown."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottrpo.core.checks import require

from .scores import CellScore, missing_cells, study_scores, violations

if TYPE_CHECKING:
    from rich.table import Table

_STATISTICS = ("mean", "std_seeds", "std_time", "iqm", "lowest", "highest", "seeds", "steps")


def study_names(results: Path) -> list[str]:
    """The studies that have results."""
    require(results.is_dir(), f"there is no directory {results}")
    return sorted(path.parent.name for path in results.glob("*/manifest.json"))


def as_data(scores: Sequence[CellScore]) -> dict[str, Any]:
    """Environment -> agent -> label -> statistics.

    Where a study evaluated both ways to act, the statistics are those of deterministic actions
    and those of sampled ones stand under ``sampled``.
    """
    data: dict[str, Any] = {}
    for score in scores:
        kind = "deterministic" if score.deterministic else "sampled"
        plain = asdict(score)
        numbers = {name: plain[name] for name in _STATISTICS}
        numbers |= {"ci_low": score.interval[0], "ci_high": score.interval[1]}
        numbers |= {"actions": kind, "paper": score.paper}
        labels = data.setdefault(score.environment, {}).setdefault(score.agent, {})
        if score.label in labels:
            labels[score.label][kind] = numbers
        else:
            labels[score.label] = numbers
    return data


def terminal_table(study: str, folder: Path) -> "Table":
    """All cells of a study, one line each and way to act."""
    from rich.table import Table

    over = violations(folder)
    table = Table(title=study)
    for column in ("environment", "agent", "cell", "actions"):
        table.add_column(column)
    for column in (
        "mean",
        "± seeds",
        "± time",
        "IQM",
        "95 %",
        "lowest",
        "seeds",
        "over ε",
        "paper",
    ):
        table.add_column(column, justify="right")
    for score in study_scores(folder):
        count, updates = over.get(score.cell, (0, 0))
        table.add_row(
            score.environment,
            score.agent,
            score.label,
            "deterministic" if score.deterministic else "sampled",
            *map(number, (score.mean, score.std_seeds, score.std_time, score.iqm)),
            f"{number(score.interval[0])} to {number(score.interval[1])}",
            number(score.lowest),
            str(score.seeds),
            f"{100 * count / updates:.1f} %" if updates else "-",
            "-" if score.paper is None else f"{score.paper:,.0f}",
        )
    for name in missing_cells(folder):
        table.add_row(*name.split("__"), "no finished run")
    return table


def number(value: float) -> str:
    """A score with the digits that matter at its size.

    >>> number(3225.31), number(-13.0), number(0.8541)
    ('3,225.3', '-13.00', '0.854')
    """
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def markdown_table(scores: Sequence[CellScore]) -> str:
    """Scores for a page: mean and spread over seeds, deterministic and sampled side by side."""
    lines = [
        "| environment | settings | deterministic | sampled | lowest seed | seeds | paper |",
        "|---|---|---|---|---|---|---|",
    ]
    by_cell: dict[str, dict[bool, CellScore]] = {}
    for score in scores:
        by_cell.setdefault(score.cell, {})[score.deterministic] = score
    for both in by_cell.values():
        first = both.get(True) or both[False]
        shown = [
            f"{number(both[d].mean)} ± {number(both[d].std_seeds)}" if d in both else "-"
            for d in (True, False)
        ]
        paper = "-" if first.paper is None else f"{first.paper:,.0f}"
        lines.append(
            f"| {first.environment} | {first.agent}, {first.label} | {shown[0]} | {shown[1]} "
            f"| {number(first.lowest)} | {first.seeds} | {paper} |"
        )
    return "\n".join(lines) + "\n"
