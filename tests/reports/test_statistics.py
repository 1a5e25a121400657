"""Statistics by hand; how often intervals hold the truth is measured in test_coverage."""

import numpy as np
import pytest
from scipy import stats

from ottrpo.reports import statistics
from ottrpo.reports.statistics import (
    bootstrap_interval,
    difference_interval,
    improvement_interval,
    interquartile_mean,
    mean_interval,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
    stratified_iqm,
    trained_scores,
)


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


def test_the_same_stream_gives_the_same_interval():
    scores = np.arange(30.0) ** 2
    first = bootstrap_interval(scores, rng=np.random.default_rng(3))
    assert first == bootstrap_interval(scores, rng=np.random.default_rng(3))
    assert first != bootstrap_interval(scores, rng=np.random.default_rng(4))


@pytest.mark.parametrize("bad", [[], [np.nan, 1.0]])
def test_bad_scores_are_refused(bad):
    with pytest.raises(ValueError, match="scores"):
        interquartile_mean(bad)


def stream(seed=0):
    return np.random.default_rng(seed)


def test_the_last_tenth_by_hand():
    mark_t = np.array([900, 950, 1000])
    return_nt = np.array([[1000.0, 20.0, 40.0], [np.nan, 50.0, np.nan]])
    trained = trained_scores(mark_t, return_nt, 1000)
    assert trained.score_n.tolist() == [30.0, 50.0]  # 900 is not in the last tenth
    assert trained.std_time == 0.0  # 950 is the only mark that both have
    with pytest.raises(ValueError, match="no evaluation in the last tenth of 2000 steps"):
        trained_scores(mark_t, return_nt, 2000)


def test_every_environment_weighs_the_same():
    # pooled without weights the middle half would be 10 alone
    assert stratified_iqm([[0.0], [10.0] * 9]) == 5.0
    assert stratified_iqm([[0.0, 0.0], [10.0] * 9, [20.0], [30.0] * 4]) == pytest.approx(15.0)
    scores = [4.0, 1.0, 7.0, 3.0, 8.0]
    assert stratified_iqm([scores, scores]) == pytest.approx(interquartile_mean(scores))


def test_seeds_are_drawn_within_their_environment():
    # no spread inside an environment: nothing to resample, however far apart they lie
    assert stratified_interval([[0.0] * 5, [100.0] * 5], rng=stream()) == (50.0, 50.0)


def test_an_improvement_by_hand():
    # pairs of (3, 1) with (2, 1): win, win, loss, tie
    assert probability_of_improvement([[3.0, 1.0]], [[2.0, 1.0]]) == (2 + 0.5) / 4
    assert probability_of_improvement([[1.0], [0.0]], [[0.0], [1.0, 1.0]]) == 0.5
    assert improvement_interval([[2.0, 3.0]], [[0.0, 1.0]], rng=stream()) == (1.0, 1.0)
    with pytest.raises(ValueError, match="same environments, got 1 and 2"):
        probability_of_improvement([[1.0]], [[1.0], [2.0]])


def test_a_profile_by_hand():
    thresholds = [0.0, 1.0, 2.0, 3.0]
    share, low, high = performance_profile([[1.0, 3.0], [2.0]], thresholds, rng=stream())
    # above 1: half of the first environment, all of the second; a score is not above itself
    assert share.tolist() == [1.0, 0.75, 0.25, 0.0]
    assert (low <= share).all()
    assert (share <= high).all()
    assert high[2] == 0.5


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 4.7, 9, 29.3, 100, 1000])
def test_student_s_quantiles_are_those_of_scipy(freedom):
    for level in (0.5, 0.9, 0.95, 0.99):
        wanted = stats.t.ppf(0.5 + level / 2, freedom)
        assert statistics._student(freedom, level) == pytest.approx(wanted, rel=1e-10)


def test_intervals_of_means_against_scipy():
    a, b = np.array([1.0, 4.0, 2.0, 8.0]), np.array([0.0, 1.0, 0.5])
    student = stats.ttest_1samp(a, 0.0).confidence_interval(0.95)
    assert mean_interval(a) == pytest.approx((student.low, student.high))
    welch = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert difference_interval(a, b) == pytest.approx((welch.low, welch.high))


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_that_is_no_share_is_refused(level):
    with pytest.raises(ValueError, match="level must lie in"):
        mean_interval([1.0, 2.0], level=level)
    with pytest.raises(ValueError, match="level must lie in"):
        bootstrap_interval([1.0, 2.0], rng=stream(), level=level)


def test_one_seed_has_no_interval_of_its_mean():
    with pytest.raises(ValueError, match="two seeds"):
        mean_interval([1.0])
    with pytest.raises(ValueError, match="two seeds"):
        difference_interval([1.0, 2.0], [1.0])
