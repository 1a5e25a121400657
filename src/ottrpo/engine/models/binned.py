"""Models for boxes in bins: the finite dual, with one sample per state two candidates per label.

Of many labels only the one that was tried has a gain that is not 0. If it is good, mass of every
other label may go there, and nowhere else to its advantage; if it is bad, its own mass may step
aside to whatever is nearest. So every (state, coordinate, label) has two candidates, to stay
and to go, and the exact problem has two columns, whatever the number of bins.
"""

from typing import Any, final

import numpy as np

from ottrpo.engine.arrays import namespace
from ottrpo.engine.spaces import BinnedActions

from .base import Given, Options, Plan
from .candidates import Rows, solve_binding, summary
from .finite import FiniteModel

Array = Any


class BinnedModel(FiniteModel):
    """A model for a policy over the bins of a box, with gains of the bin that was tried."""

    actions = BinnedActions
    advantages = ("gae",)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.cost.depends_on_state:
            raise ValueError(f"bins need a cost that is the same in all states, got {options.cost}")

    @property
    def usual(self) -> str:
        """The gains as they are; what takes the policy out of the region is taken back.

        The worth that the paper's ascent maximises is bounded below: where neighbours are near, to
        leave a bad bin costs little, and a bad sample would count for less than a good one.
        """
        return "gain" if self.options.region == "transport" else "ascent"

    def plan(self, given: Given) -> Plan:
        """As `FiniteModel`, with the candidates that matter."""
        if "mask" in given.batch.drawn:
            raise ValueError("action masks are for Discrete actions; a box in bins has none")
        if self.options.region != "transport":
            return super().plan(given)
        probability_rfk, allowed_rfk = self.probabilities(given.batch)
        xp = namespace(probability_rfk)
        tried_rf = given.batch.drawn["label"]
        tried_rfk = xp.arange(self.choices) == tried_rf[..., None]
        gain_rf = xp.broadcast_to(given.advantage_r[:, None], tried_rf.shape)
        if self.unbiased:
            gain_rf = gain_rf / (probability_rfk * tried_rfk).sum(-1)
        cost_kk = self._costs(given.batch)
        aside_k, share_kk = steps_aside(cost_kk)
        rise_rfk = xp.where(tried_rfk, -gain_rf[..., None], gain_rf[..., None])
        cost_rfk = xp.where(tried_rfk, aside_k, xp.asarray(cost_kk.T)[tried_rf])
        problem = pairs(probability_rfk, rise_rfk, cost_rfk, given.radius)
        solution, radius, inactive = solve_binding(problem, shrink=self.options.shrink)

        split = solution.split
        moves_r = split * solution.nearest_r + (1.0 - split) * solution.farthest_r
        moved_rfk = probability_rfk * moves_r.reshape(probability_rfk.shape)
        to_tried_rf = (moved_rfk * ~tried_rfk).sum(-1)
        from_tried_rf = (moved_rfk * tried_rfk).sum(-1)
        target_rfk = probability_rfk - moved_rfk + to_tried_rf[..., None] * tried_rfk
        target_rfk = target_rfk + from_tried_rf[..., None] * xp.asarray(share_kk)[tried_rf]
        better_rfk = xp.maximum(rise_rfk - solution.multiplier * cost_rfk, 0.0)
        rows = {
            "target": target_rfk,
            "worth": gain_rf[..., None] * tried_rfk + better_rfk,
            "gain": gain_rf[..., None] * tried_rfk,
            "allowed": allowed_rfk,
        }
        return Plan(solution, radius, inactive, rows, **summary(problem, solution))


@final
class BinnedLinear(BinnedModel):
    """Unbiased gains from one sample per state."""

    name = "linear"


@final
class BinnedSample(BinnedModel):
    """The advantage as it is, of the bin that was tried."""

    name = "sample"
    unbiased = False


def pairs(probability_rfk: Array, rise_rfk: Array, cost_rfk: Array, radius: Array) -> Rows:
    """Rows with two candidates: to stay gains and costs nothing, to go what is said."""
    xp = namespace(probability_rfk)
    nothing_r = xp.zeros(probability_rfk.size)
    return Rows(
        probability_rfk.reshape(-1) / len(probability_rfk),
        xp.stack([nothing_r, rise_rfk.reshape(-1)], axis=1),
        xp.stack([nothing_r, cost_rfk.reshape(-1)], axis=1),
        radius,
        None,
        xp.zeros(probability_rfk.size, dtype=int),
    )


def steps_aside(cost_kk: Any) -> tuple[Any, Any]:
    """For each label the least cost of leaving it, and how those who leave share the nearest."""
    elsewhere_kk = np.where(np.eye(len(cost_kk), dtype=np.bool_), np.inf, cost_kk)
    least_k = elsewhere_kk.min(1)
    nearest_kk = elsewhere_kk == least_k[:, None]
    return least_k, nearest_kk / nearest_kk.sum(1, keepdims=True)
