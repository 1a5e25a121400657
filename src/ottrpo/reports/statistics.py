"""Statistics over seeds: a seed is one draw, its score one number.

The paper's statistics are the mean over the evaluations of the last tenth of training and its
standard deviations, over seeds and over time. Means alone say little where one seed in ten fails,
so interquartile means, stratified-bootstrap intervals, probabilities of improvement and
performance profiles go with them. Where scores come from several environments they are *strata*:
seeds are drawn anew inside each, and each counts the same.

``tests/reports/test_coverage.py`` measures how often the intervals hold what they should.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ottrpo.core.checks import Floats, floats, require
from ottrpo.experiments.protocol import LAST_TENTH

RESAMPLES = 2_000
QUADRATURE, NEWTON_STEPS = 64, 50  # of Student's quantile; some ten steps are made
# Reports draw from this stream, so that the same results give the same report.
REPORT_SEED = 0


class Interval(NamedTuple):
    """Where a number lies, with 95 % confidence unless said otherwise."""

    low: float
    high: float


class Difference(NamedTuple):
    """How far apart two groups of seeds are.

    Attributes:
        value: of the means, the first less the second.
        interval: of it; None if a group has one seed only.
        paired: whether the groups have the same seeds and were compared seed by seed.
    """

    value: float
    interval: Interval | None
    paired: bool


@dataclass(frozen=True, kw_only=True)
class TrainedScores:
    """The paper's score of each seed, and how far the mean curve moves meanwhile.

    Attributes:
        score_n: mean over the last tenth's evaluations, per seed.
        std_time: standard deviation over the last tenth of the curve averaged over seeds.
    """

    score_n: Floats
    std_time: float


def trained_scores(mark_t: NDArray[np.int64], return_nt: Floats, steps: int) -> TrainedScores:
    """The last tenth of training, seed by seed; an evaluation that a seed lacks is NaN.

    Raises:
        ValueError: if a seed has no evaluation in the last tenth.
    """
    last_nt = return_nt[:, mark_t > LAST_TENTH * steps]
    has_nt = np.isfinite(last_nt)
    require(
        last_nt.size > 0 and bool(has_nt.any(axis=1).all()),
        f"a seed has no evaluation in the last tenth of {steps} steps; a run has to finish first",
    )
    common = last_nt[:, has_nt.all(axis=0)]
    curve_t = common.mean(axis=0)
    return TrainedScores(
        score_n=np.nanmean(last_nt, axis=1), std_time=float(curve_t.std()) if curve_t.size else 0.0
    )


def interquartile_mean(score_n: ArrayLike) -> float:
    """The mean of the middle half; scores at its edges count by the share that lies inside.

    >>> interquartile_mean([0.0, 1.0, 2.0, 100.0])
    1.5
    >>> round(interquartile_mean([1.0, 2.0, 6.0]), 12)
    2.5
    """
    return stratified_iqm([score_n])


def stratified_iqm(strata: Sequence[ArrayLike]) -> float:
    """The interquartile mean over all runs of all strata, each stratum with the same weight.

    >>> stratified_iqm([[0.0, 1.0], [2.0, 100.0]])
    1.5
    >>> stratified_iqm([[0.0], [4.0, 4.0]])  # the stratum of one run counts as much
    2.0
    """
    scores = _strata(strata)
    return float(_iqm(np.concatenate(scores)[None, :], _weights(scores))[0])


def bootstrap_interval(
    score_n: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """The interval that holds ``level`` of the interquartile means of resampled seeds."""
    return stratified_interval([score_n], rng=rng, level=level, resamples=resamples)


def stratified_interval(
    strata: Sequence[ArrayLike],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """The same over several environments: seeds are drawn anew within each."""
    scores = _strata(strata)
    drawn = np.concatenate(_resampled(scores, rng, resamples), axis=1)
    return _quantiles(_iqm(drawn, _weights(scores)), level)


def mean_interval(score_n: ArrayLike, *, level: float = 0.95) -> Interval:
    """Student's interval of the mean; it needs two seeds.

    >>> low, high = mean_interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    score = _scores(score_n)
    require(score.size > 1, "an interval of the mean needs two seeds")
    half = _student(score.size - 1, level) * float(np.sqrt(score.var(ddof=1) / score.size))
    mean = float(score.mean())
    return Interval(mean - half, mean + half)


def difference_interval(a_n: ArrayLike, b_n: ArrayLike, *, level: float = 0.95) -> Interval:
    """Welch's interval of the difference of two means, a less b; both need two seeds.

    >>> difference_interval([2.0, 2.0], [1.0, 1.0])
    Interval(low=1.0, high=1.0)
    """
    a, b = _scores(a_n), _scores(b_n)
    require(min(a.size, b.size) > 1, "an interval of a difference needs two seeds of each")
    difference = float(a.mean() - b.mean())
    share_a, share_b = (float(x.var(ddof=1)) / x.size for x in (a, b))
    variance = share_a + share_b
    if variance == 0.0:
        return Interval(difference, difference)
    freedom = variance**2 / (share_a**2 / (a.size - 1) + share_b**2 / (b.size - 1))
    half = _student(freedom, level) * variance**0.5
    return Interval(difference - half, difference + half)


def difference_by_seed(a: Mapping[int, float], b: Mapping[int, float]) -> Difference:
    """The difference of two groups; seed by seed where they have the same seeds.

    Runs of one seed begin alike, so that what they have in common drops out of their difference.

    >>> difference_by_seed({0: 1.0, 1: 9.0}, {1: 8.0, 0: 0.0})
    Difference(value=1.0, interval=Interval(low=1.0, high=1.0), paired=True)
    """
    paired = a.keys() == b.keys()
    a_n, b_n = np.array(list(a.values())), np.array([b[seed] for seed in (a if paired else b)])
    value = float(a_n.mean() - b_n.mean())
    if min(a_n.size, b_n.size) < 2:
        return Difference(value, None, paired)
    interval = mean_interval(a_n - b_n) if paired else difference_interval(a_n, b_n)
    return Difference(value, interval, paired)


def probability_of_improvement(
    a_strata: Sequence[ArrayLike], b_strata: Sequence[ArrayLike]
) -> float:
    """How often a random run of a beats one of b in the same environment; a tie counts half.

    >>> probability_of_improvement([[1.0, 3.0]], [[2.0, 3.0]])
    0.375
    """
    a, b = _matched(a_strata, b_strata)
    return float(_improvement([x[None] for x in a], [x[None] for x in b])[0])


def improvement_interval(
    a_strata: Sequence[ArrayLike],
    b_strata: Sequence[ArrayLike],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """The bootstrap interval of `probability_of_improvement`."""
    a, b = _matched(a_strata, b_strata)
    drawn = _improvement(_resampled(a, rng, resamples), _resampled(b, rng, resamples))
    return _quantiles(drawn, level)


def performance_profile(
    strata: Sequence[ArrayLike],
    threshold_k: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> Floats:
    """The share of runs whose score lies above each threshold, mean over environments.

    Returns:
        The shares, and the lower and the upper edge of their band: [3, K].
    """
    threshold = floats("thresholds", threshold_k, ndim=1)
    scores = _strata(strata)
    drawn = _resampled(scores, rng, resamples)
    share_rk = np.mean([_above(stratum, threshold) for stratum in drawn], axis=0)
    tail = (1.0 - level) / 2.0
    low_k, high_k = np.quantile(share_rk, [tail, 1.0 - tail], axis=0)
    share_k = np.mean([_above(stratum[None], threshold)[0] for stratum in scores], axis=0)
    return np.array([share_k, low_k, high_k])


def _scores(score_n: ArrayLike) -> Floats:
    score = floats("scores", score_n, ndim=1)
    require(score.size > 0, "there are no scores")
    return score


def _strata(strata: Sequence[ArrayLike]) -> list[Floats]:
    require(len(strata) > 0, "there are no scores")
    return [_scores(stratum) for stratum in strata]


def _matched(
    a_strata: Sequence[ArrayLike], b_strata: Sequence[ArrayLike]
) -> tuple[list[Floats], list[Floats]]:
    require(
        len(a_strata) == len(b_strata),
        f"both need the same environments, got {len(a_strata)} and {len(b_strata)}",
    )
    return _strata(a_strata), _strata(b_strata)


def _weights(strata: Sequence[Floats]) -> Floats:
    """Of each run among all, so that every stratum weighs the same."""
    return np.concatenate([np.full(s.size, 1.0 / (s.size * len(strata))) for s in strata])


def _iqm(score_rn: Floats, weight_n: Floats) -> Floats:
    """The weighted interquartile mean of each row."""
    if np.ptp(weight_n) == 0.0:
        edge = np.clip(np.arange(weight_n.size + 1) / weight_n.size, 0.25, 0.75)
        return 2.0 * (np.sort(score_rn, axis=1) @ np.diff(edge))
    order_rn = np.argsort(score_rn, axis=1)
    reach_rn = np.cumsum(weight_n[order_rn], axis=1)
    inside_rn = np.diff(np.clip(reach_rn, 0.25, 0.75), axis=1, prepend=0.25)
    ordered = np.take_along_axis(score_rn, order_rn, axis=1)
    result: Floats = 2.0 * (ordered * inside_rn).sum(axis=1)
    return result


def _improvement(a_strata: Sequence[Floats], b_strata: Sequence[Floats]) -> Floats:
    """P(a > b) + P(a = b) / 2 of each row, mean over strata; rows are resamples."""
    chance: Floats = np.mean(
        [
            np.mean(0.5 * (1.0 + np.sign(a[:, :, None] - b[:, None, :])), axis=(1, 2))
            for a, b in zip(a_strata, b_strata, strict=True)
        ],
        axis=0,
    )
    return chance


def _above(score_rn: Floats, threshold_k: Floats) -> Floats:
    share: Floats = (score_rn[:, :, None] > threshold_k).mean(axis=1)
    return share


def _resampled(strata: Sequence[Floats], rng: np.random.Generator, resamples: int) -> list[Floats]:
    return [rng.choice(stratum, (resamples, stratum.size)) for stratum in strata]


def _quantiles(drawn_r: Floats, level: float) -> Interval:
    require(0 < level < 1, f"level must lie in (0, 1), got {level}")
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(drawn_r, [tail, 1.0 - tail])
    return Interval(float(low), float(high))


@cache
def _quadrature() -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(QUADRATURE)


def _student(freedom: float, level: float) -> float:
    """How many standard errors a two-sided interval of that level reaches."""
    require(0 < level < 1, f"level must lie in (0, 1), got {level}")
    # with t = √ν tan θ the chance of |T| < t is 2c ∫₀^θ cosᵛ⁻¹, whose integrand is smooth
    scale = 2.0 * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(math.pi)
    node_k, weight_k = _quadrature()
    angle = 0.0
    for _ in range(NEWTON_STEPS):  # the chance is concave: from the left they never overshoot
        angle_k = angle * (node_k + 1.0) / 2.0
        chance = scale * angle / 2.0 * float(weight_k @ np.cos(angle_k) ** (freedom - 1.0))
        step = (level - chance) / (scale * math.cos(angle) ** (freedom - 1.0))
        angle += step
        if abs(step) <= 1e-15 * angle:
            break
    return math.sqrt(freedom) * math.tan(angle)
