"""What solving the dual gives: its minimiser, and the transport maps that attain the primal."""

from typing import Any, NamedTuple


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
            It is 1 when ``multiplier`` is 0: the nearest maximisers are taken.
        nearest_r: for each row the cheapest maximiser of A − λ*c (a candidate's index; for a
            `LinearProblem` the displacement [R, d]).
        farthest_r: the dearest one.
    """

    multiplier: float
    value: float
    spent: float
    binding: bool
    split: float
    nearest_r: Any
    farthest_r: Any


def split_weight(spent_nearest: float, spent_farthest: float, radius: float) -> float:
    r"""Share t* of the mass that follows the nearest map, so that the budget is spent exactly.

    Solves t* c̲ + (1 − t*) c̄ = ε.                                   (eq:t-star, cor:dual-discrete)

    >>> split_weight(spent_nearest=0.0, spent_farthest=0.5, radius=0.125)
    0.75
    """
    if spent_farthest <= spent_nearest:
        return 1.0
    split = (spent_farthest - radius) / (spent_farthest - spent_nearest)
    return float(min(max(split, 0.0), 1.0))
