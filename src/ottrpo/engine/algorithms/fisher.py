"""TRPO's step in the place of gradient steps: the control whose metric is the policy's own.

Where g is the slope of the expected advantage in the parameters and F Fisher's information, the
best step of a linear gain within ½ xᵀFx ≤ ε is

    x = F⁻¹g / λ,    λ = √(gᵀF⁻¹g / 2ε)

which is the linear dual again, over parameters in place of actions. F⁻¹g comes from conjugate
gradients, as Schulman et al. have it (2015), on all rows at once. Estimates, value function, region
and its certificate are those of the others: what is compared is the step.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import cg

from ottrpo.engine.arrays import like, namespace, single
from ottrpo.engine.estimate import Experience
from ottrpo.engine.models import Plan
from ottrpo.engine.models.labels import choice_log_probabilities
from ottrpo.engine.networks import Policy
from ottrpo.engine.schedules import Now
from ottrpo.engine.spaces import BoxActions
from ottrpo.engine.state import TrainState
from ottrpo.engine.update import Batch, compiled, make_descend, with_policy

from .base import Report
from .clipped import log_probability, taken
from .ottrpo import Draws, TrustRegion, actor_critic_loss

Array = Any
STEPS, DAMPING = 15, 0.1  # of conjugate gradients, as in sb3-contrib
SMALLEST_CURVATURE = 1e-12


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FisherRao(TrustRegion):
    """One natural gradient step of the policy, and gradient steps of the value function alone."""

    @cached_property
    def descend(self) -> Any:
        """The gradient steps, none of them the policy's."""
        loss = actor_critic_loss(lambda *_: jnp.float32(0.0), self.vf_coef, self.clip_range_vf)
        return make_descend(loss, self.max_grad_norm)

    @cached_property
    def step(self) -> Any:
        """The natural gradient step, compiled."""
        return compiled(self._step)

    def move(
        self, state: TrainState, batch: Experience, plan: Plan, draws: Draws, now: Now
    ) -> tuple[TrainState, Report]:
        """Step 5, by Fisher's metric."""
        state, fit = super().move(state, batch, plan, draws, now)
        xp = namespace(batch.flat)
        weight = xp.ones(len(batch.flat)) if draws.held is None else 1.0 * ~draws.held
        rows = taken(self.actions, batch) | {"flat": batch.flat, "images": batch.images}
        rows["gain"] = single(self.standardised(batch.advantage) * weight / weight.sum())
        policy, gain = self.step(state.networks.policy, rows, single(plan.radius))
        return with_policy(state, policy), fit | {"policy_loss": -like(batch.flat, gain)}

    def _step(self, policy: Policy, rows: Batch, radius: Array) -> tuple[Policy, Array]:
        """The policy after it, and what it gains to first order."""
        moves = jax.tree.map(eqx.is_array, policy)
        if policy.log_std is not None and not self.model.options.learn_std:
            moves = eqx.tree_at(lambda p: p.log_std, moves, replace=False)
        trained, fixed = eqx.partition(policy, moves)
        here, as_policy = ravel_pytree(trained)
        old = rows | self._acting(policy, rows)

        def gain(parameters: Array) -> Array:
            policy = eqx.combine(as_policy(parameters), fixed)
            return rows["gain"] @ log_probability(self.actions, policy, rows)[0]

        def divergence(parameters: Array) -> Array:
            return self.spent(eqx.combine(as_policy(parameters), fixed), old)

        def fisher(along: Array) -> Array:
            curved = jax.jvp(jax.grad(divergence), (here,), (along,))[1]
            return curved + DAMPING * along

        slope = jax.grad(gain)(here)
        along = cg(fisher, slope, maxiter=STEPS)[0]  # type: ignore[no-untyped-call]
        curvature = jnp.maximum(along @ fisher(along), SMALLEST_CURVATURE)
        step = jnp.sqrt(2.0 * radius / curvature) * along
        return eqx.combine(as_policy(here + step), fixed), slope @ step

    def _acting(self, policy: Policy, rows: Batch) -> Batch:
        """What the divergence is measured from."""
        if isinstance(self.actions, BoxActions):
            return dict(
                zip(("mean", "std"), policy.gaussian(rows["flat"], rows["images"]), strict=True)
            )
        log = choice_log_probabilities(policy, rows, self.actions.choices)
        return {"probability": jnp.exp(log)}
