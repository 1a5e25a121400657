"""The trust region as it is really spent, and the way back into it.

Between Gaussians whose covariance is the same, moving every point by the difference of the means
is optimal for any convex cost of the displacement, so the discrepancy is c(m, m'). For squared
costs and diagonal covariances a change of σ adds Σ_j M_jj (σ_j − σ'_j)².
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.core import Cost
from ottrpo.core.problems import cost_table

from .losses import choice_log_probabilities
from .networks import Policy
from .update import Batch

Array = Any
# discrepancies are float32 means: stay this much inside, so that no rounding crosses the border
MARGIN = 1e-4
NEARLY = 0.9  # a step that uses this much of the radius is not lengthened any more
MOST_TRIES = 20


def gaussian_spent(
    cost: Cost, metric: Array | None, *, std_moves: bool
) -> Callable[[Policy, Batch], Array]:
    """Mean discrepancy between the rows' old Gaussians and the policy's, as a compiled function.

    Args:
        cost: of moving an action.
        metric: M, if the cost is (a − a')ᵀM(a − a'); needed if σ moves.
        std_moves: whether σ(s) may have changed.
    """

    def spent(policy: Policy, rows: Batch) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        old_mean, old_std, state = rows["mean"], rows["std"], rows.get("state")
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
    cost for every move it is the total variation times that cost, exactly. For other costs it is
    the cost of the plan that keeps what can stay and then serves the cheapest moves first: exact
    for two choices, an upper bound for more, as a linear program for every visited state would
    take longer than all the rest of the update.
    """
    uniform = _uniform_cost(cost, choices)

    @eqx.filter_jit
    def probabilities(policy: Policy, rows: Batch) -> Array:
        return jnp.exp(choice_log_probabilities(policy, rows, choices))

    def spent(policy: Policy, rows: Batch) -> float:
        old, new = rows["probability"], probabilities(policy, rows)
        if uniform is not None:
            return float(uniform * 0.5 * jnp.abs(new - old).sum() / len(old))
        if cost.depends_on_state:
            cost_sab = np.repeat(cost.matrix(choices, states=rows["state"]), old.shape[1], axis=0)
        else:
            cost_sab = cost_table(cost, 1, choices)
        return float(greedy_cost(_policy_sa(old), _policy_sa(new), cost_sab).sum() / len(old))

    return spent


def greedy_cost(old_sa: Array, new_sa: Array, cost_sab: Array) -> Array:
    """Cost [s] of the transport plan that serves the cheapest moves first."""
    surplus_sa = np.maximum(old_sa - new_sa, 0.0)
    deficit_sb = np.maximum(new_sa - old_sa, 0.0)
    states, choices = old_sa.shape
    cost_se = np.broadcast_to(cost_sab, (states, choices, choices)).reshape(states, -1)
    order_se = cost_se.argsort(axis=1)
    state, total_s = np.arange(states), np.zeros(states)
    for move_s in order_se.T:
        a_s, b_s = np.divmod(move_s, choices)
        moved_s = np.minimum(surplus_sa[state, a_s], deficit_sb[state, b_s])
        surplus_sa[state, a_s] -= moved_s
        deficit_sb[state, b_s] -= moved_s
        total_s += moved_s * cost_se[state, move_s]
    return total_s


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
    """A share of the step that stays inside the radius, and what it spends.

    Halves the interval between a share inside and one outside until the budget is nearly used,
    starting from a guess: the discrepancy grows about like the square of the share.
    """
    border = (1.0 - MARGIN) * radius
    outside, spent = 1.0, spent_at(1.0)
    if spent <= border:
        return 1.0, spent
    inside, kept = 0.0, None
    share = 0.97 * (border / spent) ** 0.5
    for _ in range(MOST_TRIES):
        spent = spent_at(share)
        if spent <= border:
            inside, kept = share, spent
            if spent >= NEARLY * radius:
                break
        else:
            outside = share
        share = 0.5 * (inside + outside)
    return inside, spent_at(inside) if kept is None else kept


@eqx.filter_jit
def _between(old: Any, new: Any, share: Array) -> Any:
    return jax.tree.map(lambda a, b: a + share * (b - a) if eqx.is_array(a) else b, old, new)
