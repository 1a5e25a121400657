"""Scores of a study from its folder under ``results/`` alone.

The paper's score is the mean return over the evaluations of the last tenth of training. Seeds are
the unit: the score of a cell is the mean over seeds of each seed's score. Two spreads are given,
over seeds and over time, because the paper does not say which one it prints.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ottrpo.core.checks import Floats
from ottrpo.experiments.published import Published, trained_score
from ottrpo.results.reading import CellResult, read_study

from .statistics import (
    REPORT_SEED,
    Interval,
    bootstrap_interval,
    interquartile_mean,
    trained_scores,
)


@dataclass(frozen=True, kw_only=True)
class CellScore:
    """The score of one cell of a study, acting in one way.

    Attributes:
        study: its name.
        cell: its name in the study.
        environment: its id.
        agent: its name.
        label: of the cell.
        deterministic: whether the policy's mode was taken; else actions were sampled.
        mean: over seeds.
        std_seeds: standard deviation of the seeds' scores; None of a single one.
        std_time: standard deviation over time of the mean curve, within the last tenth.
        iqm: interquartile mean over seeds.
        interval: 95 % bootstrap interval of the interquartile mean; None of a single seed.
        lowest: score of the worst seed.
        highest: score of the best seed.
        seeds: how many.
        by_seed: the score of every seed.
        steps: of training.
        published: what the paper prints for this agent and environment, if anything.
    """

    study: str
    cell: str
    environment: str
    agent: str
    label: str
    deterministic: bool
    mean: float
    std_seeds: float | None
    std_time: float
    iqm: float
    interval: Interval | None
    lowest: float
    highest: float
    seeds: int
    by_seed: dict[int, float]
    steps: int
    published: Published | None

    @property
    def paper(self) -> float | None:
        """The paper's score."""
        return None if self.published is None else self.published.score

    @property
    def actions(self) -> str:
        """The way to act, in a word."""
        return "deterministic" if self.deterministic else "sampled"


def study_scores(folder: Path) -> list[CellScore]:
    """The scores of every cell that has finished runs, in the order of the manifest."""
    return [score for cell in read_study(folder).cells for score in cell_scores(cell)]


def cell_scores(cell: CellResult) -> list[CellScore]:
    """One score per way to act, the deterministic one first; none if no run has finished."""
    if cell.steps is None:
        return []
    scores = []
    for deterministic, curves in cell.curves.items():
        try:
            trained = trained_scores(curves.mark_t, curves.return_nt, cell.steps)
        except ValueError as error:
            raise ValueError(f"{cell.study}, {cell.name}: {error}") from error
        score_n = trained.score_n
        scores.append(
            CellScore(
                study=cell.study,
                cell=cell.name,
                environment=cell.environment,
                agent=cell.agent,
                label=cell.title,
                deterministic=deterministic,
                mean=float(score_n.mean()),
                std_seeds=float(score_n.std(ddof=1)) if score_n.size > 1 else None,
                std_time=trained.std_time,
                iqm=interquartile_mean(score_n),
                interval=_interval(score_n),
                lowest=float(score_n.min()),
                highest=float(score_n.max()),
                seeds=score_n.size,
                by_seed=dict(zip(curves.seed_n, score_n.tolist(), strict=True)),
                steps=cell.steps,
                published=trained_score(cell.environment, cell.agent),
            )
        )
    return scores


def _interval(score_n: Floats) -> Interval | None:
    if score_n.size < 2:
        return None
    return bootstrap_interval(score_n, rng=np.random.default_rng(REPORT_SEED))
