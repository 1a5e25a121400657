"""What an algorithm is: how a training state begins, and what an update makes of a rollout.

Everything is a function of its arguments. The host calls `estimate`, looks whether the numbers are
numbers, and calls `improve`; a program that is compiled whole calls one after the other. Random
numbers come in as arrays, drawn in advance by `draw`: from NumPy's generator on the host, from a
key elsewhere.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ottrpo.engine.arrays import Generator
from ottrpo.engine.estimate import Estimator, Experience
from ottrpo.engine.networks import Architecture, Networks
from ottrpo.engine.schedules import Now
from ottrpo.engine.spaces import BoxActions, FiniteActions
from ottrpo.engine.state import Learner, TrainState

Array = Any
Report = dict[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm(ABC):
    """What all algorithms are told.

    Attributes:
        architecture: of the networks.
        actions: the space of actions.
        estimate: step 3, what a rollout says about the advantages.
        batch_size: rows per gradient step.
        n_epochs: passes over a rollout.
        vf_coef: weight of the value function's loss.
        max_grad_norm: the joint gradient is clipped to this norm.
        normalize_advantage: standardise the advantages.
        weight_decay: of the optimiser, as in AdamW.
    """

    architecture: Architecture
    actions: BoxActions | FiniteActions
    estimate: Estimator
    batch_size: int
    n_epochs: int
    vf_coef: float
    max_grad_norm: float
    normalize_advantage: bool = True
    weight_decay: float = 0.0

    def init(self, init_rng: Generator, rng: Generator, environments: int) -> TrainState:
        """A training state at its first step; ``init_rng`` draws the weights, ``rng`` the rest."""
        learners = self.learners(Networks(self.architecture, init_rng), rng)
        return TrainState(learners, *self.estimate.normaliser.start(environments))

    @abstractmethod
    def learners(self, networks: Networks, rng: Generator) -> dict[str, Learner]:
        """Everything that is trained, by name."""

    @abstractmethod
    def draw(self, rows: int, rng: Generator) -> Any:
        """The random numbers of an update with so many rows."""

    @abstractmethod
    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: Any, now: Now
    ) -> tuple[TrainState, Report]:
        """Move the policy, and tell what to log.

        Args:
            before: the state that acted.
            state: of `estimate`.
            batch: of `estimate`.
            draws: of `draw`.
            now: the schedules.
        """

    def remarks(self, report: Report) -> Iterator[str]:
        """What the host warns of when it has seen what is logged."""
        return iter(())
