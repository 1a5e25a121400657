"""BGPG: behaviour-guided policy gradients."""

from dataclasses import dataclass
from typing import Any, final

from . import natural_gradient as natural
from .guided import Draws, Guided, Memory, Slopes
from .objective import Terms

Array = Any


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class BehaviourGuided(Guided):
    """Adam on the gradient, clipped by its norm."""

    def direction(
        self, slopes: Slopes, memory: Memory, draws: Draws, learning_rate: Array
    ) -> tuple[Array, Memory, Terms]:
        """The gradient."""
        gradient = slopes.in_order(slopes.pull_back(slopes.of_outputs))
        clipped = natural.shorten(gradient, self.max_grad_norm, "clip")
        change, moments = self.transform.update(clipped, memory.optimiser)
        terms = {"gradient_norm": natural.length_of(gradient)}
        return change, memory._replace(optimiser=moments), terms
