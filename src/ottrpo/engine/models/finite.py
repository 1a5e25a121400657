"""Models for finite actions: the exact optimal policy at the visited states.

An action may have several factors (MultiDiscrete, MultiBinary). Policies are products over the
factors and the cost is the sum of the factors' costs, so the discrepancy is the sum as well, and
each (state, factor) pair is a state of its own with the weight of its state.
"""

from functools import cache, partial
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ottrpo.core import TableCost, finite_problem, push_forward
from ottrpo.engine.arrays import like, namespace, on_host, put, wide
from ottrpo.engine.estimate import Experience
from ottrpo.engine.networks import Policy
from ottrpo.engine.spaces import FiniteActions
from ottrpo.engine.update import Batch, Spent

from .base import Given, Model, Options, Plan, PolicyLoss, Price
from .candidates import Rows, solve_binding, summary
from .divergence import (
    expected_gain,
    labels_kl_plan,
    labels_kl_spent,
    labels_sinkhorn_plan,
    priced_gain,
)
from .labels import choice_log_probabilities, finite_spent, label_costs

Array = Any


class FiniteModel(Model):
    """A model for a policy over labels; a subclass says what each of them gains."""

    actions: ClassVar[type[FiniteActions]] = FiniteActions
    regions = ("transport", "kl", "sinkhorn")
    unbiased: ClassVar[bool] = True  # gains of single samples

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.choices: int = options.actions.choices

    @property
    def usual(self) -> str:
        """The update, if nothing is said."""
        return "ascent"

    @property
    def update(self) -> str:
        """``ascent``, ``gain`` or ``regression``."""
        return self.options.update or self.usual

    def loss(self) -> PolicyLoss:
        """The paper's ascent, the gains as they are, or regression on the optimal policy."""
        if self.update == "regression":
            return towards_finite_targets(self.choices)
        if self.options.region == "kl":
            # of single samples the price is that of their noise: with it an update would stay short
            priced = self.options.update == "ascent" or not self.options.shrink
            return (priced_gain if priced else expected_gain)(self.choices)
        if self.update == "gain":
            return expected_gain(self.choices)
        return regularised_finite_advantage(self.choices)

    def spent(self) -> Spent:
        """The realised discrepancy, or the divergence."""
        if self.options.region == "kl":
            return labels_kl_spent(self.choices)
        return finite_spent(self.options.cost, self.choices)

    def region_rows(self, batch: Experience) -> dict[str, Any]:
        """The probabilities that acted."""
        probability, allowed = self.probabilities(batch)
        rows = {"probability": probability.astype(np.float32), "allowed": allowed}
        return rows | self.state_rows(batch)

    def typical_cost(self, batch: Experience) -> Array:
        """Mean cost between two draws of the policy; of ``kl``, of becoming certain of one."""
        probability, _ = self.probabilities(batch)
        xp = namespace(probability)
        if self.options.region == "kl":
            log = xp.log(xp.where(probability > 0, probability, 1.0))
            return -(probability * log).sum() / len(probability)
        cost = self._costs(batch)
        subscripts = "rfa,rfb,ab->" if cost.ndim == 2 else "rfa,rfb,rab->"
        return xp.einsum(subscripts, probability, probability, cost) / len(probability)

    def plan(self, given: Given) -> Plan:
        """Gains of all actions, the dual, and the optimal policy of each state."""
        probability, allowed = self.probabilities(given.batch)
        gain, shrink = self.gain(given, probability), self.options.shrink
        if self.options.region == "kl":
            return labels_kl_plan(probability, gain, allowed, given.radius, shrink=shrink)
        cost_sab = self._costs(given.batch)
        if cost_sab.ndim == 3:
            cost_sab = cost_sab.repeat(self.options.actions.factors, axis=0)
        solve: Any = finite_plan
        if self.options.region == "sinkhorn":
            solve = partial(labels_sinkhorn_plan, entropy=self.options.entropy)
        plan: Plan = solve(probability, gain, allowed, cost_sab, given.radius, shrink=shrink)
        return plan._replace(rows=plan.rows | {"gain": gain}) if self.update == "gain" else plan

    def gain(self, given: Given, probability_rfk: Array) -> Array:
        """What every label of every factor gains [r, f, k]: by default, of the one that was tried.

        If ``unbiased``, divided by the probability of having tried it, so that the expectation over
        the policy's own draws is the advantage of each choice.
        """
        label_rf = given.batch.drawn["label"]
        return sampled_gain(probability_rfk, label_rf, given.advantage_r, unbiased=self.unbiased)

    def gained(self, policy: Policy, batch: Experience, seen: Batch, advantage_r: Array) -> Array:
        """A (π'(a)/π(a) − 1) of the label that was tried."""
        probability, allowed = self.probabilities(batch)
        rows = seen | {"allowed": allowed}
        log_new = like(probability, _log_probabilities(policy, rows, self.choices))
        xp = namespace(probability)
        tried = batch.drawn["label"][..., None]
        old, new = (
            xp.take_along_axis(array, tried, axis=-1).sum((-2, -1))
            for array in (xp.log(xp.where(probability > 0, probability, 1.0)), log_new)
        )
        return advantage_r * (xp.exp(new - old) - 1.0)

    def probabilities(self, batch: Experience) -> tuple[Array, Array]:
        """The acting policy [r, f, k] and which labels it was allowed."""
        logits = wide(batch.drawn["logits"])
        xp = namespace(logits)
        allowed = xp.broadcast_to(self.options.actions.allowed_fk, logits.shape)
        if "mask" in batch.drawn:
            allowed = allowed & batch.drawn["mask"]
        weight = xp.where(allowed, xp.exp(logits - logits.max(-1, keepdims=True)), 0.0)
        return weight / weight.sum(-1, keepdims=True), allowed

    def _costs(self, batch: Experience) -> Array:
        """[k, k], or [r, k, k] if it depends on the state."""
        return label_costs(self.options.cost, self.choices, batch.state)


# compiled, to be asked on its own
_log_probabilities = eqx.filter_jit(choice_log_probabilities)


@final
class FiniteLinear(FiniteModel):
    """Unbiased gains from one sample per state."""

    name = "linear"
    advantages = ("gae", "mixed")

    @property
    def usual(self) -> str:
        """Of several factors, the gains as they are.

        The paper's ascent takes advantages for no more than ± λ*. Where all factors have to be
        right at once, success is rare and its advantage large: cut off, it would not make up for
        the many small losses, and every label that was tried would be left, the right one too.
        """
        return "gain" if self.options.actions.factors > 1 else "ascent"


@final
class FiniteSample(FiniteModel):
    """The advantage as it is, of the label that was tried."""

    name = "sample"
    advantages = ("gae",)

    unbiased = False


@final
class FiniteCandidates(FiniteModel):
    """A learned advantage tells the gains of all labels."""

    name = "candidates"
    advantages = ("network",)
    samples = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.n_sources:
            raise ValueError(f"n_sources needs actions in a Box, got {options.actions}")

    def gain(self, given: Given, probability_rfk: Array) -> Array:
        """As the network tells."""
        if given.network is None:
            raise TypeError("model 'candidates' needs a learned advantage")
        table = given.network.table(given.batch.flat, given.batch.images)
        return table.reshape(probability_rfk.shape)


def finite_plan(
    probability_rfk: Array,
    gain_rfk: Array,
    allowed_rfk: Array,
    cost_sab: Array,
    radius: Array | Price,
    *,
    shrink: bool = True,
) -> Plan:
    """The optimal policy within the radius, and the regularised worth of each action.

    ``cost_sab`` is one table [k, k], or one for every row and factor.
    """
    shape = probability_rfk.shape
    xp = namespace(probability_rfk)
    policy_sa, gain_sa, allowed_sa = (
        array.reshape(-1, shape[2]) for array in (probability_rfk, gain_rfk, allowed_rfk)
    )
    occupancy_s = xp.full(len(policy_sa), 1.0 / shape[0])
    if on_host(policy_sa):
        cost = TableCost(cost_sab)
        budget = 1.0 if isinstance(radius, Price) else radius
        finite = finite_problem(policy_sa, occupancy_s, gain_sa, cost, budget, allowed_sa)
        problem = Rows(*(getattr(finite.dual, name) for name in Rows._fields))
        problem = problem._replace(radius=radius)
    else:
        problem = _every_row(policy_sa, occupancy_s, gain_sa, allowed_sa, cost_sab, radius)
    solution, radius, inactive = solve_binding(problem, shrink=shrink)
    maps = [(solution.nearest_r, solution.split), (solution.farthest_r, 1.0 - solution.split)]
    target_sa = push_forward(finite, maps) if on_host(policy_sa) else _pushed(policy_sa, maps)
    score_sb = xp.where(allowed_sa, gain_sa, -np.inf)
    worth_sa = (score_sb[:, None, :] - solution.multiplier * cost_sab).max(2)
    rows = {
        "target": target_sa.reshape(shape),
        "worth": xp.where(allowed_sa, worth_sa, 0.0).reshape(shape),
        "allowed": allowed_rfk,
    }
    return Plan(solution, radius, inactive, rows, **summary(problem, solution))


def _every_row(
    policy_sa: Array,
    occupancy_s: Array,
    gain_sa: Array,
    allowed_sa: Array,
    cost_sab: Array,
    radius: Array | Price,
) -> Rows:
    """The problem of `finite_problem` with the rows that hold no mass: shapes must not depend."""
    states, actions = policy_sa.shape
    cost_sab = jnp.broadcast_to(cost_sab, (states, actions, actions))
    return Rows(
        (occupancy_s[:, None] * policy_sa).reshape(-1),
        jnp.repeat(gain_sa, actions, axis=0),
        cost_sab.reshape(-1, actions),
        radius,
        jnp.repeat(allowed_sa, actions, axis=0),
        jnp.tile(jnp.arange(actions), states),
    )


def _pushed(policy_sa: Array, maps: list[tuple[Array, Array]]) -> Array:
    """The policy when its mass follows the maps with their shares."""
    shape, label = policy_sa.shape, jnp.arange(policy_sa.shape[1])
    plan_sab = sum(share * (to.reshape(shape)[..., None] == label) for to, share in maps)
    return jnp.einsum("sa,sab->sb", policy_sa, plan_sab)


def sampled_gain(
    probability_rfk: Array, label_rf: Array, advantage_r: Array, *, unbiased: bool
) -> Array:
    """The advantage of every choice from the one that was tried: its own, and 0 elsewhere."""
    xp = namespace(probability_rfk)
    rows, factors = label_rf.shape
    where = (xp.arange(rows)[:, None], xp.arange(factors), label_rf)
    gain = xp.broadcast_to(advantage_r[:, None], label_rf.shape)
    if unbiased:
        gain = gain / probability_rfk[where]
    return put(xp.zeros_like(probability_rfk), where, gain)


@cache
def towards_finite_targets(choices: int) -> PolicyLoss:
    """mean_r Σ_a (π_θ(a|s_r) − π*(a|s_r))², the paper's loss for finite actions."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        probability = jnp.exp(choice_log_probabilities(policy, rows, choices))
        return weight @ ((probability - rows["target"]) ** 2).sum((1, 2))

    return loss


@cache
def regularised_finite_advantage(choices: int) -> PolicyLoss:
    """The paper's ascent for finite actions: Σ_a π_θ(a|s) max_b { A(s, b) − λ c(a, b) }."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        probability = jnp.exp(choice_log_probabilities(policy, rows, choices))
        return -weight @ (probability * rows["worth"]).sum((1, 2))

    return loss
