"""BGPG: behaviour-guided policy gradients."""

from dataclasses import dataclass
from typing import Any, final

from ottrpo.engine.networks import Networks
from ottrpo.engine.state import Learner

from . import natural_gradient as natural
from .behaviour import Features
from .guided import OPTIMISERS, Direction, Draws, Guided, Memory, Slopes, start_guided
from .objective import Terms

Array = Any


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class BehaviourGuided(Guided):
    """Adam on the gradient, clipped by its norm."""

    def direction(self) -> Direction:
        """The gradient."""
        return gradient_direction(self.max_grad_norm)

    def start(self, networks: Networks, features: Features) -> Learner:
        """Adam's moments."""
        return start_guided(networks, "adam", features, damping=None)


def gradient_direction(max_grad_norm: float) -> Direction:
    """Adam on the gradient, clipped by its norm."""
    optimiser = OPTIMISERS["adam"]()

    def direction(
        slopes: Slopes, memory: Memory, draws: Draws, learning_rate: Array
    ) -> tuple[Array, Memory, Terms]:
        gradient = slopes.in_order(slopes.pull_back(slopes.of_outputs))
        clipped = natural.shorten(gradient, max_grad_norm, "clip")
        change, moments = optimiser.update(clipped, memory.optimiser)
        terms = {"gradient_norm": natural.length_of(gradient)}
        return change, memory._replace(optimiser=moments), terms

    return direction
