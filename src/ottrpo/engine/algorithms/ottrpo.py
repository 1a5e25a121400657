"""OT-TRPO: `TrustRegion.improve` is Algorithm 1 of the paper, from its step 4 on."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from ottrpo.core.traceable import solve_linear
from ottrpo.engine.advantage import AdvantageFit, AdvantageNetwork
from ottrpo.engine.arrays import Generator, like, namespace, single
from ottrpo.engine.estimate import Experience, told
from ottrpo.engine.models import Model, Plan
from ottrpo.engine.models.base import Given, PolicyLoss, Price
from ottrpo.engine.networks import Networks
from ottrpo.engine.schedules import SMALLEST_RADIUS, Now
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import (
    Batch,
    Loss,
    Spent,
    block,
    held_out,
    make_descend,
    minibatches,
    return_to_region,
    start,
    with_policy,
)

from .base import Algorithm, Report
from .objective import nearer

Array = Any
SPREAD_FLOOR = 1e-8  # of advantages that are standardised
STD_BOUNDS = (0.02, 1.0)  # of σ, in units of half the box
# targets of single samples are mostly noise, and a fit that averages it out gets a small part of
# the way: they are set this many times as far as the policy may go, and the fit is paced
STRETCH = 30.0
LONGEST = 3.0  # by which a step that spent little is lengthened at most
QUICKEST = 1.2  # by which the pace may change in an update
PACES = (1e-3, 30.0)
SHORTEST_STEP = 1e-6


class Draws(NamedTuple):
    """The random numbers of an update.

    Attributes:
        fit: minibatches for the learned advantage, if there is one.
        plan: what the model drew.
        move: minibatches for policy and value function.
        held: which rows are held out of the policy's fit, if any are.
    """

    fit: tuple[Array, Array] | None
    plan: Any
    move: tuple[Array, Array]
    held: Array | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TrustRegion(Algorithm):
    """Optimal-transport trust-region policy optimisation.

    Attributes:
        model: how the advantage is thought to behave around the policy.
        learned: fit a network to the advantages, and let the model ask it.
        relative: the radius is a share of the typical cost.
        exact: step back until the realised discrepancy is at most the radius.
        hold_out: share of a rollout's rows that the fit of the policy does not see; they tell how
            much of its gain is real.
        adapt_pace: let the policy's learning rate follow the radius, so that updates spend most of
            it and the fit stops short of the noise.
        std_step: share of itself by which σ may change in an update, in a budget of its own.
        clip_range_vf: how far a value may go from the one of the rollout; ``None``: anywhere.
    """

    model: Model
    learned: bool = False
    relative: bool = True
    exact: bool = True
    hold_out: float = 0.0
    adapt_pace: bool = False
    std_step: float = 0.0
    clip_range_vf: float | None = None

    @cached_property
    def fit(self) -> AdvantageFit:
        """Of the learned advantage."""
        return AdvantageFit(self.architecture, self.actions, self.max_grad_norm)

    @cached_property
    def descend(self) -> Any:
        """The compiled gradient steps."""
        loss = actor_critic_loss(self.model.loss(), self.vf_coef, self.clip_range_vf)
        return make_descend(loss, self.max_grad_norm, self.weight_decay)

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
        plan, (index, weight) = self.model.draw(rows, rng), minibatches(*sizes, rng)
        if not self.hold_out:
            return Draws(fit, plan, (index, weight))
        held = block(rows, self.hold_out, rng)
        return Draws(fit, plan, (index, held_out(weight, index, held)), held)

    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: Draws, now: Now
    ) -> tuple[TrainState, Report]:
        """Solve the dual (step 4), move the policy (step 5), stay in the region."""
        state, advantage = self.advantage(state, batch, draws, now)
        plan = self.plan(state, batch, advantage, draws, now)
        state, fit = self.move(state, batch, plan, draws, now)
        if self.std_step:
            state = self._move_std(state, batch, advantage)
        longest = LONGEST if self.adapt_pace else 1.0
        state, share, spent = self.return_to_region(before, state, batch, plan, longest)
        if self.adapt_pace:
            pace = paced(state.signal.pace, plan.radius, share, spent)
            state = state._replace(signal=state.signal._replace(pace=pace))
        report = self._report(batch, plan, fit, share, spent, now)
        if draws.held is not None:
            report |= self.gains(state, batch, advantage, draws.held, spent)
        return state, report

    def remarks(self, report: Report) -> Iterator[str]:
        """A radius that does not bind, unless it is shrunk until it does."""
        if report["ot/inactive"] and not self.exact:
            yield (
                f"the radius {report['ot/radius']:.3g} is too large to bind (multiplier 0): in the "
                "paper's way the policy may not move at all; trust_region='exact' shrinks it"
            )

    def standardised(self, advantage: Array) -> Array:
        """Once, here: the dual and the loss must see the same numbers."""
        if not self.normalize_advantage:
            return advantage
        return (advantage - advantage.mean()) / (advantage.std() + SPREAD_FLOOR)

    def gains(
        self, state: TrainState, batch: Experience, advantage: Array, held: Array, spent: Array
    ) -> Report:
        """What the step gained on the rows that were fitted, and on those that were held out."""
        flat = self.estimate.normaliser(state.observations, batch.raw)
        seen = {"flat": flat, "images": batch.images}
        gain = self.model.gained(state.networks.policy, batch, seen, advantage)
        xp = namespace(gain)
        fitted, out = ((gain * of).sum() / xp.maximum(of.sum(), 1) for of in (~held, held))
        return {
            "ot/gain_fitted": fitted,
            "ot/gain_held_out": out,
            "ot/gain_held_out_per_cost": out / xp.maximum(spent, SMALLEST_RADIUS),
        }

    def advantage(
        self, state: TrainState, batch: Experience, draws: Draws, now: Now
    ) -> tuple[TrainState, Array]:
        """The advantages of the actions taken; a learned advantage is fitted to them."""
        advantage = self.standardised(batch.advantage)
        if draws.fit is not None:
            learner = state.learners["advantage"]
            learner = self.fit(learner, batch, advantage, draws.fit, now.learning_rate)
            state = state.with_learner("advantage", learner)
        return state, advantage

    def budget(self, batch: Experience, now: Now) -> Array:
        """ε, in the unit of the cost."""
        unit = self.model.typical_cost(batch) if self.relative else 1.0
        return namespace(batch.flat).maximum(now.radius * unit, SMALLEST_RADIUS)

    def plan(
        self, state: TrainState, batch: Experience, advantage: Array, draws: Draws, now: Now
    ) -> Plan:
        """Step 4: the dual, solved exactly."""
        network = AdvantageNetwork(state.learners["advantage"].networks) if self.learned else None
        given = Given(batch, advantage, Price(now.multiplier), network, draws.plan)
        if now.multiplier is not None:
            return self.model.plan(given)
        radius = self.budget(batch, now)
        if not self.adapt_pace:
            return self.model.plan(given._replace(radius=radius))
        far = self.model.plan(given._replace(radius=STRETCH * radius))
        return far._replace(radius=radius)

    def move(
        self, state: TrainState, batch: Experience, plan: Plan, draws: Draws, now: Now
    ) -> tuple[TrainState, Report]:
        """Step 5: gradient descent of all epochs and minibatches, as one compiled program."""
        rows: dict[str, Any] = {key: single(array) for key, array in plan.rows.items()}
        rows |= {"flat": batch.flat, "images": batch.images, "return": single(batch.target)}
        if self.clip_range_vf is not None:
            rows["value"] = single(batch.value)
        constants = {"multiplier": single(plan.solution.multiplier)}
        if self.adapt_pace:
            constants["pace"] = single(state.signal.pace)
        learner, fit = self.descend(
            state.learners["agent"], rows, draws.move, now.learning_rate, constants
        )
        state = state.with_learner("agent", learner)
        if now.log_std is not None:  # annealed; a part of the step like any other
            policy = learner.networks.policy
            log_std = jnp.full_like(policy.log_std, now.log_std)
            state = with_policy(state, eqx.tree_at(lambda p: p.log_std, policy, log_std))
        return state, fit

    def _move_std(self, state: TrainState, batch: Experience, advantage: Array) -> TrainState:
        """σ has one slope for all states, and a dual of one row.

        The slope is shrunk by the part of its square that is noise (James and Stein): where its
        sign is not known σ stays.
        """
        mean, std, action = batch.recorded("mean", "std", "action")
        xp = namespace(mean)
        slope_rd = advantage[:, None] * (((action - mean) / std) ** 2 - 1.0) / std
        slope, noise = slope_rd.mean(0), slope_rd.var(0).sum() / len(slope_rd)
        real = xp.maximum(1.0 - noise / xp.maximum((slope**2).sum(), SMALLEST_RADIUS), 0.0)
        budget = (self.std_step * real) ** 2 * (std[0] ** 2).sum() + SMALLEST_RADIUS
        step = solve_linear(xp.ones(1), slope[None], budget)
        policy = state.networks.policy
        new = xp.clip(std[0] + step.nearest_r[0], *STD_BOUNDS)
        log_std = jnp.log(jnp.asarray(new, policy.log_std.dtype))
        return with_policy(state, eqx.tree_at(lambda p: p.log_std, policy, log_std))

    def return_to_region(
        self,
        before: TrainState,
        state: TrainState,
        batch: Experience,
        plan: Plan,
        longest: float = 1.0,
    ) -> tuple[TrainState, Array, Array]:
        """Step back if the step spent too much; the share that was kept and what it spends.

        A step that spent little is taken up to ``longest`` times.
        """
        rows: dict[str, Any] = {"flat": batch.flat, "images": batch.images}
        rows |= self.model.region_rows(batch)
        if not self.exact:
            return state, 1.0, like(batch.flat, self.spent(state.networks.policy, rows))
        normaliser = self.estimate.normaliser
        return return_to_region(
            before, state, batch, rows, plan.radius, self.spent, normaliser, longest
        )

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
            **told(batch, fit, now),
        }


def paced(pace: Array, radius: Array, share: Array, spent: Array) -> Array:
    """Faster if a step had to be lengthened to spend its radius, slower if shortened."""
    xp = namespace(spent)
    # what is spent grows like the square of the step; of one that was taken back nothing is known
    whole = spent / xp.maximum(share, SHORTEST_STEP) ** 2
    factor = (radius / xp.maximum(whole, SMALLEST_RADIUS)) ** 0.5
    return xp.clip(pace * xp.clip(factor, 1.0 / QUICKEST, QUICKEST), *PACES)


def actor_critic_loss(
    policy_loss: PolicyLoss, vf_coef: float, clip_range_vf: float | None = None
) -> Loss:
    """Policy loss + vf_coef · mean squared error of the value function."""

    def loss(
        networks: Networks, rows: Batch, weight: Array, constants: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        value = networks.value(rows["flat"], rows["images"])
        if clip_range_vf is None:
            value_loss = weight @ (value - rows["return"]) ** 2
        else:  # of the clipped value, as SB3 has it
            value_loss = weight @ nearer(value, rows, clip_range_vf) ** 2
        policy = policy_loss(networks.policy, rows, weight, constants)
        return policy + vf_coef * value_loss, {"policy_loss": policy, "value_loss": value_loss}

    return loss
