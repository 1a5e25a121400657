"""How our numbers compare with the paper's: one rule for scores, one for what the text claims."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ottrpo.core.checks import Floats
from ottrpo.experiments.published import Published
from ottrpo.results.reading import CellResult

from .exhibits import Claim
from .scores import cell_scores
from .statistics import Interval, difference_by_seed, mean_interval

REPRODUCED, BETTER, BELOW, NOT_COMPARABLE = "reproduced", "better", "below", "not comparable"
CONTRADICTED, UNDECIDED, IDENTICAL = "contradicted", "undecided", "identical"
MORE, FEWER = "more", "fewer"
WORDS = (
    *(REPRODUCED, BETTER, BELOW, MORE, FEWER),
    *(CONTRADICTED, UNDECIDED, IDENTICAL, NOT_COMPARABLE),
)
LEAST_SEEDS = 3
ROUNDING = 0.5  # the paper prints whole numbers
WIDE = 0.5  # an interval wider than this share of the paper's number decides nothing
EARLY = 0.25


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One word, and why where that is not plain.

    The difference is ours less the paper's, or the better cell less the other; it has an interval
    where there are seeds enough.
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


def judge_share(cell: CellResult, percent: float) -> Verdict:
    """Hold the share of updates over the radius, of each seed, against a printed one."""
    shares = [100 * run.violations / run.updates for run in cell.runs if run.updates]
    verdict = judge(shares, Published(percent, 0.0))
    words = {BETTER: MORE, BELOW: FEWER}  # of what is no merit, more is not better
    return replace(verdict, word=words.get(verdict.word, verdict.word))


def judge_claim(claim: Claim, above: CellResult, below: CellResult) -> Verdict:
    """Hold what the text says of two cells against their seeds."""
    a, b = (_statistic(cell, claim) for cell in (above, below))
    if not a or not b:
        return Verdict(word=NOT_COMPARABLE, why="no finished run")
    found = difference_by_seed(a, {seed: claim.factor * value for seed, value in b.items()})
    least = min(len(a), len(b))
    if least < LEAST_SEEDS or found.interval is None:
        why = f"{least} of the {LEAST_SEEDS} seeds that a verdict takes"
        return Verdict(word=NOT_COMPARABLE, why=why, difference=found.value)
    word, why = UNDECIDED, ""
    if same_runs(above, below):
        word = IDENTICAL
    elif found.paired and found.interval == (0.0, 0.0):
        word, why = IDENTICAL, "in every seed"
    elif found.interval.low > 0:
        word = REPRODUCED
    elif found.interval.high < 0:
        word = CONTRADICTED
    return Verdict(word=word, why=why, difference=found.value, interval=found.interval)


def same_runs(a: CellResult, b: CellResult) -> bool:
    """Whether two cells did the same in every evaluation: what tells them apart had no effect."""
    return a.curves.keys() == b.curves.keys() and all(
        mine.seed_n == theirs.seed_n
        and np.array_equal(mine.mark_t, theirs.mark_t)
        and np.array_equal(mine.return_nt, theirs.return_nt, equal_nan=True)
        for mine, theirs in ((a.curves[way], b.curves[way]) for way in a.curves)
    )


def _word(ours: Interval, published: Published) -> tuple[str, str]:
    margin = published.spread + ROUNDING
    if ours.low > published.score + margin:
        return BETTER, ""
    if ours.high < published.score - margin:
        return BELOW, ""
    half = (ours.high - ours.low) / 2
    if half > max(WIDE * abs(published.score), margin):
        return NOT_COMPARABLE, f"seeds disagree: ours is known to ±{half:,.0f} only"
    if ours.low <= published.score <= ours.high:
        return REPRODUCED, ""
    return REPRODUCED, f"within the printed ± {published.spread:,.0f}, rounded"


def _statistic(cell: CellResult, claim: Claim) -> dict[int, float]:
    """Of each seed."""
    scores = cell_scores(cell)
    if claim.statistic == "final" or not scores:
        return scores[0].by_seed if scores else {}
    curves = cell.curves[scores[0].deterministic]
    mark_t, return_nt = curves.common()
    early_nt = return_nt[:, mark_t <= EARLY * scores[0].steps]
    if not early_nt.size:
        return {}
    return dict(zip(curves.seed_n, early_nt.mean(axis=1).tolist(), strict=True))
