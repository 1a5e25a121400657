"""Statistics over seeds: a seed is one draw, its score one number.

Means alone say little where one seed in ten fails, so the interquartile mean (the mean of the
middle half) and a bootstrap interval of it go with them.
"""

import numpy as np
from numpy.typing import ArrayLike

from ottrpo.core.checks import Floats, floats, require

RESAMPLES = 2_000
# Reports draw from this stream, so that the same results give the same report.
REPORT_SEED = 0


def interquartile_mean(score_n: ArrayLike) -> float:
    """The mean of the middle half; scores at its edges count by the share that lies inside.

    >>> interquartile_mean([0.0, 1.0, 2.0, 100.0])
    1.5
    >>> round(interquartile_mean([1.0, 2.0, 6.0]), 12)
    2.5
    """
    ordered = np.sort(_scores(score_n))
    return float(ordered @ _middle_half(ordered.size))


def bootstrap_interval(
    score_n: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """The interval that holds ``level`` of the interquartile means of resampled seeds."""
    score = _scores(score_n)
    require(0 < level < 1, f"level must lie in (0, 1), got {level}")
    drawn = np.sort(rng.choice(score, (resamples, score.size)), axis=1) @ _middle_half(score.size)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return float(low), float(high)


def _scores(score_n: ArrayLike) -> Floats:
    score = floats("scores", score_n, ndim=1)
    require(score.size > 0, "there are no scores")
    return score


def _middle_half(n: int) -> Floats:
    """Weights of n ordered scores in the interquartile mean."""
    edge = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    return 2.0 * np.diff(edge)
