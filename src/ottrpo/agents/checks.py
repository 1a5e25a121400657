"""Checks of single settings: the value as the agent uses it, or a sentence on what it must be."""

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from ottrpo.core.checks import Refused
from ottrpo.engine.schedules import as_schedule

Check = Callable[[str, Any], Any]


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


def fraction(name: str, value: Any) -> float:
    """``value`` if it lies between 0 and 1."""
    if not 0 <= number(name, value) <= 1:
        raise Refused(f"{name} must lie between 0 and 1, got {value!r}")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """``value`` if it is not negative."""
    if not number(name, value) >= 0:
        raise Refused(f"{name} must not be negative, got {value!r}")
    return float(value)


def positive(name: str, value: Any) -> float:
    """``value`` if it is a positive number."""
    if not number(name, value) > 0:
        raise Refused(f"{name} must be a positive number, got {value!r}")
    return float(value)


def finite(name: str, value: Any) -> float:
    """``value`` if it is neither NaN nor infinite."""
    if not np.isfinite(number(name, value)):
        raise Refused(f"{name} must be finite, got {value!r}")
    return float(value)


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
