"""Tables in Markdown, made from ``results/`` and never typed: the README's and a study's own.

``python -m ottrpo.reports.readme`` writes the README's between its marks; a test fails when the two
differ.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from ottrpo.core.checks import require
from ottrpo.results.layout import MANIFEST
from ottrpo.results.reading import CellResult, read_study

from .exhibits import read_plan
from .figures import PANELS_AT_MOST, families, save_panels
from .tables import (
    DASH,
    MISSING,
    Entry,
    Table,
    columns,
    entries,
    known,
    lines_of,
    seconds_per_step,
    table_of,
)

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
# study -> what is said above its table
STUDIES = {
    "tabular-default": "Finite problems, default settings (`ottrpo reproduce tabular-default`):",
    "control": "Continuous control, MuJoCo v5 (`ottrpo reproduce control`):",
    "paper-literal": "OT-TRPO with the paper's settings (`ottrpo reproduce paper-literal`):",
    "baselines-control": "The other methods there, tuned and as the paper has them "
    "(`ottrpo reproduce baselines-control`):",
    "baselines-finite": "The other methods on finite problems "
    "(`ottrpo reproduce baselines-finite`):",
}
TIMED = "training-time"


def results_section(results: Path) -> str:
    """The tables of the studies that have results: scores, and at the end speeds."""
    parts = [
        f"{text}\n\n{markdown_table(read_study(results / study).cells)}"
        for study, text in STUDIES.items()
        if (results / study / MANIFEST).exists()
    ]
    if (results / TIMED / MANIFEST).exists():
        parts.append(
            "Steps of training per second, one run at a time on one machine "
            f"(`ottrpo reproduce {TIMED}`):\n\n"
            f"{markdown_speeds(read_study(results / TIMED).cells)}"
        )
    return "\n".join(parts)


def with_results(page: str, results: Path) -> str:
    """``page`` with the tables between its marks made anew."""
    require(BEGIN in page and END in page, f"the page needs the marks {BEGIN} and {END}")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{results_section(results)}{END}{after}"


def markdown_table(cells: Sequence[CellResult]) -> str:
    """Cells for a page: mean and spread over seeds, deterministic and sampled side by side.

    The verdict is that of the deterministic actions where they were evaluated. Rows of one
    environment stand together; cells without a finished run are named below the table.
    """
    full, order = read_plan().full_steps, [cell.environment for cell in cells]
    lines, missing = [], dict[str, list[str]]()
    for cell in sorted(cells, key=lambda cell: order.index(cell.environment)):
        line = lines_of(cell, full_steps=full.get(cell.environment))[0]
        if line.score is None:
            missing.setdefault(f"{cell.agent}, {cell.title}", []).append(cell.environment)
        else:
            lines.append(line)

    names = "environment | settings | deterministic | sampled | lowest seed | seeds | steps | paper"
    words = [Entry(line.verdict.word) if line.published else DASH for line in lines]
    rows = [[*entries(line, names), word] for line, word in zip(lines, words, strict=True)]
    text = Table([*columns(names), "verdict"], rows).markdown()
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
