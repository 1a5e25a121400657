"""What algorithms share that learn critics Q(s, a) from a window of past rollouts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ottrpo.engine.arrays import Generator, namespace, single, wide
from ottrpo.engine.critic import OfActions, OfLabels, Twins, make_fit
from ottrpo.engine.estimate import Experience
from ottrpo.engine.networks import Networks
from ottrpo.engine.schedules import Now
from ottrpo.engine.spaces import BoxActions, FiniteActions
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import Batch, make_fit_one, no_moments_of, start

from .base import Algorithm, Report

Array = Any
CRITIC_BATCH = 128
MOST_STEPS, SHORTEST_RATE = 9, 1e-6
STEPS_PER_SWING = 0.5  # a fast body's news of long ago are of another gait
SLOWEST_SWING = 1000.0  # in steps; also of what does not swing
SMALLEST_SPREAD = 1e-30


@dataclass(frozen=True, kw_only=True, eq=False)
class WithCritics(Algorithm):
    """Two critics and a window.

    Attributes:
        n_steps: steps of each environment per rollout.
        rollouts: how many of them are kept.
        critic_layers: hidden layers of Q(s, a).
        critic_ratio: gradient steps of the critics per step of the environments.
    """

    actions: BoxActions | FiniteActions
    n_steps: int
    rollouts: int
    critic_ratio: float
    critic_layers: tuple[int, ...] = (128, 128)

    @cached_property
    def read(self) -> OfActions | OfLabels:
        """How critics are read."""
        if isinstance(self.actions, BoxActions):
            return OfActions(self.actions.size, self.actions.size)
        return OfLabels(self.actions.choices)

    @cached_property
    def fit_critics(self) -> Any:
        """The compiled gradient steps of the critics."""
        return make_fit(self.read)

    @property
    def critic_batch(self) -> int:
        """Rows per gradient step of the critics."""
        return CRITIC_BATCH

    @property
    def value_weight(self) -> float:
        """Of the value function's loss. It stands alone: what counts is how it is clipped."""
        return self.vf_coef

    @cached_property
    def fit_value(self) -> Any:
        """The compiled gradient steps of the value function alone."""
        return make_fit_one(_value_loss(self.value_weight), self.max_grad_norm)

    def init(self, init_rng: Generator, rng: Generator, environments: int) -> TrainState:
        """A training state with an empty window."""
        state = super().init(init_rng, rng, environments)
        window, features = self.rollouts * self.n_steps, self.architecture.inputs
        replay = empty_replay(window, environments, features, self.read.size)
        return state._replace(replay=replay)

    def learners(self, networks: Networks, rng: Generator) -> dict[str, Learner]:
        """The networks, an optimiser of the value function, the critics and their followers."""
        inputs = self.architecture.inputs + self.read.inputs
        twins = Twins(inputs, self.critic_layers, rng, self.read.outputs)
        return {
            "agent": Learner(networks, ()),
            "value": Learner((), no_moments_of(networks.value, self.max_grad_norm)),
            "critic": start(twins, np.inf),
            "followers": Learner(twins, ()),
        }

    def learn(
        self,
        state: TrainState,
        batch: Experience,
        draws: Any,
        now: Now,
        steps: Array,
        rate: Array,
        most: int = MOST_STEPS,
    ) -> tuple[TrainState, Report]:
        """Fit the critics to the window, and the value function to the rollout.

        Args:
            state: with the window.
            batch: the rollout.
            draws: with rows of the critics' minibatches as uniform numbers (``critic``), the noise
                of the actions ahead, and minibatches of the rollout (``value``).
            now: the schedules.
            steps: of the returns that critics learn.
            rate: of their gradient steps.
            most: steps that there may be.
        """
        state, fit = self._learn_critics(state, draws, (now.discount, steps, most), rate)
        networks = state.networks
        rows = {"flat": batch.flat, "images": (), "return": single(batch.target)}
        one = Learner(networks.value, state.learners["value"].moments)
        value, told = self.fit_value(one, rows, draws.value, now.learning_rate)
        networks = eqx.tree_at(lambda n: n.value, networks, value.networks)
        state = state.with_learner("agent", Learner(networks, ()))
        state = state.with_learner("value", Learner((), value.moments))
        return state, fit | {"value_loss": told["loss"]}

    def _learn_critics(
        self, state: TrainState, draws: Any, returns: tuple[Any, ...], rate: Array
    ) -> tuple[TrainState, Report]:
        normaliser, replay = self.estimate.normaliser, state.replay
        reward = normaliser.scaled_rewards(state.rewards, replay.reward)
        ahead = look_ahead(replay, reward, *returns)
        at, size = replay.picked(draws.critic), self.critic_batch
        rows = {
            "flat": normaliser(state.observations, replay.flat[at]),
            "next": normaliser(state.observations, replay.flat[ahead.where[at], at[1]]),
            "action": replay.action[at],
            "reward": single(ahead.reward[at]),
            "discount": single(ahead.discount[at]),
            "noise": draws.ahead,
            "images": (),
        }
        weight = single(ahead.known[at] / size).reshape(-1, size)
        carried = (state.learners["critic"], state.learners["followers"].networks)
        (critic, followers), told = self.fit_critics(
            carried, rows, (in_order(weight), weight), state.networks.policy, single(rate)
        )
        state = state.with_learner("critic", critic)
        return state.with_learner("followers", Learner(followers, ())), told


class Replay(NamedTuple):
    """The last W steps of n environments, oldest first.

    Attributes:
        flat: raw features [W + 1, n, f]; the last entry is where the next rollout starts.
        action: as drawn, not clipped [W, n, d]; of labels their numbers.
        reward: raw [W, n].
        done: the episode ended with this step [W, n].
        terminated: for good, rather than by a time limit [W, n].
        filled: how many of the W steps are there yet.
    """

    flat: Array
    action: Array
    reward: Array
    done: Array
    terminated: Array
    filled: Array

    def followed_by(self, rollout: Any) -> "Replay":
        """The window after a `Rollout`; the oldest steps go."""
        steps, window = len(rollout.reward), len(self.reward)
        xp = namespace(rollout.reward)

        def then(old: Array, new: Array) -> Array:
            # the last observation of the window is the first of the rollout
            return xp.concatenate([old[:window], new])[-len(old) :].astype(old.dtype)

        return Replay(
            flat=then(self.flat, rollout.flat),
            action=then(self.action, rollout.drawn.get("action", rollout.drawn.get("label"))),
            reward=then(self.reward, rollout.reward),
            done=then(self.done, rollout.done),
            terminated=then(self.terminated, rollout.terminated),
            filled=xp.minimum(self.filled + np.int32(steps), np.int32(window)),
        )

    def picked(self, uniform: Array) -> tuple[Array, Array]:
        """Steps and environments of the window that is there, for uniform numbers below 1."""
        steps, rows = self.reward.shape
        row = steps * rows - 1 - (uniform * (self.filled * rows)).astype(np.int32)
        return row // rows, row % rows

    def returns(self, steps: int) -> tuple[Array, Array]:
        """Of episodes that ended in the last ``steps``: the sum of their returns, how many.

        One of which the window has not all counts for nothing.
        """
        window = len(self.reward)
        xp = namespace(self.reward)
        step = xp.arange(window)[:, None]
        done, late = self.done, step >= window - steps
        first = xp.where(done & late, step, window).min(0)
        last = xp.where(done, step, -1).max(0)
        before = xp.where(done & ~late, step, -1).max(0)
        # whether the first to end had its beginning in the window: after another, or at all
        whole = (before >= 0) | (self.filled < window)
        since = xp.where(whole, before, first)
        counts = (step > since) & (step <= last) & (last >= window - steps)
        return xp.where(counts, wide(self.reward), 0.0).sum(), (counts & done).sum()

    def swing(self, steps: int) -> Array:
        """How many steps a feature took to swing once in the last ``steps``, in geometric mean.

        What swings as x = sin(2πt/T) changes by (2π/T)² Var x in the mean square.
        """
        xp = namespace(self.flat)
        flat, goes_on = wide(self.flat[-steps - 1 :]), ~self.done[-steps:, :, None]
        square = (xp.where(goes_on, flat[1:] - flat[:-1], 0.0) ** 2).sum((0, 1))
        varies = flat.max((0, 1)) > flat.min((0, 1))
        spread = xp.where(varies, flat.var((0, 1)) * goes_on.sum(), 1.0)
        turning = xp.sqrt(square / xp.maximum(spread, SMALLEST_SPREAD))
        swings = xp.log(2.0 * np.pi / xp.maximum(turning, 2.0 * np.pi / SLOWEST_SWING))
        mean = xp.where(varies, swings, 0.0).sum() / xp.maximum(varies.sum(), 1)
        return xp.where(varies.any(), xp.exp(mean), SLOWEST_SWING)


def empty_replay(window: int, environments: int, features: int, size: int) -> Replay:
    """A window without any step yet."""
    shape = (window, environments)
    return Replay(
        np.zeros((window + 1, environments, features), np.float32),
        np.zeros((*shape, size), np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
        np.int32(0),
    )


class Ahead(NamedTuple):
    """What the next steps brought, from every step of a window.

    Attributes:
        reward: discounted sum [W, n].
        discount: of the value of where they led to; 0 if the episode had ended [W, n].
        where: that step [W, n].
        known: whether anything is; what followed a step that was cut off by a time limit was not
            kept [W, n].
    """

    reward: Array
    discount: Array
    where: Array
    known: Array


def steps_for(discount: Array, swing: Array) -> Array:
    """How many steps the returns should have that critics learn with a discount.

    What followed after the next step was done by another policy, and misleads. But news come
    nearer by as many steps as returns have, and from far ahead they would never arrive: one step
    for every hundred of the horizon beyond the first hundred, as long as these are less than
    `STEPS_PER_SWING` of a ``swing`` of what is observed.
    """
    xp = namespace(discount)
    horizon = 1.0 / xp.maximum(1.0 - discount, SHORTEST_RATE)
    steps = xp.minimum(horizon / 100.0 - 1.0, STEPS_PER_SWING * swing)
    return xp.clip(xp.round(steps), 1, MOST_STEPS)


def look_ahead(
    replay: Replay, reward_tn: Array, discount: Array, steps: Array, most: int = MOST_STEPS
) -> Ahead:
    """Returns of ``steps`` steps, or of fewer where the episode or the window ends before.

    Args:
        replay: the window.
        reward_tn: its rewards, normalised.
        discount: γ.
        steps: how many.
        most: how many they may be.
    """
    xp = namespace(reward_tn)
    window = len(reward_tn)
    first_tn = xp.arange(window)[:, None] + xp.zeros_like(replay.done, np.int32)
    cut_tn = replay.done & ~replay.terminated
    reward_tn = wide(reward_tn)
    total, weight = xp.zeros_like(reward_tn), xp.ones_like(reward_tn)
    where, goes_on, known = first_tn, xp.ones_like(replay.done), ~cut_tn
    for k in range(most):
        now = xp.minimum(first_tn[:, 0] + k, window - 1)
        goes_on = goes_on & ~cut_tn[now] & (first_tn + k < window) & (k < steps)
        total = total + xp.where(goes_on, weight * reward_tn[now], 0.0)
        where = xp.where(goes_on, first_tn + k + 1, where)
        ended = goes_on & replay.terminated[now]
        weight = xp.where(ended, 0.0, xp.where(goes_on, weight * discount, weight))
        goes_on = goes_on & ~ended
    return Ahead(total, weight, where, known)


@cache
def _value_loss(scale: float) -> Callable[..., Array]:
    def loss(value: Any, rows: Batch, weight: Array, _: Any) -> Array:
        return scale * (weight @ (value(rows["flat"], ()) - rows["return"]) ** 2)

    return loss


def in_order(weight: Array) -> Array:
    """Minibatches of rows that were drawn for them, one entry for each of the weights."""
    return np.arange(weight.size, dtype=np.int32).reshape(weight.shape)
