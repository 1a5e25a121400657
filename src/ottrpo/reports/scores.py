"""Scores of cells, from the folder of their study alone.

The paper's score is the mean return over the evaluations of the last tenth of training. Seeds are
the unit: the score of a cell is the mean over seeds of each seed's score. Two spreads are given,
over seeds and over time, because the paper does not say which one it prints.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ottrpo.core.checks import Floats
from ottrpo.experiments.published import Published, trained_score
from ottrpo.results.reading import CellResult

from .statistics import (
    REPORT_SEED,
    Interval,
    bootstrap_interval,
    interquartile_mean,
    trained_scores,
)


@dataclass(frozen=True)
class CellScore:
    """The score of one cell of a study, acting in one way.

    Attributes:
        cell: which one.
        steps: of training.
        deterministic: whether the policy's mode was taken; else actions were sampled.
        by_seed: the score of every seed.
        std_time: standard deviation over time of the mean curve, within the last tenth.
    """

    cell: CellResult
    steps: int
    deterministic: bool
    by_seed: dict[int, float]
    std_time: float

    @cached_property
    def score_n(self) -> Floats:
        """The scores as an array, one per seed."""
        return np.array(list(self.by_seed.values()))

    @property
    def actions(self) -> str:
        """The way to act, in a word."""
        return "deterministic" if self.deterministic else "sampled"

    @property
    def seeds(self) -> int:
        """How many."""
        return self.score_n.size

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(self.score_n.mean())

    @property
    def std_seeds(self) -> float | None:
        """Standard deviation of the seeds' scores; None of a single one."""
        return float(self.score_n.std(ddof=1)) if self.seeds > 1 else None

    @property
    def iqm(self) -> float:
        """Interquartile mean over seeds."""
        return interquartile_mean(self.score_n)

    @property
    def interval(self) -> Interval | None:
        """95 % bootstrap interval of the interquartile mean; None of a single seed."""
        return _interval(tuple(self.by_seed.values())) if self.seeds > 1 else None

    @property
    def published(self) -> Published | None:
        """What the paper prints for this agent and environment, if anything."""
        return trained_score(self.cell.environment, self.cell.agent)

    def statistics(self) -> dict[str, float | int | None]:
        """The numbers for machines."""
        low, high = self.interval or (None, None)
        return {
            "mean": self.mean,
            "std_seeds": self.std_seeds,
            "std_time": self.std_time,
            "iqm": self.iqm,
            "ci_low": low,
            "ci_high": high,
            "seeds": self.seeds,
        }


@lru_cache(maxsize=1000)  # a page shows the same cell in many places
def _interval(scores: tuple[float, ...]) -> Interval:
    return bootstrap_interval(scores, rng=np.random.default_rng(REPORT_SEED))


def cell_scores(cell: CellResult) -> list[CellScore]:
    """One score per way to act, the deterministic one first; none if no run has finished.

    Raises:
        ValueError: if a seed was not evaluated at the end of its training.
    """
    scores, steps = [], cell.steps or 0
    for way, curves in cell.curves.items() if steps else ():
        try:
            trained = trained_scores(curves.mark_t, curves.return_nt, steps)
        except ValueError as error:
            raise ValueError(f"{cell.study}, {cell.name}: {error}") from error
        by_seed = dict(zip(curves.seed_n, trained.score_n.tolist(), strict=True))
        scores.append(CellScore(cell, steps, way, by_seed, trained.std_time))
    return scores
