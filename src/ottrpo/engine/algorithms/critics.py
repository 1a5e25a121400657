"""What algorithms share that learn critics Q(s, a) from a window of past rollouts."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ottrpo.engine.arrays import Generator
from ottrpo.engine.critic import OfActions, OfLabels, Twins, empty_replay, make_fit
from ottrpo.engine.networks import Networks
from ottrpo.engine.spaces import BoxActions, FiniteActions
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import no_moments_of, start

from .base import Algorithm


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
