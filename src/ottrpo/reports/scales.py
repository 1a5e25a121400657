"""Where numbers stand on an axis, and which of them are written beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .figures import Panel

ORDERS = 20  # returns that begin so many times further from zero than they end need a log scale
NEAR = 0.7  # of a decade: how long the linear part of a scale of orders is
MARGIN = 0.05


@dataclass(frozen=True)
class Scale:
    """A linear axis, or one of orders of magnitude that is linear around zero.

    Attributes:
        low: its lower end.
        high: its upper end.
        near: where its linear part ends; None if all of it is linear.
    """

    low: float
    high: float
    near: float | None = None

    @classmethod
    def around(cls, values: Sequence[float], margin: float = MARGIN) -> "Scale":
        """A linear one that holds them all."""
        low, high = min(values), max(values)
        room = margin * (high - low) or 0.5 * abs(high) or 1.0
        return cls(low - room, high + room)

    def place(self, value: float) -> float:
        """How far along, from 0 to 1."""
        low, high = self._along(self.low), self._along(self.high)
        return (self._along(value) - low) / (high - low)

    def ticks(self, about: int) -> list[float]:
        """Round numbers to write beside it, linear ones about so many."""
        if self.near is None:
            return steps_of(self.low, self.high, about)
        furthest = max(abs(self.low), abs(self.high))
        orders = np.arange(math.log10(self.near), math.ceil(math.log10(furthest)) + 1)
        powers = [float(power) for power in 10.0**orders]
        near = self.near / 2
        ticks = [*(-power for power in powers[::-1]), -near, 0.0, near, *powers]
        return [tick for tick in ticks if self.low <= tick <= self.high]

    def _along(self, value: float) -> float:
        if self.near is None:
            return value
        share = abs(value) / self.near
        return math.copysign(NEAR * share if share <= 1 else NEAR + math.log10(share), value)


def steps_of(low: float, high: float, about: int) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten between two numbers.

    >>> steps_of(-0.02, 1.02, 5)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    power = 10.0 ** math.floor(math.log10((high - low) / about))
    step = next(k * power for k in (1, 2, 2.5, 5, 10) if (high - low) / (k * power) <= about + 1)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def scale_of(panel: Panel) -> Scale:
    """The upward axis of a panel, on which all of it finds room."""
    drawn = [curve.y_bt for curve in panel.curves if curve.x_t.size]
    values = [float(edge) for y_bt in drawn for edge in (y_bt.min(), y_bt.max())]
    if panel.paper is not None:
        values.append(panel.paper.score)
    if panel.best is not None:
        values.append(panel.best)
    linear = Scale.around(values or [0.0, 1.0])
    near = linear_up_to(panel)
    if near is None:
        return linear
    return Scale(1.3 * min(values) if min(values) < 0 else -near, max(values) + 0.5 * near, near)


def linear_up_to(panel: Panel) -> float | None:
    """Where a scale of orders begins, if a linear one would not show what is learnt.

    That is where most curves begin at minus thousands and end near zero.
    """
    drawn = [curve.y_bt for curve in panel.curves if curve.x_t.size]
    if not drawn:
        return None
    extreme = max(float(np.abs(y_bt[0]).max()) for y_bt in drawn)
    late = float(np.median([np.abs(y_bt[0, y_bt.shape[1] // 2 :]).max() for y_bt in drawn]))
    if extreme <= ORDERS * late or late == 0.0:
        return None
    return float(10.0 ** math.ceil(math.log10(late)))
