"""The table and the learning curves of a study of tabular agents, from its folder alone.

Beside the score (see `ottrpo.reports.scores`) stand what the audits found: the expected return of
the trained policies, computed instead of sampled, and the share of updates that spent more than
their radius, by our own audit and by POT.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ottrpo.envs import catalogue
from ottrpo.results.layout import AUDITS
from ottrpo.results.reading import read_study
from ottrpo.results.study_folder import StudyFolder

from .figures import families, save_panels
from .scores import CellScore, study_scores

TABLE = "table.md"
CURVES = "curves.png"
_COUNTS = ("updates", "audited", "violations", "pot_checked", "pot_violations")
_COLUMNS = ("cell", "exact_return", *_COUNTS)


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
    """The audits of a study, by cell; none if its agents are not audited."""
    table = StudyFolder.read(folder).tables.get(AUDITS)
    exact: dict[str, list[float]] = {}
    counts: dict[str, list[list[int]]] = {}
    if table is not None:
        for line, (cell, value, *numbers) in table.columns(*_COLUMNS):
            try:
                exact.setdefault(cell, []).append(float(value))
                counts.setdefault(cell, []).append([int(text) for text in numbers])
            except ValueError as error:
                raise ValueError(f"{table.path}, line {line}: {error}") from error
    return {
        cell: CellAudit(
            exact_return=fmean(values),
            lowest_exact_return=min(values),
            **dict(zip(_COUNTS, map(sum, zip(*counts[cell], strict=True)), strict=True)),
        )
        for cell, values in exact.items()
    }


def study_table(folder: Path) -> str:
    """The study as a Markdown table, one line per cell."""
    audits = study_audits(folder)
    lines = [
        "| environment | agent | configuration | seeds | score | ± seeds | ± time | lowest seed "
        "| expected return | lowest seed | best possible | updates over the radius "
        "| by POT | paper |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        "| " + " | ".join(_cells(score, audits[score.cell])) + " |"
        for score in study_scores(folder)
    ]
    return "\n".join(lines) + "\n"


def draw_curves(folder: Path, path: Path) -> None:
    """Mean return against steps, ± one standard deviation over seeds; a panel per family of cells.

    The dotted line is the best possible return.
    """
    save_panels(families(read_study(folder).cells), path)


def _cells(score: CellScore, audit: CellAudit) -> list[str]:
    return [
        score.environment,
        score.agent,
        score.label,
        str(score.seeds),
        _number(score.mean),
        "-" if score.std_seeds is None else _number(score.std_seeds),
        _number(score.std_time),
        _number(score.lowest),
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
