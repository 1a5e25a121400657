"""Verdicts by hand: every word, and every reason why two numbers can't be compared."""

import pytest

from ottrpo.experiments.published import Published
from ottrpo.reports.exhibits import Claim
from ottrpo.reports.sections import claim_tables
from ottrpo.reports.verdicts import judge, judge_claim
from ottrpo.results.reading import read_study

from .synthetic import cell, write_study

HOPPER = Published(2939.0, 162.0)


@pytest.mark.parametrize(
    ("scores", "published", "word", "why"),
    [
        ([2900.0, 2950.0, 3000.0], HOPPER, "reproduced", ""),
        ([3300.0, 3310.0, 3320.0], HOPPER, "better", ""),
        ([2000.0, 2010.0, 2020.0], HOPPER, "below", ""),
        # ± 0 is printed: half a unit of rounding is all that is left
        ([-14.4, -14.4, -14.4], Published(-14.0, 0.0), "reproduced", ""),
        ([-14.6, -14.6, -14.6], Published(-14.0, 0.0), "below", ""),
        # Student's interval of 0, 3000, 6000 is 3000 ± 7452
        ([0.0, 3000.0, 6000.0], HOPPER, "not comparable", "seeds disagree: ours is known to ±7,4"),
        ([3000.0, 3000.0], HOPPER, "not comparable", "2 of the 3 seeds"),
        ([], HOPPER, "not comparable", "no finished run"),
        ([1.0, 2.0, 3.0], None, "not comparable", "the paper prints no number"),
    ],
)
def test_a_score_is_judged(scores, published, word, why):
    verdict = judge(scores, published)
    assert verdict.word == word
    assert verdict.why.startswith(why)
    assert bool(verdict.why) == bool(why)


def test_the_difference_goes_with_its_interval():
    verdict = judge([1.0, 2.0, 3.0], Published(1.0, 0.0))
    assert verdict.difference == 1.0
    assert verdict.interval == pytest.approx((-1.48414, 3.48414), abs=1e-5)


def test_a_short_run_is_not_held_against_a_full_one():
    verdict = judge([1.0, 1.0, 1.0], HOPPER, steps=300_000, full_steps=1_000_000)
    assert (verdict.word, verdict.why) == (
        "not comparable",
        "trained 30% of a full run",
    )
    assert verdict.difference == -2938.0
    assert judge([1.0] * 3, HOPPER, steps=1_000_000, full_steps=1_000_000).word == "below"


@pytest.mark.parametrize(
    ("levels", "factor", "word"),
    [
        ([1000.0, 500.0], 1.0, "reproduced"),
        ([500.0, 1000.0], 1.0, "contradicted"),
        ([1000.0, 999.0], 1.0, "undecided"),
        ([1000.0, 800.0], 1.5, "contradicted"),
        ([1000.0, 500.0], 1.5, "reproduced"),
    ],
)
@pytest.mark.parametrize("statistic", ["final", "early"])
def test_a_claim_is_judged(tmp_path, levels, factor, word, statistic):
    cells = [cell(agent="ottrpo"), cell(agent="trpo")]
    study = read_study(write_study(tmp_path / "s", cells, score=levels))
    claim = Claim(
        text="better",
        above={"agent": "ottrpo"},
        below={"agent": "trpo"},
        factor=factor,
        statistic=statistic,
    )
    ((above, below),) = claim.pairs(study.cells)
    assert judge_claim(claim, above, below).word == word


def test_a_claim_needs_runs_and_seeds(tmp_path):
    cells = [cell(agent="ottrpo"), cell(agent="trpo"), cell(agent="ppo", trained_steps=None)]
    a, b, none = read_study(write_study(tmp_path / "s", cells, seeds=2)).cells
    claim = Claim(text="better", above={}, below={})
    assert judge_claim(claim, a, none).why == "no finished run"
    assert judge_claim(claim, a, b).why == "2 of the 3 seeds that a verdict takes"


def test_each_claim_has_a_table_and_says_where_runs_are_missing(tmp_path):
    cells = [cell(agent="ottrpo"), cell(agent="trpo")]
    study = read_study(write_study(tmp_path / "s", cells, score=[1000.0, 500.0]))
    sides = {"above": {"agent": "ottrpo"}, "below": {"agent": "trpo"}}
    held = Claim(text="it is better", **sides)
    nobody = Claim(text="a stranger is worse", above=sides["above"], below={"agent": "wnpg"})
    first, second = claim_tables([held, nobody], study.cells)
    assert [first.caption, second.caption] == ["Claim: it is better", "Claim: a stranger is worse"]
    ((*_, verdict),), ((*_, missing),) = first.rows, second.rows
    assert verdict.text == "reproduced"
    assert missing.text == "not comparable: no finished run"
