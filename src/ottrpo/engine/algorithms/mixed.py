"""OT-TRPO on two estimates of the slope, each with half of the radius.

What single samples say of the slope of the advantage, A (a − m)/σ², is unbiased and nearly all
noise: after some updates a fit of it gains a few per cent of what it seems to. What critics say
that learn from past rollouts, ∇Q, is smooth, and wrong in ways of its own. The linear dual of two
orthogonal directions with slopes u₁ and u₂ would spend u₁² : u₂² of the radius on them, but these
are known worse than they differ, and halves are never below 1/√2 of what that split would gain as
long as neither estimate leads downhill.

What a step of both really gains per length is measured on rows that the samples' part was not
fitted to,

    u = E[score · step] / √E|step|²

and the multiplier is ½ u/√ε, made of what is real, nearly: the critics may draw these rows too,
among those of the whole window.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.engine.arrays import Generator, like, namespace, on_host, put, single
from ottrpo.engine.critic import slopes
from ottrpo.engine.estimate import Experience
from ottrpo.engine.models.base import Given, Plan
from ottrpo.engine.models.linear import LINEAR_REACH, Linear, linear_plan
from ottrpo.engine.networks import Networks, Policy
from ottrpo.engine.schedules import CRITIC_RATE, Now
from ottrpo.engine.spaces import BoxActions
from ottrpo.engine.state import Learner, Played, TrainState
from ottrpo.engine.update import (
    Batch,
    between,
    block,
    held_out,
    make_fit_one,
    minibatches,
    no_moments_of,
    with_policy,
)

from .base import Report
from .critics import CRITIC_BATCH, WithCritics, steps_for
from .ottrpo import LONGEST, SHORTEST_STEP, STRETCH, TrustRegion, paced

Array = Any
PLAN_ROWS = 2048  # states in which the critics are followed: half of them of the last rollout
# what is mostly noise is fitted in few, large steps: more of them fit more of the noise
FEWER_EPOCHS, LARGER_BATCHES = 0.3, 4
MEMORY = 40.0  # updates over which gains are averaged
# of all updates, over which policies are averaged: single ones stumble, their average rarely does
AVERAGED = 0.05
# of all updates, for which an average is played while later ones have done worse: what is nearly
# perfect is forgotten now and then; but a task may have become harder on the way
PLAYED_FOR = 0.5
FEWEST_EPISODES = 1e-6  # on average over updates; of fewer nothing is known
# of σ, that means may be beyond the box where nothing ends: farther out noise has no effect, and
# nothing better is found
OVERHANG = 1.0
USUAL_VF_COEF = 0.5


class Draws(NamedTuple):
    """The random numbers of an update.

    Attributes:
        held: which rows the fit of the samples leaves out [r].
        critic: rows of the critics' minibatches, as uniform numbers.
        ahead: the actions that their returns are continued by.
        rows: states in which they are followed, as uniform numbers.
        noise: where their slopes are taken.
        slope: minibatches of these states.
        score: minibatches of the rollout for the policy.
        value: and for the value function.
    """

    held: Array
    critic: Array
    ahead: Array
    rows: Array
    noise: Array
    slope: tuple[Array, Array]
    score: tuple[Array, Array]
    value: tuple[Array, Array]


class Part(NamedTuple):
    """How far one part of a step may go.

    Attributes:
        radius: its share of the budget.
        ends: whether episodes are known to end for good.
    """

    radius: Array
    ends: Array

    def targets(self, plan: Plan, mean: Array, std: Array) -> Array:
        """Where means should go: as planned, and back to the box from beyond it.

        Not where bodies fall: a walker that was kept near the box fell over its noise.
        """
        xp, bound = namespace(mean), 1.0 + OVERHANG * std
        beyond = xp.where(self.ends, 0.0, mean - xp.clip(mean, -bound, bound))
        return single(plan.rows["target_mean"] - beyond)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixed(WithCritics, TrustRegion):
    """Transport steps along samples and critics; a subclass knows what a policy is made of."""

    @cached_property
    def fit_score(self) -> Any:
        """The compiled gradient steps of the policy alone, along the samples."""
        return make_fit_one(self.model.loss(), self.max_grad_norm)

    @property
    def fit_slope(self) -> Any:
        """And along the critics."""
        return self.fit_score

    @property
    def noise_size(self) -> int:
        """How many random numbers an action is made of that is drawn within an update."""
        return 0

    def within(self, asked: Array, batch: Experience) -> Array:
        """The radius, which may be less than was asked for."""
        return asked

    @abstractmethod
    def along_samples(self, batch: Experience, advantage: Array, part: Part) -> tuple[Plan, Batch]:
        """What the samples say, and the rows that the policy is fitted to."""

    @abstractmethod
    def along_critics(
        self, state: TrainState, flat: Array, noise: Array, part: Part
    ) -> tuple[Plan, Batch]:
        """What the critics say in some states, and the rows that the policy is fitted to."""

    @abstractmethod
    def acting(self, policy: Policy, flat: Array) -> dict[str, Array]:
        """What a rollout would have recorded of the policy in these states."""

    @property
    def value_weight(self) -> float:
        """1, if nothing is said."""
        return self.vf_coef / USUAL_VF_COEF

    def learners(self, networks: Networks, rng: Generator) -> dict[str, Learner]:
        """Those of critics, an optimiser for each part of a step, and the average policy."""
        part = Learner((), no_moments_of(networks.policy, self.max_grad_norm))
        seen, _ = self.estimate.normaliser.start(1)
        average = Learner(networks.policy, ())
        played = Learner(Played(networks.policy, seen.mean, seen.scale), ())
        kept = {"score": part, "slope": part, "average": average, "played": played}
        return super().learners(networks, rng) | kept

    def draw(self, rows: int, rng: Generator) -> Any:
        """For every part of a step."""
        size = self.noise_size
        steps = max(1, round(self.critic_ratio * rows))
        held = block(rows, self.hold_out, rng)
        epochs = max(1, round(FEWER_EPOCHS * self.n_epochs))
        index, weight = minibatches(rows, LARGER_BATCHES * self.batch_size, epochs, rng)

        def normal(count: int) -> Array:
            return rng.standard_normal((count, size), dtype=np.float32)

        return Draws(
            held=held,
            critic=rng.random((steps * CRITIC_BATCH,)),
            ahead=normal(steps * CRITIC_BATCH),
            rows=rng.random((PLAN_ROWS,)),
            noise=normal(PLAN_ROWS),
            slope=minibatches(PLAN_ROWS, self.batch_size, self.n_epochs, rng),
            score=(index, held_out(weight, index, held)),
            value=minibatches(rows, self.batch_size, self.n_epochs, rng),
        )

    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: Any, now: Now
    ) -> tuple[TrainState, Report]:
        """Measure, learn, solve the dual (step 4), move the policy (step 5), stay in the region."""
        advantage = self.standardised(batch.advantage)
        asked = self.budget(batch, now)
        radius = self.within(asked, batch)
        ends = (state.signal.ended > 0) | state.replay.terminated.any()
        steps = steps_for(now.discount, state.replay.swing(self.n_steps))
        rate = namespace(batch.flat).where(ends, CRITIC_RATE, now.critic_rate)
        state, fit = self.learn(state, batch, draws, now, steps, rate)
        half = Part(0.5 * radius, ends)
        state = self._follow_score(before, state, batch, advantage, half, draws, now)
        state, plan = self._follow_slope(state, batch, half, draws, now)
        if self.std_step:
            state = self._move_std(state, batch, advantage)
        plan = plan._replace(radius=radius, inactive=radius < asked)
        state, kept, spent = self.return_to_region(before, state, batch, plan)
        gains = self.gains(state, batch, advantage, draws.held, spent)
        state = _remembered(state, gains["ot/gain_held_out"], spent)
        state = _elected(_averaged(state), self.n_steps)
        report = self._report(batch, _real(plan, state), fit, kept, spent, now)
        return state, report | gains | {"ot/gain": state.signal.gain}

    def _moved(
        self, state: TrainState, name: str, rows: Any, steps: Any, rate: Array
    ) -> TrainState:
        """The policy after gradient steps with an optimiser of that name."""
        one = Learner(state.networks.policy, state.learners[name].moments)
        fit = self.fit_score if name == "score" else self.fit_slope
        moved, _ = fit(one, rows, steps, single(rate))
        return with_policy(state, moved.networks).with_learner(name, Learner((), moved.moments))

    def _follow_score(
        self,
        before: TrainState,
        state: TrainState,
        batch: Experience,
        advantage: Array,
        part: Part,
        draws: Draws,
        now: Now,
    ) -> TrainState:
        """Along the samples as far as their part of the radius goes."""
        signal, radius = state.signal, part.radius
        plan, rows = self.along_samples(batch, advantage, part)
        rows = rows | {"flat": batch.flat, "images": ()}
        state = self._moved(state, "score", rows, draws.score, now.learning_rate * signal.pace)
        state, kept, spent = self.return_to_region(
            before, state, batch, plan._replace(radius=radius), LONGEST
        )
        pace = paced(signal.pace, radius, kept, spent)
        return state._replace(signal=signal._replace(pace=pace))

    def _follow_slope(
        self, state: TrainState, batch: Experience, part: Part, draws: Draws, now: Now
    ) -> tuple[TrainState, Plan]:
        """Along the critics, from where the samples led, as far as their part goes."""
        xp, signal, radius = namespace(batch.flat), state.signal, part.radius
        replay, normaliser = state.replay, self.estimate.normaliser
        steps, count = replay.reward.shape
        newest = xp.arange(steps * count - min(PLAN_ROWS // 2, len(batch.flat)), steps * count)
        at = tuple(
            put(old, (slice(0, len(newest)),), new.astype(old.dtype))
            for old, new in zip(
                replay.picked(draws.rows), (newest // count, newest % count), strict=True
            )
        )
        flat = normaliser(state.observations, replay.flat[at])
        plan, rows = self.along_critics(state, flat, draws.noise, part)
        rows = rows | {"flat": flat, "images": ()}
        rate = now.learning_rate * signal.slope_pace
        moved = self._moved(state, "slope", rows, draws.slope, rate)
        seen = normaliser(state.observations, batch.raw)
        here = self.acting(state.networks.policy, seen)
        since = batch._replace(flat=seen, drawn=batch.drawn | here)
        moved, kept, spent = self.return_to_region(state, moved, since, plan, LONGEST)
        pace = paced(signal.slope_pace, radius, kept, spent)
        return moved._replace(signal=signal._replace(slope_pace=pace)), plan


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class MixedTrustRegion(Mixed):
    """Of Gaussians: the slope of the samples, and that of the critics."""

    actions: BoxActions
    model: Linear

    @property
    def noise_size(self) -> int:
        """One number for every coordinate."""
        return self.actions.size

    def within(self, asked: Array, batch: Experience) -> Array:
        """A slope says nothing of what lies farther than was tried."""
        return namespace(asked).minimum(asked, LINEAR_REACH * self.model.typical_cost(batch))

    def along_samples(self, batch: Experience, advantage: Array, part: Part) -> tuple[Plan, Batch]:
        """Means that are set `STRETCH` times as far as they may go."""
        plan = self.model.plan(Given(batch, advantage, STRETCH * part.radius))
        return plan, {"target_mean": part.targets(plan, *batch.recorded("mean", "std"))}

    def along_critics(
        self, state: TrainState, flat: Array, noise: Array, part: Part
    ) -> tuple[Plan, Batch]:
        """Means along the slope of the critics."""
        critics, policy = state.learners["critic"].networks, state.networks.policy
        mean, slope = (like(flat, x) for x in slopes(critics, policy, flat, noise))
        ones = namespace(flat).ones_like(mean)
        plan = linear_plan(mean, ones, slope, self.model.metric, part.radius)
        std = like(flat, policy.gaussian(flat[:1])[1])
        return plan, {"target_mean": part.targets(plan, mean, std)}

    def acting(self, policy: Policy, flat: Array) -> dict[str, Array]:
        """Mean and σ."""
        return dict(zip(("mean", "std"), policy.gaussian(flat), strict=True))

    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: Any, now: Now
    ) -> tuple[TrainState, Report]:
        """As all do; σ is told."""
        state, report = super().improve(before, state, batch, draws, now)
        std = like(batch.flat, state.networks.policy.gaussian(batch.flat[:1])[1].mean())
        return state, report | {"train/std": std}


def _remembered(state: TrainState, gain: Array, spent: Array) -> TrainState:
    """The state with what is known of this step: its gain per length, and how episodes end."""
    signal, replay = state.signal, state.replay
    xp = namespace(signal.updates)
    length = xp.sqrt(xp.maximum(spent, SHORTEST_STEP))
    seen = xp.minimum(signal.updates, MEMORY - 1.0)
    return state._replace(
        signal=signal._replace(
            gain=(seen * signal.gain + gain / length) / (seen + 1.0),
            updates=signal.updates + 1.0,
            ended=xp.maximum(signal.ended, 1.0 * replay.terminated.any()),
        )
    )


def _averaged(state: TrainState) -> TrainState:
    """The state with the average of its policies of late."""
    policy, old = state.networks.policy, state.learners["average"].networks
    return state.with_learner("average", Learner(between(old, policy, _newest(state)), ()))


def _newest(state: TrainState) -> Array:
    """The share of the newest in an average over the updates of late."""
    return 1.0 / namespace(state.signal.updates).maximum(AVERAGED * state.signal.updates, 1.0)


def _elected(state: TrainState, steps: int) -> TrainState:
    """The state with the average that is to be played: that of policies that did best of late."""
    signal, share = state.signal, _newest(state)
    xp = namespace(signal.updates)
    returned, episodes = (
        old + share * (new - old)
        for old, new in zip(
            (signal.returned, signal.episodes), state.replay.returns(steps), strict=True
        )
    )
    mean = returned / xp.maximum(episodes, FEWEST_EPISODES)
    told = (episodes >= FEWEST_EPISODES) & (signal.elected > 0)
    old = signal.updates - signal.elected > PLAYED_FOR * signal.updates
    better = xp.logical_not(told) | old | (mean >= signal.best)
    signal = signal._replace(
        returned=returned,
        episodes=episodes,
        best=xp.where(better, mean, signal.best),
        elected=xp.where(better & (episodes >= FEWEST_EPISODES), signal.updates, signal.elected),
    )
    seen, average = state.observations, state.learners["average"].networks
    now, before = Played(average, seen.mean, seen.scale), state.learners["played"].networks
    if on_host(better):
        played = now if better else before
    else:
        played = jax.tree.map(
            lambda a, b: jnp.where(better, a, b) if eqx.is_array(a) else a, now, before
        )
    return state._replace(signal=signal).with_learner("played", Learner(played, ()))


def _real(plan: Plan, state: TrainState) -> Plan:
    """The plan of a step, with the multiplier of the dual of what steps gain."""
    xp = namespace(plan.radius)
    gain = xp.maximum(state.signal.gain, 0.0)
    multiplier = 0.5 * gain / xp.sqrt(plan.radius)
    return plan._replace(solution=plan.solution._replace(multiplier=multiplier))
