"""A rollout, ready to learn from."""

from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class Experience:
    """A rollout as arrays with rows first, [steps · environments, ...], ready to learn from.

    Attributes:
        flat: normalised features.
        images: images.
        advantage: generalised advantage estimates.
        target: targets of the value function.
        value: the value function's estimates.
        drawn: the actor's record, rows first.
        state: the state as costs see it: its number if observations are numbers, else the raw
            features.
    """

    flat: Array
    images: tuple[Array, ...]
    advantage: Array
    target: Array
    value: Array
    drawn: dict[str, Array]
    state: Array


def merged(array: Array) -> Array:
    """Steps and environments as one axis of rows."""
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
