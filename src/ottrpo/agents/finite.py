"""Steps 4 and 5 for finite actions: the exact optimal policy at the visited states.

An action may have several factors (MultiDiscrete, MultiBinary). Policies are products over the
factors and the cost is the sum of the factors' costs, so the discrepancy is the sum as well, and
each (state, factor) pair is a state of its own with the weight of its state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ottrpo.core import Cost, TableCost, finite_problem, push_forward
from ottrpo.core.problems import cost_table
from ottrpo.deep.acting import FiniteActions
from ottrpo.deep.advantage_network import AdvantageNetwork
from ottrpo.deep.losses import PolicyLoss, regularised_finite_advantage, towards_finite_targets
from ottrpo.deep.region import finite_spent

from .experience import Experience
from .plan import Plan, solve_binding, summary

Array = Any
Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class FiniteSteps:
    """What OTTRPO does with a policy over finitely many actions.

    Attributes:
        cost: of moving mass between two labels of a factor.
        actions: the factors.
        model: ``linear`` (unbiased one-sample gains) or ``sample`` (the advantage as it is);
            ``candidates`` with a learned advantage.
        update: ``regression`` or ``ascent``.
        shrink: shrink a radius that binds nowhere, so that the update always has a direction.
    """

    cost: Cost
    actions: FiniteActions
    model: str
    update: str
    shrink: bool = True

    def loss(self) -> PolicyLoss:
        """What the update minimises."""
        if self.update == "ascent":
            return regularised_finite_advantage(self.actions.choices)
        return towards_finite_targets(self.actions.choices)

    def spent(self) -> Callable[..., Any]:
        """The realised discrepancy."""
        return finite_spent(self.cost, self.actions.choices)

    def region_rows(self, batch: Experience) -> dict[str, Any]:
        """What the discrepancy is measured against: the probabilities that acted."""
        probability, allowed = self.probabilities(batch)
        rows = {"probability": probability.astype(np.float32), "allowed": allowed}
        return rows | ({"state": batch.state} if self.cost.depends_on_state else {})

    def typical_cost(self, batch: Experience) -> float:
        """Mean cost between two independent draws of the policy."""
        probability, _ = self.probabilities(batch)
        cost = self._costs(batch)
        if cost.ndim == 2:
            total = np.einsum("rfa,rfb,ab->", probability, probability, cost)
        else:
            total = np.einsum("rfa,rfb,rab->", probability, probability, cost)
        return float(total / len(probability))

    def plan(
        self,
        batch: Experience,
        advantage_r: Floats,
        radius: float,
        network: AdvantageNetwork | None,
        rng: np.random.Generator,
    ) -> Plan:
        """Step 4: gains of all actions, the dual, and the optimal policy of each state."""
        probability, allowed = self.probabilities(batch)
        if network is None:
            gain = sampled_gain(
                probability, batch.drawn["label"], advantage_r, unbiased=self.model == "linear"
            )
        else:
            gain = network.table(batch.flat, batch.images).reshape(probability.shape)
        cost = self.cost
        if cost.depends_on_state:
            cost = TableCost(np.repeat(self._costs(batch), self.actions.factors, axis=0))
        return finite_plan(probability, gain, allowed, cost, radius, shrink=self.shrink)

    def probabilities(self, batch: Experience) -> tuple[Floats, NDArray[np.bool_]]:
        """The acting policy [r, f, k] and which labels it was allowed."""
        logits = batch.drawn["logits"].astype(np.float64)
        allowed = np.broadcast_to(self.actions.allowed_fk, logits.shape)
        if "mask" in batch.drawn:
            allowed = allowed & batch.drawn["mask"]
        weight = np.where(allowed, np.exp(logits - logits.max(-1, keepdims=True)), 0.0)
        probability: Floats = weight / weight.sum(-1, keepdims=True)
        return probability, allowed

    def _costs(self, batch: Experience) -> Floats:
        if self.cost.depends_on_state:
            return self.cost.matrix(self.actions.choices, states=batch.state)
        table: Floats = cost_table(self.cost, 1, self.actions.choices)[0]
        return table


def finite_plan(
    probability_rfk: Floats,
    gain_rfk: Floats,
    allowed_rfk: NDArray[np.bool_],
    cost: Cost,
    radius: float,
    *,
    shrink: bool = True,
) -> Plan:
    """The optimal policy within the radius, and the regularised worth of each action."""
    shape = probability_rfk.shape
    policy_sa, gain_sa, allowed_sa = (
        array.reshape(-1, shape[2]) for array in (probability_rfk, gain_rfk, allowed_rfk)
    )
    occupancy_s = np.full(len(policy_sa), 1.0 / shape[0])
    finite = finite_problem(policy_sa, occupancy_s, gain_sa, cost, radius, allowed_sa)
    solution, radius, inactive = solve_binding(finite.dual, shrink=shrink)
    maps = [(solution.nearest_r, solution.split), (solution.farthest_r, 1.0 - solution.split)]
    cost_sab = cost_table(cost, len(policy_sa), shape[2])
    score_sb = np.where(allowed_sa, gain_sa, -np.inf)
    worth_sa = (score_sb[:, None, :] - solution.multiplier * cost_sab).max(2)
    rows = {
        "target": push_forward(finite, maps).reshape(shape),
        "worth": np.where(allowed_sa, worth_sa, 0.0).reshape(shape),
        "allowed": allowed_rfk,
    }
    return Plan(solution, radius, inactive, rows, **summary(finite.dual, solution))


def sampled_gain(
    probability_rfk: Floats, label_rf: NDArray[np.int64], advantage_r: Floats, *, unbiased: bool
) -> Floats:
    """The advantage of every choice from the one that was tried: its own, and 0 elsewhere.

    ``unbiased`` divides by the probability of having tried it, so that the expectation over the
    policy's own draws is the advantage of each choice.
    """
    gain_rfk = np.zeros_like(probability_rfk)
    index = label_rf[..., None]
    gain = np.broadcast_to(advantage_r[:, None, None], index.shape)
    if unbiased:
        gain = gain / np.take_along_axis(probability_rfk, index, axis=2)
    np.put_along_axis(gain_rfk, index, gain, axis=2)
    return gain_rfk
