"""What it costs to move a policy over labels: exactly where there is a formula, else from above."""

from typing import Any

import jax
import jax.numpy as jnp

from ottrpo.core import Cost, Ordinal, Scaled
from ottrpo.core.discrepancy import uniform_step
from ottrpo.core.problems import cost_table
from ottrpo.engine.arrays import like, namespace, on_host, program, wide
from ottrpo.engine.networks import Policy
from ottrpo.engine.spaces import FORBIDDEN
from ottrpo.engine.update import Batch, Spent

Array = Any


def label_costs(cost: Cost, choices: int, state: Array) -> Array:
    """The cost between labels [k, k], or [r, k, k] if it depends on the state."""
    if not cost.depends_on_state:
        return cost_table(cost, 1, choices)[0]
    if on_host(state):
        return cost.matrix(choices, states=state)
    label = jnp.arange(choices)
    state = state.reshape(len(state), 1, 1, *state.shape[1:])
    return cost(label[None, :, None], label[None, None, :], state)


def choice_log_probabilities(policy: Policy, rows: Batch, choices: int) -> Array:
    """Log π(k | s, factor) [r, f, k]; what is not allowed has probability 0."""
    logits = policy.logits(rows["flat"], rows["images"], choices)
    return jax.nn.log_softmax(jnp.where(rows["allowed"], logits, FORBIDDEN))


def finite_spent(cost: Cost, choices: int) -> Spent:
    """Mean discrepancy between the rows' old choice probabilities and the policy's.

    The discrepancy of product policies under a sum of costs is the sum over the factors. With one
    cost for every move it is the total variation times that cost, exactly. For other costs it is
    the cost of the plan that keeps what can stay and then serves the cheapest moves first: exact
    for two choices, an upper bound for more, as a linear program for every visited state would
    take longer than all the rest of the update. Between labels in an order the plan that keeps
    the order is optimal, and costs less to compute.
    """
    uniform, ordinal = _uniform_cost(cost, choices), _ordinal_cost(cost)

    @program
    def probabilities(policy: Policy, rows: Batch) -> Array:
        return jnp.exp(choice_log_probabilities(policy, rows, choices))

    ordered = program(ordered_cost)

    def spent(policy: Policy, rows: Batch) -> Array:
        old, new = rows["probability"], probabilities(policy, rows)
        if uniform is not None:
            return uniform * 0.5 * jnp.abs(new - old).sum() / len(old)
        if ordinal is not None:
            factor, p = ordinal
            return factor * ordered(old, new, p).sum() / len(old)
        cost_sab = label_costs(cost, choices, rows.get("state"))
        if cost_sab.ndim == 3:
            cost_sab = cost_sab.repeat(old.shape[1], axis=0)
        old_sa, new_sa = policy_sa(old), policy_sa(like(old, new))
        return greedy_cost(old_sa, new_sa, cost_sab).sum() / len(old)

    return spent


def greedy_cost(old_sa: Array, new_sa: Array, cost_sab: Array) -> Array:
    """Cost [s] of the transport plan that serves the cheapest moves first."""
    xp = namespace(old_sa)
    surplus_sa, deficit_sb = xp.maximum(old_sa - new_sa, 0.0), xp.maximum(new_sa - old_sa, 0.0)
    states, choices = old_sa.shape
    cost_se = xp.broadcast_to(cost_sab, (states, choices, choices)).reshape(states, -1)
    order_se = cost_se.argsort(axis=1)
    label_a, total_s = xp.arange(choices), xp.zeros(states)
    for move in range(choices * choices):
        from_sa = label_a == (order_se[:, move] // choices)[:, None]
        to_sb = label_a == (order_se[:, move] % choices)[:, None]
        moved_s = xp.minimum((surplus_sa * from_sa).sum(1), (deficit_sb * to_sb).sum(1))
        surplus_sa = surplus_sa - moved_s[:, None] * from_sa
        deficit_sb = deficit_sb - moved_s[:, None] * to_sb
        cost_s = xp.take_along_axis(cost_se, order_se[:, move, None], axis=1)[:, 0]
        total_s = total_s + moved_s * cost_s
    return total_s


def ordered_cost(old: Array, new: Array, p: float) -> Array:
    """C of two distributions on labels in an order, for |i − j|ᵖ, p ≥ 1: the last axis is theirs.

    Mass keeps its order: what lies between two levels of the distribution functions moves from one
    quantile to the other. All terms are positive, and rounding stays small.
    """
    labels = old.shape[-1]
    level = jnp.concatenate([jnp.cumsum(old, -1), jnp.cumsum(new, -1)], -1)
    order = jnp.argsort(level, -1)
    level = jnp.take_along_axis(level, order, -1)
    width = jnp.diff(level, axis=-1, prepend=0.0)
    of_old = order < labels
    passed = jnp.cumsum(of_old, -1)  # labels of the old one that lie below the end of the interval
    quantile_old = passed - of_old
    quantile_new = jnp.arange(2 * labels) - quantile_old
    quantile_old, quantile_new = (
        jnp.minimum(quantile, labels - 1) for quantile in (quantile_old, quantile_new)
    )
    return (width * jnp.abs(quantile_old - quantile_new) ** p).sum(-1)


def _ordinal_cost(cost: Cost) -> tuple[float, float] | None:
    """Factor and power, if it is a multiple of an ordinal cost."""
    if isinstance(cost, Scaled):
        inner = _ordinal_cost(cost.cost)
        return None if inner is None else (cost.factor * inner[0], inner[1])
    return (1.0, cost.p) if isinstance(cost, Ordinal) else None


def _uniform_cost(cost: Cost, choices: int) -> float | None:
    """The cost of every move, if all moves cost the same."""
    if cost.depends_on_state:
        return None
    return uniform_step(cost_table(cost, 1, choices))


def policy_sa(probability_rfk: Array) -> Array:
    """Each (state, factor) as a state of its own."""
    each_sa = wide(probability_rfk).reshape(-1, probability_rfk.shape[2])
    return each_sa / each_sa.sum(1, keepdims=True)
