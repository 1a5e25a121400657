"""Random generators that belong to nobody: environments and wrappers may draw from them."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

MERSENNE_WORDS, PHILOX_WORDS = 624, 4


def global_randomness() -> dict[str, Any]:
    """The states of Python's generator and of NumPy's old one, as `values.encode` takes them."""
    return {"python": random.getstate(), "numpy": np.random.get_state()}  # noqa: NPY002


def set_global_randomness(states: Mapping[str, Any]) -> None:
    """Draw on from `global_randomness`."""
    kind, keys, position, *rest = states["numpy"]
    require_position("the position in NumPy's old generator", position, MERSENNE_WORDS)
    random.setstate(states["python"])
    np.random.set_state((kind, keys, position, *rest))  # noqa: NPY002


def require_sound(state: Mapping[str, Any]) -> None:
    """Refuse the state of a bit generator that NumPy would read beyond its buffers for.

    Raises:
        ValueError: if a position in it lies outside of what it points into.
    """
    inner = state["state"]
    if "pos" in inner:
        require_position("the position in a random generator", inner["pos"], MERSENNE_WORDS)
    if "buffer_pos" in state:
        require_position("the position in a random generator", state["buffer_pos"], PHILOX_WORDS)


def require_position(name: str, position: Any, most: int) -> None:
    """Refuse a position outside of 0..``most``; NumPy believes any, and crashes."""
    if not isinstance(position, int | np.integer) or not 0 <= position <= most:
        raise ValueError(f"{name} must lie in 0..{most}, got {position!r}")
