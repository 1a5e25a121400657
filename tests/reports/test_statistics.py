"""Interquartile means by hand, and intervals that cover what they say."""

import numpy as np
import pytest

from ottrpo.reports.statistics import bootstrap_interval, interquartile_mean


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([0.0, 10.0], 5.0),
        ([0.0, 1.0, 2.0, 100.0], 1.5),
        # ten scores: the middle half holds 4 whole ones and half of the third and the eighth
        (list(range(10)), (0.5 * 2 + 3 + 4 + 5 + 6 + 0.5 * 7) / 5),
        ([5.0, 1.0, 3.0], (0.25 * 1 + 1 * 3 + 0.25 * 5) / 1.5),
    ],
)
def test_interquartile_mean_by_hand(scores, expected):
    assert interquartile_mean(scores) == pytest.approx(expected)


def test_one_bad_seed_does_not_move_it():
    good = [100.0] * 9
    assert interquartile_mean([*good, -5000.0]) == pytest.approx(100.0)


def test_intervals_cover_the_truth():
    # 20 seeds of a normal law: the interval of the middle half's mean holds 0 about 95 times in 100
    rng = np.random.default_rng(0)
    trials = 400
    covered = 0
    for _ in range(trials):
        low, high = bootstrap_interval(rng.standard_normal(20), rng=rng, resamples=500)
        covered += low <= 0 <= high
    assert 0.88 <= covered / trials <= 0.98


def test_the_same_stream_gives_the_same_interval():
    scores = np.arange(30.0) ** 2
    first = bootstrap_interval(scores, rng=np.random.default_rng(3))
    assert first == bootstrap_interval(scores, rng=np.random.default_rng(3))
    assert first != bootstrap_interval(scores, rng=np.random.default_rng(4))


@pytest.mark.parametrize("bad", [[], [np.nan, 1.0]])
def test_bad_scores_are_refused(bad):
    with pytest.raises(ValueError, match="scores"):
        interquartile_mean(bad)
