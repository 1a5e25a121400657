"""The report as one self-contained page: opens offline, needs nothing but a browser.

Everything in it is a function of ``results/`` and of the paper's printed numbers. Whatever text
comes from results is escaped, and a content security policy lets no other script run than ours.
"""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ottrpo.persistence.bundle import write_atomically
from ottrpo.results.reading import CellResult, StudyResult, read_studies
from ottrpo.terminal import bar

from .answers import answers
from .drawing import panel_svg
from .exhibits import Exhibit, Exhibition, of_the_paper, read_exhibition, select
from .figures import PANELS_AT_MOST, Panel, by_environment, families
from .scores import cell_scores
from .sections import (
    aggregate_panel,
    aggregate_table,
    baseline_table,
    cell_table,
    claim_tables,
    find_groups,
    headline_table,
    mapping_table,
    score_table,
    settings_tables,
    time_table,
    violation_table,
)
from .tables import Entry, Table
from .verdicts import LEAST_SEEDS, WORDS

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
    made_with: Mapping[str, Any] = field(default_factory=dict)
    panels: Sequence[Panel] = ()
    tables: Sequence[Table] = ()

    @cached_property
    def figures(self) -> list[Markup]:
        """The panels, drawn."""
        return [Markup(panel_svg(panel)) for panel in self.panels]


def write_page(results: Path, path: Path, about: str | None = None) -> None:
    """Write the report of all studies, or the parts where ``about`` stands, into one file."""
    studies = read_studies(results)
    write_atomically(path, render(studies, about).encode())


def render(studies: Sequence[StudyResult], about: str | None = None) -> str:
    """The page of these studies, or the parts of it where ``about`` stands."""
    plan = read_exhibition()
    cells = [cell for study in studies for cell in study.cells]
    known = [study.name for study in studies] if about is None else None
    exhibits = [
        _exhibit(exhibit, plan, cells, known)
        for exhibit in plan.exhibits
        if about is None or any(cell.study == about for cell in exhibit.select(cells))
    ]
    drawn = {id(c) for e in plan.exhibits if e.curves for c in e.select(cells)}
    shown = [study for study in studies if about in (None, study.name)]
    own = [cell for study in shown for cell in study.cells]
    script = _read("page.js")
    together = [] if about else [_methods(plan, cells), *_together(plan, cells), _environments()]
    listed = [_study(study, drawn if about is None else set()) for study in shown]
    parts = [*exhibits, *together, *listed]
    with bar("drawing", len(parts)) as after:
        for section in parts:
            _ = section.figures
            after()
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html").render(
        style=Markup(_read("page.css")),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=f"{about}: results" if about else "OT-TRPO: the paper and our runs",
        about=listed[0] if about else None,
        answers=None if about else answers(cells, plan),
        headline=headline_table(of_the_paper(select(own, plan.headline)), plan.full_steps),
        glance=_glance(exhibits),
        least_seeds=LEAST_SEEDS,
        exhibits=exhibits,
        others=together,
        errata=() if about else errata(_read("errata.md")),
        studies=() if about else listed,
        counts=(len(shown), len(own), sum(len(cell.runs) for cell in own)),
        downloads={name: _data_uri(rows) for name, rows in _downloads(own).items()},
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
    plan: Exhibition,
    cells: Sequence[CellResult],
    known: Sequence[str] | None,
) -> Section:
    """One part of the paper, with what we have beside it; ``known`` studies, if others matter."""
    chosen = exhibit.select(cells)
    make: dict[str | None, Callable[[], list[Table]]] = {
        None: list,
        "scores": lambda: [score_table(exhibit, chosen, plan.full_steps)],
        "time": lambda: [time_table(exhibit, chosen)],
        "violations": lambda: [violation_table(exhibit, chosen)],
        "settings": lambda: settings_tables(exhibit, chosen),
        "cells": lambda: [cell_table(chosen)],
    }
    draw = {None: lambda _: [], "family": families, "environment": by_environment}
    return Section(
        anchor=exhibit.label.replace(":", "-"),
        title=exhibit.title,
        labels=(exhibit.label, *exhibit.also),
        text=[exhibit.paper],
        missing=() if known is None else exhibit.missing_studies(known),
        panels=draw[exhibit.curves](chosen),
        tables=[*make[exhibit.table](), *claim_tables(exhibit.claims, cells)],
    )


def _glance(exhibits: Sequence[Section]) -> Table:
    """How many verdicts of each kind every part of the paper has got."""
    told = {}
    for section in exhibits:
        entries = [e for table in section.tables for row in table.rows for e in row]
        words = [e.text.partition(":")[0] for e in entries if e.kind.startswith("verdict")]
        if words:
            told[section.title, section.labels[0]] = words
    seen = [word for word in WORDS if any(word in words for words in told.values())]
    rows = [
        [Entry(title, kind="wide"), Entry(label, kind="label")]
        + [Entry(str(n), n) if (n := words.count(w)) else Entry("–", 0, "faint") for w in seen]
        for (title, label), words in told.items()
    ]
    return Table(["part of the paper", "label", *seen], rows)


def _environments() -> Section:
    return Section(anchor="environments", title="Environments", tables=[mapping_table()])


def _methods(plan: Exhibition, cells: Sequence[CellResult]) -> Section:
    return Section(
        anchor="baselines",
        title="Every method as printed, and as it does here",
        text=[
            "The paper's own number, then ours: columns whose names begin with paper use the "
            "paper's settings, the others those that suit the method. Mean ± standard deviation "
            "over seeds."
        ],
        tables=[baseline_table(of_the_paper(select(cells, plan.methods)))],
    )


def _together(plan: Exhibition, cells: Sequence[CellResult]) -> Iterable[Section]:
    """All environments together."""
    for aggregate in plan.aggregates:
        groups = find_groups(aggregate, cells)
        panel = aggregate_panel(aggregate, groups)
        yield Section(
            anchor="all-" + aggregate.title.lower().replace(" ", "-"),
            title=f"{aggregate.title}, all environments together",
            text=[
                "Scores are normalised: 0 is the lowest that the paper prints for an environment, "
                "1 its OT-TRPO. Intervals resample seeds within each environment."
            ],
            panels=[] if panel is None else [panel],
            tables=[aggregate_table(groups)],
        )


def _study(study: StudyResult, drawn: set[int]) -> Section:
    return Section(
        anchor=f"study-{re.sub(r'[^a-zA-Z0-9-]', '-', study.name)}",
        title=study.name,
        text=[study.description],
        made_with=study.made_with,
        panels=by_environment(c for c in study.cells if id(c) not in drawn)[:PANELS_AT_MOST],
        tables=[cell_table(study.cells)],
    )


def _downloads(cells: Iterable[CellResult]) -> dict[str, list[list[Any]]]:
    """The numbers as tables for spreadsheets, with six digits: full ones are in ``results/``."""
    who, ways = ["study", "environment", "agent", "configuration"], ["deterministic", "sampled"]
    numbers = ["mean", "std_seeds", "std_time", "iqm", "ci_low", "ci_high"]
    more = ["lowest", "highest", "seeds", "steps", "paper", "paper_spread"]
    scores: list[list[Any]] = [[*who, "actions", *numbers, *more]]
    seeds: list[list[Any]] = [[*who, "seed", *ways]]
    for cell in cells:
        names = [_harmless(x) for x in (cell.study, cell.environment, cell.agent, cell.title)]
        by_way = {score.actions: score for score in cell_scores(cell)}
        for way, score in by_way.items():
            held, paper = score.statistics(), score.published
            own = [held[name] for name in numbers]
            reach = [float(score.score_n.min()), float(score.score_n.max())]
            printed = [paper.score, paper.spread] if paper else [None, None]
            told = [*own, *reach, score.seeds, score.steps, *printed]
            scores.append([*names, way, *map(_short, told)])
        for seed in sorted({seed for score in by_way.values() for seed in score.by_seed}):
            found = [by_way[way].by_seed.get(seed) if way in by_way else None for way in ways]
            seeds.append([*names, seed, *map(_short, found)])
    return {"scores.csv": scores, "seeds.csv": seeds}


def _short(value: float | None) -> float | str | None:
    return f"{value:.6g}" if isinstance(value, float) else value


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
