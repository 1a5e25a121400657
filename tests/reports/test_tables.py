"""The table of a study in the terminal, however wide that is, and on a page."""

import io

import pytest
from rich.console import Console

from ottrpo.reports.readme import markdown_speeds, markdown_table
from ottrpo.reports.tables import terminal_table
from ottrpo.results.reading import read_study

from .synthetic import cell, write_study


@pytest.fixture
def folder(tmp_path):
    cells = {"a": cell("Hopper-v5"), "b": cell("MountainCarContinuous-v0")}
    write_study(tmp_path / "control", cells, score=[3000.0, 90.0])
    return tmp_path / "control"


def shown(folder, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal_table(read_study(folder), console))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return "\n".join(lines)


def test_a_wide_terminal_shows_every_column(folder):
    text = shown(folder, 200)
    assert "lowest" in text
    assert "± time" in text
    assert "no room" not in text


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_narrow_one_does_without_columns_and_never_cuts_a_number(folder, width):
    text = shown(folder, width)
    assert "…" not in text
    for needed in ("mean", "2,939 ± 162", "deterministic", "2,939"):
        assert needed in text
    words = " ".join(text.split())
    assert "in every line: agent ottrpo, configuration default, steps 1M, " in words
    # what is not shown is named
    for column in ("± seeds", "± time", "IQM", "95 %", "lowest seed", "over the radius", "paper"):
        assert column in words
    assert ("no room for" in words) == (width <= 100)


def test_names_are_folded_only_where_there_is_no_room_for_them(tmp_path):
    names = ("gymnax:MountainCarContinuous-v0", "gymnax:Pendulum-v1")
    cells = {f"{name}{i}": cell(name, label=f"l{i}") for i in (1, 2) for name in names}
    write_study(tmp_path / "control", cells, score=3000.0)
    assert "gymnax:Pendulum-v1 " in shown(tmp_path / "control", 120)


def test_eighty_columns_have_room_for_the_steps(tmp_path):
    """Scores of short and of long training must not stand side by side without them."""
    cells = {"a": cell(label="tuned"), "b": cell("MountainCarContinuous-v0", trained_steps=150_000)}
    write_study(tmp_path / "control", cells, score=[3000.0, 90.0])
    text = shown(tmp_path / "control", 80)
    assert " 1M " in text
    assert " 150k " in text


def test_a_page_says_which_runs_are_missing(tmp_path):
    cells = {
        "whole": cell("Hopper-v5", planned_seeds=10),
        "part": cell("Swimmer-v5", planned_seeds=12),
        "none": cell("HalfCheetah-v5", planned_seeds=3, trained_steps=None),
    }
    write_study(tmp_path / "control", cells, score=3000.0)
    *rows, empty, last = markdown_table(read_study(tmp_path / "control").cells).splitlines()[2:]
    assert [row.split(" | ")[5] for row in rows] == ["10", "10 of 12"]
    assert (empty, last) == ("", "No finished run yet: ottrpo, default (HalfCheetah-v5).")


def test_a_page_has_the_rows_of_an_environment_together(tmp_path):
    cells = {
        f"{environment}{config}": cell(environment, config=config)
        for config in ("tuned", "paper")
        for environment in ("Hopper-v5", "Ant-v5")
    }
    write_study(tmp_path / "control", cells, score=3000.0)
    rows = markdown_table(read_study(tmp_path / "control").cells).splitlines()[2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| Hopper-v5", "ottrpo, tuned"],
        ["| Hopper-v5", "ottrpo, paper"],
        ["| Ant-v5", "ottrpo, tuned"],
        ["| Ant-v5", "ottrpo, paper"],
    ]


def test_a_page_has_the_speeds_of_an_agent_side_by_side(tmp_path):
    cells = {
        "a": cell("Hopper-v5", trained_steps=61_000),
        "b": cell("Ant-v5", trained_steps=122_000),
        "c": cell("Hopper-v5", agent="trpo", config="tuned", trained_steps=6_100),
        "d": cell("Ant-v5", agent="trpo", config="tuned", trained_steps=None),
    }
    # the runs take 60, 61 and 62 seconds
    write_study(tmp_path / "training-time", cells, seeds=3)
    assert markdown_speeds(read_study(tmp_path / "training-time").cells).splitlines() == [
        "| settings | Hopper-v5 | Ant-v5 |",
        "| --- | --: | --: |",
        "| ottrpo, default | 1,000 | 2,000 |",
        "| trpo, tuned | 100 | – |",
    ]
