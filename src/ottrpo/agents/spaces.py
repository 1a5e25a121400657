"""Spaces as JSON: what a saved agent says of the environment it was trained in."""

from typing import Any

import numpy as np
from gymnasium import spaces

Space = spaces.Space[Any]
MAX_ENTRIES = 2**24  # of a space in a file: an image of 4096 by 4096


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
