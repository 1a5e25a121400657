"""The one place where studies and the paper meet."""

import pytest

from ottrpo.experiments import published
from ottrpo.reports.exhibits import Claim, read_plan
from ottrpo.reports.results import read_study

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
    held = {label for e in read_plan().exhibits for label in (e.label, *e.also)}
    assert held >= LABELS


def test_every_file_of_published_numbers_is_shown():
    shown = {e.published for e in read_plan().exhibits if e.published}
    assert shown == {path.stem for path in published.TABLES.glob("*.csv")}


def test_every_criterion_names_a_study():
    for exhibit in read_plan().exhibits:
        assert all("study" in criteria for criteria in exhibit.cells)


def test_a_new_study_joins_by_naming_the_label(tmp_path):
    (exhibit,) = (e for e in read_plan().exhibits if e.label == "tab:trained:scores")
    asked = read_study(write_study(tmp_path / "control", [cell()])).cells
    silent = read_study(write_study(tmp_path / "mine", [cell(config="mine")])).cells
    named = read_study(
        write_study(tmp_path / "new", [cell(config="new")], paper=["tab:trained:scores"])
    ).cells
    chosen = exhibit.select([*silent, *named, *asked])
    assert [c.study for c in chosen] == ["control", "new"]


def test_of_two_cells_of_one_name_the_first_counts(tmp_path):
    (exhibit,) = (e for e in read_plan().exhibits if e.label == "tab:trained:scores")
    again = read_study(write_study(tmp_path / "baselines", [cell()])).cells
    first = read_study(write_study(tmp_path / "control", [cell()])).cells
    assert [c.study for c in exhibit.select([*again, *first])] == ["control"]


def test_environments_that_the_paper_lacks_are_left_out_unless_asked_for(tmp_path):
    cells = [cell("CartPole-v1"), cell("Hopper-v5")]
    held = read_study(write_study(tmp_path / "control", cells)).cells
    for exhibit in read_plan().exhibits:
        if any(criteria["study"] == "control" for criteria in exhibit.cells):
            found = {c.environment for c in exhibit.select(held)}
            assert ("CartPole-v1" in found) == exhibit.everywhere


def test_a_misspelt_statistic_is_refused():
    with pytest.raises(ValueError, match="final or early"):
        Claim(text="t", above={}, below={}, statistic="finale")
