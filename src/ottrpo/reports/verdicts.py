"""How our numbers compare with the paper's: one rule for scores, one for what the text claims."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ottrpo.core.checks import Floats
from ottrpo.experiments.published import Published
from ottrpo.results.reading import CellResult

from .exhibits import Claim
from .statistics import Interval, difference_interval, mean_interval, trained_scores

REPRODUCED, BETTER, BELOW, NOT_COMPARABLE = "reproduced", "better", "below", "not comparable"
CONTRADICTED, UNDECIDED = "contradicted", "undecided"
WORDS = (REPRODUCED, BETTER, BELOW, CONTRADICTED, UNDECIDED, NOT_COMPARABLE)
LEAST_SEEDS = 3
ROUNDING = 0.5  # the paper prints whole numbers
WIDE = 0.5  # an interval wider than this share of the paper's number decides nothing
EARLY = 0.25
# for the page; docs/report.md says the same
RULES = (
    "A score: ours is the mean over seeds with Student's 95 % interval; the paper's is the printed "
    "number, give or take its printed spread and half a unit of rounding. It is reproduced if the "
    "two overlap, better or below if ours lies wholly above or below. It is not comparable if the "
    f"paper prints nothing, no run has finished, there are fewer than {LEAST_SEEDS} seeds, "
    "training was shorter than a full run, or if the two overlap only because our interval is "
    "wider than half the paper's number either way.",
    "A claim of the text, that one group of runs lies above another: the difference of the means "
    "over seeds has Welch's 95 % interval. The claim is reproduced if all of it is above zero, "
    "contradicted if all of it is below, else undecided.",
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One word, and why where that is not plain.

    Attributes:
        word: the verdict.
        why: the reason.
        difference: ours less the paper's, or the better cell less the other.
        interval: of the difference, where there are seeds enough.
    """

    word: str
    why: str = ""
    difference: float | None = None
    interval: Interval | None = None


def judge(
    score_n: Sequence[float] | Floats,
    published: Published | None,
    *,
    steps: int | None = None,
    full_steps: int | None = None,
) -> Verdict:
    """Hold the scores of our seeds against a printed number.

    >>> judge([358.0, 360.0, 361.0], Published(359.0, 2.0)).word
    'reproduced'
    >>> judge([-13.0, -13.0, -13.0], Published(-14.0, 0.0)).word
    'better'
    """
    if published is None:
        return Verdict(word=NOT_COMPARABLE, why="the paper prints no number")
    score = np.asarray(score_n, dtype=np.float64)
    if score.size == 0:
        return Verdict(word=NOT_COMPARABLE, why="no finished run")
    difference = float(score.mean()) - published.score
    if score.size < LEAST_SEEDS:
        return Verdict(
            word=NOT_COMPARABLE,
            why=f"{score.size} of the {LEAST_SEEDS} seeds that a verdict takes",
            difference=difference,
        )
    ours = mean_interval(score)
    interval = Interval(ours.low - published.score, ours.high - published.score)
    word, why = _word(ours, published)
    if full_steps is not None and steps is not None and steps < full_steps:
        word, why = NOT_COMPARABLE, f"trained {steps / full_steps:.0%} of a full run"
    return Verdict(word=word, why=why, difference=difference, interval=interval)


def judge_claim(claim: Claim, above: CellResult, below: CellResult) -> Verdict:
    """Hold what the text says of two cells against their seeds."""
    a_n, b_n = (_statistic(cell, claim) for cell in (above, below))
    if not a_n.size or not b_n.size:
        return Verdict(word=NOT_COMPARABLE, why="no finished run")
    b_n = claim.factor * b_n
    difference = float(a_n.mean() - b_n.mean())
    if min(a_n.size, b_n.size) < LEAST_SEEDS:
        return Verdict(
            word=NOT_COMPARABLE,
            why=f"{min(a_n.size, b_n.size)} of the {LEAST_SEEDS} seeds that a verdict takes",
            difference=difference,
        )
    interval = difference_interval(a_n, b_n)
    word = UNDECIDED
    if interval.low > 0:
        word = REPRODUCED
    elif interval.high < 0:
        word = CONTRADICTED
    return Verdict(word=word, difference=difference, interval=interval)


def _word(ours: Interval, published: Published) -> tuple[str, str]:
    margin = published.spread + ROUNDING
    if ours.low > published.score + margin:
        return BETTER, ""
    if ours.high < published.score - margin:
        return BELOW, ""
    half = (ours.high - ours.low) / 2
    if half > max(WIDE * abs(published.score), margin):
        return NOT_COMPARABLE, f"seeds disagree: ours is known to ±{half:,.0f} only"
    return REPRODUCED, ""


def _statistic(cell: CellResult, claim: Claim) -> Floats:
    """Of each seed."""
    if cell.steps is None or not cell.curves:
        return np.empty(0)
    curves = next(iter(cell.curves.values()))
    if claim.statistic == "final":
        return trained_scores(curves.mark_t, curves.return_nt, cell.steps).score_n
    mark_t, return_nt = curves.common()
    early_nt = return_nt[:, mark_t <= EARLY * cell.steps]
    return early_nt.mean(axis=1) if early_nt.size else np.empty(0)
