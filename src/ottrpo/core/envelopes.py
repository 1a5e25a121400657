"""Where the budget runs out: every row's envelope walked from λ = ∞ down, a passage at a time.

The numbers are float64, or exact fractions where those have not the range (`ottrpo.core.exact`);
nothing here rounds what is not rounded already.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .checks import Bools, Floats, Integers
from .problems import DualProblem


class _Held(NamedTuple):
    """The line that each row holds now, and the gain at which its envelope ends."""

    gain_r: Floats
    cost_r: Floats
    best_gain_r: Floats

    def of(self, rows: Integers | slice) -> "_Held":
        return _Held(self.gain_r[rows], self.cost_r[rows], self.best_gain_r[rows])


class _Line(NamedTuple):
    """The line that overtakes it, where, and the first candidate that lies on that line."""

    breakpoint_r: Floats
    cost_r: Floats
    target_r: Integers

    def of(self, rows: Integers | slice) -> "_Line":
        return _Line(self.breakpoint_r[rows], self.cost_r[rows], self.target_r[rows])


class _Passages(NamedTuple):
    """One passage per row at most: at ``breakpoint_e`` row ``row_e`` moves on to ``target_e``."""

    row_e: Integers
    target_e: Integers
    breakpoint_e: Floats


class Exhaustion(NamedTuple):
    """Where the budget runs out when passages are paid for from the highest breakpoint down."""

    multiplier: Any  # the largest breakpoint at which it is exceeded; 0 if it never is
    paid: Any  # the cost of the passages above it


# Up to this many passages a plain sort is faster than narrowing the search first.
SORT_AT_MOST = 4096
# Passages sampled to guess where the budget runs out; the guess is always verified.
PILOT = 2048
# Entries that are worked on at a time: together with what is computed from them they fit a cache.
BLOCK = 1 << 15


def _exhaust(breakpoint_e: Floats, mass_e: Floats, radius: float) -> Exhaustion:
    """Pay for passages from the highest breakpoint down until the budget is exceeded."""
    above: Any = 0
    while breakpoint_e.size > SORT_AT_MOST:
        keep, above = _narrow(breakpoint_e, mass_e, above, radius)
        if keep.all():
            break
        breakpoint_e, mass_e = breakpoint_e[keep], mass_e[keep]
    order_e = breakpoint_e.argsort()[::-1]
    spent_e = mass_e[order_e].cumsum()
    spent_e += above
    crossing = int(spent_e.searchsorted(radius, side="right"))
    if crossing == spent_e.size:
        return Exhaustion(0, spent_e[-1] if crossing else above)
    multiplier = breakpoint_e[order_e[crossing]]
    first = int(np.count_nonzero(breakpoint_e > multiplier))
    return Exhaustion(multiplier, spent_e[first - 1] if first else above)


def _narrow(
    breakpoint_e: Floats, mass_e: Floats, above: float, radius: float
) -> tuple[Bools, float]:
    """Keep the passages among which the budget runs out: three bands, two guessed cuts.

    An evenly spaced pilot sample guesses where; sums over all passages decide which band it is,
    so a bad guess costs time, never the answer.

    Returns:
        the band's mask, and the cost of all passages above the band.
    """
    pilot = slice(None, None, max(1, breakpoint_e.size // PILOT))
    order = np.argsort(breakpoint_e[pilot])[::-1]
    pilot_e = breakpoint_e[pilot][order]
    share_e = np.cumsum(mass_e[pilot][order])
    total = share_e[-1] * (breakpoint_e.size / pilot_e.size)
    guess = int(np.searchsorted(share_e, share_e[-1] * min(1.0, (radius - above) / total)))
    margin = int(2 * np.sqrt(pilot_e.size))
    high = pilot_e[max(guess - margin, 0)]
    low = pilot_e[min(guess + margin, pilot_e.size - 1)]
    over_high = breakpoint_e > high
    above_high = above + float(mass_e[over_high].sum())
    if above_high > radius:
        return over_high, above
    band = (breakpoint_e >= low) & ~over_high
    above_low = above_high + float(mass_e[band].sum())
    if above_low > radius:
        return band, above_high
    return breakpoint_e < low, above_low


def walk(problem: DualProblem, budget: Any) -> tuple[Integers, Integers, Exhaustion]:
    """Walk every envelope from λ = ∞ down, a passage of each row at a time, until all is spent.

    Returns:
        the candidates held just above and just below where the budget runs out, and that point.
    """
    nearest_r = problem.stay_r.copy()
    row_r = np.flatnonzero(problem.weight_r)
    nearest_r[row_r], held, line = _start(problem, row_r)
    go = np.flatnonzero(line.breakpoint_r > 0)
    row_r, held, line = row_r[go], held.of(go), line.of(go)

    levels: list[_Passages] = []
    breakpoint_e, mass_e = np.empty(0), np.empty(0)
    exhaustion = Exhaustion(0, 0)
    limit_r = np.full(row_r.size, np.inf)
    while row_r.size:
        # rounding must not let a later passage of a row come before an earlier one, nor invent one
        limit_r = np.minimum(line.breakpoint_r, limit_r)
        mass_r = np.where(limit_r > 0, problem.weight_r[row_r] * (line.cost_r - held.cost_r), 0)
        breakpoint_e = np.concatenate([breakpoint_e, limit_r])
        mass_e = np.concatenate([mass_e, mass_r])
        exhaustion = _exhaust(breakpoint_e, mass_e, budget)
        # λ* can only grow as passages are added: what lies below it takes no part any more
        kept_e = breakpoint_e >= exhaustion.multiplier
        breakpoint_e, mass_e = breakpoint_e[kept_e], mass_e[kept_e]
        go = np.flatnonzero((limit_r >= exhaustion.multiplier) & (limit_r > 0))
        row_r, held, line, limit_r = row_r[go], held.of(go), line.of(go), limit_r[go]
        levels.append(_Passages(row_r, line.target_r, limit_r))
        held = _Held(problem.gain_rk[row_r, line.target_r], line.cost_r, held.best_gain_r)
        # an envelope ends where its best gain is reached
        go = np.flatnonzero(held.gain_r < held.best_gain_r)
        row_r, held, limit_r = row_r[go], held.of(go), limit_r[go]
        if row_r.size:
            line = _next_line(problem, row_r, held)
    for row_e, target_e, breakpoint_e in levels:
        above = breakpoint_e > exhaustion.multiplier
        nearest_r[row_e[above]] = target_e[above]
    farthest_r = nearest_r.copy()
    for row_e, target_e, breakpoint_e in levels:
        tied = breakpoint_e == exhaustion.multiplier
        farthest_r[row_e[tied]] = target_e[tied]
    return nearest_r, farthest_r, exhaustion


def _blocks(problem: DualProblem, row_r: Integers) -> Iterator[tuple[slice, Floats, Floats]]:
    """Gains and costs of the given rows, candidates first, a few rows at a time.

    What is done for all rows then runs along memory, and in the processor's cache: the time per
    entry does not grow with the problem.
    """
    step = max(1, BLOCK // problem.candidates)
    whole = row_r.size == problem.rows
    for start in range(0, max(row_r.size, 1), step):  # one block even of no rows
        part = slice(start, start + step)
        rows = part if whole else row_r[part]
        gain_kr = problem.gain_rk[rows].T.copy("C")
        cost_kr = problem.cost_rk[rows].T.copy("C")
        if problem.allowed_rk is not None:
            gain_kr[~problem.allowed_rk[rows].T] = -np.inf  # below every envelope
        yield part, gain_kr, cost_kr


def _start(problem: DualProblem, row_r: Integers) -> tuple[Integers, _Held, _Line]:
    """At λ = ∞: the free candidate that each row holds, and the line that overtakes it first."""
    target_r, held, lines = problem.stay_r[row_r], [], []
    for part, gain_kr, cost_kr in _blocks(problem, row_r):
        target_r[part] = free_r = _best_free(gain_kr, cost_kr, target_r[part])
        gain_r = pick(gain_kr.T, free_r)
        held.append(_Held(gain_r, np.zeros_like(gain_r), gain_kr.max(axis=0)))
        lines.append(_overtaking(gain_kr, cost_kr, held[-1]))
    return target_r, _Held(*_joined(held)), _Line(*_joined(lines))


def _next_line(problem: DualProblem, row_r: Integers, held: _Held) -> _Line:
    """For each row the line that overtakes the held one first as λ falls."""
    blocks = _blocks(problem, row_r)
    return _Line(*_joined([_overtaking(gain, cost, held.of(part)) for part, gain, cost in blocks]))


def _joined(parts: Sequence[tuple[NDArray[Any], ...]]) -> Iterator[NDArray[Any]]:
    return map(np.concatenate, zip(*parts, strict=True)) if len(parts) > 1 else iter(parts[0])


def _overtaking(gain_kr: Floats, cost_kr: Floats, held: _Held) -> _Line:
    """As `_next_line`, for a block; both tables are used up.

    Where several lines meet in one point the dearest is taken: it comes out on top below it.
    """
    gain_kr -= held.gain_r
    extra_kr = cost_kr - held.cost_r
    dearer_kr = extra_kr > 0
    if extra_kr.dtype == np.object_:
        extra_kr[~dearer_kr] = 1  # fractions can't be divided by 0
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_kr = np.divide(gain_kr, extra_kr, out=gain_kr)
    slope_kr[~dearer_kr] = -np.inf
    slope_r = slope_kr.max(axis=0)
    cost_kr[slope_kr != slope_r] = -1
    cost_r = cost_kr.max(axis=0)
    # the first on that line; numpy's own argmax is slow along this axis
    rank_k = np.arange(len(cost_kr), 0, -1)[:, None]
    target_r = len(cost_kr) - ((cost_kr == cost_r) * rank_k).max(axis=0)
    return _Line(slope_r, cost_r, target_r)


def _best_free(gain_kr: Floats, cost_kr: Floats, stay_r: Integers) -> Integers:
    """The best candidate of cost 0; staying if nothing free is better."""
    free_kr = cost_kr == 0
    if np.count_nonzero(free_kr) == stay_r.size:  # staying is the only free candidate
        return stay_r
    free_gain_kr = np.where(free_kr, gain_kr, -np.inf)
    best_r = free_gain_kr.argmax(axis=0)
    better_r = pick(gain_kr.T, best_r) > pick(gain_kr.T, stay_r)
    return np.where(better_r, best_r, stay_r)


def pick(value_rk: Floats, index_r: Integers) -> Floats:
    """value_rk[r, index_r[r]] for every row."""
    if value_rk.shape[1] == 2:
        return np.where(index_r, value_rk[:, 1], value_rk[:, 0])
    picked_r: Floats = value_rk[np.arange(index_r.size), index_r]
    return picked_r


def walk_pairs(problem: DualProblem, budget: float) -> tuple[Integers, Integers, Exhaustion]:
    """As `walk` for two candidates per row, one of which is to stay: one passage at most.

    The dearer candidate overtakes at (A₁ − A₀)/(c₁ − c₀), if that is positive.
    """
    weight_r, start_r = problem.weight_r, problem.stay_r
    gain_r = problem.gain_rk[:, 1] - problem.gain_rk[:, 0]
    cost_r = problem.cost_rk[:, 1] - problem.cost_rk[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_r = gain_r / cost_r
    passes_r = slope_r > 0
    passes_r &= weight_r > 0
    if not cost_r.all():  # both candidates free: the better one is held from the start
        free_r = cost_r == 0
        passes_r &= ~free_r
        free_r &= (gain_r != 0) & (weight_r > 0)
        start_r = np.where(free_r, gain_r > 0, start_r).astype(np.intp)
    row_e = passes_r.nonzero()[0]
    exhaustion = _exhaust(slope_r[row_e], abs(cost_r[row_e]) * weight_r[row_e], budget)
    # exclusive or: a row that passes leaves the one candidate for the other
    nearest_r = start_r ^ (passes_r & (slope_r > exhaustion.multiplier))
    farthest_r = start_r ^ (passes_r & (slope_r >= exhaustion.multiplier))
    return nearest_r, farthest_r, exhaustion
