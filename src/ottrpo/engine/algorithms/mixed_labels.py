"""OT-TRPO over labels on two estimates: samples, and critics that tell what every label is worth.

Of the label that was tried a sample says something, of the others nothing. Critics that learn from
past rollouts tell the gain of all of them, which is the finite problem of the paper as it stands:
the dual is solved over the visited states, and the policy is fitted to its solution.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import equinox as eqx

from ottrpo.engine.arrays import like, namespace, single, wide
from ottrpo.engine.critic import Twins
from ottrpo.engine.estimate import Experience
from ottrpo.engine.models.base import Given, Plan
from ottrpo.engine.models.finite import FiniteModel, finite_plan, towards_finite_targets
from ottrpo.engine.models.labels import label_costs
from ottrpo.engine.networks import Policy
from ottrpo.engine.spaces import FiniteActions
from ottrpo.engine.state import TrainState
from ottrpo.engine.update import Batch, make_fit_one

from .mixed import Mixed, Part

Array = Any


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class MixedLabels(Mixed):
    """Of one choice among labels, all of which are allowed everywhere."""

    actions: FiniteActions
    model: FiniteModel

    @cached_property
    def fit_slope(self) -> Any:
        """Regression on the solution: where all gains are known it is no noise that is fitted."""
        return make_fit_one(towards_finite_targets(self.actions.choices), self.max_grad_norm)

    def along_samples(self, batch: Experience, advantage: Array, part: Part) -> tuple[Plan, Batch]:
        """As without critics."""
        plan = self.model.plan(Given(batch, advantage, part.radius))
        return plan, {key: single(array) for key, array in plan.rows.items()}

    def along_critics(
        self, state: TrainState, flat: Array, noise: Array, part: Part
    ) -> tuple[Plan, Batch]:
        """The optimal policy of every state for what the critics say."""
        critics, choices = state.learners["critic"].networks, self.actions.choices
        logits, worth = (
            wide(like(flat, x)) for x in _table(critics, state.networks.policy, flat, choices)
        )
        xp = namespace(logits)
        weight = xp.exp(logits - logits.max(-1, keepdims=True))
        probability = weight / weight.sum(-1, keepdims=True)
        gain = worth - (probability * worth).sum(-1, keepdims=True)
        allowed = xp.ones(probability.shape, bool)
        cost = label_costs(self.model.options.cost, choices, None)
        plan = finite_plan(probability, gain, allowed, cost, part.radius)
        return plan, {"target": single(plan.rows["target"]), "allowed": allowed}

    def acting(self, policy: Policy, flat: Array) -> dict[str, Array]:
        """Logits."""
        return {"logits": like(flat, policy.logits(flat, (), self.actions.choices))}


@eqx.filter_jit
def _table(twins: Twins, policy: Policy, flat: Array, choices: int) -> tuple[Array, Array]:
    """Logits, and what labels are worth to both critics on average [r, 1, k]."""
    return policy.logits(flat, (), choices), twins.table(flat).mean(0)[:, None]
