"""What solving the dual gives: its minimiser, and the transport maps that attain the primal."""

import math
from typing import Any, NamedTuple

from .exact import amount, ratio_down

SMALLEST_SHARE = 2.0**-1022  # that has all its bits


class DualSolution(NamedTuple):
    """The minimiser of the dual and the transport maps that attain the primal.

    A tuple with names, and so a pytree to JAX without a word about it. Where `solve_rows` and
    `solve_linear` return it inside a compiled program its numbers are arrays without axes.

    Attributes:
        multiplier: λ*, the smallest minimiser of G.
        value: G(λ*), the optimal value of both problems.
        spent: the transport cost of the optimal plan; equal to the radius if ``multiplier > 0``.
        binding: whether the budget limits the gain, i.e. ``multiplier > 0``.
        split: t*, the share of mass that follows the nearest map; the rest follows the farthest.
            It is 1 when ``multiplier`` is 0: the nearest maximisers are taken. Rounded up.
        nearest_r: for each row the cheapest maximiser of A − λ*c (a candidate's index; for a
            `LinearProblem` the displacement [R, d]).
        farthest_r: the dearest one.
        farthest_share: 1 − t*, rounded down: moving this share spends the radius and never more,
            and it is there where t* is too near to 1 to show it.
    """

    multiplier: float
    value: float
    spent: float
    binding: bool
    split: float
    nearest_r: Any
    farthest_r: Any
    farthest_share: float


def split_weight(spent_nearest: float, spent_farthest: float, radius: float) -> float:
    r"""Share t* of the mass that follows the nearest map, so that the budget is spent exactly.

    Solves t* c̲ + (1 − t*) c̄ = ε, rounded up.                      (eq:t-star, cor:dual-discrete)

    >>> split_weight(spent_nearest=0.0, spent_farthest=0.5, radius=0.125)
    0.75
    """
    nearest = amount(spent_nearest)
    return complement(moving_share(amount(radius) - nearest, amount(spent_farthest) - nearest))


def moving_share(left: int, extra: int) -> float:
    """The share 1 − t* of what moving all would cost that the budget still has, rounded down.

    Args:
        left: of the budget, an amount of `ottrpo.core.exact`.
        extra: what the farthest map costs more than the nearest.
    """
    if extra <= 0 or left <= 0:
        return 0.0
    if extra <= left:
        return 1.0
    share = ratio_down(left, extra)
    if share < SMALLEST_SHARE:
        raise ValueError(
            "the share of mass that may move is below float64's range: the radius is too small "
            "for the costs; rescale"
        )
    return share


def complement(share: float) -> float:
    """1 − share, rounded up, so that one minus the result is not above the share either."""
    rest = 1.0 - share
    return rest if 1.0 - rest <= share else math.nextafter(rest, math.inf)
