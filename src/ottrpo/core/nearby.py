"""A cost that is dearer near a place: where a boundary is close, a policy changes little."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .checks import require
from .costs import Cost

Array = Any


@final
@dataclass(frozen=True)
class Nearby(Cost):
    """c_s(a, a') = w(s) c(a, a'), with w = 1 + (factor − 1) exp(−((s_feature − place)/width)²).

    >>> from ottrpo.core import SquaredEuclidean
    >>> dear = Nearby(SquaredEuclidean(), feature=0, place=1.0, width=0.5, factor=9.0)
    >>> dear(np.zeros((3, 1)), np.ones((3, 1)), np.array([[1.0], [0.5], [-1.0]])).round(3)
    array([9.   , 3.943, 1.   ])

    Attributes:
        cost: far from the place.
        feature: which entry of the observation, as it came.
        place: where it is dearest.
        width: how far that reaches.
        factor: how many times as dear it is there; below 1 it is cheaper.
    """

    cost: Cost
    feature: int
    place: float
    width: float
    factor: float

    def __post_init__(self) -> None:
        require(
            isinstance(self.feature, int) and self.feature >= 0,
            f"feature must be the number of an entry of the observation, got {self.feature!r}",
        )
        for name in ("place", "width", "factor"):
            value = getattr(self, name)
            require(np.isfinite(value), f"{name} must be finite, got {value}")
            require(name == "place" or value > 0, f"{name} must be positive, got {value}")

    @property
    def takes_labels(self) -> bool:
        """As the cost far away does."""
        return self.cost.takes_labels

    @property
    def depends_on_state(self) -> bool:
        """Always."""
        return True

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """The cost, weighted by how near the state is."""
        if state is None or state.ndim < 2 or state.shape[-1] <= self.feature:
            given = None if state is None else state.shape
            raise ValueError(f"this cost needs states with entry {self.feature}, got {given}")
        away = (state[..., self.feature] - self.place) / self.width
        weight = 1.0 + (self.factor - 1.0) * away.__array_namespace__().exp(-(away**2))
        return weight * self.cost(source, target, state)
