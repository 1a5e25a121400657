"""What algorithms share that learn critics Q(s, a) from a window of past rollouts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import equinox as eqx
import numpy as np

from ottrpo.engine.arrays import Generator, single
from ottrpo.engine.critic import (
    MOST_STEPS,
    OfActions,
    OfLabels,
    Twins,
    empty_replay,
    look_ahead,
    make_fit,
)
from ottrpo.engine.estimate import Experience
from ottrpo.engine.networks import Networks
from ottrpo.engine.schedules import Now
from ottrpo.engine.spaces import BoxActions, FiniteActions
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import Batch, make_fit_one, no_moments_of, start

from .base import Algorithm, Report

Array = Any
CRITIC_BATCH = 128


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


@cache
def _value_loss(scale: float) -> Callable[..., Array]:
    def loss(value: Any, rows: Batch, weight: Array, _: Any) -> Array:
        return scale * (weight @ (value(rows["flat"], ()) - rows["return"]) ** 2)

    return loss


def in_order(weight: Array) -> Array:
    """Minibatches of rows that were drawn for them, one entry for each of the weights."""
    return np.arange(weight.size, dtype=np.int32).reshape(weight.shape)
