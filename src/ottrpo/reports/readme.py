"""Tables in Markdown, made from ``results/`` and never typed: of the pages and a study's own.

``python -m ottrpo.reports.readme`` writes those of `PAGES` between their marks, which name the
studies; a test fails when the two differ.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ottrpo.results.layout import MANIFEST
from ottrpo.results.reading import CellResult, read_study

from .drawing import save_panels
from .exhibits import read_exhibition
from .figures import PANELS_AT_MOST, families
from .regions import difference_entry, markdown_radii, markdown_regions, with_interval
from .scores import cell_scores
from .statistics import difference_by_seed
from .tables import (
    ABSENT,
    DASH,
    MISSING,
    Entry,
    Line,
    Table,
    count,
    known,
    lines_of,
    mean,
    printed,
    seconds_per_step,
    table_of,
)

PAGES = (
    "README.md",
    "results/RESULTS.md",
    "docs/kl_against_ot.md",
    "docs/rivals.md",
    "docs/costs.md",
    "docs/richer_policies.md",
    "docs/device.md",
)
# <!-- KIND: STUDY ... -->, what was made, <!-- end -->
_MADE = re.compile(
    r"(<!-- (scores|speeds|contest|regions|radii|beside): ([^>]+) -->\n).*?(<!-- end -->)",
    re.DOTALL,
)
NO_RESULTS = "There are no results of this study yet.\n"
# who stands in a contest, by agent and title, and what the column is called
CONTESTANTS = {
    ("ottrpo", "default"): "OT-TRPO, default",
    ("ppo", "tuned"): "PPO, tuned",
    ("trpo", "tuned"): "TRPO, tuned",
}


def with_results(page: str, results: Path) -> str:
    """``page`` with the tables between its marks made anew, or a word that there are no results."""
    makers = {
        "scores": markdown_table,
        "speeds": markdown_speeds,
        "contest": markdown_contest,
        "regions": markdown_regions,
        "radii": markdown_radii,
        "beside": markdown_beside,
    }

    def made(found: re.Match[str]) -> str:
        begin, kind, studies, end = found.groups()
        kept = [study for study in studies.split() if (results / study / MANIFEST).is_file()]
        cells = [c for study in kept for c in read_study(results / study).cells]
        return f"{begin}{makers[kind](cells) if kept else NO_RESULTS}{end}"

    return _MADE.sub(made, page)


def markdown_contest(cells: Sequence[CellResult]) -> str:
    """The default against tuned baselines: a row per environment in which all of them ran.

    Scores are those of deterministic actions where they were evaluated; the last column is what
    the paper prints for OT-TRPO.
    """
    found: dict[str, dict[tuple[str, str], Line]] = {}
    for cell in cells:
        line = lines_of(cell)[0]
        if (cell.agent, cell.title) in CONTESTANTS and line.score is not None:
            found.setdefault(cell.environment, {})[cell.agent, cell.title] = line
    rows = []
    for environment, who in found.items():
        if who.keys() == CONTESTANTS.keys():
            lines = [who[key] for key in CONTESTANTS]
            steps = " / ".join(dict.fromkeys(count(line.cell.steps or 0) for line in lines))
            seeds = " / ".join(dict.fromkeys(str(line.score.seeds) for line in lines if line.score))
            paper = printed(lines[0].published)
            scores = [mean(line.score) for line in lines]
            rows.append([Entry(environment), *scores, paper, Entry(steps, 0), Entry(seeds, 0)])
    heads = ["environment", *CONTESTANTS.values(), "OT-TRPO in the paper", "steps", "seeds"]
    return Table(heads, rows).markdown()


def markdown_beside(cells: Sequence[CellResult]) -> str:
    """Scores with their intervals, and how far they are from those of the first cell there.

    Deterministic actions stand first where both ways to act were evaluated.
    """
    order = list(dict.fromkeys(cell.environment for cell in cells))
    ways = sorted({way for cell in cells for way in cell.curves}, reverse=True)
    first: dict[tuple[str, bool], dict[int, float]] = {}
    rows = []
    for cell in sorted(cells, key=lambda cell: order.index(cell.environment)):
        scores = {score.deterministic: score for score in cell_scores(cell) if score.seeds > 1}
        row = [Entry(cell.environment), Entry(f"{cell.agent}, {cell.title}")]
        for way in ways:
            if way not in scores:
                row += [ABSENT, DASH]
                continue
            by_seed, reference = scores[way].by_seed, first.get((cell.environment, way))
            first.setdefault((cell.environment, way), by_seed)
            row.append(with_interval(by_seed))
            row.append(
                DASH
                if reference is None
                else difference_entry(difference_by_seed(by_seed, reference))
            )
        seeds = max((score.seeds for score in scores.values()), default=0)
        rows.append([*row, Entry(str(seeds), seeds)])
    acting = {True: "deterministic", False: "sampled"}
    heads = [head for way in ways for head in (acting[way], "less the first")]
    return Table(["environment", "settings", *heads, "seeds"], rows).markdown()


def markdown_table(cells: Sequence[CellResult]) -> str:
    """Cells for a page: mean and spread over seeds, deterministic and sampled side by side.

    The verdict is that of the deterministic actions where they were evaluated. Rows of one
    environment stand together; cells without a finished run are named below the table.
    """
    full, order = read_exhibition().full_steps, [cell.environment for cell in cells]
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
    table, curves = folder / "table.md", folder / "curves.svg"
    table.write_text(study_table(folder), encoding="utf-8")
    save_panels(families(read_study(folder).cells)[:PANELS_AT_MOST], curves)
    return [table, curves]


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    for name in PAGES:
        page = root / name
        made = with_results(page.read_text(encoding="utf-8"), root / "results")
        page.write_text(made, encoding="utf-8")
