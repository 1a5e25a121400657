"""OT-TRPO: `TrustRegion.improve` is Algorithm 1 of the paper, from its step 4 on."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp

from ottrpo.engine.advantage import AdvantageFit, AdvantageNetwork
from ottrpo.engine.arrays import Generator, like, namespace, single
from ottrpo.engine.estimate import Experience, explained_variance
from ottrpo.engine.models import Model, Plan
from ottrpo.engine.models.base import Given, PolicyLoss
from ottrpo.engine.networks import Networks
from ottrpo.engine.schedules import SMALLEST_RADIUS, Now
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import (
    Batch,
    Loss,
    Spent,
    make_descend,
    minibatches,
    return_to_region,
    start,
    with_policy,
)

from .base import Algorithm, Report

Array = Any
SPREAD_FLOOR = 1e-8  # of advantages that are standardised


class Draws(NamedTuple):
    """The random numbers of an update.

    Attributes:
        fit: minibatches for the learned advantage, if there is one.
        plan: what the model drew.
        move: minibatches for policy and value function.
    """

    fit: tuple[Array, Array] | None
    plan: Any
    move: tuple[Array, Array]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TrustRegion(Algorithm):
    """Optimal-transport trust-region policy optimisation.

    Attributes:
        model: how the advantage is thought to behave around the policy.
        learned: fit a network to the advantages, and let the model ask it.
        relative: the radius is a share of the typical cost.
        exact: step back until the realised discrepancy is at most the radius.
    """

    model: Model
    learned: bool = False
    relative: bool = True
    exact: bool = True

    @cached_property
    def fit(self) -> AdvantageFit:
        """Of the learned advantage."""
        return AdvantageFit(self.architecture, self.actions, self.max_grad_norm)

    @cached_property
    def descend(self) -> Any:
        """The compiled gradient steps."""
        loss = actor_critic_loss(self.model.loss(), self.vf_coef)
        return make_descend(loss, self.max_grad_norm)

    @cached_property
    def spent(self) -> Spent:
        """The realised discrepancy."""
        return self.model.spent()

    def learners(self, networks: Networks, rng: Generator) -> dict[str, Learner]:
        """Policy and value function, and the learned advantage if there is one."""
        learners = {"agent": start(networks, self.max_grad_norm)}
        return learners | ({"advantage": self.fit.start(rng)} if self.learned else {})

    def draw(self, rows: int, rng: Generator) -> Draws:
        """Minibatches, and what the model needs."""
        sizes = rows, self.batch_size, self.n_epochs
        fit = minibatches(*sizes, rng) if self.learned else None
        return Draws(fit, self.model.draw(rows, rng), minibatches(*sizes, rng))

    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: Draws, now: Now
    ) -> tuple[TrainState, Report]:
        """Solve the dual (step 4), move the policy (step 5), stay in the region."""
        state, advantage = self.advantage(state, batch, draws, now)
        plan = self.plan(state, batch, advantage, draws, now)
        state, fit = self.move(state, batch, plan, draws, now)
        state, share, spent = self.return_to_region(before, state, batch, plan)
        return state, self._report(batch, plan, fit, share, spent, now)

    def advantage(
        self, state: TrainState, batch: Experience, draws: Draws, now: Now
    ) -> tuple[TrainState, Array]:
        """The advantages of the actions taken; a learned advantage is fitted to them."""
        advantage = batch.advantage
        if self.normalize_advantage:  # once, here: the dual and the loss must see the same numbers
            advantage = (advantage - advantage.mean()) / (advantage.std() + SPREAD_FLOOR)
        if draws.fit is not None:
            learner = state.learners["advantage"]
            learner = self.fit(learner, batch, advantage, draws.fit, now.learning_rate)
            state = state.with_learner("advantage", learner)
        return state, advantage

    def plan(
        self, state: TrainState, batch: Experience, advantage: Array, draws: Draws, now: Now
    ) -> Plan:
        """Step 4: the dual, solved exactly."""
        unit = self.model.typical_cost(batch) if self.relative else 1.0
        radius = namespace(batch.flat).maximum(now.radius * unit, SMALLEST_RADIUS)
        network = AdvantageNetwork(state.learners["advantage"].networks) if self.learned else None
        return self.model.plan(Given(batch, advantage, radius, network, draws.plan))

    def move(
        self, state: TrainState, batch: Experience, plan: Plan, draws: Draws, now: Now
    ) -> tuple[TrainState, Report]:
        """Step 5: gradient descent of all epochs and minibatches, as one compiled program."""
        rows: dict[str, Any] = {key: single(array) for key, array in plan.rows.items()}
        rows |= {"flat": batch.flat, "images": batch.images, "return": single(batch.target)}
        constants = {"multiplier": single(plan.solution.multiplier)}
        learner, fit = self.descend(
            state.learners["agent"], rows, *draws.move, now.learning_rate, constants
        )
        state = state.with_learner("agent", learner)
        if now.log_std is not None:  # annealed; a part of the step like any other
            policy = learner.networks.policy
            log_std = jnp.full_like(policy.log_std, now.log_std)
            state = with_policy(state, eqx.tree_at(lambda p: p.log_std, policy, log_std))
        return state, fit

    def return_to_region(
        self, before: TrainState, state: TrainState, batch: Experience, plan: Plan
    ) -> tuple[TrainState, Array, Array]:
        """Step back if the step spent too much; the share that was kept and what it spends."""
        rows: dict[str, Any] = {"flat": batch.flat, "images": batch.images}
        rows |= self.model.region_rows(batch)
        if not self.exact:
            return state, 1.0, like(batch.flat, self.spent(state.networks.policy, rows))
        normaliser = self.estimate.normaliser
        return return_to_region(before, state, batch, rows, plan.radius, self.spent, normaliser)

    def _report(
        self, batch: Experience, plan: Plan, fit: Report, share: Array, spent: Array, now: Now
    ) -> Report:
        return {
            "ot/multiplier": plan.solution.multiplier,
            "ot/radius": plan.radius,
            "ot/spent": spent,
            "ot/split_mass": plan.split_mass,
            "ot/active_fraction": plan.active_fraction,
            "ot/violation": namespace(spent).maximum(spent - plan.radius, 0.0),
            "ot/dual_gap": plan.dual_gap,
            "ot/inactive": plan.inactive,
            "ot/step_kept": share,
            "train/discount": now.discount,
            "train/explained_variance": explained_variance(batch),
            **{f"train/{name}": value for name, value in fit.items()},
            "train/learning_rate": now.learning_rate,
        }


def actor_critic_loss(policy_loss: PolicyLoss, vf_coef: float) -> Loss:
    """Policy loss + vf_coef · mean squared error of the value function."""

    def loss(
        networks: Networks, rows: Batch, weight: Array, constants: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        value = networks.value(rows["flat"], rows["images"])
        value_loss = weight @ (value - rows["return"]) ** 2
        policy = policy_loss(networks.policy, rows, weight, constants)
        return policy + vf_coef * value_loss, {"policy_loss": policy, "value_loss": value_loss}

    return loss
