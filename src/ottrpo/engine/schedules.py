"""Settings that change as training proceeds: straight lines, tables, the horizon, the radius."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .arrays import namespace, on_host

Array = Any
SCHEDULE_POINTS = 1001  # a schedule that is no straight line is saved as a table of this length
# gamma="auto": how many steps ahead it looks at least and at most
AUTO_HORIZON = (100.0, 1000.0)
# and at most where episodes can end for good: who looks far there learns not to fall, and no more
ENDING_HORIZON = 200.0
# rewards are scaled by the spread of returns at one discount, or their unit would drift with it
AUTO_REWARD_DISCOUNT = 0.995
LABELS_GAE_LAMBDA = 0.95
# while values are unknown, long traces find what pays late; then short ones learn with less noise
FADING_TRACE = {"start": 0.98, "end": 0.92, "end_fraction": 0.3}
# slow noise finds what needs a swing (a car in a valley), white noise then learns to be precise
FADING_COLOR = {"start": 1.0, "end": 0.0, "end_fraction": 0.2}
CRITIC_RATE = 1e-3
# a schedule may end at 0, and the draws of a policy that has become certain cost nothing
SMALLEST_RADIUS = 1e-10


class Straight:
    """A schedule that goes in a straight line from start to end as training proceeds.

    Args:
        start: its first value.
        end: its last value.
        end_fraction: the share of training after which it stays at ``end``, as in SB3.
    """

    def __init__(self, start: float, end: float, end_fraction: float = 1.0) -> None:
        self.start, self.end, self.end_fraction = float(start), float(end), float(end_fraction)
        if not 0 < self.end_fraction <= 1:
            raise ValueError(f"end_fraction must lie in (0, 1], got {end_fraction}")

    def __call__(self, progress_remaining: Array) -> Array:
        """The value now."""
        left = 1.0 - (1.0 - progress_remaining) / self.end_fraction
        return self.end + (self.start - self.end) * (left * (left > 0))


class Table:
    """A schedule given by its values at equally spaced instants, first to last."""

    def __init__(self, values: list[float]) -> None:
        self.values = [float(value) for value in values]

    def __call__(self, progress_remaining: Array) -> Array:
        """The value now, interpolated."""
        at = (1.0 - progress_remaining) * (len(self.values) - 1)
        xp = namespace(progress_remaining)
        return xp.interp(at, np.arange(len(self.values)), np.array(self.values))


def as_schedule(value: Any, name: str = "it") -> Any:
    """A number or function as it is; ``{"start": x, "end": y}`` or ``{"table": [...]}`` built.

    A line may have an ``end_fraction`` too.

    >>> as_schedule({"start": 1.0, "end": 0.0})(0.25)
    0.25
    """
    if isinstance(value, dict):
        if set(value) - {"end_fraction"} == {"start", "end"}:
            return Straight(**value)
        if set(value) == {"table"}:
            return Table(value["table"])
        raise ValueError(
            f"{name}: a schedule has 'start' and 'end', or a 'table'; got {sorted(value)}"
        )
    if not callable(value) and not isinstance(value, Real):
        raise ValueError(
            f"{name} must be a number, a schedule or a start and an end, got {value!r}"
        )
    return value


def is_function(value: Any) -> bool:
    """Whether a setting is a function of somebody else's: plain data only comes close to it."""
    return callable(value) and not isinstance(value, Straight | Table)


def schedule_to_data(value: Any) -> Any:
    """A schedule as JSON: a number, a straight line, or a table of its values."""
    if not callable(value):
        return value
    if isinstance(value, Straight) and value.end_fraction < 1:
        return dict(vars(value))
    if isinstance(value, Table):
        return {"table": value.values}
    remaining = np.linspace(1.0, 0.0, SCHEDULE_POINTS)
    values = np.array([float(value(float(p))) for p in remaining])
    straight = np.linspace(values[0], values[-1], SCHEDULE_POINTS)
    if np.allclose(values, straight, rtol=1e-9, atol=1e-15):
        if values[0] == values[-1]:
            return float(values[0])
        return {"start": float(values[0]), "end": float(values[-1])}
    return {"table": values.tolist()}


class Either(NamedTuple):
    """One schedule while episodes last, another once they are known to end for good."""

    lasting: Any
    ending: Any


def value_at(schedule: Any, progress_remaining: Array, ended: Array = 0.0) -> Array:
    """What a number or a schedule says when this share of training is left.

    ``ended``: of `Either`, 0.0 for the first, 1.0 for the second.
    """
    if isinstance(schedule, Either):
        lasting, ending = (value_at(each, progress_remaining) for each in schedule)
        value = lasting + ended * (ending - lasting)
    else:
        value = schedule(progress_remaining) if callable(schedule) else schedule
    return float(value) if on_host(value) else value


def is_auto(gamma: Any) -> bool:
    """Whether the discount follows the length of episodes."""
    return isinstance(gamma, str) and gamma == "auto"


def auto_discount(lasted: Array, ended: Array = 0.0, episodes: float = 1.0) -> Array:
    """γ that looks as far ahead as episodes last: 1 − 1/(mean length of the recent).

    Where episodes still end early, far rewards are noise and a long view finds policies that
    merely survive; where they last, a short view misses what slow motion brings.

    Args:
        lasted: mean length of the recent episodes.
        ended: 1.0 if episodes are known to end for good; the view stays shorter.
        episodes: how many of their lengths it looks ahead otherwise.
    """
    episodes = episodes + ended * (1.0 - episodes)
    shortest, longest = AUTO_HORIZON
    longest = longest + ended * (ENDING_HORIZON - longest)
    return 1.0 - 1.0 / namespace(lasted).clip(episodes * lasted, shortest, episodes * longest)


class Now(NamedTuple):
    """What the schedules say at an update.

    Attributes:
        learning_rate: of the optimiser, in float32.
        discount: γ.
        trace_decay: λ of the advantage estimate.
        radius: ε, or its share of the typical cost.
        log_std: what the logarithm of σ is set to, if it is annealed.
        critic_rate: learning rate of critics Q(s, a), of algorithms that have them.
        multiplier: λ, if that is what is given in place of a radius.
    """

    learning_rate: Array
    discount: Array
    trace_decay: Array
    radius: Array = None
    log_std: Array = None
    critic_rate: Array = CRITIC_RATE
    multiplier: Array = None


@dataclass(frozen=True, kw_only=True)
class Schedules:
    """The settings that may change as training proceeds: numbers, or functions of what is left.

    Attributes:
        learning_rate: of the optimiser.
        gamma: discount, or ``auto``.
        gae_lambda: λ of the advantage estimate.
        noise_color: exponent of the noise's power spectrum.
        radius: ε, or its share of the typical cost, of algorithms that have one.
        multiplier: λ, if that is what is given in place of a radius.
        log_std: the first and the last logarithm of σ, if it is annealed.
        critic_rate: learning rate of critics Q(s, a), of algorithms that have them.
        episodes: how many lengths of an episode ``auto`` looks ahead where none ends for good.
    """

    learning_rate: Any
    gamma: Any
    gae_lambda: Any
    noise_color: Any = 0.0
    radius: Any = None
    multiplier: Any = None
    log_std: tuple[float, float] | None = None
    critic_rate: Any = CRITIC_RATE
    episodes: float = 1.0

    def discount(self, left: Array, lasted: Array, ended: Array = 0.0) -> Array:
        """γ when this share of training is left, for episodes as `auto_discount` takes them."""
        if is_auto(self.gamma):
            return auto_discount(lasted, ended, self.episodes)
        return value_at(self.gamma, left)

    def now(self, left: Array, lasted: Array, ended: Array = 0.0) -> Now:
        """What they say at an update."""
        log_std = None
        if self.log_std is not None:
            first, last = self.log_std
            log_std = last + left * (first - last)
        rate = value_at(self.learning_rate, left)
        return Now(
            np.float32(rate) if on_host(rate) else rate,
            self.discount(left, lasted, ended),
            value_at(self.gae_lambda, left, ended),
            None if self.radius is None else value_at(self.radius, left),
            log_std,
            value_at(self.critic_rate, left, ended),
            None if self.multiplier is None else value_at(self.multiplier, left),
        )
