"""The report as one self-contained page: opens offline, needs nothing but a browser.

Everything in it is a function of ``results/`` and of the paper's printed numbers. Whatever text
comes from results is escaped, and a content security policy lets no other script run than ours.
"""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ottrpo.envs import catalogue
from ottrpo.experiments.published import trained_score
from ottrpo.persistence.files import write_atomically
from ottrpo.results.reading import CellResult, StudyResult, read_study, study_names

from .aggregates import aggregate_figure, aggregate_table, find_groups
from .entries import Entry, Table
from .exhibits import Exhibit, Plan, of_the_paper, read_plan, select
from .figures import Panel, families, panel_svg
from .scores import cell_scores
from .sections import (
    Audits,
    Scores,
    baseline_table,
    cell_table,
    claim_tables,
    headline_table,
    mapping_table,
    score_table,
    settings_tables,
    time_table,
    violation_table,
)
from .tabular import study_audits
from .verdicts import RULES, WORDS

HERE = Path(__file__).parent
_FORMULA = ("=", "+", "-", "@", "\t")  # what a spreadsheet would run


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what stands under it."""

    anchor: str
    title: str
    labels: Sequence[str] = ()
    text: Sequence[str] = ()
    missing: Sequence[str] = ()
    figures: Sequence[Markup] = ()
    tables: Sequence[Table] = ()
    folded: bool = False


def write_page(results: Path, path: Path, about: str | None = None) -> None:
    """Write the report of all studies under ``results`` into one file.

    Args:
        results: the folder.
        path: of the page.
        about: a study; only the parts where it stands are kept.
    """
    studies = [read_study(results / name) for name in study_names(results)]
    write_atomically(path, render(studies, about).encode())


def render(studies: Sequence[StudyResult], about: str | None = None) -> str:
    """The page of these studies, or the parts of it where ``about`` stands."""
    plan = read_plan()
    cells = [cell for study in studies for cell in study.cells]
    scores = {(cell.study, cell.name): cell_scores(cell) for cell in cells}
    audits = {
        (study.name, name): audit
        for study in studies
        for name, audit in study_audits(study.folder).items()
    }
    known = [study.name for study in studies]
    exhibits = [
        _exhibit(exhibit, plan, cells, scores, audits, known)
        for exhibit in plan.exhibits
        if about is None or any(cell.study == about for cell in exhibit.select(cells))
    ]
    drawn = {id(c) for e in plan.exhibits if e.curves for c in e.select(cells)}
    shown = [study for study in studies if about in (None, study.name)]
    own = [cell for study in shown for cell in study.cells]
    own_scores = {(cell.study, cell.name): scores[cell.study, cell.name] for cell in own}
    script = _read("page.js")
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html").render(
        style=Markup(_read("page.css")),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        headline=headline_table(of_the_paper(select(own, plan.headline)), scores, plan.full_steps),
        glance=_glance(exhibits),
        rules=RULES,
        exhibits=exhibits,
        others=[*(_together(plan, cells, scores) if about is None else ()), _environments()],
        errata=errata(_read("errata.md")),
        studies=[_study(study, scores, drawn) for study in shown],
        counts=(len(shown), len(own), sum(len(cell.runs) for cell in own)),
        downloads={
            "scores.csv": _data_uri(_score_rows(own_scores)),
            "seeds.csv": _data_uri(_seed_rows(own_scores)),
        },
    )


def errata(text: str) -> list[tuple[str, list[Markup]]]:
    """Heading and paragraphs of each entry of the errata page, without the names of its tests."""
    entries = []
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        heading, _, body = part.partition("\n")
        blocks = [" ".join(block.split()) for block in body.split("\n\n")]
        kept = [_inline(b) for b in blocks if b and not b.startswith("Held by")]
        entries.append((heading.strip(), kept))
    return entries


def _exhibit(
    exhibit: Exhibit,
    plan: Plan,
    cells: Sequence[CellResult],
    scores: Scores,
    audits: Audits,
    known: Sequence[str],
) -> Section:
    """One part of the paper, with what we have beside it."""
    chosen = exhibit.select(cells)
    tables: list[Table] = []
    if exhibit.table == "scores":
        tables.append(score_table(exhibit, chosen, scores, plan.full_steps))
    elif exhibit.table == "time":
        tables.append(time_table(exhibit, chosen))
    elif exhibit.table == "violations":
        tables.append(violation_table(exhibit, chosen, audits))
    elif exhibit.table == "settings":
        tables += settings_tables(exhibit, chosen)
    elif exhibit.table == "cells":
        tables.append(cell_table(chosen, scores))
    tables += claim_tables(exhibit.claims, cells)
    return Section(
        anchor=exhibit.label.replace(":", "-"),
        title=exhibit.title,
        labels=(exhibit.label, *exhibit.also),
        text=[exhibit.paper],
        missing=exhibit.missing_studies(known),
        figures=[Markup(panel_svg(panel)) for panel in _panels(exhibit, chosen)],
        tables=tables,
    )


def _panels(exhibit: Exhibit, cells: Sequence[CellResult]) -> list[Panel]:
    if exhibit.curves is None:
        return []
    return families(cells) if exhibit.curves == "family" else _by_environment(cells)


def _by_environment(cells: Sequence[CellResult]) -> list[Panel]:
    by_environment: dict[str, list[CellResult]] = {}
    for cell in cells:
        if cell.curves:
            by_environment.setdefault(cell.environment, []).append(cell)
    return [
        Panel(
            title=environment,
            cells=tuple((_label(cell, held), cell) for cell in held),
            paper=trained_score(environment, "ottrpo"),
            best=catalogue.optimum(environment),
        )
        for environment, held in by_environment.items()
    ]


def _label(cell: CellResult, among: Sequence[CellResult]) -> str:
    """The agent, the configuration, or both: whatever tells the cell from the others."""
    title = cell.title
    if len({other.config for other in among}) == 1:
        title = title.removeprefix(cell.config).strip() or cell.config
    if len({other.agent for other in among}) == 1:
        return title
    alone = sum(other.agent == cell.agent for other in among) == 1
    return cell.agent if alone else f"{cell.agent}, {title}"


def _glance(exhibits: Sequence[Section]) -> Table:
    """How many verdicts of each kind every part of the paper has got."""
    rows = []
    for section in exhibits:
        entries = [e for table in section.tables for row in table.rows for e in row]
        words = [e.text.partition(":")[0] for e in entries if e.kind.startswith("verdict")]
        counts = [words.count(word) for word in WORDS]
        if words:
            rows.append(
                [Entry(section.title, kind="wide"), Entry(section.labels[0], kind="label")]
                + [Entry(str(n), n) if n else Entry("–", 0, "faint") for n in counts]
            )
    return Table(["part of the paper", "label", *WORDS], rows)


def _environments() -> Section:
    return Section(anchor="environments", title="Environments", tables=[mapping_table()])


def _together(plan: Plan, cells: Sequence[CellResult], scores: Scores) -> list[Section]:
    """All methods, and all environments, side by side."""
    return [_baselines(plan, cells, scores), *_aggregates(plan, cells)]


def _baselines(plan: Plan, cells: Sequence[CellResult], scores: Scores) -> Section:
    return Section(
        anchor="baselines",
        title="Every method as printed, and as it does here",
        text=[
            "The paper's own number, then ours: columns whose names begin with paper use the "
            "paper's settings, the others those that suit the method. Mean ± standard deviation "
            "over seeds."
        ],
        tables=[baseline_table(of_the_paper(select(cells, plan.methods)), scores)],
    )


def _aggregates(plan: Plan, cells: Sequence[CellResult]) -> Iterable[Section]:
    for aggregate in plan.aggregates:
        groups = find_groups(aggregate, cells)
        figure = aggregate_figure(aggregate, groups)
        yield Section(
            anchor="all-" + aggregate.title.lower().replace(" ", "-"),
            title=f"{aggregate.title}, all environments together",
            text=[
                "Scores are normalised: 0 is the lowest that the paper prints for an environment, "
                "1 its OT-TRPO. Intervals resample seeds within each environment."
            ],
            figures=[] if figure is None else [Markup(figure)],
            tables=[aggregate_table(groups)],
        )


def _study(study: StudyResult, scores: Scores, drawn: set[int]) -> Section:
    panels = _by_environment([cell for cell in study.cells if id(cell) not in drawn])
    return Section(
        anchor=f"study-{re.sub(r'[^a-zA-Z0-9-]', '-', study.name)}",
        title=study.name,
        text=[study.description, *_made_with(study.made_with)],
        figures=[Markup(panel_svg(panel)) for panel in panels],
        tables=[cell_table(study.cells, scores)],
        folded=True,
    )


def _made_with(made_with: Mapping[str, Any]) -> list[str]:
    """Versions, hardware and commit in sentences."""
    lines = []
    versions = made_with.get("versions")
    if isinstance(versions, Mapping):
        lines.append("With " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    hardware = made_with.get("hardware")
    if isinstance(hardware, Mapping):
        named = ("processor", "cores", "system", "machine")
        lines.append("On " + ", ".join(f"{name} {hardware.get(name)}" for name in named))
    commit = made_with.get("commit")
    commits = commit if isinstance(commit, list) else [commit] if commit else []
    if commits:
        shown = ", ".join(str(name)[:12] for name in commits[:3])
        more = f" and {len(commits) - 3} more" if len(commits) > 3 else ""
        lines.append(f"Commit {shown}{more}; collected {made_with.get('collected')}")
    return lines


def _score_rows(scores: Scores) -> list[list[Any]]:
    head = (
        "study,environment,agent,configuration,actions,mean,std_seeds,std_time,iqm,ci_low,ci_high,"
        "lowest,highest,seeds,steps,paper,paper_spread"
    )
    rows: list[list[Any]] = [head.split(",")]
    for score in (score for found in scores.values() for score in found):
        printed = score.published
        rows.append(
            [
                *(_harmless(x) for x in (score.study, score.environment, score.agent, score.label)),
                score.actions,
                *(score.mean, score.std_seeds, score.std_time, score.iqm),
                *(score.interval or ("", "")),
                *(score.lowest, score.highest, score.seeds, score.steps),
                *((printed.score, printed.spread) if printed else ("", "")),
            ]
        )
    return rows


def _seed_rows(scores: Scores) -> list[list[Any]]:
    rows: list[list[Any]] = [
        ["study", "environment", "agent", "configuration", "actions", "seed", "score"]
    ]
    for score in (score for found in scores.values() for score in found):
        names = (score.study, score.environment, score.agent, score.label)
        who = [*map(_harmless, names), score.actions]
        rows += [[*who, seed, f"{value:.6g}"] for seed, value in score.by_seed.items()]
    return rows


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _data_uri(rows: Sequence[Sequence[Any]]) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows(rows)
    return f"data:text/csv;charset=utf-8,{quote(file.getvalue(), safe=',:')}"


def _inline(text: str) -> Markup:
    """A paragraph of Markdown: code in backticks, emphasis, links without their targets."""
    escaped = str(escape(text))
    escaped = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", escaped)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    # a star after a letter belongs to it: t* = 0
    return Markup(re.sub(r"(?<!\w)\*(\w[^*]*)\*(?!\w)", r"<em>\1</em>", escaped))


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
