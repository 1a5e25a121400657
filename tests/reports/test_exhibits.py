"""The one place where studies and the paper meet."""

from fnmatch import fnmatchcase

import pytest

from ottrpo.experiments import published
from ottrpo.reports.exhibits import Claim, read_exhibition, select
from ottrpo.results.reading import read_study

from .synthetic import cell, write_study

# every \label of a table or figure in the paper's source
LABELS = {
    "fig:experiments:allenvs",
    "tab:discrete:hyperparameters",
    "tab:continuous:hyperparameters",
    "fig:experiments:ablation",
    "fig:experiments:advantage-estimation:ablation-n-samples",
    "tab:experiments:advantage-estimation:ablation-n-samples",
    "fig:experiments:advantage-estimation",
    "fig:experiments:ablation:lambda-gae",
    "tab:trained:scores",
    "tab:computationaltime",
}


def test_every_table_and_figure_of_the_paper_is_there():
    held = {label for e in read_exhibition().exhibits for label in (e.label, *e.also)}
    assert held >= LABELS


def test_every_file_of_published_numbers_is_shown():
    shown = {e.published for e in read_exhibition().exhibits if e.published}
    assert shown == {path.stem for path in published.TABLES.glob("*.csv")}


def test_every_criterion_names_a_study():
    for exhibit in read_exhibition().exhibits:
        assert all("study" in criteria for criteria in exhibit.cells)


def test_a_new_study_joins_by_naming_the_label(tmp_path):
    (exhibit,) = (e for e in read_exhibition().exhibits if e.label == "tab:trained:scores")
    asked = read_study(write_study(tmp_path / "control", [cell()])).cells
    silent = read_study(write_study(tmp_path / "mine", [cell(config="mine")])).cells
    named = read_study(
        write_study(tmp_path / "new", [cell(config="new")], paper=["tab:trained:scores"])
    ).cells
    chosen = exhibit.select([*silent, *named, *asked])
    assert [c.study for c in chosen] == ["control", "new"]


def test_of_two_cells_of_one_name_the_first_counts(tmp_path):
    (exhibit,) = (e for e in read_exhibition().exhibits if e.label == "tab:trained:scores")
    again = read_study(write_study(tmp_path / "baselines", [cell()])).cells
    first = read_study(write_study(tmp_path / "control", [cell()])).cells
    assert [c.study for c in exhibit.select([*again, *first])] == ["control"]


def test_what_is_called_default_is_today_s_in_every_part_of_the_page(tmp_path):
    """`control` and `suite` have cells of one name; the page shows one of them everywhere."""
    studies = ("control", "suite", "baselines-control")
    cells = [
        held
        for name in studies
        for held in read_study(
            write_study(
                tmp_path / name, [cell("Hopper-v5", agent="bgpg" if "base" in name else "ottrpo")]
            )
        ).cells
    ]
    plan = read_exhibition()
    groups = [exhibit.select(cells) for exhibit in plan.exhibits]
    groups += [select(cells, choices) for choices in (plan.headline, plan.methods)]
    groups += [select(cells, aggregate.cells) for aggregate in plan.aggregates]
    groups += [[a for a, _ in c.pairs(cells)] for e in plan.exhibits for c in e.claims]
    shown = [c.study for group in groups for c in group if c.agent == "ottrpo"]
    assert len(shown) == 8
    assert set(shown) == {"suite"}


def test_environments_that_the_paper_lacks_are_left_out_unless_asked_for(tmp_path):
    cells = [cell("CartPole-v1"), cell("Hopper-v5")]
    held = read_study(write_study(tmp_path / "control", cells)).cells
    for exhibit in read_exhibition().exhibits:
        if any(criteria["study"] == "control" for criteria in exhibit.cells):
            found = {c.environment for c in exhibit.select(held)}
            assert ("CartPole-v1" in found) == exhibit.everywhere


def test_a_misspelt_statistic_is_refused():
    with pytest.raises(ValueError, match="final or early"):
        Claim(text="t", above={}, below={}, statistic="finale")


def test_every_study_that_the_page_asks_for_exists():
    from ottrpo.experiments.study import STUDIES

    plan = read_exhibition()
    groups = [e.cells for e in plan.exhibits] + [a.cells for a in plan.aggregates]
    asked = {criteria["study"] for cells in groups for criteria in cells}
    claims = [claim for e in plan.exhibits for claim in e.claims]
    for claim in claims:
        above = claim.above if isinstance(claim.above, list) else [claim.above]
        asked |= {side["study"] for side in (*above, claim.below)}
    for pattern in asked:
        assert any(fnmatchcase(name, pattern) for name in STUDIES), pattern


def test_every_study_that_names_a_label_stands_beside_it(tmp_path):
    """Runs of every study of the package, made up: all claims find cells to compare."""
    from ottrpo.experiments.study import STUDIES

    cells = []
    for name, study in STUDIES.items():
        tables = [
            cell(c.environment, agent=c.agent, config=c.config, label=c.label,
                 resolved={"advantage": "gae", **c.settings})
            for c in study.cells
        ]  # fmt: skip
        folder = write_study(tmp_path / name, tables, seeds=3, paper=list(study.paper))
        cells += read_study(folder).cells
    plan = read_exhibition()
    for exhibit in plan.exhibits:
        assert exhibit.missing_studies(STUDIES) == []
        found = {c.study for c in exhibit.select(cells)}
        named = {name for name, study in STUDIES.items() if exhibit.label in study.paper}
        assert found >= named
        for claim in exhibit.claims:
            assert claim.pairs(cells), claim.text
