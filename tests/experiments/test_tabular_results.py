"""What the kept results of the tabular studies say, held to what is claimed of them."""

from pathlib import Path

import pytest

from ottrpo.experiments.registry import studies
from ottrpo.reports.readme import study_table
from ottrpo.reports.scores import cell_scores
from ottrpo.results.reading import read_study
from ottrpo.tabular import as_problem, planning

RESULTS = Path(__file__).parents[2] / "results"
STUDIES = ("tabular-default", "tabular-readings", "taxi-radius", "taxi-costs")


def study_scores(folder):
    return [score for cell in read_study(folder).cells for score in cell_scores(cell)]


def study_audits(folder):
    return {cell.name: cell.audit for cell in read_study(folder).cells}


@pytest.mark.parametrize("study", STUDIES)
def test_every_cell_is_there_with_thirty_seeds_and_the_table_is_theirs(study):
    scores = study_scores(RESULTS / study)
    assert len(scores) == len(studies()[study].cells)
    assert {score.seeds for score in scores} == {30}
    assert (RESULTS / study / "table.md").read_text() == study_table(RESULTS / study)
    assert (RESULTS / study / "curves.svg").is_file()


@pytest.mark.parametrize("study", STUDIES)
def test_ot_trpo_never_leaves_the_trust_region(study):
    for name, audit in study_audits(RESULTS / study).items():
        if "__ottrpo__" in name:
            assert audit.violations == audit.pot_violations == 0, name
            assert audit.pot_checked > 0
            assert audit.audited in (0, audit.updates)  # 0: general costs, which POT checks


def test_the_recommended_configuration_is_optimal():
    scores = {score.cell.environment: score for score in study_scores(RESULTS / "tabular-default")}
    cliff, taxi = scores["CliffWalking-v1"], scores["Taxi-v4"]
    assert cliff.mean == cliff.score_n.min() == -13.0
    assert taxi.mean >= 7.8
    assert taxi.score_n.min() >= 7.0
    lake = as_problem("FrozenLake8x8-v1")
    best = planning.capped_return(lake, planning.policy_iteration(lake, 0.995)[0])
    assert scores["FrozenLake8x8-v1"].mean >= 0.98 * best
    audits = study_audits(RESULTS / "tabular-default")
    assert audits["FrozenLake8x8-v1__ottrpo__default"].exact_return >= 0.98 * best


def test_wpo_leaves_the_trust_region_when_it_moves_tied_mass():
    audits = study_audits(RESULTS / "tabular-readings")
    for environment in ("CliffWalking-v1", "Taxi-v4"):
        for config in ("default", "paper", "paper-kept"):
            moving = audits[f"{environment}__wpo__{config}-move"]
            staying = audits[f"{environment}__wpo__{config}-stay"]
            assert moving.violations > 0
            assert staying.violations == 0
