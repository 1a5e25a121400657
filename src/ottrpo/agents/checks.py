"""Checks of single settings: the value as the agent uses it, or a sentence on what it must be."""

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from ottrpo.core.checks import Refused
from ottrpo.engine.schedules import as_schedule

Check = Callable[[str, Any], Any]
# settings of SB3's that may be said with the one value that is true of an agent without them
SO_ANYWAY = {"ent_coef": 0.0, "target_kl": None, "clip_range_vf": None, "use_rms_prop": False}
SO_ANYWAY |= dict.fromkeys(("rollout_buffer_class", "rollout_buffer_kwargs"))


def is_so_anyway(name: str, value: Any) -> bool:
    """Whether nothing has to be done for the setting to be as it is asked for."""
    return name in SO_ANYWAY and (value is SO_ANYWAY[name] or value == SO_ANYWAY[name])


def number(name: str, value: Any) -> float:
    """``value`` as a float; neither text nor a flag is read as a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Refused(f"{name} must be a number, got {value!r}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """``value`` if it is True or False; "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise Refused(f"{name} must be True or False, got {value!r}")
    return bool(value)


def at_least(name: str, value: Any, least: int = 1) -> int:
    """``value`` as an integer that is large enough."""
    if not number(name, value).is_integer() or value < least:
        raise Refused(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """``value`` if it is allowed."""
    if value not in allowed:
        raise Refused(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def _number_that(right: Callable[[float], Any], must: str) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if not right(number(name, value)):
            raise Refused(f"{name} must {must}, got {value!r}")
        return float(value)

    return check


fraction = _number_that(lambda value: 0 <= value <= 1, "lie between 0 and 1")
not_negative = _number_that(lambda value: value >= 0, "not be negative")
positive = _number_that(lambda value: value > 0, "be a positive number")
finite = _number_that(np.isfinite, "be finite")


def scheduled(name: str, value: Any, check: Check) -> Any:
    """A number, or a schedule whose ends are as they must be; a line stays between them."""
    schedule = as_schedule(value, name)
    if not callable(schedule):
        return check(name, schedule)
    for remaining in (1.0, 0.0):
        check(name, schedule(remaining))
    return schedule


def scheduling(check: Check) -> Check:
    """The check for a number, or for the ends of a schedule."""
    return lambda name, value: scheduled(name, value, check)
