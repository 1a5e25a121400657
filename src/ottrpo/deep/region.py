"""The trust region as it is really spent, and the way back into it.

Between Gaussians whose covariance is the same, moving every point by the difference of the means
is optimal for any convex cost of the displacement, so the discrepancy is c(m, m'). For squared
costs and diagonal covariances a change of σ adds Σ_j M_jj (σ_j − σ'_j)². For other costs with a
changed σ the cost of the coupling that keeps each point's quantile is an upper bound.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.core import Cost, TableCost, discrepancy_by_state
from ottrpo.core.problems import cost_table

from .losses import choice_log_probabilities
from .networks import Policy
from .update import Batch

Array = Any
# discrepancies are float32 means: stay this much inside, so that no rounding crosses the border
MARGIN = 1e-4
QUANTILE_POINTS = 16  # standard normal points that stand for a Gaussian under general costs


def gaussian_spent(
    cost: Cost, metric: Array | None, *, std_moves: bool
) -> Callable[[Policy, Batch], Array]:
    """Mean discrepancy between the rows' old Gaussians and the policy's, as a compiled function.

    Args:
        cost: of moving an action.
        metric: M, if the cost is (a − a')ᵀM(a − a').
        std_moves: whether σ(s) may have changed.
    """
    points = np.random.default_rng(0).standard_normal((QUANTILE_POINTS, 1, 1)).astype(np.float32)

    def spent(policy: Policy, rows: Batch) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        old_mean, old_std, state = rows["mean"], rows["std"], rows.get("state")
        if std_moves and metric is None:
            return cost(old_mean + old_std * points, mean + std * points, state).mean()
        total = cost(old_mean, mean, state).mean()
        if std_moves:
            scale = jnp.diagonal(jnp.asarray(metric, jnp.float32))
            total += (scale * (std - old_std) ** 2).sum(-1).mean()
        return total

    compiled: Callable[[Policy, Batch], Array] = eqx.filter_jit(spent)
    return compiled


def finite_spent(cost: Cost, choices: int) -> Callable[[Policy, Batch], float]:
    """Mean discrepancy between the rows' old choice probabilities and the policy's.

    The discrepancy of product policies under a sum of costs is the sum over the factors. With one
    cost for every move it is the total variation times that cost; otherwise it is solved exactly,
    state by state.
    """
    uniform = _uniform_cost(cost, choices)

    @eqx.filter_jit
    def probabilities(policy: Policy, rows: Batch) -> Array:
        return jnp.exp(choice_log_probabilities(policy, rows, choices))

    def spent(policy: Policy, rows: Batch) -> float:
        old, new = rows["probability"], probabilities(policy, rows)
        if uniform is not None:
            return float(uniform * 0.5 * jnp.abs(new - old).sum() / len(old))
        table = cost
        if cost.depends_on_state:
            cost_sab = cost.matrix(choices, states=rows["state"])
            table = TableCost(np.repeat(cost_sab, old.shape[1], axis=0))
        by_state = discrepancy_by_state(_policy_sa(old), _policy_sa(new), table)
        return float(by_state.sum() / len(old))

    return spent


def _uniform_cost(cost: Cost, choices: int) -> float | None:
    """The cost of every move, if all moves cost the same."""
    if cost.depends_on_state:
        return None
    off_diagonal = cost_table(cost, 1, choices)[0][~np.eye(choices, dtype=np.bool_)]
    if off_diagonal.size == 0:
        return 0.0
    return float(off_diagonal[0]) if np.ptp(off_diagonal) == 0 else None


def _policy_sa(probability_rfk: Array) -> Array:
    policy_sa = np.asarray(probability_rfk, np.float64).reshape(-1, probability_rfk.shape[2])
    return policy_sa / policy_sa.sum(1, keepdims=True)


def between(old: Any, new: Any, share: float) -> Any:
    """The module ``share`` of the way from ``old`` to ``new``."""
    return _between(old, new, jnp.float32(share))


def largest_share(spent_at: Callable[[float], float], radius: float) -> tuple[float, float]:
    """The share of a step that stays inside the radius, and what it spends.

    Near its start the discrepancy grows at most like the square of the share, so each try is cut
    by the square root of the excess, and at least by a tenth.
    """
    share, spent = 1.0, spent_at(1.0)
    inside = (1.0 - MARGIN) * radius
    while spent > inside:
        share *= min(0.9, 0.95 * (inside / spent) ** 0.5)
        if share < 1e-6:
            return 0.0, spent_at(0.0)
        spent = spent_at(share)
    return share, spent


@eqx.filter_jit
def _between(old: Any, new: Any, share: Array) -> Any:
    return jax.tree.map(lambda a, b: a + share * (b - a) if eqx.is_array(a) else b, old, new)
