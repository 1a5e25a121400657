"""Guesses for runs that nobody has measured."""

from dataclasses import replace

import pytest

from ottrpo.experiments import pace
from ottrpo.experiments.estimate import GUESSED, estimate
from ottrpo.experiments.grid import STUDIES
from ottrpo.experiments.jobs import jobs_of
from ottrpo.experiments.registry import agents
from ottrpo.experiments.run import plan_run


def test_every_agent_is_in_the_table():
    table = pace._table()
    assert set(table["agents"]) == {entry.key for entry in agents()}
    for row in table["agents"].values():
        known = pace.Pace(**row)
        assert min(known.start, known.play) >= 0 < known.train


@pytest.fixture
def twice_as_slow(monkeypatch):
    """Our table, on a machine of half its speed where every environment takes a millisecond."""
    table = {"machine": {"loop": 0.5}, "agents": {"ottrpo": {"start": 3, "train": 2, "play": 1}}}
    monkeypatch.setattr(pace, "_table", lambda: table)
    monkeypatch.setattr(pace, "loop_seconds", lambda: 1.0)
    monkeypatch.setattr(pace, "_stepping", lambda environment: 1e-3)
    pace._machine.cache_clear()
    yield
    pace._machine.cache_clear()


@pytest.mark.usefixtures("twice_as_slow")
def test_a_guess_scales_the_table_and_adds_the_environment():
    spec = plan_run("Pendulum-v1", steps=1000, protocol="quick")
    played = 4 * 2 * 2 * 200  # four times, two ways, two episodes of 200 steps
    ours, theirs = 3 + 2 * 1000 + 1 * played, 1e-3 * (1000 + played)
    assert pace.guessed_seconds(spec) == pytest.approx(2 * ours + theirs)
    assert pace.guessed_seconds(replace(spec, agent_key="nobody")) is None


def test_what_is_timed_is_short_and_positive():
    for seconds in (pace.loop_seconds(), pace.step_seconds("CartPole-v1", 1000) * 1000):
        assert 0 < seconds < 10


def test_a_study_that_was_never_run_has_an_estimate_that_says_it_is_a_guess(tmp_path):
    jobs = jobs_of(STUDIES["smoke"], tmp_path, seeds=None, steps=None)
    told = estimate(jobs, jobs, results=[tmp_path], workers=2, say=print)
    assert told.sources == {GUESSED: len(STUDIES["smoke"].cells)}
    assert told.unknown == 0
    assert 1 < told.seconds < 600
    assert "a guess" in str(told)
