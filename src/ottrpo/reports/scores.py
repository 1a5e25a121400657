"""Scores and audits of cells, from the folder of their study alone.

The paper's score is the mean return over the evaluations of the last tenth of training. Seeds are
the unit: the score of a cell is the mean over seeds of each seed's score. Two spreads are given,
over seeds and over time, because the paper does not say which one it prints. Audits are there for
agents on finite problems: the expected return of the trained policies, computed instead of sampled,
and the share of updates that spent more than their radius, by our own audit and by POT.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import fmean

import numpy as np

from ottrpo.core.checks import Floats
from ottrpo.experiments.published import Published, trained_score
from ottrpo.results.layout import AUDITS
from ottrpo.results.reading import CellResult, read_study
from ottrpo.results.study_folder import StudyFolder

from .statistics import (
    REPORT_SEED,
    Interval,
    bootstrap_interval,
    interquartile_mean,
    trained_scores,
)

_COUNTS = ("updates", "audited", "violations", "pot_checked", "pot_violations")


@dataclass(frozen=True, kw_only=True)
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
    def environment(self) -> str:
        """Its id."""
        return self.cell.environment

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
    def lowest(self) -> float:
        """Score of the worst seed."""
        return float(self.score_n.min())

    @property
    def highest(self) -> float:
        """Score of the best seed."""
        return float(self.score_n.max())

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


def study_scores(folder: Path) -> list[CellScore]:
    """The scores of every cell that has finished runs, in the order of the manifest."""
    return [score for cell in read_study(folder).cells for score in cell_scores(cell)]


def cell_scores(cell: CellResult) -> list[CellScore]:
    """One score per way to act, the deterministic one first; none if no run has finished.

    Raises:
        ValueError: if a seed was not evaluated at the end of its training.
    """
    scores = []
    for deterministic, curves in cell.curves.items() if cell.steps else ():
        try:
            trained = trained_scores(curves.mark_t, curves.return_nt, cell.steps or 0)
        except ValueError as error:
            raise ValueError(f"{cell.study}, {cell.name}: {error}") from error
        by_seed = dict(zip(curves.seed_n, trained.score_n.tolist(), strict=True))
        scores.append(
            CellScore(
                cell=cell,
                steps=cell.steps or 0,
                deterministic=deterministic,
                by_seed=by_seed,
                std_time=trained.std_time,
            )
        )
    return scores


@dataclass(frozen=True, kw_only=True)
class CellAudit:
    """What the checks of all runs of a cell found.

    Attributes:
        exact_return: mean over seeds of the trained policy's expected return.
        lowest_exact_return: of the worst seed.
        updates: of all seeds together.
        audited: those whose discrepancy was computed anew.
        violations: those of them that spent more than the radius.
        pot_checked: updates that POT looked at.
        pot_violations: those of them that spent more than the radius.
    """

    exact_return: float
    lowest_exact_return: float
    updates: int
    audited: int
    violations: int
    pot_checked: int
    pot_violations: int


def study_audits(folder: Path) -> dict[str, CellAudit]:
    """The audits of a study, by cell; none if its agents are not audited."""
    exact: dict[str, list[float]] = {}
    counts: dict[str, list[list[int]]] = {}
    table = StudyFolder.read(folder).tables.get(AUDITS)
    rows = () if table is None else table.columns("cell", "exact_return", *_COUNTS)
    for line, (cell, value, *numbers) in rows:
        try:
            exact.setdefault(cell, []).append(float(value))
            counts.setdefault(cell, []).append([int(text) for text in numbers])
        except ValueError as error:
            raise ValueError(f"{folder / AUDITS}, line {line}: {error}") from error
    return {
        cell: CellAudit(
            exact_return=fmean(values),
            lowest_exact_return=min(values),
            **dict(zip(_COUNTS, map(sum, zip(*counts[cell], strict=True)), strict=True)),
        )
        for cell, values in exact.items()
    }
