"""Tables in Markdown, made from ``results/`` and never typed: the README's and a study's own.

``python -m ottrpo.reports.readme`` writes the README's between its marks, which name the studies; a
test fails when the two differ.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ottrpo.results.reading import CellResult, read_study

from .exhibits import read_plan
from .figures import PANELS_AT_MOST, families, save_panels
from .tables import (
    DASH,
    MISSING,
    Entry,
    Table,
    known,
    lines_of,
    seconds_per_step,
    table_of,
)

# <!-- scores: STUDY --> or <!-- speeds: STUDY -->, what was made, <!-- end -->
_MADE = re.compile(r"(<!-- (scores|speeds): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_results(page: str, results: Path) -> str:
    """``page`` with the tables between its marks made anew."""
    makers = {"scores": markdown_table, "speeds": markdown_speeds}

    def made(found: re.Match[str]) -> str:
        begin, kind, study, end = found.groups()
        return f"{begin}{makers[kind](read_study(results / study).cells)}{end}"

    return _MADE.sub(made, page)


def markdown_table(cells: Sequence[CellResult]) -> str:
    """Cells for a page: mean and spread over seeds, deterministic and sampled side by side.

    The verdict is that of the deterministic actions where they were evaluated. Rows of one
    environment stand together; cells without a finished run are named below the table.
    """
    full, order = read_plan().full_steps, [cell.environment for cell in cells]
    lines, missing = [], dict[str, list[str]]()
    for cell in sorted(cells, key=lambda cell: order.index(cell.environment)):
        line = lines_of(cell, full_steps=full.get(cell.environment))[0]
        verdict = Entry(line.verdict.word) if line.published else DASH
        line = replace(line, own={"verdict": verdict})
        if line.score is None:
            missing.setdefault(f"{cell.agent}, {cell.title}", []).append(cell.environment)
        else:
            lines.append(line)

    names = "environment | settings | deterministic | sampled | lowest seed | seeds | steps | paper"
    text = table_of(lines, f"{names} | verdict").markdown()
    if missing:
        named = "; ".join(f"{who} ({', '.join(where)})" for who, where in missing.items())
        text += f"\n{MISSING.capitalize()} yet: {named}.\n"
    return text


def markdown_speeds(cells: Sequence[CellResult]) -> str:
    """Steps of training per second for a page: a row per agent, a column per environment."""
    environments = list(dict.fromkeys(cell.environment for cell in cells))
    speeds: dict[str, dict[str, Entry]] = {}
    for cell in cells:
        speed = 1 / seconds_per_step(cell) if cell.runs else None
        own = speeds.setdefault(f"{cell.agent}, {cell.title}", {})
        own[cell.environment] = known(speed, "{:,.0f}".format)
    rows = [[Entry(who), *(row.get(e, DASH) for e in environments)] for who, row in speeds.items()]
    return Table(["settings", *environments], rows).markdown()


def study_table(folder: Path) -> str:
    """A study of agents on finite problems, one line per cell, with what their audits found."""
    lines = [line for cell in read_study(folder).cells for line in lines_of(cell) if line.score]
    names = (
        "environment | agent | configuration | seeds | steps | mean | ± seeds | ± time "
        "| lowest seed | expected return | lowest expected | best possible | audited anew | by POT "
        "| paper"
    )
    return table_of(lines, names).markdown()


def write_study(folder: Path) -> list[Path]:
    """Write the table and the curves of a study beside its data; the files written."""
    table, curves = folder / "table.md", folder / "curves.png"
    table.write_text(study_table(folder), encoding="utf-8")
    save_panels(families(read_study(folder).cells)[:PANELS_AT_MOST], curves)
    return [table, curves]


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    readme = root / "README.md"
    page = with_results(readme.read_text(encoding="utf-8"), root / "results")
    readme.write_text(page, encoding="utf-8")
