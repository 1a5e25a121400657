r"""`solve_dual` as a function of arrays of fixed shape, for programs that are compiled whole.

The mathematics is that of `ottrpo.core.dual`; the arrays say which library does it, through the
namespace they name (``array.__array_namespace__()``). Of NumPy's arrays it makes NumPy's answer,
and of JAX's one that works under ``jit``, ``vmap`` and ``scan``, in float32 or float64. What
`solve_dual` leaves out to be quick (rows that are done, passages that cannot matter) is kept here
and masked, since shapes must not depend on values; nothing is checked, since values are not known
while a program is traced.
"""

from typing import Any, NamedTuple

from .solution import DualSolution

Array = Any  # of NumPy, JAX, or whatever else follows the array API standard


def solve_rows(
    weight_r: Array,
    gain_rk: Array,
    cost_rk: Array,
    radius: Array,
    allowed_rk: Array | None = None,
    stay_r: Array | None = None,
) -> DualSolution:
    """What `solve_dual` answers to ``DualProblem(weight_r, gain_rk, cost_rk, radius, ...)``.

    The arguments are those of `DualProblem`, and take the type of ``gain_rk``. Numbers of the
    solution are arrays without axes.

    >>> import numpy as np
    >>> gain_rk, cost_rk = np.array([[0.0, 1.0]]), np.array([[0.0, 1.0]])
    >>> solution = solve_rows(np.ones(1), gain_rk, cost_rk, 0.25)
    >>> float(solution.multiplier), float(solution.split), float(solution.spent)
    (1.0, 0.75, 0.25)
    """
    xp = gain_rk.__array_namespace__()
    radius = xp.asarray(radius, dtype=gain_rk.dtype)
    walked = _walked(xp, weight_r, gain_rk, cost_rk, allowed_rk, stay_r)
    weight_r, score_rk, cost_rk, _, _, breakpoint_lr, mass_lr = walked
    multiplier = _exhaust(xp, breakpoint_lr, mass_lr, radius)
    nearest_r, farthest_r, above_lr, reached_lr = _held(xp, walked, multiplier)
    dearest_r = _farthest_maximiser(xp, score_rk, cost_rk, nearest_r)
    spent = xp.sum(xp.where(above_lr, mass_lr, 0.0))
    tied = xp.sum(xp.where(reached_lr & ~above_lr, mass_lr, 0.0))
    splits = tied > 0
    share = xp.where(splits, (radius - spent) / xp.where(splits, tied, 1.0), 0.0)
    share = xp.clip(share, 0.0, 1.0)
    return DualSolution(
        multiplier=multiplier,
        value=weight_r @ _pick(xp, gain_rk, nearest_r)
        + xp.where(multiplier > 0, multiplier * (radius - spent), 0.0),
        spent=xp.minimum(spent + share * tied, radius),
        binding=multiplier > 0,
        split=1.0 - share,
        nearest_r=nearest_r,
        farthest_r=xp.where((multiplier > 0) | (weight_r == 0), farthest_r, dearest_r),
        farthest_share=share,
    )


def rows_at(
    weight_r: Array,
    gain_rk: Array,
    cost_rk: Array,
    multiplier: Array,
    allowed_rk: Array | None = None,
    stay_r: Array | None = None,
) -> DualSolution:
    """What `solve_at` answers to such rows and a price: the nearest maximisers of A − λc."""
    xp = gain_rk.__array_namespace__()
    multiplier = xp.asarray(multiplier, dtype=gain_rk.dtype)
    walked = _walked(xp, weight_r, gain_rk, cost_rk, allowed_rk, stay_r)
    nearest_r, farthest_r, above_lr, _ = _held(xp, walked, multiplier)
    return DualSolution(
        multiplier=multiplier,
        value=walked.weight_r @ _pick(xp, gain_rk, nearest_r),
        spent=xp.sum(xp.where(above_lr, walked.mass_lr, 0.0)),
        binding=True,
        split=1.0,
        nearest_r=nearest_r,
        farthest_r=farthest_r,
        farthest_share=0.0,
    )


def solve_linear(
    weight_r: Array, gradient_rd: Array, radius: Array, metric: Array | None = None
) -> DualSolution:
    r"""What `solve_dual` answers to ``LinearProblem(weight_r, gradient_rd, radius, metric)``.

    The closed form: Φ_r = g·M⁻¹g/(4λ), attained at δ = M⁻¹g/(2λ); λ* = ½√(Σ w g·M⁻¹g / ε).
    """
    xp = gradient_rd.__array_namespace__()
    lifted_rd, energy = lift(weight_r, gradient_rd, metric)
    multiplier = 0.5 * xp.sqrt(energy / radius)
    binding = multiplier > 0
    divisor = xp.where(binding, multiplier, 1.0)
    # rows without weight have no say in the problem, and nothing to move
    moves_rd = binding & (weight_r > 0)[:, None]
    displacement_rd = xp.where(moves_rd, lifted_rd / (2 * divisor), 0.0)
    return DualSolution(
        multiplier=multiplier,
        value=xp.sqrt(energy * radius),
        spent=xp.minimum(energy / (4 * divisor**2), radius),
        binding=binding,
        split=xp.ones_like(multiplier),
        nearest_r=displacement_rd,
        farthest_r=displacement_rd,
        farthest_share=xp.zeros_like(multiplier),
    )


def lift(weight_r: Array, gradient_rd: Array, metric: Array | None) -> tuple[Array, Array]:
    """M⁻¹g of each row, and the energy Σ_r w_r g_r·M⁻¹g_r."""
    lifted_rd = gradient_rd
    if metric is not None:
        xp = gradient_rd.__array_namespace__()
        by_matrix = metric.ndim == 2
        lifted_rd = xp.linalg.solve(metric, gradient_rd.T).T if by_matrix else gradient_rd / metric
    return lifted_rd, weight_r @ (gradient_rd * lifted_rd).sum(axis=1)


class _Walked(NamedTuple):
    """The envelopes of all rows: where each starts, and its passages level by level."""

    weight_r: Array
    score_rk: Array
    cost_rk: Array
    start_r: Array
    target_lr: list[Array]
    breakpoint_lr: Array
    mass_lr: Array


def _walked(
    xp: Any,
    weight_r: Array,
    gain_rk: Array,
    cost_rk: Array,
    allowed_rk: Array | None,
    stay_r: Array | None,
) -> _Walked:
    weight_r, cost_rk = (xp.asarray(value, dtype=gain_rk.dtype) for value in (weight_r, cost_rk))
    free_rk = cost_rk == 0
    score_rk = gain_rk
    if allowed_rk is not None:
        free_rk = free_rk & allowed_rk
        score_rk = xp.where(allowed_rk, gain_rk, -xp.inf)  # below every envelope
    stay_r = xp.argmax(free_rk, axis=1) if stay_r is None else xp.asarray(stay_r)
    start_r = xp.where(weight_r > 0, _best_free(xp, score_rk, free_rk, stay_r), stay_r)
    passages = _walk(xp, weight_r, score_rk, cost_rk, start_r)
    return _Walked(weight_r, score_rk, cost_rk, start_r, *passages)


def _held(xp: Any, walked: _Walked, multiplier: Array) -> tuple[Array, Array, Array, Array]:
    """The candidates held just above and just below λ, and the passages that led there."""
    above_lr = walked.breakpoint_lr > multiplier
    reached_lr = above_lr | ((walked.breakpoint_lr == multiplier) & (multiplier > 0))
    nearest_r = farthest_r = walked.start_r
    for target_r, above_r, reached_r in zip(walked.target_lr, above_lr, reached_lr, strict=True):
        nearest_r = xp.where(above_r, target_r, nearest_r)
        farthest_r = xp.where(reached_r, target_r, farthest_r)
    return nearest_r, farthest_r, above_lr, reached_lr


def _walk(
    xp: Any, weight_r: Array, score_rk: Array, cost_rk: Array, start_r: Array
) -> tuple[list[Array], Array, Array]:
    """Walk every envelope from λ = ∞ down to its end, a passage of each row at a time.

    Returns:
        for each level of passages the targets, the breakpoints (0 where a row passes no more),
        and what the passages cost.
    """
    held_r, held_cost_r = _pick(xp, score_rk, start_r), xp.zeros_like(weight_r)
    limit_r = xp.full_like(weight_r, xp.inf)
    target_lr, breakpoint_lr, mass_lr = [], [], []
    for _ in range(max(score_rk.shape[1] - 1, 1)):
        extra_rk = cost_rk - held_cost_r[:, None]
        dearer_rk = extra_rk > 0
        rise_rk = score_rk - held_r[:, None]
        slope_rk = xp.where(dearer_rk, rise_rk / xp.where(dearer_rk, extra_rk, 1.0), -xp.inf)
        slope_r = xp.max(slope_rk, axis=1)
        # where several lines meet in one point the dearest comes out on top below it
        target_r = xp.argmax(xp.where(slope_rk == slope_r[:, None], cost_rk, -1.0), axis=1)
        # rounding must not let a later passage of a row come before an earlier one
        limit_r = xp.where(weight_r > 0, xp.maximum(xp.minimum(slope_r, limit_r), 0.0), 0.0)
        passes_r = limit_r > 0
        cost_r = _pick(xp, cost_rk, target_r)
        mass_lr.append(xp.where(passes_r, weight_r * (cost_r - held_cost_r), 0.0))
        breakpoint_lr.append(limit_r)
        target_lr.append(target_r)
        held_r = xp.where(passes_r, _pick(xp, score_rk, target_r), held_r)
        held_cost_r = xp.where(passes_r, cost_r, held_cost_r)
    return target_lr, xp.stack(breakpoint_lr), xp.stack(mass_lr)


def _exhaust(xp: Any, breakpoint_lr: Array, mass_lr: Array, radius: Array) -> Array:
    """The largest breakpoint at which the budget is exceeded; 0 if it never is."""
    breakpoint_e, mass_e = xp.reshape(breakpoint_lr, (-1,)), xp.reshape(mass_lr, (-1,))
    order_e = xp.argsort(-breakpoint_e)
    paid_e = xp.cumsum(xp.take(mass_e, order_e))
    crossing = xp.sum(xp.asarray(paid_e <= radius, dtype=order_e.dtype))
    last = breakpoint_e.shape[0] - 1
    found = xp.take(breakpoint_e, xp.take(order_e, xp.minimum(crossing, last)))
    return xp.where(crossing > last, 0.0, found)


def _best_free(xp: Any, score_rk: Array, free_rk: Array, stay_r: Array) -> Array:
    """The best candidate of cost 0; staying if nothing free is better."""
    best_r = xp.argmax(xp.where(free_rk, score_rk, -xp.inf), axis=1)
    return xp.where(_pick(xp, score_rk, best_r) > _pick(xp, score_rk, stay_r), best_r, stay_r)


def _farthest_maximiser(xp: Any, score_rk: Array, cost_rk: Array, nearest_r: Array) -> Array:
    """At λ = 0: among the candidates of greatest gain the dearest."""
    best_rk = score_rk == _pick(xp, score_rk, nearest_r)[:, None]
    dearest_r = xp.argmax(xp.where(best_rk, cost_rk, -1.0), axis=1)
    dearer_r = _pick(xp, cost_rk, dearest_r) > _pick(xp, cost_rk, nearest_r)
    return xp.where(dearer_r, dearest_r, nearest_r)


def _pick(xp: Any, value_rk: Array, index_r: Array) -> Array:
    """value_rk[r, index_r[r]] for every row."""
    return xp.take_along_axis(value_rk, index_r[:, None], axis=1)[:, 0]
