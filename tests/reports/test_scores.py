"""Scores by hand: seeds are the unit, the last tenth counts, both spreads are kept apart."""

import json

import pytest

from ottrpo.reports.scores import cell_scores
from ottrpo.reports.tables import violations
from ottrpo.results.reading import read_study

from .synthetic import seal

CELL = {
    "environment": "Hopper-v5",
    "agent": "ottrpo",
    "config": "default",
    "label": "",
    "trained_steps": 1000,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"cells": {"here": CELL, "missing": CELL}}))
    (tmp_path / "here.csv").write_text(
        "seed,mark,timestep,deterministic,train_seconds,returns\n"
        "0,900,900,1,1.0,1000 1000\n"  # not in the last tenth
        "0,950,950,1,1.0,10 30\n"
        "0,1000,1000,1,1.0,40 40\n"
        "1,950,950,1,1.0,50 50\n"
        "1,1000,1000,1,1.0,90 90\n"
        "0,1000,1000,0,1.0,7 9\n"
    )
    (tmp_path / "runs.csv").write_text(
        "cell,seed,steps,updates,violations,train_seconds\nhere,0,1000,5,1,1.0\nhere,1,1000,5,0,1.0\n"
    )
    return seal(tmp_path)


def test_scores_by_hand(folder):
    here, missing = read_study(folder).cells
    deterministic, sampled = cell_scores(here)
    assert cell_scores(missing) == []
    # seed 0: (20 + 40) / 2 = 30; seed 1: (50 + 90) / 2 = 70
    assert (deterministic.mean, *deterministic.score_n) == (50, 30, 70)
    assert deterministic.std_seeds == pytest.approx(28.2842712)  # sample deviation of 30 and 70
    # the mean curve is 35 at 950 and 65 at 1000
    assert deterministic.std_time == 15
    assert (deterministic.seeds, deterministic.steps) == (2, 1000)
    assert deterministic.published.score == 2939
    assert (sampled.deterministic, sampled.mean, sampled.seeds) == (False, 8, 1)
    assert (sampled.std_seeds, sampled.interval) == (None, None)  # of one seed there is none


def test_violations_are_counted_over_all_updates(folder):
    here, missing = read_study(folder).cells
    assert violations(here) == (1, 10)
    assert violations(missing) == (0, 0)
