"""Spaces and schedules: from what SB3 and Gymnasium say to what the engine needs, and to JSON."""

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ottrpo.deep.acting import BoxActions, FiniteActions

Space = spaces.Space[Any]
Schedule = Callable[[float], float]
MAX_ENTRIES = 2**24  # of a space in a file: an image of 4096 by 4096
SCHEDULE_POINTS = 1001  # a schedule that is no straight line is saved as a table of this length


def actions_of(space: Space) -> BoxActions | FiniteActions:
    """How the policy sees the action space; an unsupported one is refused by name."""
    if isinstance(space, spaces.Box):
        low, high = _inside(space.low, np.inf), _inside(space.high, -np.inf)
        if low.size == 0:
            raise ValueError(f"the action box must have at least one entry, got {space}")
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError(
                f"the action box must be bounded, got {space}; say which actions are worth trying: "
                "gymnasium.wrappers.TransformAction(env, lambda action: action, Box(low, high))"
            )
        return BoxActions(low, high, space.shape)
    if isinstance(space, spaces.Discrete):
        return FiniteActions((int(space.n),), np.array([int(space.start)]), scalar=True)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        counts = tuple(int(count) for count in space.nvec)
        return FiniteActions(counts, np.asarray(space.start, np.int64), scalar=False)
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        n = int(space.shape[0])
        return FiniteActions((2,) * n, np.zeros(n, np.int64), scalar=False)
    raise ValueError(
        f"action space {space} is not supported; allowed: a bounded Box, Discrete, and "
        "MultiDiscrete or MultiBinary with one axis"
    )


def _inside(bound: Any, towards: float) -> NDArray[np.float32]:
    """A bound in float32, the precision of actions; never beyond the one that was given."""
    given = np.asarray(bound).reshape(-1)
    with np.errstate(over="ignore"):  # a bound beyond float32 is told in our own words
        single = given.astype(np.float32)
    beyond = single < given if towards > 0 else single > given
    return np.where(beyond, np.nextafter(single, np.float32(towards)), single)


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

    def __call__(self, progress_remaining: float) -> float:
        """The value now."""
        left = max(0.0, 1.0 - (1.0 - progress_remaining) / self.end_fraction)
        return self.end + (self.start - self.end) * left


class Table:
    """A schedule given by its values at equally spaced instants, first to last."""

    def __init__(self, values: list[float]) -> None:
        self.values = [float(value) for value in values]

    def __call__(self, progress_remaining: float) -> float:
        """The value now, interpolated."""
        at = (1.0 - progress_remaining) * (len(self.values) - 1)
        return float(np.interp(at, np.arange(len(self.values)), self.values))


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


def space_to_data(space: Space) -> dict[str, Any]:
    """A space as JSON."""
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "spaces": {k: space_to_data(s) for k, s in space.spaces.items()}}
    if isinstance(space, spaces.Box):
        return {
            "kind": "box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": _bound_to_data(space.low),
            "high": _bound_to_data(space.high),
        }
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "kind": "multi-discrete",
            "counts": space.nvec.tolist(),
            "start": space.start.tolist(),
        }
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi-binary", "shape": list(space.shape)}
    raise ValueError(f"the space {space} can't be saved")


def space_from_data(data: dict[str, Any]) -> Space:
    """The space that `space_to_data` wrote."""
    kind = data.get("kind")
    if _entries(data) > MAX_ENTRIES:
        raise ValueError(f"a space of {_entries(data):.3g} numbers is too large")
    if kind == "dict":
        return spaces.Dict({k: space_from_data(s) for k, s in data["spaces"].items()})
    if kind == "box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        if dtype.kind not in "biuf":
            raise ValueError(f"a box of {dtype} is not supported")
        low, high = (_bound_from_data(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "multi-discrete":
        return spaces.MultiDiscrete(data["counts"], start=data["start"])
    if kind == "multi-binary":
        shape = tuple(data["shape"])
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else list(shape))
    raise ValueError(f"{kind!r} is not a kind of space")


def _entries(data: dict[str, Any]) -> float:
    inside = sum(_entries(leaf) for leaf in data.get("spaces", {}).values())
    return inside + float(np.prod(data.get("shape", ()), dtype=np.float64))


def _bound_to_data(bound: Any) -> Any:
    """Infinity has no JSON; a bound that is the same everywhere is one entry."""
    entries = [str(x) if np.isinf(x) else x.item() for x in np.asarray(bound).reshape(-1)]
    return entries[0] if entries and len(set(entries)) == 1 else entries


def _bound_from_data(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    entries = data if isinstance(data, list) else [data]
    flat = np.array([float(x) if isinstance(x, str) else x for x in entries], dtype=dtype)
    return np.full(shape, flat[0], dtype) if len(flat) == 1 else flat.reshape(shape)
