"""Verdicts by hand: every word, and every reason why two numbers can't be compared."""

from dataclasses import replace

import numpy as np
import pytest

from ottrpo.experiments.published import Published
from ottrpo.reports.exhibits import Claim
from ottrpo.reports.sections import claim_tables
from ottrpo.reports.verdicts import judge, judge_claim, judge_share
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
        ([-14.0, -14.0, -14.0], Published(-14.0, 0.0), "reproduced", ""),
        ([-14.4, -14.4, -14.4], Published(-14.0, 0.0), "reproduced", "within the printed ± 0"),
        # the difference is not zero, and yet no more than the paper's own spread
        ([3030.0, 3040.0, 3050.0], HOPPER, "reproduced", "within the printed ± 162"),
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


def test_a_claim_about_shared_seeds_is_judged_seed_by_seed(tmp_path):
    """Seeds differ by hundreds, the two cells by ten, in every seed."""
    levels = {"ottrpo": 10.0, "trpo": 0.0}
    cells = [cell(agent=agent) for agent in levels]
    folder = write_study(tmp_path / "s", cells, score=[10.0, 0.0], seeds=5, spread=1.0)
    above, below = read_study(folder).cells
    spread = 100.0 * np.arange(5)[:, None]
    above, below = (_shifted(c, spread) for c in (above, below))
    verdict = judge_claim(Claim(text="better", above={}, below={}), above, below)
    assert (verdict.word, verdict.difference) == ("reproduced", pytest.approx(10.0, abs=3.0))
    assert verdict.interval.high - verdict.interval.low < 10.0


def _shifted(found, by_n):
    curves = {
        way: replace(curves, return_nt=curves.return_nt + by_n)
        for way, curves in found.curves.items()
    }
    return replace(found, curves=curves)


def test_runs_that_did_the_same_are_identical_and_not_undecided(tmp_path):
    (found,) = read_study(write_study(tmp_path / "s", [cell()], seeds=5)).cells
    claim = Claim(text="better", above={}, below={})
    assert judge_claim(claim, found, replace(found, label="other")).word == "identical"
    assert judge_claim(claim, found, _shifted(found, 1e-3 * np.ones((5, 1)))).word != "identical"
    early = np.zeros_like(next(iter(found.curves.values())).return_nt)
    early[:, 0] = 7.0
    other = _shifted(found, early)  # another way to the same end
    verdict = judge_claim(claim, found, other)
    assert (verdict.word, verdict.why) == ("identical", "in every seed")
    assert judge_claim(replace(claim, statistic="early"), found, other).word == "contradicted"


@pytest.mark.parametrize(
    ("violations", "word"),
    [((72, 72, 72), "reproduced"), ((90, 91, 92), "more"), ((0, 0, 0), "fewer")],
)
def test_of_violations_there_are_more_or_fewer(tmp_path, violations, word):
    (found,) = read_study(write_study(tmp_path / "s", [cell()], seeds=3)).cells
    runs = [
        replace(run, violations=n, updates=100)
        for run, n in zip(found.runs, violations, strict=True)
    ]
    assert judge_share(replace(found, runs=tuple(runs)), 72.0).word == word


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
