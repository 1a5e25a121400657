"""The report answers first, and what it says follows from the numbers."""

import re

import pytest
from markupsafe import Markup

from ottrpo.reports.answers import answers
from ottrpo.reports.exhibits import read_exhibition
from ottrpo.reports.page import render
from ottrpo.results.reading import read_study

from .synthetic import cell, write_study


def told(tmp_path, ours, theirs, paper=0.0):
    """What is answered where OT-TRPO and PPO have these scores on Hopper and Swimmer."""
    names = ("Hopper-v5", "Swimmer-v5")
    studies = [
        write_study(tmp_path / "control", [cell(name) for name in names], score=ours),
        write_study(
            tmp_path / "baselines-control",
            [cell(name, "ppo", "tuned") for name in names],
            score=theirs,
        ),
        write_study(
            tmp_path / "paper-literal", [cell(name, config="paper") for name in names], score=paper
        ),
    ]
    return answers([c for folder in studies for c in read_study(folder).cells], read_exhibition())


def test_who_wins_is_said(tmp_path):
    found = told(tmp_path, [5000.0, 100.0], [1000.0, 900.0])
    assert (
        "is higher on 1 (Hopper-v5), lower on 1 (Swimmer-v5), and undecided on 0;"
        in (found.sentences[0])
    )
    assert found.sentences[0].endswith(
        "with probability 0.50 (0.50 to 0.50), which decides nothing."
    )
    assert found.tables[0].rows[0][0].text == "Hopper-v5"
    assert found.tables[0].caption == "a: ottrpo/default, b: ppo/tuned"


def test_what_is_undecided_is_said(tmp_path):
    found = told(tmp_path, 1000.0, 1000.0)
    assert "higher on none, lower on none, and undecided on 2;" in found.sentences[0]


def test_a_task_with_one_run_takes_nobody_s_interval(tmp_path):
    """One run of Ant decides nothing; with it the probability over all tasks had no interval."""
    folders = [
        write_study(tmp_path / "many", [cell(), cell(agent="ppo", config="tuned")]),
        write_study(
            tmp_path / "one",
            [cell("Ant-v5"), cell("Ant-v5", agent="ppo", config="tuned")],
            seeds=1,
        ),
    ]
    cells = [c for folder in folders for c in read_study(folder).cells]
    sentence = answers(cells, read_exhibition()).sentences[0]
    assert "on the 1 tasks where both have several seeds" in sentence
    assert re.search(r"with probability \d\.\d\d \(", sentence)


def test_the_paper_s_own_settings_are_judged(tmp_path):
    found = told(tmp_path, [2939.0, 359.0], 1000.0, paper=[10.0, 359.0])
    assert found.sentences[-1].endswith(
        "the paper's own settings stay below the printed score on 1 of 2 control tasks (Hopper-v5)."
    )


def test_every_score_of_the_paper_is_accounted_for(tmp_path):
    short = [cell(), cell("Swimmer-v5", trained_steps=30_000)]
    cells = read_study(write_study(tmp_path / "suite", short, score=[2939.0, 359.0])).cells
    assert (
        answers(cells, read_exhibition())
        .sentences[-1]
        .endswith("reproduce 1, exceed 0 and stay below 0, and 1 cannot be compared yet.")
    )


def test_the_forest_has_a_line_for_every_task(tmp_path):
    forest = told(tmp_path, [5000.0, 100.0], [1000.0, 900.0]).forest
    assert isinstance(forest, str)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", forest)
    assert [text.strip("\u200a") for text in texts if "-v5" in text] == ["Hopper-v5", "Swimmer-v5"]
    assert 'aria-label="OT-TRPO with its defaults against tuned baselines' in forest


def test_without_results_it_says_how_to_get_some():
    page = render([])
    assert "There are no results yet to answer from" in page
    assert '<figure class="forest">' not in page


@pytest.mark.parametrize("name", ["mine", "control"])
def test_a_study_s_own_page_begins_with_it(tmp_path, name):
    study = read_study(write_study(tmp_path / name, [cell(), cell(config="tuned")]))
    page = Markup(render([study], name)).striptags()
    assert page.index(f"{name}: results") < page.index("This study") < page.index("lowest seed")
    for missing in ("nothing yet", "No results yet", "Errata", "In short"):
        assert missing not in page
    assert ("Where it stands beside the paper" in page) == (name == "control")
