"""The table and the learning curves of a study of tabular agents, from its folder alone.

Beside the score (see `ottrpo.reports.scores`) stand what the audits found: the expected return of
the trained policies, computed instead of sampled, and the share of updates that spent more than
their radius, by our own audit and by POT.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ottrpo.core.checks import Floats
from ottrpo.envs import catalogue

from .scores import CellScore, study_scores

TABLE = "table.md"
CURVES = "curves.png"
COLUMNS = 3


@dataclass(frozen=True, kw_only=True)
class CellAudit:
    """What the checks of all runs of a cell found.

    Attributes:
        exact_return: mean over seeds of the trained policy's expected return.
        lowest_exact_return: of the worst seed.
        updates: of all seeds together.
        audited: those whose discrepancy was computed anew.
        violations: those of them that spent more than the radius.
        pot_checked: updates that POT looked at.
        pot_violations: those of them that spent more than the radius.
    """

    exact_return: float
    lowest_exact_return: float
    updates: int
    audited: int
    violations: int
    pot_checked: int
    pot_violations: int


def write_study(folder: Path) -> list[Path]:
    """Write the table and the curves of a study beside its data; the files written."""
    (folder / TABLE).write_text(study_table(folder), encoding="utf-8")
    draw_curves(folder, folder / CURVES)
    return [folder / TABLE, folder / CURVES]


def study_audits(folder: Path) -> dict[str, CellAudit]:
    """The audits of a study, by cell."""
    by_cell: dict[str, list[dict[str, str]]] = {}
    with open(folder / "audits.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            by_cell.setdefault(row["cell"], []).append(row)

    def total(rows: Sequence[dict[str, str]], key: str) -> int:
        return sum(int(row[key]) for row in rows)

    return {
        name: CellAudit(
            exact_return=fmean(float(row["exact_return"]) for row in rows),
            lowest_exact_return=min(float(row["exact_return"]) for row in rows),
            updates=total(rows, "updates"),
            audited=total(rows, "audited"),
            violations=total(rows, "violations"),
            pot_checked=total(rows, "pot_checked"),
            pot_violations=total(rows, "pot_violations"),
        )
        for name, rows in by_cell.items()
    }


def study_table(folder: Path) -> str:
    """The study as a Markdown table, one line per cell."""
    cells = _manifest(folder)["cells"]
    names = {
        (cell["environment"], cell["agent"], cell["label"] or cell["config"]): name
        for name, cell in cells.items()
    }
    audits = study_audits(folder)
    lines = [
        "| environment | agent | configuration | seeds | score | ± seeds | ± time | lowest seed "
        "| expected return | lowest seed | best possible | updates over the radius "
        "| by POT | paper |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for score in study_scores(folder):
        audit = audits[names[score.environment, score.agent, score.label]]
        lines.append("| " + " | ".join(_cells(score, audit)) + " |")
    return "\n".join(lines) + "\n"


def draw_curves(folder: Path, path: Path) -> None:
    """Mean return against steps, ± one standard deviation over seeds; a panel per family of cells.

    The dotted line is the best possible return.
    A family is one environment, agent and configuration; its cells differ in what their labels
    say, such as the radius or the cost.
    """
    families: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for name, cell in _manifest(folder)["cells"].items():
        if (folder / f"{name}.csv").is_file():
            key = (cell["environment"], cell["agent"], cell["config"])
            label = (cell["label"] or cell["config"]).removeprefix(cell["config"]).strip()
            families.setdefault(key, []).append((name, label or cell["config"]))
    rows = -(-len(families) // COLUMNS)
    width = min(COLUMNS, len(families))
    figure = Figure(figsize=(5.2 * width, 3.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display
    for i, (family, members) in enumerate(families.items(), start=1):
        axes = figure.add_subplot(rows, width, i)
        _draw_family(axes, folder, members)
        best = catalogue.optimum(family[0])
        if best is not None:
            axes.axhline(best, linestyle=":", color="0.4", linewidth=1)
        axes.set_title(" · ".join(family), fontsize=9)
    figure.savefig(path, dpi=110)


def _draw_family(axes: Any, folder: Path, members: Sequence[tuple[str, str]]) -> None:
    lowest = np.inf
    for name, label in members:
        mark_t, return_nt = _curves(folder / f"{name}.csv")
        mean_t, std_t = return_nt.mean(axis=0), return_nt.std(axis=0)
        (line,) = axes.plot(mark_t, mean_t, linewidth=1.2, label=label)
        # no wider than the seeds reach: a few runs of minus thousands have no mirror image above
        low_t = np.maximum(mean_t - std_t, return_nt.min(axis=0))
        high_t = np.minimum(mean_t + std_t, return_nt.max(axis=0))
        axes.fill_between(mark_t, low_t, high_t, color=line.get_color(), alpha=0.15, linewidth=0)
        lowest = min(lowest, float(mean_t.min()))
    if lowest < -100:  # returns run from minus thousands to a handful: show both ends
        axes.set_yscale("symlog", linthresh=20)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return of an episode")
    axes.legend(frameon=False, fontsize=7)


def _curves(path: Path) -> tuple[Floats, Floats]:
    """Marks, and the mean return of every seed at the marks that all seeds have."""
    by_seed: dict[int, dict[int, float]] = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            mean = fmean(map(float, row["returns"].split()))
            by_seed.setdefault(int(row["seed"]), {})[int(row["mark"])] = mean
    marks = sorted(set.intersection(*(set(curve) for curve in by_seed.values())))
    return_nt = np.array([[curve[mark] for mark in marks] for curve in by_seed.values()])
    return np.array(marks, dtype=np.float64), return_nt


def _cells(score: CellScore, audit: CellAudit) -> list[str]:
    return [
        score.environment,
        score.agent,
        score.label,
        str(score.seeds),
        *(_number(x) for x in (score.mean, score.std_seeds, score.std_time, score.lowest)),
        _number(audit.exact_return),
        _number(audit.lowest_exact_return),
        "" if (best := catalogue.optimum(score.environment)) is None else _number(best),
        _share(audit.violations, audit.audited),
        _share(audit.pot_violations, audit.pot_checked),
        "" if score.paper is None else f"{score.paper:.0f}",
    ]


def _number(value: float) -> str:
    """Two decimals near zero, where they count; whole numbers far from it."""
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} % of {whole}" if whole else "-"


def _manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return manifest
