"""The radius as it may be given."""

from typing import Any

from ottrpo.engine.schedules import SMALLEST_RADIUS

from .checks import finite, not_negative, positive, scheduled


class Radius:
    """ε of an update: a number, a schedule, or a percentage of the rollout's mean cost."""

    def __init__(self, value: Any) -> None:
        parts = [value]
        if isinstance(value, dict):
            parts = [part for key, part in value.items() if key != "end_fraction"]
            value = {k: v if k == "end_fraction" else _share(v) for k, v in value.items()}
        else:
            value = _share(value)
        self.relative = any(isinstance(part, str) for part in parts)
        if self.relative and not all(isinstance(part, str) for part in parts):
            raise ValueError(f"radius mixes percentages and numbers: {parts}")
        check = _budget if callable(value) or isinstance(value, dict) else _positive_budget
        self.schedule = scheduled("radius", value, check)


def _budget(name: str, value: Any) -> float:
    return not_negative(name, finite(name, value))


def _positive_budget(name: str, value: Any) -> float:
    budget = positive(name, finite(name, value))
    if budget < SMALLEST_RADIUS:
        raise ValueError(f"{name} must be at least {SMALLEST_RADIUS}, got {value!r}")
    return budget


def _share(value: Any) -> Any:
    """A percentage as a fraction; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        if not value.endswith("%"):
            raise ValueError(value)
        return float(value[:-1]) / 100.0
    except ValueError:
        raise ValueError(
            f'radius must be a number, a schedule or a share such as "30%", got {value!r}'
        ) from None


def is_radius(name: str, value: Any) -> Any:
    """The setting as it is, if it can be understood."""
    Radius(value)
    return value
